//! What is not answered, and how that is said.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use spec_runtime::SchedulerOptions;
use spec_server::{Keys, ServerOptions};

use crate::{Setup, client};

#[test]
fn report_51_what_is_not_supported_is_refused_by_its_name() {
    let server = Setup::default().start();
    let completion = [
        ("best_of", json!(2)),
        ("echo", json!(true)),
        ("suffix", json!("x")),
        ("service_tier", json!("flex")),
        ("typical_p", json!(0.5)),
        ("n", json!(1.5)),
        ("n", json!(0)),
        ("temperature", json!("hot")),
        ("temperature", json!(-1)),
        ("top_p", json!(0)),
        ("top_p", json!(1e300)),
        ("max_tokens", json!(1e30)),
        ("seed", json!(u64::MAX)),
        ("logprobs", json!(true)),
        ("stop", json!(1)),
        ("stop", json!([""])),
        ("stop", json!("x".repeat(1025))),
        ("logit_bias", json!({ "x": 1 })),
        ("logit_bias", json!({ "9999": 1 })),
        ("logit_bias", json!({ "1": 101 })),
        ("stream_options", json!({ "include_usage": true })),
        ("speculation.drafter", json!("oracle")),
        ("speculation.draft_len", json!(65)),
        ("speculation.rule", json!("luck")),
        ("speculation.loss_budget", json!(-1)),
        ("speculation.mode", json!(1)),
        ("prompt", json!(1)),
        ("prompt", json!([1.5])),
        ("prompt", json!([-1])),
        ("prompt", json!([1_000_000])),
        ("prompt", json!([])),
        ("prompt", json!("")),
    ];
    for (name, value) in completion {
        let mut body = json!({ "prompt": "a", "max_tokens": 3 });
        match name.split_once('.') {
            Some((outer, inner)) => body[outer] = json!({ inner: value }),
            None => body[name] = value,
        }
        let refusal = server.post("/v1/completions", &body);
        let error = &refusal.json()["error"];
        assert_eq!(
            (refusal.status, &error["param"], &error["type"]),
            (400, &json!(name), &json!("invalid_request_error")),
            "{body}: {error}"
        );
    }
    let chat = [
        ("tools[0].function", json!([{ "type": "function" }])),
        ("functions", json!([{}])),
        ("tool_choice", json!("required")),
        ("store", json!(true)),
        ("modalities", json!(["audio"])),
        ("reasoning_effort", json!("high")),
        ("top_logprobs", json!(2)),
        ("response_format", json!({ "type": "yaml" })),
        ("response_format", json!({ "type": "json_schema", "json_schema": { "schema": { "type": "nothing" } } })),
        ("messages", json!([])),
        ("messages", json!("hi")),
        ("messages[0].role", json!([{ "role": "wizard", "content": "a" }])),
        ("messages[1].role", json!([{ "role": "user", "content": "a" }, { "role": "function", "content": "a" }])),
        ("messages[0].role", json!([{ "role": "User", "content": "a" }])),
        ("messages[0].role", json!([{ "role": 1, "content": "a" }])),
        ("messages[0].name", json!([{ "role": "user", "content": "a", "name": {} }])),
        ("messages[0].content", json!([{ "role": "user", "content": [{ "type": "image_url" }] }])),
        (
            "messages[0].content.cache_control",
            json!([{ "role": "user", "content": [{ "type": "text", "text": "a", "cache_control": {} }] }]),
        ),
        ("messages[0].tool_calls", json!([{ "role": "user", "content": "", "tool_calls": [] }])),
    ];
    for (name, value) in chat {
        let mut body = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 3 });
        body[name.split('[').next().expect("a name")] = value;
        let refusal = server.post("/v1/chat/completions", &body);
        assert_eq!((refusal.status, &refusal.json()["error"]["param"]), (400, &json!(name)), "{body}");
    }
}

