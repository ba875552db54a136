//! `spec explain` of runs of the binary: those that a virtual clock cannot stand for, and the three ways to ask.

use super::*;

/// A target of which passes take most of the time.
fn heavy(files: &Files) {
    let spec = TinySpec { hidden: 512, ffn: 1536, heads: 16, kv_heads: 4, layers: 4, seed: 3, ..TinySpec::llama() };
    std::fs::write(files.path("heavy.gguf"), tiny::gguf(spec)).expect("a file");
}

/// The last line of what was printed.
pub(super) fn explained(ran: Ran) -> Value {
    let ran = ran.ok();
    let out = ran.out();
    let last = out.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{}\n{error}\n{out}", ran.line))
}

fn first(explained: &Value) -> &str {
    explained["limits"][0]["diagnosis"].as_str().unwrap_or_else(|| panic!("{explained}"))
}

pub(super) fn names(explained: &Value) -> Vec<&str> {
    let limits = explained["limits"].as_array().into_iter().flatten();
    limits.filter_map(|limit| limit["diagnosis"].as_str()).collect()
}

const FOREIGN: &str = "--draft model --draft-model other.gguf --allow-vocab-mismatch --draft-len 4";

#[test]
fn a_foreign_vocabulary_is_found_and_warned_of_while_it_runs() {
    let files = Files::new();
    let run = format!("generate --model target.gguf --ids 65,66,67,68 -n 60 {FOREIGN}");
    let ran = files.spec(&format!("explain --json -- {run}"));
    let warnings = ran.err().lines().filter(|line| line.contains("WARNING")).count();
    assert_eq!(warnings, 1, "{}", ran.err());
    assert!(ran.err().contains("none of 16 drafts of tiny"), "{}", ran.err());
    let explained = explained(ran);
    assert_eq!(first(&explained), "foreign-vocabulary", "{explained}");
    assert_eq!(explained["limits"][0]["is_fault"], true);
    // A draft that is accepted is warned of by nobody.
    let ran = files.spec("generate --model target.gguf --ids 65,66,67,68 -n 60 --draft self --draft-len 4").ok();
    assert!(!ran.err().contains("WARNING"), "{}", ran.err());
}

#[test]
fn threads_are_compared_with_cores() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let files = Files::new();
    heavy(&files);
    let run = |threads: usize| {
        let run = format!("generate --model heavy.gguf --ids 65,66,67 -n 40 --draft none --threads {threads}");
        explained(files.spec(&format!("explain --json -- {run}")))
    };
    let many = run(4 * cores);
    assert_eq!(first(&many), "too-many-threads", "{many}");
    let all = run(cores);
    assert!(!names(&all).iter().any(|name| name.contains("threads")), "{all}");
    if cores > 1 {
        let one = run(1);
        // Beside it only what drafts would bring if they stood, which nobody knows.
        let known: Vec<&str> = names(&one).into_iter().filter(|&name| name != "speculation-off").collect();
        assert_eq!(known.first(), Some(&"too-few-threads"), "{one}");
    }
}

#[test]
fn slow_kernels_are_named_before_all_else() {
    let files = Files::new();
    heavy(&files);
    let words = "explain --json -- generate --model heavy.gguf --ids 65,66,67 -n 12 --draft none";
    let words: Vec<&str> = words.split(' ').collect();
    let explained = explained(files.spec_with(&words, &[("SPEC_CPU_ISA", "portable")]));
    assert_eq!(first(&explained), "slow-kernels", "{explained}");
}

#[test]
fn loading_a_draft_model_for_one_short_answer_is_found() {
    let files = Files::new();
    heavy(&files);
    let run = "generate --model target.gguf --ids 65,66,67 -n 6 --draft model --draft-model heavy.gguf --draft-len 1";
    let explained = explained(files.spec(&format!("explain --json -- {run}")));
    assert!(names(&explained).contains(&"draft-loading"), "{explained}");
}

#[test]
fn memory_that_is_nearly_full_is_mentioned() {
    let files = Files::new();
    let run = "generate --model target.gguf --ids 65,66,67 -n 60 --json";
    let peak = files.spec(run).json()["peak_resident_bytes"].as_u64().expect("bytes");
    let with = |limit: u64| files.spec(&format!("explain --json -- {run} --mem-limit {limit}B"));
    let tight = explained(with(peak * 21 / 20));
    assert!(names(&tight).contains(&"memory-nearly-full"), "{tight}");
    let wide = explained(with(peak * 3));
    assert!(!names(&wide).contains(&"memory-nearly-full"), "{wide}");
}

