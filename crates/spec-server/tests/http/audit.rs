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
    for more in [
        json!({ "temperature": 0 }),
        json!({ "temperature": 1, "seed": 7 }),
        json!({ "temperature": 0.7, "seed": 8, "speculation": { "rule": "rejection" }, "frequency_penalty": 0.3 }),
        // What is lossy, or held to a grammar, is not looked at.
        json!({ "temperature": 1, "seed": 9, "speculation": { "rule": "epsilon:0.5" } }),
    ] {
        let mut body = json!({ "prompt": WORDS, "max_tokens": 120 });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        let answer = audited.post("/v1/completions", &body).ok();
        assert_eq!(answer["choices"], alone.post("/v1/completions", &body).ok()["choices"], "{body}");
        // A text that never repeats itself has nothing to copy.
        drafted += answer["timings"]["draft_n"].as_u64().expect("a number");
        if !body.to_string().contains("epsilon") {
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
