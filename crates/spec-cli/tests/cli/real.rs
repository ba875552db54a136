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

#[test]
#[cfg(target_os = "linux")]
fn real_smollm2_takes_what_was_planned() {
    let files = Files::new();
    let model = models::path(Model::SmolLm2).display().to_string();
    // Passes of as many rows as there can be, and a context that is nearly full.
    let text = "Copy this list: one, two, three, four, five, six, seven. ".repeat(60);
    let pair = ["--draft-model", &model, "--draft-kv", "q8", "--draft-head", "trimmed"];
    for (context, draft, kv) in [("1150", &[][..], "f16"), ("1150", &pair[..], "f16"), ("2000", &[][..], "q8")] {
        let room = [&["--model", &model, "--context", context, "--kv", kv][..], draft].concat();
        let plan = files.spec_words(&[&["inspect", "--plan", "--json"], &room[..]].concat()).json();
        // Neither of its end tokens may end it early.
        let line = ["generate", "-p", &text, "-n", "60", "--json", "--logit-bias", "0=-inf", "--logit-bias", "2=-inf"];
        let drafter = ["--draft", if draft.is_empty() { "ngram" } else { "model" }, "--draft-len", "4"];
        let ran = files.spec_words(&[&line[..], &drafter, &room[..]].concat()).json();
        assert!(count(&ran["prompt_tokens"]) > 800 && count(&ran["speculation"]["drafted"]) > 0, "{room:?}");
        let (planned, peak) = (count(&plan["peak_bytes"]) as f64, count(&ran["peak_resident_bytes"]) as f64);
        println!("{room:?}: {:.1} MB planned, {:.1} MB at most", planned / 1e6, peak / 1e6);
        assert!((peak / planned - 1.0).abs() <= 0.05, "{room:?}: {planned} bytes planned, {peak} taken");
    }
}

#[test]
fn real_qwen_pair_is_told_what_limits_it() {
    let files = Files::new();
    let [small, large, foreign] =
        [Model::QwenDraft, Model::QwenTarget, Model::SmolLm2].map(|model| models::path(model).display().to_string());
    let prompt = files.path("prompt.txt").display().to_string();
    let (_, text) = spec_testing::data::prompts().into_iter().find(|(name, _)| *name == "prose").expect("it is one");
    std::fs::write(&prompt, text).expect("a file");
    let draft = |model: &str, length: &'static str| {
        ["--draft", "model", "--draft-model", model, "--draft-len", length].map(str::to_owned).to_vec()
    };
    let given = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    for (expected, target, more) in [
        ("draft-too-large", &small, draft(&large, "4")),
        ("draft-too-long", &large, draft(&small, "14")),
        // By the tokens that both have SmolLM2 gets four drafts of ten right: it is not its vocabulary that limits.
        ("draft-too-long", &large, [draft(&foreign, "4"), given(&["--allow-vocab-mismatch"])].concat()),
        ("lossy-rule", &large, [draft(&small, "3"), given(&["--rule", "epsilon:0.2"])].concat()),
        ("too-few-threads", &large, given(&["--draft", "none", "--threads", "1"])),
        ("slow-kernels", &small, given(&["--draft", "none"])),
    ] {
        let mut words = vec!["explain", "--json", "--", "generate", "--model", target, "-f", &prompt, "-n", "48"];
        words.extend(more.iter().map(String::as_str));
        let isa = if expected == "slow-kernels" { &[("SPEC_CPU_ISA", "portable")][..] } else { &[] };
        let found = super::explain::explained(files.spec_with(&words, isa));
        println!("{expected}: {found}");
        let names = super::explain::names(&found);
        assert!(names.contains(&expected), "{expected}: {found}");
    }
}