#[test]
fn a_role_is_one_that_is_known_and_that_the_template_takes() {
    let server = Setup::default().start();
    let ask = |role: &str, content: &str| {
        let mut message = json!({ "role": role, "content": content });
        if role == "tool" {
            message["tool_call_id"] = "a".into();
        }
        server.post("/v1/chat/completions", &json!({ "messages": [message], "max_tokens": 1 }))
    };
    for role in ["system", "developer", "user", "assistant", "tool"] {
        assert_eq!(ask(role, "a").status, 200, "{role}");
    }
    let unknown = ask("wizard", "a").json()["error"].clone();
    let message = unknown["message"].as_str().expect("a text");
    assert!(message.contains("\"wizard\"") && message.contains("developer, user"), "{message}");
    assert_eq!(unknown["code"], "unsupported_value");
    // What the template says is what the client reads.
    let refused = ask("system", "no system, please").json()["error"].clone();
    assert_eq!(
        refused,
        json!({ "message": "messages: System role not supported", "type": "invalid_request_error",
        "param": "messages", "code": "invalid_value" })
    );
}

#[test]
fn what_clients_send_without_meaning_anything_is_understood() {
    let server = Setup::default().start();
    let body = json!({ "model": "any", "messages": [{ "role": "user", "content": "a", "name": "n" }], "max_completion_tokens": 3, "user": "u", "store": false,
        "service_tier": "auto", "parallel_tool_calls": true, "tools": [], "tool_choice": "auto", "metadata": {}, "n": null, "stop": null, "modalities": ["text"] });
    assert_eq!(server.post("/v1/chat/completions", &body).status, 200);
}

#[test]
fn bytes_that_are_no_request_are_refused_at_once() {
    let server = Setup::default().start();
    let begun = Instant::now();
    for body in [&b"{"[..], b"[]", b"\"x\"", b"{\"prompt\":\"\xff\xfe\"}", b"", &[b'['; 100_000]] {
        assert_eq!(server.post_bytes("/v1/completions", body).status, 400);
    }
    let large = json!({ "prompt": "x".repeat(10 << 20) });
    assert_eq!(server.post("/v1/completions", &large).status, 413);
    let long = json!({ "prompt": "x".repeat(1 << 20) });
    let refusal = server.post("/v1/completions", &long);
    assert_eq!((refusal.status, &refusal.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!(server.get("/nowhere").status, 404);
    assert_eq!(server.get("/v1/completions").status, 405);
    assert_eq!(server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}").status, 415);
    let flood: String = (0..200).map(|number| format!("X-{number}: y\r\n")).collect();
    assert_eq!(server.raw(format!("GET /health HTTP/1.1\r\nHost: h\r\n{flood}\r\n").as_bytes()).status, 431);
    let wide = "y".repeat(1 << 20);
    assert_eq!(server.raw(format!("GET /health HTTP/1.1\r\nHost: h\r\nX: {wide}\r\n\r\n").as_bytes()).status, 431);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn schemas_made_to_be_expensive_are_refused_or_answered_within_seconds() {
    let server = Setup { max_tokens: 20, ..Setup::default() }.start();
    let mut deep = json!({ "type": "string" });
    for _ in 0..60 {
        deep = json!({ "type": "object", "properties": { "a": deep.clone(), "b": { "type": "array", "items": { "type": "integer" }, "maxItems": 1_000_000 } } });
    }
    let wide: serde_json::Map<String, Value> = (0..20_000).map(|number| (format!("p{number}"), json!({}))).collect();
    let pattern = json!({ "type": "string", "pattern": "^((a{1,900}){1,900}){1,900}$" });
    let looped = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] } } });
    for schema in [deep, json!({ "properties": wide }), pattern, looped] {
        let begun = Instant::now();
        let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
        let reply = server.post(
            "/v1/chat/completions",
            &json!({ "messages": [{ "role": "user", "content": "a" }], "response_format": format, "max_tokens": 5 }),
        );
        assert!([200, 400].contains(&reply.status), "{}", reply.text());
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    }
}

