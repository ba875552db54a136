use std::borrow::Cow;

use proptest::prelude::*;

use spec_model::ChatTemplate;

use super::*;

/// A template in the manner of ChatML, that knows nothing of tools.
const PLAIN: &str = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
/// One that shows tools, calls and results by itself.
const KNOWING: &str = "{% if tools %}TOOLS{% for t in tools %} {{ t | tojson }}{% endfor %} in <tool_call>\n{% endif %}\
    {% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c.function.name }} {{ c.function.arguments | tojson }}</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}";

fn template(source: &str) -> impl Fn(&Conversation<'_>) -> Result<String, String> + use<> {
    let template = ChatTemplate::new(source, "", "").expect("a template");
    move |conversation| template.render_json(conversation).map_err(|error| error.to_string())
}

fn weather() -> Value {
    json!({ "type": "function", "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] },
    } })
}

fn clock() -> Value {
    json!({ "type": "function", "function": { "name": "clock" } })
}

fn read(choice: Value) -> Tools {
    Tools::read(Some(&json!([weather(), clock()])), Some(&choice), None).expect("tools").expect("two")
}

/// All of an answer: content, and each call's name and arguments.
fn parsed<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, Vec<(String, String)>) {
    let mut parser = read(json!("auto")).parser("x").expect("a parser");
    let mut deltas: Vec<Delta> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    deltas.extend(parser.finish());
    let (mut content, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for delta in deltas {
        match delta {
            Delta::Content(text) => content += &text,
            Delta::Call { index, id, name } => {
                assert_eq!((index, id), (calls.len(), format!("call_x_{}", calls.len())));
                calls.push((name, String::new()));
            }
            Delta::Arguments { index, text } => {
                assert_eq!(index + 1, calls.len());
                calls[index].1 += &text;
            }
        }
    }
    (content, calls)
}

/// An answer, the content that is read of it, and the calls: names and arguments.
type Reading = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Answers, the content that is read of them, and their calls.
const ANSWERS: [Reading; 22] = [
    ("Hello < there <tool", "Hello < there <tool", &[]),
    ("<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>", "", &[("clock", "{}")]),
    (
        "Let me see.\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\": \"Z\\\"}ü</tool_call>\"}}</tool_call>\n",
        "Let me see.\n",
        &[("weather", "{\"city\": \"Z\\\"}ü</tool_call>\"}")],
    ),
    (
        "<tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"a\":[{}]}}</tool_call>",
        "",
        &[("clock", "{}"), ("weather", "{\"a\":[{}]}")],
    ),
    // The order is the model's, and so are members that nobody asked for.
    (
        "<tool_call>{\"id\": 7, \"arguments\": {\"city\": 1.50}, \"name\": \"weather\", \"x\": [1, \"}\"]}</tool_call>",
        "",
        &[("weather", "{\"city\": 1.50}")],
    ),
    ("<tool_call>{\"name\": \"clock\"}</tool_call>", "", &[("clock", "{}")]),
    ("<tool_call>{\"name\": \"clock\", \"parameters\": {\"a\": 1}}</tool_call>", "", &[("clock", "{\"a\": 1}")]),
    // Text behind a call keeps its space.
    ("<tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>\n Done.", "\n Done.", &[("clock", "{}")]),
    // Ends that are missing.
    ("<tool_call>{\"name\":\"clock\",\"arguments\":{}}", "", &[("clock", "{}")]),
    ("<tool_call>{\"name\":\"clock\",\"arguments\":{}} and so on", " and so on", &[("clock", "{}")]),
    ("<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\": \"Zür", "", &[("weather", "{\"city\": \"Zür")]),
    ("<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\": 1</tool_call>!", "!", &[("weather", "{\"city\": 1")]),
    // What is no call is content.
    ("<tool_call>", "<tool_call>", &[]),
    ("<tool_call>{\"name\": \"clo", "<tool_call>{\"name\": \"clo", &[]),
    ("<tool_call>clock()</tool_call> ok", "<tool_call>clock()</tool_call> ok", &[]),
    ("<tool_call>[]</tool_call>", "<tool_call>[]</tool_call>", &[]),
    ("<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"name\": 1}</tool_call>", &[]),
    (
        "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
        &[],
    ),
    (
        "<tool_call>{\"name\": \"clock\", \"arguments\": \"{}\"}</tool_call>",
        "<tool_call>{\"name\": \"clock\", \"arguments\": \"{}\"}</tool_call>",
        &[],
    ),
    (
        "<tool_call>{\"arguments\": {\"a\" 1}, \"name\": \"clock\"}",
        "<tool_call>{\"arguments\": {\"a\" 1}, \"name\": \"clock\"}",
        &[],
    ),
    // A tag behind a tag: the first was none.
    ("<tool_call><tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>", "<tool_call>", &[("clock", "{}")]),
    ("<tool_call>{\"name\":\"clock\",\"arguments\":{}]}</tool_call>", "]}</tool_call>", &[("clock", "{}")]),
];

fn expected((_, content, calls): &Reading) -> (String, Vec<(String, String)>) {
    let own = |(name, arguments): &(&str, &str)| ((*name).to_owned(), (*arguments).to_owned());
    ((*content).to_owned(), calls.iter().map(own).collect())
}

#[test]
fn answers_are_read_alike_however_they_are_cut() {
    for answer in &ANSWERS {
        let text = answer.0;
        assert_eq!(parsed([text]), expected(answer), "{text}");
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        // Tokens of one character and of several, as rounds of several tokens bring them.
        for size in 1..=9 {
            let cuts: Vec<usize> = ends.iter().copied().step_by(size).chain([text.len()]).collect();
            let pieces = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]);
            assert_eq!(parsed(pieces), expected(answer), "{text} in pieces of {size}");
        }
    }
}

