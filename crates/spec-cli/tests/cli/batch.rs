//! `spec batch` on files, interrupted too.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

const LINE: &str = "batch --model target.gguf --draft ngram --input in.jsonl --max-batch 3 --context 256 --output";

fn requests(count: usize) -> String {
    let line = |index: usize| {
        let body = json!({ "prompt": [index + 1, 7, 8, 7, 8], "max_tokens": 60, "temperature": 0 });
        json!({ "custom_id": format!("r{index}"), "method": "POST", "url": "/v1/completions", "body": body })
            .to_string()
            + "\n"
    };
    (0..count).map(line).collect()
}

/// What was answered, by id, each of which is there once.
fn answers(files: &Files, output: &str) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(files.path(output)).expect("an output");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let text = |line: &Value| line["response"]["body"]["choices"].clone();
    let by_id: BTreeMap<String, Value> =
        lines.iter().map(|line| (line["custom_id"].as_str().expect("an id").to_owned(), text(line))).collect();
    assert_eq!(by_id.len(), lines.len(), "an id twice");
    by_id
}

#[test]
fn a_batch_that_was_killed_goes_on_and_ends_with_the_same_answers() {
    let files = Files::new();
    std::fs::write(files.path("in.jsonl"), requests(60)).expect("a file");
    files.spec(&format!("{LINE} whole.jsonl")).ok();
    let whole = answers(&files, "whole.jsonl");
    assert_eq!(whole.len(), 60);

    let words = format!("{LINE} cut.jsonl");
    let mut command = files.command(&words.split(' ').collect::<Vec<_>>());
    let mut child = command.stderr(Stdio::null()).spawn().expect("it runs");
    let begun = Instant::now();
    let lines =
        || std::fs::read(files.path("cut.jsonl")).map_or(0, |bytes| bytes.iter().filter(|&&b| b == b'\n').count());
    while lines() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is answered");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it is there");
    child.wait().expect("it ends");
    // A kill may tear a line; this one surely is.
    let mut bytes = std::fs::read(files.path("cut.jsonl")).expect("an output");
    bytes.extend_from_slice(b"{\"id\": \"batch_req_r59\", \"custom_id\": \"r5");
    std::fs::write(files.path("cut.jsonl"), bytes).expect("a file");
    let before = lines();
    let ran = files.spec(&words).ok();
    assert!(
        ran.err().contains(&format!("60 requests: {} answered now, {before} before, 0 failed, 0 left", 60 - before)),
        "{}",
        ran.err()
    );
    assert_eq!(answers(&files, "cut.jsonl"), whole);
}

#[test]
fn the_code_says_whether_a_request_failed_and_its_line_why() {
    let files = Files::new();
    let bad =
        json!({ "custom_id": "bad", "method": "POST", "url": "/v1/completions", "body": { "prompt": "x", "wish": 1 } });
    std::fs::write(files.path("in.jsonl"), format!("{}{bad}\n", requests(2))).expect("a file");
    let ran = files.spec(&format!("{LINE} out.jsonl"));
    assert_eq!(ran.output.status.code(), Some(1), "{}", ran.err());
    assert!(ran.err().contains("3 requests: 3 answered now, 0 before, 1 failed, 0 left"), "{}", ran.err());
    let text = std::fs::read_to_string(files.path("out.jsonl")).expect("an output");
    assert!(text.contains("wish: this field is not supported"), "{text}");
    files.spec(&LINE.replace("in.jsonl", "none.jsonl")).refused(2, &["--output"]);
    files.spec(&format!("{} out.jsonl", LINE.replace("in.jsonl", "none.jsonl"))).refused(1, &["none.jsonl"]);
}
