use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::*;

fn render(source: &str, messages: &[Message]) -> Result<String> {
    ChatTemplate::new(source, "<bos>", "<eos>")?.render(messages)
}

fn problem(source: &str) -> String {
    render(source, &[Message::new("user", "hi")]).unwrap_err().to_string()
}

#[test]
fn blocks_are_trimmed_as_the_published_templates_expect() {
    let source = "{{ bos_token }}\n  {% for m in messages %}\n{{ m.role }}: {{ m['content'].strip() }}{{ eos_token }}\n  {% endfor %}\n{% if add_generation_prompt %}assistant:{% endif %}";
    let text = render(source, &[Message::new("user", " a "), Message::new("assistant", "b")]).unwrap();
    assert_eq!(text, "<bos>\nuser: a<eos>\nassistant: b<eos>\nassistant:");
    let closed = ChatTemplate::new(source, "", "").unwrap().render_with(&[], false).unwrap();
    assert_eq!(closed, "\n");
}

#[test]
fn content_is_data_and_never_markup() {
    let text = render("{{ messages[0].content }}", &[Message::new("user", "{{ 1 + 1 }} <b> & {% if %}")]).unwrap();
    assert_eq!(text, "{{ 1 + 1 }} <b> & {% if %}");
}

#[test]
fn a_template_that_refuses_the_messages_is_an_error_with_its_words() {
    let problem = problem("{{ raise_exception('roles must alternate') }}");
    assert!(problem.contains("roles must alternate"), "{problem}");
}

#[test]
fn an_endless_template_runs_out_of_fuel() {
    let problem = problem("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}");
    assert!(problem.contains("fuel"), "{problem}");
}

#[test]
fn endless_recursion_is_an_error() {
    let problem = problem("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
    assert!(problem.contains("recursion"), "{problem}");
}

#[test]
fn a_template_that_does_not_compile_is_an_error_with_the_line() {
    let problem = problem("a\n{% if %}");
    assert!(problem.contains("line 2"), "{problem}");
}

#[test]
fn loop_controls_and_python_methods_work() {
    let source = "{% for m in messages %}{% if m.content.startswith('b') %}{% break %}{% endif %}{{ m.content.upper() }}{% endfor %}";
    let messages = ["a", "bc", "d"].map(|c| Message::new("user", c));
    assert_eq!(render(source, &messages).unwrap(), "A");
}

#[test]
fn dates_are_formatted_as_c_does() {
    let cases = [
        (0, "%Y-%m-%d %H:%M:%S %A %j", "1970-01-01 00:00:00 Thursday 001"),
        (951_782_400, "%d %b %Y", "29 Feb 2000"),
        (1_735_689_599, "%-d %B %y, %I:%M %p %a %%", "31 December 24, 11:59 PM Tue %"),
        (4_107_542_400, "%Y-%m-%d", "2100-03-01"),
    ];
    for (seconds, format, expected) in cases {
        assert_eq!(clock::strftime(format, seconds).unwrap(), expected);
    }
    assert!(clock::strftime("%Q", 0).is_err());
    assert!(clock::strftime("%", 0).is_err());
}

const ORACLE: &str = include_str!("../../../spec-testing/data/chat_templates/rendered.json");

/// What jinja2 says of some templates, with conversations as they are written: the order of keys counts.
#[derive(serde::Deserialize)]
struct Oracle<'a> {
    #[serde(borrow)]
    conversations: std::collections::BTreeMap<String, Written<'a>>,
    templates: Vec<Rendered>,
}

#[derive(serde::Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    messages: &'a RawValue,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    variables: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct Rendered {
    name: String,
    source: String,
    results: std::collections::BTreeMap<String, [Option<String>; 2]>,
}

#[test]
fn templates_render_byte_for_byte_as_in_python_and_refuse_what_python_refuses() {
    let oracle: Oracle<'_> = serde_json::from_str(ORACLE).unwrap();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for template in &oracle.templates {
        let compiled = match ChatTemplate::new(&template.source, "<s>", "</s>") {
            Ok(compiled) => compiled,
            Err(error) => {
                wrong.push(format!("{}: {error}", template.name));
                continue;
            }
        };
        for (name, results) in &template.results {
            let written = &oracle.conversations[name];
            for (add_generation_prompt, theirs) in [false, true].into_iter().zip(results) {
                let conversation = Conversation {
                    messages: written.messages.get(),
                    tools: written.tools.map(RawValue::get),
                    variables: written.variables.map(RawValue::get),
                    add_generation_prompt,
                };
                let ours = compiled.render_json(&conversation);
                compared += 1;
                // The engine cannot walk an empty list backwards.
                if template.source.contains("messages[::-1]") && name == "nobody" {
                    assert!(ours.unwrap_err().to_string().contains("no messages"));
                } else if (template.name.as_str(), name.as_str()) == ("controls", "no-role") {
                    // A part of what is not defined: nothing here, refused there.
                    assert!(theirs.is_none() && ours.is_ok());
                } else if ours.as_ref().ok() != theirs.as_ref() {
                    wrong.push(format!("{} of {name}:\n  ours   {ours:?}\n  theirs {theirs:?}", template.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 300);
}

#[test]
fn templates_in_a_configuration_are_found_in_each_form() {
    let render = |config: Json, jinja| {
        let template = ChatTemplate::from_config(config.to_string().as_bytes(), jinja, "t.json").unwrap();
        template.map(|template| template.render(&[Message::new("user", "hi")]).unwrap())
    };
    let source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}";
    let tokens = |template: Json| serde_json::json!({ "chat_template": template, "bos_token": "<s>", "eos_token": { "content": "</s>" } });
    assert_eq!(render(tokens(source.into()), None).unwrap(), "<s>hi</s>");
    let several =
        serde_json::json!([{ "name": "tool_use", "template": "x" }, { "name": "default", "template": source }]);
    assert_eq!(render(tokens(several), None).unwrap(), "<s>hi</s>");
    assert_eq!(render(tokens("x".into()), Some("file: {{ bos_token }}")).unwrap(), "file: <s>");
    assert_eq!(render(tokens(Json::Null), None), None);
    assert!(ChatTemplate::from_config(b"[", None, "t.json").unwrap_err().to_string().starts_with("t.json"));
}

#[test]
fn conversations_that_are_not_json_are_refused_with_the_part() {
    let template = ChatTemplate::new("{{ messages }}", "", "").unwrap();
    let problem = |conversation: Conversation<'_>| template.render_json(&conversation).unwrap_err().to_string();
    assert!(problem(Conversation { messages: "[", ..Default::default() }).contains("messages"));
    assert!(problem(Conversation { messages: "[]", tools: Some("{"), ..Default::default() }).contains("tools"));
    let deep = "[".repeat(100_000);
    assert!(problem(Conversation { messages: &deep, ..Default::default() }).contains("messages"));
}

#[test]
fn variables_cannot_take_the_place_of_the_conversation() {
    let template = ChatTemplate::new("{{ messages }}{{ name }}", "", "").unwrap();
    let conversation =
        Conversation { messages: "[]", variables: Some(r#"{"messages":"forged","name":"x"}"#), ..Default::default() };
    let text = template.render_json(&conversation).unwrap();
    assert!(text.ends_with('x') && !text.contains("forged"), "{text}");
}

#[test]
fn numbers_are_written_as_python_writes_them() {
    let text = render("{{ 1e15 }} {{ 1e16 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 100.0 }} {{ 1e22 }} {{ 0.1 }}", &[]).unwrap();
    assert_eq!(text, "1000000000000000.0 1e+16 1.5e-05 0.0001 100.0 1e+22 0.1");
}
