//! What a request can ask for, and which drafts fit, by the binary on tiny models.

use super::*;

const PROMPT: &str = "65,66,67,68,65,66,67,68,65,66,67,68,65,66";

/// Flags, and whether the answer differs from that without them, greedy and sampled.
const FLAGS: [(&str, [bool; 2]); 12] = [
    ("--logprobs 5", [false; 2]),
    ("--top-k 3", [false, true]),
    ("--top-p 0.3", [false, true]),
    ("--min-p 0.3", [false, true]),
    ("--repeat-penalty 1.4", [true; 2]),
    ("--presence-penalty 1.5", [true; 2]),
    ("--frequency-penalty 0.7", [true; 2]),
    ("--presence-penalty -2 --penalty-window 4", [true; 2]),
    ("--logit-bias 97=6 --logit-bias 98=-inf", [true; 2]),
    ("--json-object", [true; 2]),
    ("--json-schema schema.json", [true; 2]),
    (
        "--repeat-penalty 1.1 --frequency-penalty 0.2 --top-k 50 --min-p 0.01 --logit-bias 97=1.5 --logprobs 2",
        [true; 2],
    ),
];

#[test]
fn every_flag_gives_the_same_answer_with_and_without_speculation() {
    let files = Files::new();
    let schema = r#"{ "type": "object", "properties": { "id": { "type": "integer" }, "ok": { "type": "boolean" } }, "required": ["id", "ok"] }"#;
    std::fs::write(files.path("schema.json"), schema).expect("a file");
    let mut copied = 0;
    for (sampling, which) in [("", 0), (" --temperature 0.9 --seed 5", 1)] {
        let base = format!("generate --model target.gguf --ids {PROMPT} -n 48 --json{sampling}");
        let bare = files.spec(&format!("{base} --draft none")).json();
        for (flags, shows) in FLAGS {
            let plain = files.spec(&format!("{base} {flags} --draft none")).json();
            assert_eq!(plain["speculation"]["drafted"], 0);
            assert_eq!(plain["tokens"] != bare["tokens"], shows[which], "{flags}{sampling} does something");
            for draft in [
                "--draft ngram",
                "--draft suffix --draft-len 4",
                "--draft self --draft-len 5",
                "--draft-model draft.gguf",
                "--draft model --draft-model draft.gguf --draft-len 3",
            ] {
                let got = files.spec(&format!("{base} {flags} {draft}")).json();
                let what = format!("{flags}{sampling} {draft}");
                for field in ["tokens", "text", "finish_reason", "completion_tokens", "logprobs"] {
                    assert_eq!(got[field], plain[field], "{what}: {field}");
                }
                let drafted = got["speculation"]["drafted"].as_u64().expect("a count");
                // What copies the text needs a text that repeats itself.
                let copies = draft.contains("ngram") || draft.contains("suffix");
                assert!(drafted > 0 || copies || is_short_for_trials(draft, &got), "{what}: {}", got["speculation"]);
                copied += if copies { drafted } else { 0 };
            }
        }
    }
    assert!(copied > 100, "{copied} tokens were copied");
}

