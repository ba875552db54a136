//! Every field of every request, changed in every way that clients get it wrong: what comes back is an answer or a refusal.

use serde_json::{Value, json};
use spec_runtime::{peak_resident_memory, resident_memory};
use spec_server::{Local, ServerOptions, openapi};

use crate::parts;

/// Bytes that no refusal passes, whatever a client sent; JSON may need six for a character.
const LONGEST_REFUSAL: usize = 8000;
/// Memory that thousands of bodies may take at once, of which the largest have 10 MB.
const MOST_MEMORY: usize = 512 << 20;

/// A step into a body.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Key(String),
    First,
}

fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

/// The service under attack.
struct Service {
    local: Local,
    sent: usize,
    answered: usize,
    faults: Vec<String>,
}

impl Service {
    fn new() -> Self {
        let (language, service, limits, options) = parts();
        let limits = spec_server::RequestLimits { max_tokens: 3, ..limits };
        let options = ServerOptions { max_body_bytes: 11 << 20, ..options };
        let local = Local::new(language, service, limits, options).expect("threads");
        Self { local, sent: 0, answered: 0, faults: Vec::new() }
    }

    fn send(&mut self, url: &str, body: impl Into<Vec<u8>>) -> u16 {
        let body = body.into();
        let start = String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
        let (status, reply) = self.local.exchange(url, body);
        let said = String::from_utf8_lossy(&reply);
        self.sent += 1;
        let is_right = match status {
            200 => {
                self.answered += 1;
                !said.contains("\"error\"")
            }
            400..=499 => {
                let refusal: Value = serde_json::from_slice(&reply).unwrap_or_default();
                refusal["error"]["message"].as_str().is_some_and(|message| !message.is_empty())
                    && said.len() < LONGEST_REFUSAL
            }
            _ => false,
        };
        if !is_right {
            self.faults.push(format!("{url} {start}\n  {status} {}", said.chars().take(400).collect::<String>()));
        }
        status
    }
}

/// A request, and the fields of it that are changed; all where none is named.
type Sample = (&'static str, Value, &'static [&'static str]);

/// The requests that there are, with bodies that use what can be nested.
fn requests() -> [Sample; 6] {
    let tool = json!({ "type": "function", "function": { "name": "f", "description": "d", "strict": false,
        "parameters": { "type": "object", "properties": { "a": { "type": "integer" } } } } });
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let speculation = json!({ "enabled": true, "drafter": "auto", "draft_len": 2, "rule": "rejection" });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "description": "d", "strict": true, "schema": { "const": 1 } } });
    let said = json!([{ "role": "user", "content": [{ "type": "text", "text": "a" }], "name": "n" }]);
    let called =
        json!([{ "role": "assistant", "content": "a", "tool_calls": [call], "refusal": null, "tool_call_id": null }]);
    let chosen = json!({ "type": "function", "function": { "name": "f" } });
    [
        (
            "/v1/completions",
            json!({ "prompt": "ab", "max_tokens": 2, "stream": true, "stream_options": { "include_usage": true }, "logit_bias": { "5": 1 },
                "speculation": speculation, "stop": ["xyz"] }),
            &[],
        ),
        ("/v1/chat/completions", json!({ "messages": said, "max_tokens": 2, "chat_template_kwargs": { "a": 1 } }), &[]),
        (
            "/v1/chat/completions",
            json!({ "messages": said, "max_tokens": 2, "response_format": format }),
            &["response_format"],
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": called, "max_tokens": 2, "tools": [tool], "tool_choice": chosen, "parallel_tool_calls": false }),
            &["messages", "tools", "tool_choice", "parallel_tool_calls"],
        ),
        ("/tokenize", json!({ "prompt": "ab" }), &[]),
        ("/detokenize", json!({ "tokens": [65, 66] }), &[]),
    ]
}

/// The schema of what the document does not describe.
static UNKNOWN: Value = Value::Null;

