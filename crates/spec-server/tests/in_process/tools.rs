//! Calls of tools through the whole service: enforced, streamed and not, the same at every draft length; and batches.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use spec_server::batch::Batch;
use spec_server::{Listening, Server};

use crate::{local, parts};

fn asked(choice: &Value, draft_len: usize) -> Value {
    json!({
        "messages": [{ "role": "user", "content": "Weather in Bern?" }],
        "tools": [
            { "type": "function", "function": { "name": "weather", "parameters": {
                "type": "object", "properties": { "city": { "enum": ["Bern", "Zug"] }, "days": { "type": "integer", "minimum": 1, "maximum": 9 } },
                "required": ["city", "days"], "additionalProperties": false } } },
            { "type": "function", "function": { "name": "clock" } },
        ],
        "tool_choice": choice,
        "parallel_tool_calls": false,
        "temperature": 0.8,
        "seed": 7,
        "speculation": { "draft_len": draft_len },
    })
}

fn weather() -> Value {
    json!({ "type": "function", "function": { "name": "weather" } })
}

#[test]
fn a_call_that_is_demanded_is_made_and_the_same_at_every_draft_length() {
    let local = local();
    for choice in [weather(), json!("required")] {
        let ask = |k: usize| {
            let answer = local.answer("/v1/chat/completions", &asked(&choice, k));
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.body
        };
        let plain = ask(0);
        let call = &plain["choices"][0]["message"]["tool_calls"][0];
        assert_eq!(plain["choices"][0]["finish_reason"], "tool_calls", "{plain}");
        assert!(plain["choices"][0]["message"]["content"].is_null(), "{plain}");
        assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_")), "{call}");
        if choice.is_object() {
            assert_eq!(call["function"]["name"], "weather");
        }
        if call["function"]["name"] == "weather" {
            let arguments = call["function"]["arguments"].as_str().expect("a text");
            let arguments: Value = serde_json::from_str(arguments).expect("JSON");
            assert!(["Bern", "Zug"].contains(&arguments["city"].as_str().expect("a city")), "{arguments}");
            assert!((1..=9).contains(&arguments["days"].as_i64().expect("a number")), "{arguments}");
        }
        for k in [1, 3, 5] {
            let body = ask(k);
            assert!(body["speculation"]["accepted"].as_u64() > Some(0), "k {k}: {body}");
            assert_eq!(body["choices"][0]["message"]["tool_calls"][0]["function"], call["function"], "k {k}");
        }
    }
}

/// The chunks of a stream.
fn streamed(body: &Value) -> Vec<Value> {
    let (language, service, limits, options) = parts();
    let listening = Listening::bind("127.0.0.1", 0).expect("a port");
    let address = listening.address().expect("an address");
    let server = Server::new(listening, language, service, limits, options);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(server.run_until(async move { _ = stopped.await })).expect("it serves");
    });
    let body = body.to_string();
    let mut socket = TcpStream::connect(address).expect("it listens");
    let head = "POST /v1/chat/completions HTTP/1.0\r\nHost: here\r\nContent-Type: application/json";
    write!(socket, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("it is read");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).expect("an answer");
    stop.send(()).expect("it runs");
    thread.join().expect("it ends");
    assert!(reply.contains(" 200 ") && reply.contains("data: [DONE]"), "{reply}");
    let lines = reply.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

#[test]
fn pieces_of_a_call_stream_and_are_the_whole_one() {
    let mut body = asked(&weather(), 4);
    let whole = local().answer("/v1/chat/completions", &body).body;
    let whole = &whole["choices"][0]["message"]["tool_calls"][0]["function"];
    body["stream"] = true.into();
    let (mut name, mut arguments, mut pieces, mut finish) = (String::new(), String::new(), 0, Value::Null);
    for chunk in streamed(&body) {
        let choice = &chunk["choices"][0];
        assert!(choice["delta"]["content"].as_str().is_none_or(str::is_empty), "{chunk}");
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["index"], 0);
            name += call["function"]["name"].as_str().unwrap_or_default();
            arguments += call["function"]["arguments"].as_str().expect("a text");
            pieces += 1;
        }
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    assert_eq!((json!(name), json!(arguments)), (whole["name"].clone(), whole["arguments"].clone()));
    assert!(pieces > 5 && finish == "tool_calls", "{pieces} pieces, {finish}");
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let local = local();
    let refused = |body: &Value, param: &str| {
        let answer = local.answer("/v1/chat/completions", body);
        assert_eq!((answer.status, answer.body["error"]["param"].as_str()), (400, Some(param)), "{}", answer.body);
    };
    let mut body = asked(&weather(), 0);
    body["response_format"] = json!({ "type": "json_object" });
    refused(&body, "response_format");
    let mut body = asked(&weather(), 0);
    body["tools"][0]["function"]["parameters"]["properties"]["city"] = json!({ "type": "wish" });
    refused(&body, "tools");
    for (message, param) in [
        (json!({ "role": "tool", "content": "sunny" }), "messages[0].tool_call_id"),
        (json!({ "role": "user", "content": "Hi", "tool_calls": [] }), "messages[0].tool_calls"),
        (json!({ "role": "assistant" }), "messages[0].content"),
    ] {
        refused(&json!({ "messages": [message] }), param);
    }
    let conversation = json!({ "max_tokens": 3, "messages": [
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": null, "tool_calls": [
            { "id": "a", "type": "function", "function": { "name": "clock", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "a", "content": [{ "type": "text", "text": "noon" }] },
    ] });
    let answer = local.answer("/v1/chat/completions", &conversation);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn a_batch_is_answered_as_single_requests_are() {
    let local = local();
    let body = |index: usize| json!({ "prompt": format!("Text {index} and text {index}"), "max_tokens": 20, "temperature": 0 });
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let line = |index: usize| {
        let body = if index == 3 { json!({ "prompt": "x", "max_tokens": -1 }) } else { body(index) };
        json!({ "custom_id": index.to_string(), "method": "POST", "url": "/v1/completions", "body": body }).to_string()
            + "\n"
    };
    std::fs::write(&input, (0..12).map(line).collect::<String>()).expect("a file");
    let batch = Batch { input, output: output.clone(), at_once: 4 };
    let progress = batch
        .run(&|url: &str, body: &Value| local.answer(url, body), &mut |_| {}, &AtomicBool::new(false))
        .expect("a run");
    assert_eq!((progress.answered, progress.failed), (12, 1));
    for line in std::fs::read_to_string(output).expect("an output").lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let index: usize = line["custom_id"].as_str().and_then(|id| id.parse().ok()).expect("a number");
        if index == 3 {
            assert_eq!(
                (&line["response"]["status_code"], &line["response"]["body"]["error"]["param"]),
                (&json!(400), &json!("max_tokens"))
            );
        } else {
            let alone = local.answer("/v1/completions", &body(index)).body;
            assert_eq!(line["response"]["body"]["choices"], alone["choices"], "{index}");
        }
    }
}
