use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;

use super::*;

fn line(id: &str) -> String {
    json!({ "custom_id": id, "method": "POST", "url": "/v1/completions", "body": { "prompt": id } }).to_string()
}

/// A batch in a folder of its own, with this input.
fn batch(input: &str) -> (tempfile::TempDir, Batch) {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    std::fs::write(&from, input).expect("a file");
    (folder, Batch { input: from, output: to, at_once: 4 })
}

/// Runs it, each prompt answered by itself, `bad` by a refusal; how often there was an answer, too.
fn run(batch: &Batch) -> (Result<Progress, ServerError>, usize) {
    let asked = AtomicUsize::new(0);
    let answer = |url: &str, body: &Value| {
        assert_eq!(url, "/v1/completions");
        asked.fetch_add(1, Ordering::Relaxed);
        match body["prompt"].as_str() {
            Some("bad") => Answer { status: 400, body: json!({ "error": { "message": "no" } }) },
            _ => Answer { status: 200, body: json!({ "id": "cmpl-1", "text": body["prompt"] }) },
        }
    };
    let result = batch.run(&answer, &mut |_| {}, &AtomicBool::new(false));
    (result, asked.into_inner())
}

/// The output's lines by id, each of which is there once.
fn answers(batch: &Batch) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(&batch.output).expect("an output");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let by_id: BTreeMap<String, Value> =
        lines.iter().map(|line| (line["custom_id"].as_str().expect("an id").to_owned(), line.clone())).collect();
    assert_eq!(by_id.len(), lines.len(), "an id twice: {text}");
    by_id
}

#[test]
fn every_line_has_one_answer_and_errors_stay_in_their_lines() {
    let input = [
        line("one"),
        String::new(),
        "{".into(),
        "[1]".into(),
        r#"{"url": "/v1/completions", "body": {}}"#.into(),
        line("one"),
        r#"{"custom_id": "get", "method": "GET", "url": "/v1/completions", "body": {}}"#.into(),
        r#"{"custom_id": "url", "method": "POST", "url": "/v1/embeddings", "body": {}}"#.into(),
        r#"{"custom_id": "body", "method": "POST", "url": "/v1/completions"}"#.into(),
        r#"{"custom_id": "stream", "method": "POST", "url": "/v1/completions", "body": {"stream": true}}"#.into(),
        r#"{"custom_id": "more", "method": "POST", "url": "/v1/completions", "body": {}, "priority": 1}"#.into(),
        line("bad"),
        line("two \"quoted\" ü"),
    ];
    let (_folder, batch) = batch(&input.join("\n"));
    let (result, asked) = run(&batch);
    assert_eq!(result.expect("a run"), Progress { lines: 12, before: 0, answered: 12, failed: 10 });
    assert_eq!(asked, 3);
    let all = answers(&batch);
    assert_eq!(all["one"]["response"]["body"]["text"], "one");
    assert_eq!(all["one"]["response"]["status_code"], 200);
    assert!(all["one"]["error"].is_null() && all["two \"quoted\" ü"]["error"].is_null());
    assert_eq!(all["bad"]["response"]["status_code"], 400);
    for (id, said) in [
        ("line-3", "no JSON"),
        ("line-4", "no JSON object"),
        ("line-5", "`custom_id`"),
        ("line-6-one", "earlier line"),
        ("get", "POST alone"),
        ("url", "/v1/chat/completions"),
        ("body", "`body` is missing"),
        ("stream", "no streams"),
        ("more", "`priority`"),
    ] {
        let message = all[id]["error"]["message"].as_str().expect(id);
        assert!(message.contains(said) && message.starts_with("line "), "{id}: {message}");
    }
    // Nothing is left to do, and what failed is still said to have.
    assert_eq!(run(&batch).0.expect("again"), Progress { lines: 12, before: 12, answered: 0, failed: 10 });
}

#[test]
fn a_run_that_was_cut_anywhere_goes_on_where_it_stopped() {
    let ids: Vec<String> = (0..5).map(|index| format!("request {index}")).collect();
    let (_folder, batch) = batch(&ids.iter().map(|id| line(id) + "\n").collect::<String>());
    run(&batch).0.expect("a run");
    let (whole, expected) = (std::fs::read(&batch.output).expect("an output"), answers(&batch));
    assert_eq!(expected.len(), ids.len());
    for length in 0..=whole.len() {
        std::fs::write(&batch.output, &whole[..length]).expect("a file");
        let kept = whole[..length].iter().filter(|&&byte| byte == b'\n').count();
        let (result, asked) = run(&batch);
        let progress = result.expect("a run");
        assert_eq!((progress.before, progress.answered, asked), (kept, 5 - kept, 5 - kept), "cut at {length}");
        assert_eq!(answers(&batch), expected, "cut at {length}");
    }
}

#[test]
fn no_more_is_asked_at_once_than_is_allowed_and_a_stop_ends_with_whole_lines() {
    let (_folder, batch) = batch(&(0..200).map(|index| line(&index.to_string()) + "\n").collect::<String>());
    let (now, most, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let answer = |_: &str, _: &Value| {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(1));
        now.fetch_sub(1, Ordering::SeqCst);
        Answer { status: 200, body: json!({}) }
    };
    let mut heard = |progress: Progress| stop.store(progress.answered >= 20, Ordering::Relaxed);
    let progress = batch.run(&answer, &mut heard, &stop).expect("a run");
    assert_eq!(most.into_inner(), 4);
    assert!((20..60).contains(&progress.answered), "{progress:?}");
    assert_eq!(answers(&batch).len(), progress.answered);
    let (result, asked) = run(&batch);
    assert_eq!(result.expect("the rest").answered, asked);
    assert_eq!(answers(&batch).len(), 200);
}

#[test]
fn a_line_without_end_takes_no_memory_without_end() {
    let long = format!("{{\"custom_id\": \"long\", \"x\": \"{}\"}}", "y".repeat(LONGEST_LINE as usize));
    let (_folder, batch) = batch(&format!("{long}\n{}\n{long}", line("short")));
    let progress = run(&batch).0.expect("a run");
    assert_eq!((progress.lines, progress.answered, progress.failed), (3, 3, 2));
    let all = answers(&batch);
    assert_eq!(all["line-1"]["error"]["code"], "line_too_long");
    assert!(all.contains_key("short") && all.contains_key("line-3"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (folder, batch) = batch(&line("one"));
    let missing = Batch { input: folder.path().join("nowhere.jsonl"), ..batch.clone() };
    let error = run(&missing).0.expect_err("no input").to_string();
    assert!(error.contains("nowhere.jsonl") && !missing.output.exists(), "{error}");
    std::fs::write(&batch.output, "# Notes of mine\n").expect("a file");
    let error = run(&batch).0.expect_err("another file").to_string();
    assert!(error.contains("out.jsonl") && error.contains("line 1"), "{error}");
    assert_eq!(std::fs::read_to_string(&batch.output).expect("it is there"), "# Notes of mine\n");
}