/// The places of a body that its schema or the body itself knows, each with its schema.
fn places<'a>(schema: &'a Value, body: &Value, at: &mut Vec<Step>, out: &mut Vec<(Vec<Step>, &'a Value)>) {
    let mut steps: Vec<(Step, &'a Value, &Value)> = Vec::new();
    let named = schema["properties"].as_object().into_iter().flatten();
    steps.extend(named.map(|(name, inner)| (key(name), inner, &body[name.as_str()])));
    for (name, inner) in body.as_object().into_iter().flatten() {
        if !steps.iter().any(|(step, ..)| *step == key(name)) {
            steps.push((key(name), &UNKNOWN, inner));
        }
    }
    if let Some(first) = body.get(0) {
        steps.push((Step::First, &schema["items"], first));
    }
    for (step, schema, body) in steps {
        at.push(step);
        out.push((at.clone(), schema));
        places(schema, body, at, out);
        at.pop();
    }
}

fn schema_of(document: &Value, url: &str) -> Value {
    document["paths"][url]["post"]["requestBody"]["content"]["application/json"]["schema"].clone()
}

/// What stands where a value is to be put in as text, which need not be JSON.
const MARK: &str = "HERE THE VALUE GOES";

fn with(body: &Value, place: &[Step], value: &str) -> String {
    let mut body = body.clone();
    let mut inner = &mut body;
    for step in place {
        inner = match step {
            Step::Key(name) => {
                if !inner.is_object() {
                    *inner = json!({});
                }
                &mut inner[name.as_str()]
            }
            Step::First => {
                if inner.get(0).is_none() {
                    *inner = json!([null]);
                }
                &mut inner[0]
            }
        };
    }
    *inner = MARK.into();
    body.to_string().replace(&format!("\"{MARK}\""), value)
}

/// Values that belong nowhere, or anywhere.
fn values() -> Vec<String> {
    let mut values: Vec<String> = [
        "null",
        "true",
        "false",
        "0",
        "-0.0",
        "1",
        "-1",
        "2",
        "20",
        "1.5",
        "1e30",
        "-1e308",
        "5e-324",
        "1e400",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "NaN",
        "01",
        "+1",
        r#""""#,
        r#""a""#,
        r#"" ""#,
        r#""0""#,
        r#""-1""#,
        r#""none""#,
        r#""\u0000""#,
        r#""é 你好 🎉""#,
        r#""\ud83d\ude00""#,
        r#""\ud83d""#,
        r#""</tool_call>""#,
        r#""%s%n{{ 7 * 7 }}""#,
        "[]",
        "[[]]",
        "[null]",
        "[1]",
        "[-1]",
        "[1.5]",
        "[1e30]",
        r#"[""]"#,
        r#"["a"]"#,
        "[65, 66]",
        "[[65], [66]]",
        r#"["a", 1]"#,
        "[{}]",
        "{}",
        r#"{"": null}"#,
        r#"{"a": 1}"#,
        r#"{"a": 1, "a": 2}"#,
        r#"{"5": 1}"#,
        r#"{"type": "text"}"#,
        r#"{"type": "json_object"}"#,
        r#"{"type": "function"}"#,
        r#"{"role": "user"}"#,
        r#"[{"role": "user", "content": "a"}]"#,
        "",
        "}",
        "\u{feff}1",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push(format!("1{}", "0".repeat(400)));
    values.push(format!("{}1{}", "[".repeat(100), "]".repeat(100)));
    values.push(format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100)));
    values.push(format!("{}1{}", "[".repeat(5000), "]".repeat(5000)));
    values.push(format!("\"{}\"", "word ".repeat(4000)));
    values.push(format!("{{\"{}\": 1}}", "long ".repeat(1000)));
    values.push(format!("[{{\"role\": \"{}\"}}]", "long ".repeat(1000)));
    values.push(format!("[{}]", vec!["\"a\""; 1000].join(",")));
    values.push(format!("[{}]", vec!["1"; 5000].join(",")));
    let many: Vec<String> = (0..1000).map(|number| format!("\"k{number}\":{number}")).collect();
    values.push(format!("{{{}}}", many.join(",")));
    values
}

/// Bounds of a schema with what lies beyond them, and its enumerations.
fn collect(schema: &Value, values: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, inner) in fields {
                match (name.as_str(), inner) {
                    ("minimum" | "maximum" | "maxItems", Value::Number(bound)) => {
                        let bound = bound.as_f64().unwrap_or_default();
                        values.extend([bound - 1.0, bound, bound + 1.0].map(|value| json!(value).to_string()));
                        values.extend([bound - 1.0, bound, bound + 1.0].map(|value| (value as i64).to_string()));
                    }
                    ("enum", Value::Array(names)) => values.extend(names.iter().map(Value::to_string)),
                    _ => collect(inner, values),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, values)),
        _ => {}
    }
}

/// Small to send, and large to whom takes it at its word.
fn bombs() -> Vec<Value> {
    let doubled = |level: usize| {
        let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
        (format!("l{level}"), json!({ "anyOf": [next, { "type": "array", "items": next }] }))
    };
    let mut definitions: serde_json::Map<String, Value> = (0..40).map(doubled).collect();
    definitions.insert("l40".into(), json!({ "type": "string" }));
    let wide: serde_json::Map<String, Value> = (0..3000).map(|number| (format!("p{number}"), json!({}))).collect();
    let mut deep = json!({});
    for _ in 0..50 {
        deep =
            json!({ "type": "object", "properties": { "a": deep, "b": { "type": "string", "maxLength": 1_000_000 } } });
    }
    vec![
        json!({ "$defs": definitions, "$ref": "#/$defs/l0" }),
        json!({ "$ref": "#" }),
        json!({ "properties": wide }),
        json!({ "type": "string", "pattern": "^((a{1,900}){1,900}){1,900}$" }),
        json!({ "type": "array", "items": {}, "minItems": 1_000_000_000 }),
        json!({ "enum": (0..5000).map(|number| format!("value {number}")).collect::<Vec<_>>() }),
        json!({ "type": "integer", "multipleOf": 1e-300, "minimum": -1e300 }),
        json!({ "allOf": vec![json!({ "type": "object", "additionalProperties": { "$ref": "#" } }); 50] }),
        deep,
    ]
}