#[test]
fn the_last_run_is_kept_without_its_text_and_explained() {
    let files = Files::new();
    files.spec("explain").refused(1, &["no last run", "--log"]);
    let secret = "the quick brown fox abc abc abc";
    files.spec_words(&["generate", "--model", "target.gguf", "-p", secret, "-n", "50"]).ok();
    let path = files.path("spec/last-run.jsonl");
    let kept = std::fs::read_to_string(&path).expect("it is in the cache");
    assert!(!kept.contains("fox") && !kept.contains("tokens\":["), "{kept}");
    let explained = files.spec("explain").ok();
    assert!(explained.out().starts_with("generate by tiny"), "{}", explained.out());
    assert!(explained.out().contains("evidence:") && explained.out().contains("change:"), "{}", explained.out());
    let json = files.spec("explain --json").json();
    assert_eq!(json["run"]["command"], "generate");
    // By none of these it is written anew.
    let run = "generate --model target.gguf -p hello -n 9";
    files.spec(&format!("{run} --no-last-run")).ok();
    files.spec_with(&run.split(' ').collect::<Vec<_>>(), &[("SPEC_NO_LAST_RUN", "1")]).ok();
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), kept);
    std::fs::create_dir(files.path("prompts")).expect("a folder");
    std::fs::write(files.path("prompts/a.txt"), "abcabcabcabcabc").expect("a file");
    let prompts = files.path("prompts").display().to_string();
    files.spec_words(&["demo", "--model", "target.gguf", "--draft", "self", "--prompts", &prompts, "-n", "40"]).ok();
    assert_eq!(files.spec("explain --json").json()["run"]["command"], "demo");
}

#[test]
fn a_record_is_explained_and_what_is_none_is_refused() {
    let files = Files::new();
    let record = files.path("kept.jsonl").display().to_string();
    let run = "generate --model target.gguf --ids 65,66,67,68 -n 60 --draft self --draft-len 3";
    let with_record: Vec<&str> = run.split(' ').chain(["--record", &record]).collect();
    files.spec_words(&with_record).ok();
    let kept = files.spec_words(&["explain", "--json", "--log", &record]).json();
    assert_eq!(kept["acceptance_rate"], 1.0, "{kept}");
    // A command that says where its record goes keeps it there.
    std::fs::remove_file(&record).expect("it was there");
    let words: Vec<&str> = ["explain", "--json", "--"].into_iter().chain(with_record).collect();
    let again = explained(files.spec_words(&words));
    assert_eq!((&again["acceptance_rate"], &again["drafted"]), (&kept["acceptance_rate"], &kept["drafted"]));
    assert!(files.path("kept.jsonl").exists());

    files.spec("explain --log absent.jsonl").refused(1, &["absent.jsonl"]);
    files.spec("explain --log target.gguf").refused(1, &["target.gguf"]);
    files.spec("explain --log absent.jsonl -- generate").refused(2, &["--log"]);
    files.spec("explain -- doctor").refused(2, &["generate"]);
    files.spec("explain -- generate --frobnicate").refused(2, &["--frobnicate"]);
    files.spec("explain -- conjure").refused(2, &["conjure"]);
    let ran = files.spec("explain -- generate --model target.gguf -p hi -n 1");
    assert_eq!(ran.output.status.code(), Some(1));
    assert!(ran.err().contains("nothing to explain"), "{}", ran.err());
}

#[test]
fn drafts_that_a_grammar_forbids_are_told_apart() {
    let files = Files::new();
    // Few tokens are in it, and the draft model knows nothing of that.
    let schema = r#"{ "type": "array", "items": { "type": "integer" }, "minItems": 99 }"#;
    std::fs::write(files.path("schema.json"), schema).expect("a file");
    let run =
        "generate --model target.gguf --ids 65,66,67,68 -n 100 --json-schema schema.json --draft self --draft-len 4";
    let explained = explained(files.spec(&format!("explain --json -- {run}")));
    assert!(explained["drafted"].as_u64() > Some(0), "{explained}");
    assert_eq!(first(&explained), "forbidden-drafts", "{explained}");
}