#[test]
fn arguments_stream_while_they_come() {
    let mut parser = read(json!("auto")).parser("x").expect("a parser");
    let deltas = parser.push("<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Ber");
    let last = Delta::Arguments { index: 0, text: "{\"city\": \"Ber".into() };
    assert_eq!(deltas.last(), Some(&last));
    let mut part = Collected::default();
    deltas.into_iter().for_each(|delta| part.take(delta));
    assert_eq!(
        part.part(),
        json!([{ "index": 0, "id": "call_x_0", "type": "function",
            "function": { "name": "weather", "arguments": "{\"city\": \"Ber" } }])
    );
    let mut more = Collected::default();
    parser.push("n\"}}</tool_call>").into_iter().for_each(|delta| more.take(delta));
    assert_eq!(more.part(), json!([{ "index": 0, "function": { "arguments": "n\"}" } }]));
}

proptest! {
    #[test]
    fn any_text_is_read_alike_however_it_is_cut_and_without_a_call_it_is_content(
        parts in prop::collection::vec(
            prop::sample::select(vec!["<tool_call>", "</tool_call>", "{", "}", "[", "]", "\"", "\\", ":", ",", " ", "\n", "name", "\"name\": ",
                "\"clock\"", "\"arguments\": ", "1", "<", "ü", "{\"name\": \"clock\", \"arguments\": {", "}}</tool_call>"]), 0..24),
        cuts in prop::collection::vec(0..200_usize, 0..12),
    ) {
        let text = parts.concat();
        let whole = parsed([text.as_str()]);
        let mut ends: Vec<usize> = cuts.into_iter().filter(|&at| at <= text.len() && text.is_char_boundary(at)).collect();
        ends.extend([0, text.len()]);
        ends.sort_unstable();
        prop_assert_eq!(&parsed(ends.windows(2).map(|cut| &text[cut[0]..cut[1]])), &whole);
        if whole.1.is_empty() {
            prop_assert_eq!(whole.0, text);
        }
    }
}