/// A sequence that looks like chance and is the same every time (Steele, Lea and Flood 2014, SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count as u64) as usize
    }
}

#[test]
fn every_field_with_every_value_is_answered_or_refused_within_bounded_memory() {
    let mut service = Service::new();
    let memory = resident_memory();
    let ordinary = json!({ "prompt": "ab", "max_tokens": 3, "temperature": 0 }).to_string();
    let answer = |service: &Service| {
        let (status, reply) = service.local.exchange("/v1/completions", ordinary.clone().into_bytes());
        assert_eq!(status, 200);
        serde_json::from_slice::<Value>(&reply).expect("JSON")["choices"].clone()
    };
    let before = answer(&service);
    let (mut chance, document, everywhere) = (Chance(1), openapi::document(), values());
    let [.., (_, formatted, _), (_, calling, _), _, _] = requests();
    for (url, body, fields) in requests() {
        assert_eq!(service.send(url, body.to_string()), 200, "{url} {body}");
        let schema = schema_of(&document, url);
        let mut all = Vec::new();
        places(&schema, &body, &mut Vec::new(), &mut all);
        all.retain(|(place, _)| fields.is_empty() || fields.iter().any(|field| place[0] == key(field)));
        for (place, schema) in &all {
            let mut own = Vec::new();
            collect(schema, &mut own);
            for value in everywhere.iter().chain(&own) {
                service.send(url, with(&body, place, value));
            }
        }
        // What is right alone may be wrong together.
        for _ in 0..300 {
            let mut mixed = body.clone();
            for _ in 0..2 {
                let (place, value) = (&all[chance.below(all.len())].0, &everywhere[chance.below(everywhere.len())]);
                mixed = serde_json::from_str(&with(&mixed, place, value)).unwrap_or(mixed);
            }
            service.send(url, mixed.to_string());
        }
        // Bytes that are no JSON, or no text, at any place.
        let text = body.to_string().into_bytes();
        for at in 0..text.len() {
            let mut broken = text.clone();
            broken[at] = [0xff, 0, b'"', b'\\', 0xc0][at % 5];
            service.send(url, broken);
            assert_eq!(service.send(url, &text[..at]), 400);
        }
        let inner = &text[1..text.len() - 1];
        let twice = [b"{", inner, b",", inner, b"}"].concat();
        assert_eq!(service.send(url, twice), 400, "a key that stands twice");
    }
    let mut peaks = vec![peak_resident_memory()];
    for bomb in bombs() {
        let schema = [key("response_format"), key("json_schema"), key("schema")];
        service.send("/v1/chat/completions", with(&formatted, &schema, &bomb.to_string()));
        let parameters = json!({ "type": "object", "properties": { "a": bomb }, "$defs": bomb["$defs"] });
        let place = [key("tools"), Step::First, key("function"), key("parameters")];
        service.send("/v1/chat/completions", with(&calling, &place, &parameters.to_string()));
    }
    peaks.push(peak_resident_memory());
    for long in ["\"".to_owned() + &"word ".repeat(2_000_000) + "\"", format!("[{}]", "1,".repeat(5_000_000) + "1")] {
        assert_eq!(service.send("/v1/completions", format!("{{\"prompt\":{long}}}")), 400);
        assert_eq!(service.send("/v1/chat/completions", format!("{{\"messages\":{long}}}")), 400);
    }
    let (count, first) = (service.faults.len(), service.faults.iter().take(10).cloned().collect::<Vec<_>>());
    assert!(first.is_empty(), "{count} of {} went wrong, the first of them:\n{}", service.sent, first.join("\n"));
    assert!(service.sent > 5000 && service.answered > 500, "{} of {} answered", service.answered, service.sent);
    assert_eq!(answer(&service), before);
    peaks.push(peak_resident_memory());
    // After the fields, after the schemas, after the megabytes.
    let bounded = |peak: &Option<usize>| peak.zip(memory).is_none_or(|(peak, memory)| peak < memory + MOST_MEMORY);
    assert!(peaks.iter().all(bounded), "{memory:?} bytes became {peaks:?}");
}
