//! The binary on a real model.

use spec_testing::models::{self, Model};

use super::chat::{answers, count};
use super::*;

const TURNS: [&str; 3] =
    ["Name three rivers in Europe.", "Write the same list again, with the countries.", "Which of them is the longest?"];

#[test]
fn real_smollm2_later_turns_prefill_only_what_is_new() {
    let files = Files::new();
    let model = models::path(Model::SmolLm2).display().to_string();
    let saved = files.path("saved.txt").display().to_string();
    for sampling in ["", " --temperature 0.7 --seed 8"] {
        let base = format!("chat --model {model} -n 80 --json --draft-len 4{sampling}");
        let script = format!("{}\n{}\n/save {saved}\n{}\n", TURNS[0], TURNS[1], TURNS[2]);
        let warm = answers(files.piped(&format!("{base} --draft ngram"), &script));
        for pair in warm.windows(2) {
            // Prompt and answer; of the answer's last token, which is emitted and not fed, keys and values are missing.
            let known = count(&pair[0]["prompt_tokens"]) + count(&pair[0]["completion_tokens"]) - 1;
            assert_eq!(count(&pair[1]["cached_tokens"]), known, "{sampling}");
            let new = count(&pair[1]["prompt_tokens"]) - known;
            assert!((10..40).contains(&new), "{new} tokens for a turn of a dozen words");
        }
        let cold =
            |draft: &str| answers(files.piped(&format!("{base} --draft {draft} --load {saved}"), TURNS[2])).remove(0);
        for draft in ["none", "self", "suffix"] {
            let cold = cold(draft);
            assert_eq!(cold["cached_tokens"], 0);
            assert_eq!(cold["tokens"], warm[2]["tokens"], "{draft}{sampling}");
        }
        let drafted: u64 = warm.iter().map(|answer| count(&answer["speculation"]["drafted"])).sum();
        assert!(drafted > 0, "{sampling}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn real_smollm2_drafts_within_300_mb() {
    let files = Files::new();
    let model = models::path(Model::SmolLm2).display().to_string();
    let text = "Copy this list: one, two, three, four, five, six, seven. ".repeat(4);
    let line = ["generate", "--model", &model, "-p", &text, "-n", "200", "--draft", "ngram", "--threads", "1"];
    let ran = files.spec_words(&[&line[..], &["--mem-limit", "300MB", "--json"]].concat()).json();
    let peak = count(&ran["peak_resident_bytes"]);
    println!("{:.1} MB resident at most", peak as f64 / 1e6);
    assert!(peak < 300_000_000, "{peak} bytes");
    assert!(count(&ran["speculation"]["drafted"]) > 0 && count(&ran["completion_tokens"]) > 20);
    // The plan counts what is then there.
    let limit = |bytes: u64| files.spec_words(&[&line[..], &["--mem-limit", &bytes.to_string()]].concat());
    limit(peak / 2).refused_after_a_plan();
}
