//! `spec audit` on tiny models.

use serde_json::Value;

use super::Files;

#[test]
fn an_audit_says_of_every_kind_of_rule_what_it_is() {
    let files = Files::new();
    for (flags, verdict) in [
        ("--draft model --rule rejection --temperature 1", "consistent"),
        ("--draft model --rule block --temperature 0.8 --top-k 20", "consistent"),
        ("--draft model --temperature 1 --repeat-penalty 1.2", "consistent"),
        ("--draft ngram", "consistent"),
        ("--draft model --rule entropy --temperature 1", "LOSSY"),
    ] {
        let line = format!(
            "audit --model target.gguf --draft-model draft.gguf --seed 3 --draws 1500 --json --prompt aaaa {flags}"
        );
        let found: Value = files.spec(&line).json();
        assert_eq!(found["verdict"], verdict, "{found}");
        assert_eq!(found["tokens"], 1500, "{found}");
        assert!(found["drafted"].as_u64() > Some(100), "{found}");
        assert_eq!(found["impossible"], 0, "{found}");
        let is_equal = found["compared"].as_u64() > Some(0);
        assert_eq!(is_equal, !flags.contains("--rule"), "{found}");
        if verdict == "LOSSY" {
            assert!(found["total_variation_at_least"]["low"].as_f64() > Some(0.0), "{found}");
        } else {
            assert_eq!(found["unequal"], 0, "{found}");
        }
    }
}

#[test]
fn an_audit_of_everything_is_a_table_and_passes() {
    let files = Files::new();
    let ran = files.spec("audit --model target.gguf --all --seed 5 --draws 300 --prompt abababab").ok();
    let out = ran.out();
    let rows: Vec<&str> = out.lines().filter(|line| line.starts_with("  ") && !line.contains("verdict")).collect();
    for rule in ["greedy", "coupled", "rejection", "rejection-independent", "block", "typical", "entropy", "epsilon"] {
        let of_rule = rows.iter().filter(|row| row.split_whitespace().next() == Some(rule));
        assert!(of_rule.clone().count() >= 2, "{rule}: {out}");
        assert!(of_rule.clone().all(|row| !row.contains("DIFFERS")), "{out}");
    }
    // A rule that asks for the drafter's probabilities, of drafters that have none.
    let refused = rows.iter().filter(|row| row.contains("epsilon-published") && row.contains("refused:"));
    assert_eq!(refused.count(), 2, "{out}");
}

#[test]
fn an_audit_that_cannot_say_anything_fails_and_says_what_to_do() {
    let files = Files::new();
    let few =
        files.spec("audit --model target.gguf --draft ngram --rule rejection --temperature 1 --draws 20 --prompt aaaa");
    assert_eq!(few.output.status.code(), Some(1), "{}", few.err());
    assert!(few.out().contains("too few tokens") && few.err().contains("--draws"), "{}{}", few.out(), few.err());
    files.spec("audit --model short.gguf --draws 20 --max-tokens 500 --prompt aaaa").refused(2, &["positions"]);
    files.spec("audit --model target.gguf").refused(2, &["--prompt"]);
    files.spec("audit --model target.gguf --prompt a --alpha 2").refused(2, &["probability"]);
}