#[test]
fn slow_senders_are_cut_off() {
    let options = ServerOptions {
        header_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        ..ServerOptions::default()
    };
    let server = Setup { options, ..Setup::default() }.start();
    assert_eq!(server.raw(client::head("/v1/completions", 100, "Connection: close\r\n").as_bytes()).status, 408);
    let mut socket = server.connect();
    socket.write_all(b"GET /health HT").expect("sent");
    let mut rest = Vec::new();
    // The connection ends, with an answer or without.
    assert!(socket.read_to_end(&mut rest).is_ok() || rest.is_empty());
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let service = SchedulerOptions { max_running: 1, max_queue: 1, ..SchedulerOptions::default() };
    let server = Setup { service, ..Setup::endless() }.start();
    let two = json!({ "prompt": "one ", "n": 2, "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &two).status, 200, "one has a place, and one waits");
    let endless = json!({ "prompt": "one ", "stream": true, "logit_bias": { "107": -100 } });
    let running = server.begin(&endless);
    let body = json!({ "prompt": "one ", "n": 3, "max_tokens": 1 });
    let refusal = server.post("/v1/completions", &body);
    assert_eq!((refusal.status, &refusal.json()["error"]["code"]), (429, &json!("queue_full")));
    assert!(refusal.head.contains("retry-after: 1"), "{}", refusal.head);
    drop(running);
    assert!(server.comes_to_rest());
    assert_eq!(server.post("/v1/completions", &json!({ "prompt": "one ", "max_tokens": 1 })).status, 200);
}

#[test]
fn without_a_key_only_the_state_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys");
    std::fs::write(&file, "secret-key alice # first\n").expect("a file");
    let options = ServerOptions { keys: Some(Keys::read(&file).expect("keys")), ..ServerOptions::default() };
    let server = Setup { options, ..Setup::default() }.start();
    let ask = |header: &str| {
        server.raw(format!("GET /v1/models HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{header}\r\n").as_bytes()).status
    };
    assert_eq!(
        [ask(""), ask("Authorization: Bearer wrong-key\r\n"), ask("Authorization: Basic secret-key\r\n")],
        [401; 3]
    );
    assert_eq!(ask("Authorization: Bearer secret-key\r\n"), 200);
    assert_eq!(server.post("/v1/completions", &json!({ "prompt": "a" })).status, 401);
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

#[test]
fn what_is_kept_of_one_keys_prompts_is_not_found_by_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys");
    std::fs::write(&file, "secret-key-one\nsecret-key-two\n").expect("a file");
    let options = ServerOptions { keys: Some(Keys::read(&file).expect("keys")), ..ServerOptions::default() };
    let server = Setup { options, ..Setup::default() }.start();
    let cached = |key: &str| {
        let body = json!({ "prompt": "a prompt of more than a block of the cache", "max_tokens": 2 }).to_string();
        let more = format!("Connection: close\r\nAuthorization: Bearer {key}\r\n");
        let answer =
            server.raw(format!("{}{body}", client::head("/v1/completions", body.len(), &more)).as_bytes()).ok();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
    };
    assert_eq!(cached("secret-key-one"), 0);
    assert_eq!(cached("secret-key-two"), 0);
    assert!(cached("secret-key-one") > 16 && cached("secret-key-two") > 16);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        (0i64..20).prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec(("[a-z_]{1,12}", inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

#[test]
fn whatever_a_body_holds_it_is_answered_or_refused_and_never_fails() {
    const NAMES: [&str; 24] = [
        "prompt",
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "seed",
        "stop",
        "n",
        "stream",
        "stream_options",
        "speculation",
        "spec_info",
        "logprobs",
        "top_logprobs",
        "response_format",
        "tools",
        "user",
        "else",
    ];
    let server = Setup { max_tokens: 4, ..Setup::default() }.start();
    let field = (0..NAMES.len(), any_json());
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    let mut answered = 0;
    proptest::test_runner::TestRunner::new(config)
        .run(&(proptest::collection::vec(field, 0..3), any::<bool>()), |(fields, chat)| {
            let mut body = json!({ "prompt": "ab", "messages": [{ "role": "user", "content": "a" }], "max_tokens": 3 });
            body.as_object_mut().expect("fields").remove(if chat { "prompt" } else { "messages" });
            for (name, value) in fields {
                body[NAMES[name]] = value;
            }
            let path = if chat { "/v1/chat/completions" } else { "/v1/completions" };
            let reply = server.post(path, &body);
            prop_assert!(reply.status < 500, "{body}: {} {}", reply.status, reply.text());
            Ok(())
        })
        .expect("no body fails the server");
    for _ in 0..3 {
        answered += usize::from(server.post("/v1/completions", &json!({ "prompt": "ab" })).status == 200);
    }
    assert_eq!(answered, 3, "it answers still");
}