#[test]
fn a_template_that_shows_tools_is_left_to_it_and_others_are_told_by_a_message() {
    let messages = [
        json!({ "role": "user", "content": "Weather?" }),
        json!({ "role": "assistant", "content": null, "tool_calls": [
            { "id": "a", "type": "function", "function": { "name": "weather", "arguments": "{\"city\": \"Bern\"}" } },
            { "id": "b", "type": "function", "function": { "name": "clock", "arguments": "" } },
        ] }),
        json!({ "role": "tool", "tool_call_id": "a", "content": "sunny" }),
        json!({ "role": "tool", "tool_call_id": "b", "content": "noon" }),
    ];
    let tools = read(json!("auto"));

    let knowing = template(KNOWING);
    assert_eq!(ToolStyle::of(&knowing), ToolStyle::Template);
    let text = prompt(&knowing, ToolStyle::Template, &messages, Some(&tools), None).expect("a text");
    assert!(text.starts_with("TOOLS {\"type\": \"function\"") && text.contains("\"clock\""), "{text}");
    // Arguments are an object by now, and no text with an object in it.
    assert!(
        text.contains("<tool_call>weather {\"city\": \"Bern\"}</tool_call><tool_call>clock {}</tool_call>"),
        "{text}"
    );

    let plain = template(PLAIN);
    assert_eq!(ToolStyle::of(&plain), ToolStyle::Message);
    let text = prompt(&plain, ToolStyle::Message, &messages, Some(&tools), None).expect("a text");
    let (told, rest) = text.split_once("<|user|>").expect("a system message first");
    assert!(
        told.starts_with("<|system|>")
            && told.contains("\"weather\"")
            && told.contains("\"clock\"")
            && told.contains(OPEN),
        "{told}"
    );
    assert_eq!(
        rest,
        "Weather?\n<|assistant|><tool_call>\n{\"name\":\"weather\",\"arguments\":{\"city\":\"Bern\"}}\n</tool_call>\n\
         <tool_call>\n{\"name\":\"clock\",\"arguments\":{}}\n</tool_call>\n\
         <|user|><tool_response>\nsunny\n</tool_response>\n<tool_response>\nnoon\n</tool_response>\n<|assistant|>"
    );

    // A system message that is there is kept, and nothing is said where nothing may be called.
    let asked = [json!({ "role": "system", "content": "Be brief." }), json!({ "role": "user", "content": "Hi" })];
    let text = prompt(&plain, ToolStyle::Message, &asked, Some(&tools), None).expect("a text");
    assert!(
        text.starts_with("<|system|>Be brief.\n\nYou can call") && text.matches("<|system|>").count() == 1,
        "{text}"
    );
    let text = prompt(&plain, ToolStyle::Message, &asked, Some(&read(json!("none"))), None).expect("a text");
    assert_eq!(text, "<|system|>Be brief.\n<|user|>Hi\n<|assistant|>");
}

#[test]
fn wrong_tools_are_refused_by_name() {
    let function = |function: Value| json!([{ "type": "function", "function": function }]);
    for (tools, choice, param) in [
        (json!("clock"), json!("auto"), "tools"),
        (json!([7]), json!("auto"), "tools[0]"),
        (json!([{ "type": "retrieval" }]), json!("auto"), "tools[0].type"),
        (json!([weather(), { "type": "function" }]), json!("auto"), "tools[1].function"),
        (json!([clock(), clock()]), json!("auto"), "tools[1].function.name"),
        (function(json!({ "name": "two words" })), json!("auto"), "tools[0].function.name"),
        (function(json!({ "name": "a", "cache": 1 })), json!("auto"), "tools[0].function.cache"),
        (
            function(json!({ "name": "a", "parameters": { "type": "array" } })),
            json!("auto"),
            "tools[0].function.parameters",
        ),
        (function(json!({ "name": "a", "parameters": [] })), json!("auto"), "tools[0].function.parameters"),
        (function(json!({ "name": "a", "strict": true })), json!("auto"), "tools[0].function.strict"),
        (json!([clock()]), json!("maybe"), "tool_choice"),
        (json!([clock()]), json!({ "type": "function", "function": { "name": "weather" } }), "tool_choice"),
        (json!([clock()]), json!({ "name": "clock" }), "tool_choice"),
        (json!([]), json!("required"), "tool_choice"),
        (Value::Array(vec![clock(); 129]), json!("auto"), "tools"),
    ] {
        let error = Tools::read(Some(&tools), Some(&choice), None).expect_err(&tools.to_string());
        assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
        assert!(error.message.starts_with(param), "{}", error.message);
    }
    assert_eq!(Tools::read(None, Some(&json!("none")), None), Ok(None));
    assert_eq!(Tools::read(Some(&json!([])), None, Some(true)), Ok(None));
    let call = |arguments: Value| {
        let call = json!({ "type": "function", "function": { "name": "clock", "arguments": arguments } });
        let messages =
            [json!({ "role": "user", "content": "Hi" }), json!({ "role": "assistant", "tool_calls": [call] })];
        prompt(&template(PLAIN), ToolStyle::Message, &messages, None, None)
    };
    assert!(call(json!("{}")).is_ok());
    for arguments in [json!("{"), json!("[]"), json!(7)] {
        let error = call(arguments).expect_err("no object");
        assert_eq!(error.param.as_deref(), Some("messages[1].tool_calls[0].function.arguments"));
    }
}

