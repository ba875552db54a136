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
