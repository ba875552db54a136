//! Answers as they come.

use std::io::Read as _;
use std::time::Duration;

use serde_json::{Value, json};
use spec_runtime::resident_memory;

use crate::Setup;
use crate::client::{self, Reply};

fn concatenated(chunks: &[Value], path: &[&str]) -> String {
    let text =
        |chunk: &Value| path.iter().fold(&chunk["choices"][0], |value, name| &value[*name]).as_str().map(str::to_owned);
    chunks.iter().filter_map(text).collect()
}

#[test]
fn reports_41_133_deltas_add_up_to_the_answer_and_stop_where_it_stops() {
    let server = Setup::default().start();
    for stop in [json!(null), json!(["m", "xy"])] {
        let body =
            json!({ "prompt": "one two one two ", "max_tokens": 120, "temperature": 0, "stop": stop, "seed": 1 });
        // The second of two has the prompt in the cache, as the third will.
        server.post("/v1/completions", &body).ok();
        let whole = server.post("/v1/completions", &body).ok();
        let mut streaming = body.clone();
        streaming["stream"] = true.into();
        streaming["stream_options"] = json!({ "include_usage": true });
        let chunks = server.post("/v1/completions", &streaming).chunks();
        assert_eq!(concatenated(&chunks, &["text"]), whole["choices"][0]["text"].as_str().expect("a text"));
        let last = &chunks[chunks.len() - 1];
        assert_eq!((&last["usage"], &last["choices"]), (&whole["usage"], &json!([])));
        let end = &chunks[chunks.len() - 2];
        assert_eq!(end["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
        assert_eq!(end["speculation"], whole["speculation"]);
        assert!(end["speculation"]["drafted"].as_u64() > Some(0));
    }
}

#[test]
fn report_131_no_delta_splits_a_character() {
    let server = Setup::default().start();
    let schema = json!({ "const": "你好🎉é🎉" });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
    for length in [0, 1, 3, 5] {
        let body = json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "x" }] }], "temperature": 0,
            "response_format": format, "stream": true, "speculation": { "draft_len": length } });
        let chunks = server.post("/v1/chat/completions", &body).chunks();
        assert_eq!(concatenated(&chunks, &["delta", "content"]), "\"你好🎉é🎉\"", "draft length {length}");
        assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
        assert!(chunks.iter().all(|chunk| !chunk.to_string().contains('\u{FFFD}')));
    }
}

#[test]
fn report_193_tokens_say_where_they_come_from() {
    let server = Setup::default().start();
    let mut sources = std::collections::BTreeSet::new();
    for temperature in [0.0, 0.3] {
        let body = json!({ "prompt": "one two one two ", "max_tokens": 200, "temperature": temperature, "seed": 5, "stream": true,
            "spec_info": true });
        let chunks = server.post("/v1/completions", &body).chunks();
        let tokens: Vec<&Value> =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["spec_tokens"].as_array()).flatten().collect();
        let text: String = tokens.iter().filter_map(|token| token["text"].as_str()).collect();
        assert_eq!(text, concatenated(&chunks, &["text"]));
        let accepted = tokens.iter().filter(|token| token["source"] == "accepted").count();
        assert_eq!(json!(accepted), chunks[chunks.len() - 1]["speculation"]["accepted"]);
        for token in tokens {
            let rejected = token["rejected"].as_array().expect("a list");
            assert_eq!(rejected.is_empty(), token["source"] != "corrected", "{token}");
            sources.insert(token["source"].as_str().expect("a name").to_owned());
        }
    }
    assert_eq!(sources.into_iter().collect::<Vec<_>>(), ["accepted", "bonus", "corrected", "target"]);
}

