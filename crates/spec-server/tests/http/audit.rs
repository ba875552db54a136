//! The audit beside answers.

use serde_json::{Value, json};
use spec_server::ServerOptions;

use crate::Setup;

const WORDS: &str = "one two one two one two ";

fn setup(audit_share: f64) -> Setup {
    let setup = Setup::default();
    Setup { options: ServerOptions { audit_share, ..setup.options }, ..Setup::default() }
}

#[test]
fn an_audit_of_all_answers_leaves_them_as_they_are_and_counts_their_tokens() {
    let (audited, alone) = (setup(1.0).start(), setup(0.0).start());
    let (mut tokens, mut drafted) = (0, 0);
    for (is_looked_at, more) in [
        (true, json!({ "temperature": 0 })),
        (true, json!({ "temperature": 1 })),
        (true, json!({ "temperature": 0.7, "speculation": { "rule": "rejection" }, "frequency_penalty": 0.3 })),
        // What is lossy, or may be the same draws again, is not.
        (false, json!({ "temperature": 1, "speculation": { "rule": "epsilon:0.5" } })),
        (false, json!({ "temperature": 1, "seed": 7 })),
        (false, json!({ "temperature": 0.7, "seed": 8, "speculation": { "rule": "rejection" } })),
    ] {
        let mut body = json!({ "prompt": WORDS, "max_tokens": 120 });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        let answer = audited.post("/v1/completions", &body).ok();
        // The seed that was drawn repeats the answer, without an audit.
        body["seed"] = answer["speculation"]["seed"].clone();
        assert!(body["seed"].is_number(), "{answer}");
        assert_eq!(answer["choices"], alone.post("/v1/completions", &body).ok()["choices"], "{body}");
        // A text that never repeats itself has nothing to copy.
        drafted += answer["timings"]["draft_n"].as_u64().expect("a number");
        if is_looked_at {
            tokens += answer["usage"]["completion_tokens"].as_u64().expect("a number");
        }
    }
    assert!(drafted > 0);
    let health = audited.get("/health").json();
    let audit = &health["audit"];
    assert_eq!((&audit["generations"], &audit["tokens"]), (&json!(3), &json!(tokens)), "{health}");
    assert_eq!((&audit["impossible"], &audit["alarm"]), (&json!(0), &json!(false)), "{health}");
    assert!(audit["p_value"].as_f64() > Some(1e-3), "{health}");
    let metrics = audited.get("/metrics");
    let metrics = metrics.text();
    assert!(metrics.contains(&format!("spec_audit_tokens_total {tokens}\n")), "{metrics}");
    assert!(metrics.contains("spec_audit_alarm 0\n"), "{metrics}");
    assert_eq!(alone.get("/health").json()["audit"], Value::Null);
}

#[test]
fn the_same_draws_asked_for_again_and_again_are_no_evidence() {
    let audited = setup(1.0).start();
    let seeded = json!({ "prompt": WORDS, "max_tokens": 40, "temperature": 1, "seed": 7 });
    let first = audited.post("/v1/completions", &seeded).ok();
    for _ in 0..40 {
        assert_eq!(audited.post("/v1/completions", &seeded).ok()["choices"], first["choices"]);
    }
    assert_eq!(audited.get("/health").json()["audit"]["generations"], 0);
    // Equal prompts of one request share their seed: one of them counts.
    let many = json!({ "prompt": [WORDS, WORDS, WORDS], "max_tokens": 40, "temperature": 1, "n": 2 });
    audited.post("/v1/completions", &many).ok();
    let health = audited.get("/health").json();
    assert_eq!(health["audit"]["generations"], 2, "two choices of the first prompt: {health}");
}

#[test]
fn a_share_of_the_answers_is_looked_at() {
    let audited = setup(0.5).start();
    for _ in 0..60 {
        audited.post("/v1/completions", &json!({ "prompt": WORDS, "max_tokens": 2, "temperature": 1 })).ok();
    }
    let looked_at = audited.get("/health").json()["audit"]["generations"].as_u64().expect("a number");
    // Further off once in 10^8 runs.
    assert!((8..=52).contains(&looked_at), "{looked_at} of 60");
}