#[test]
fn an_answer_by_a_schema_is_what_the_schema_says() {
    let files = Files::new();
    let schema = r#"{ "type": "object", "properties": { "word": { "enum": ["left", "right"] }, "list": { "type": "array", "items": { "type": "boolean" }, "maxItems": 2 } }, "required": ["word", "list"], "additionalProperties": false }"#;
    std::fs::write(files.path("schema.json"), schema).expect("a file");
    for rest in ["", " --temperature 1.2 --seed 1", " --temperature 1.2 --seed 2", " --temperature 1 --rule rejection"]
    {
        let line = format!(
            "generate --model target.gguf --ids {PROMPT} -n 200 --json --json-schema schema.json --draft-model draft.gguf --draft-len 5{rest}"
        );
        let json = files.spec(&line).json();
        assert_eq!(json["finish_reason"], "stop", "{json}");
        let answer: Value = serde_json::from_str(json["text"].as_str().expect("text")).expect("JSON");
        assert!(["left", "right"].iter().any(|word| answer["word"] == *word), "{answer}");
        assert!(answer["list"].as_array().is_some_and(|list| list.len() <= 2 && list.iter().all(Value::is_boolean)));
        assert!(json["speculation"]["forced"].as_u64() > Some(0), "{json}");
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_in_one_line() {
    let files = Files::new();
    std::fs::write(files.path("wish.json"), r#"{ "type": "wish" }"#).expect("a file");
    std::fs::write(files.path("half.json"), r#"{ "type": "#).expect("a file");
    for (flags, code, words) in [
        ("--json-schema wish.json", 2, &["--json-schema", "wish.json", "wish"][..]),
        ("--json-schema half.json", 2, &["half.json", "no JSON"]),
        ("--json-schema nowhere.json", 1, &["nowhere.json"]),
        ("--json-schema wish.json --json-object", 2, &["--json-object"]),
        ("--logit-bias 5", 2, &["--logit-bias", "42=-1.5"]),
        ("--logit-bias 5=much", 2, &["--logit-bias"]),
        ("--logit-bias 9999=1", 2, &["9999", "331"]),
        ("--logit-bias 5=inf", 2, &["-inf"]),
        ("--presence-penalty nan", 2, &["presence_penalty"]),
        ("--frequency-penalty inf", 2, &["frequency_penalty"]),
        ("--penalty-window -1", 2, &["--penalty-window"]),
        ("--draft-model other.gguf", 1, &["other.gguf", "id 318", "--allow-vocab-mismatch"]),
    ] {
        files.spec(&format!("generate --model target.gguf -p hi {flags}")).refused(code, words);
    }
}

#[test]
fn a_draft_of_another_vocabulary_guesses_with_what_both_have_when_it_may() {
    let files = Files::new();
    let mut drafted = 0;
    for sampling in ["", " --temperature 0.9 --seed 5", " --repeat-penalty 1.2"] {
        let base = format!("generate --model target.gguf -p hello_world_hello --json -n 60{sampling}");
        let plain = files.spec(&format!("{base} --draft none")).json();
        let ran =
            files.spec(&format!("{base} --draft model --draft-model other.gguf --allow-vocab-mismatch --draft-len 4"));
        let got = ran.json();
        assert_eq!((&got["tokens"], &got["text"]), (&plain["tokens"], &plain["text"]), "{sampling}");
        assert!(ran.err().contains("320 of the target's 331 tokens"), "{}", ran.err());
        drafted += got["speculation"]["drafted"].as_u64().expect("a count");
    }
    assert!(drafted > 100, "{drafted}");
    // Where nothing differs the flag changes nothing.
    let line = format!(
        "generate --model target.gguf --ids {PROMPT} -n 30 --json --draft model --draft-model draft.gguf --draft-len 4"
    );
    let (without, with) = (files.spec(&line), files.spec(&format!("{line} --allow-vocab-mismatch")));
    assert_eq!(without.json()["speculation"], with.json()["speculation"]);
    assert_eq!(with.err(), without.err());
}

#[test]
fn kinds_that_differ_are_mentioned_and_the_draft_is_used() {
    let files = Files::new();
    let mut bytes = std::fs::read(files.path("draft.gguf")).expect("the draft");
    // Behind the key stand the types of the array and of its elements, and their number; then the kinds: of token 97 a user's.
    let key = b"tokenizer.ggml.token_type";
    let at = bytes.windows(key.len()).position(|window| window == key).expect("the key") + key.len() + 16;
    bytes[at + 97 * 4..][..4].copy_from_slice(&4_i32.to_le_bytes());
    std::fs::write(files.path("kinds.gguf"), bytes).expect("a file");
    let line =
        format!("generate --model target.gguf --ids {PROMPT} -n 30 --json --draft model --draft-len 4 --draft-model");
    let (same, other) = (files.spec(&format!("{line} draft.gguf")), files.spec(&format!("{line} kinds.gguf")));
    assert_eq!(same.json()["speculation"], other.json()["speculation"]);
    assert!(other.err().contains("kinds.gguf: 1 token of other kinds in the draft model"), "{}", other.err());
}

#[test]
fn a_draft_model_is_loaded_behind_the_first_token() {
    let files = Files::new();
    let run = |count: usize| {
        files
            .spec(&format!(
                "generate --model target.gguf -p hello -n {count} --json --draft model --draft-model draft.gguf"
            ))
            .json()
    };
    assert_eq!(run(1)["timings"]["draft_load_ms"], 0.0);
    assert!(run(20)["timings"]["draft_load_ms"].as_f64() > Some(0.0));
    // Its file is looked at before.
    let bytes = std::fs::read(files.path("draft.gguf")).expect("the draft");
    std::fs::write(files.path("cut.gguf"), &bytes[..bytes.len() - 1]).expect("a file");
    files.spec("generate --model target.gguf -p hello -n 1 --draft-model cut.gguf").refused(1, &["cut.gguf"]);
}