#[test]
fn readers_that_stop_reading_lose_their_answers_and_take_neither_time_nor_memory() {
    let server = Setup::endless().start();
    let short = json!({ "prompt": "one two ", "max_tokens": 20 });
    server.post("/v1/completions", &short).ok();
    let before = resident_memory();
    let body = json!({ "prompt": "one two ", "stream": true, "n": 4, "logit_bias": { "107": -100 }, "logprobs": 20 });
    let stuck: Vec<_> = (0..4).map(|_| server.begin(&body)).collect();
    assert_eq!(server.post("/v1/completions", &short).status, 200);
    // They are still connected, and nothing is done for them any more.
    assert!(server.comes_to_rest());
    if let (Some(before), Some(after)) = (before, resident_memory()) {
        assert!(after < before + (256 << 20), "{before} bytes became {after}");
    }
    drop(stuck);
}

#[test]
fn a_client_that_reads_nothing_does_not_hold_up_the_end() {
    let setup = Setup::endless();
    let options = spec_server::ServerOptions { body_timeout: Duration::from_millis(300), ..setup.options };
    let mut server = Setup { options, ..Setup::endless() }.start();
    let body = json!({ "prompt": "one two ", "stream": true, "n": 4, "logit_bias": { "107": -100 }, "logprobs": 20 });
    let stuck = client::ask(server.connect_narrow(), "/v1/completions", &body);
    while server.get("/health").json()["running"] == 0 {}
    assert!(server.comes_to_rest(), "its answer is given up");
    server.stop();
    assert!(server.ended(Duration::from_secs(5)), "and so is its connection");
    server.outcome().expect("it ends in order");
    drop(stuck);
}

#[test]
fn a_slow_reader_of_4096_tokens_holds_up_nobody_and_gets_every_one() {
    let server = Setup { context: 8192, max_tokens: 4096, ..Setup::default() }.start();
    let body = |stream: bool| json!({ "prompt": "one two ", "max_tokens": 4096, "temperature": 0, "logit_bias": { "107": -100 }, "logprobs": 20, "stream": stream });
    let whole = server.post("/v1/completions", &body(false)).ok();
    let mut slow = client::ask(server.connect_narrow(), "/v1/completions", &body(true));
    while server.get("/health").json()["running"] == 0 {}
    let short = json!({ "prompt": "two one ", "max_tokens": 20 });
    assert_eq!(server.post("/v1/completions", &short).status, 200);
    // The engine is done before anything is read: the answer waits for its reader, and its place does not.
    assert!(server.comes_to_rest());
    let mut bytes = Vec::new();
    let mut part = vec![0; 1 << 14];
    while let read @ 1.. = slow.read(&mut part).expect("the answer goes on") {
        bytes.extend_from_slice(&part[..read]);
        std::thread::sleep(Duration::from_millis(1));
    }
    let chunks = Reply::parse(&bytes).chunks();
    assert_eq!(concatenated(&chunks, &["text"]), whole["choices"][0]["text"].as_str().expect("a text"));
    assert!(bytes.len() > 1 << 20, "{} bytes, which a socket may have held", bytes.len());
    assert_eq!(chunks[chunks.len() - 1]["choices"][0]["finish_reason"], "length");
}

#[test]
fn report_122_who_leaves_takes_the_generation_along() {
    let server = Setup::endless().start();
    let before = server.target.free_blocks();
    for stream in [true, false] {
        let body = json!({ "prompt": "one two one two ", "stream": stream, "logit_bias": { "107": -100 } });
        if stream {
            drop(server.begin(&body));
        } else {
            use std::io::Write as _;
            let (body, mut socket) = (body.to_string(), server.connect());
            let head = client::head("/v1/completions", body.len(), "");
            socket.write_all(format!("{head}{body}").as_bytes()).expect("sent");
            while server.get("/health").json()["running"] == 0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            drop(socket);
        }
        assert!(server.comes_to_rest());
        assert_eq!(server.target.free_blocks(), before);
    }
    assert!(server.get("/metrics").text().contains("spec_requests_total{finish=\"cancelled\"} 2"));
}