/// ASCII, an end, and perhaps the tags as tokens of their own.
struct Ascii {
    tags: bool,
}

impl TokenText for Ascii {
    fn vocab(&self) -> usize {
        if self.tags { 131 } else { 129 }
    }
    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        match token {
            ..=127 => Cow::Owned(vec![token as u8]),
            129 => Cow::Borrowed(OPEN.as_bytes()),
            130 => Cow::Borrowed(CLOSE.as_bytes()),
            _ => Cow::Borrowed(b""),
        }
    }
    fn label(&self, token: Token) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes(token)).into_owned().into()
    }
    fn role(&self, token: Token) -> spec_runtime::TokenRole {
        if token < 128 { spec_runtime::TokenRole::Text } else { spec_runtime::TokenRole::Marker }
    }
}

/// Whether a grammar takes a text, tags as tokens where there are such, as a whole answer.
fn takes(tools: &Tools, tags: bool, text: &str) -> bool {
    use spec_runtime::{Constraint as _, Grammars, TokenSet};
    let vocabulary = Ascii { tags };
    let grammars = Grammars::new(&vocabulary, &[128]).expect("grammars");
    let form = tools.form(&vocabulary).expect("a form");
    let mut grammar = grammars.form(&form).expect("a grammar");
    let text = if tags { text.replace(OPEN, "\u{1}").replace(CLOSE, "\u{2}") } else { text.to_owned() };
    let mut allows = |token: Token| {
        let mut set = TokenSet::new(vocabulary.vocab());
        grammar.allow(&mut set).expect("a mask");
        set.contains(token) && (token == 128 || grammar.advance(token).is_ok())
    };
    let token = |byte: u8| match byte {
        1 => 129,
        2 => 130,
        byte => Token::from(byte),
    };
    text.bytes().all(|byte| allows(token(byte))) && allows(128)
}

#[test]
fn required_and_named_calls_are_held_to_their_schemas() {
    let bern = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>";
    let noon = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";
    let both = format!("{bern}\n{noon}");
    let list = json!([weather(), clock()]);
    let required = read(json!("required"));
    let single = Tools::read(Some(&list), Some(&json!("required")), Some(false)).expect("tools").expect("two");
    let named = read(json!({ "type": "function", "function": { "name": "weather" } }));
    for tags in [false, true] {
        for (tools, text, taken) in [
            (&required, bern, true),
            (&required, noon, true),
            (&required, &*both, true),
            (&required, "Hello", false),
            (&required, &bern.replace("\"Bern\"", "7"), false),
            (&required, &noon.replace("clock", "rm"), false),
            (&required, &noon.replace("{}", "{\"a\": 1}"), false),
            (&single, bern, true),
            (&single, &*both, false),
            (&named, bern, true),
            (&named, noon, false),
            (&named, &*both, false),
        ] {
            assert_eq!(takes(tools, tags, text), taken, "{:?}, tags {tags}: {text}", tools.choice());
            if taken {
                let (content, calls) = parsed([text]);
                assert!(content.is_empty() && !calls.is_empty(), "{text} is read as {content:?}");
            }
        }
    }
    assert_eq!(read(json!("auto")).form(&Ascii { tags: true }), None);
}

#[test]
fn an_answer_that_may_make_one_call_ends_behind_it() {
    let read = |choice: &str, parallel| {
        let tools = Tools::read(Some(&json!([weather()])), Some(&json!(choice)), parallel).expect("tools");
        tools.expect("one")
    };
    assert_eq!(read("auto", Some(false)).stop(), Some("</tool_call>"));
    for (choice, parallel) in [("auto", None), ("auto", Some(true)), ("none", Some(false)), ("required", Some(false))] {
        assert_eq!(read(choice, parallel).stop(), None, "{choice}, {parallel:?}");
    }
    // The stop text is in no answer, and the call is whole without it.
    let (content, calls) = parsed(["It is\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n"]);
    assert_eq!((content.as_str(), calls), ("It is\n", vec![("clock".to_owned(), "{}".to_owned())]));
}
