//! The binary, as a user runs it, on tiny models.

mod audit;
mod batch;
mod chat;
mod devices;
mod explain;
mod logs;
mod memory;
mod real;
mod records;
mod requests;
mod serve;
mod settings;
mod sweep;
mod terminal;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use spec_model::{Quantizer, TensorType};
use spec_testing::tiny::{self, TinySpec, TinyTypes};

/// A folder with a target, a draft of the same vocabulary, and one of another.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let other = TinySpec { vocab: 320, ..TinySpec::llama() };
        for (name, spec) in [
            ("target.gguf", TinySpec::llama()),
            ("draft.gguf", TinySpec { seed: 9, layers: 1, ..TinySpec::llama() }),
            ("short.gguf", TinySpec { context: 64, ..TinySpec::llama() }),
            ("other.gguf", other),
        ] {
            std::fs::write(folder.path().join(name), tiny::gguf(spec)).expect("a file");
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `spec` with words split at spaces; names of files are those of the folder.
    fn spec(&self, line: &str) -> Ran {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        self.spec_words(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn spec_words(&self, words: &[&str]) -> Ran {
        self.spec_with(words, &[])
    }

    fn spec_with(&self, words: &[&str], environment: &[(&str, &str)]) -> Ran {
        let mut command = self.command(words);
        command.envs(environment.iter().copied());
        Ran { line: format!("{command:?}"), output: command.output().expect("the binary runs") }
    }

    /// `spec` with nothing of the user's own: no flags in the environment or in a file, no history, no last run.
    fn command(&self, words: &[&str]) -> Command {
        let is_file = |word: &str| [".gguf", ".json", ".jsonl", ".txt"].iter().any(|ending| word.ends_with(ending));
        let words = words.iter().map(|&word| match is_file(word) {
            true => self.path(word).display().to_string(),
            false => word.to_owned(),
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_spec"));
        for (name, _) in std::env::vars_os() {
            let kept = ["SPEC_MODELS", "SPEC_CPU_ISA", "SPEC_ASCEND_SIM"];
            if name.to_str().is_some_and(|name| name.starts_with("SPEC_") && !kept.contains(&name)) {
                command.env_remove(name);
            }
        }
        let folder = self.folder.path();
        for user in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
            command.env(user, folder);
        }
        command.args(words).env_remove("NO_COLOR");
        command
    }
}

/// What a run printed; assertions that fail say how it was started and what it said.
struct Ran {
    line: String,
    output: Output,
}

impl Ran {
    fn out(&self) -> String {
        String::from_utf8(self.output.stdout.clone()).expect("text")
    }

    fn err(&self) -> String {
        String::from_utf8(self.output.stderr.clone()).expect("text")
    }

    #[track_caller]
    fn ok(self) -> Self {
        assert!(self.output.status.success(), "{}\n{}", self.line, self.err());
        self
    }

    /// Refused with this exit code, in one line that holds all of these.
    #[track_caller]
    fn refused(&self, code: i32, words: &[&str]) {
        let err = self.err();
        assert_eq!(self.output.status.code(), Some(code), "{}\n{err}", self.line);
        assert_eq!(err.trim_end().lines().count(), 1, "{}\n{err}", self.line);
        assert!(words.iter().all(|word| err.contains(word)), "{}\n{err}\nlacks one of {words:?}", self.line);
        assert!(!err.contains("panicked"), "{err}");
        assert_eq!(self.out(), "", "{}", self.line);
    }

    /// Refused for its memory: the last line says so, those before it what would fit.
    #[track_caller]
    fn refused_after_a_plan(&self) {
        let err = self.err();
        assert_eq!((self.output.status.code(), self.out().as_str()), (Some(1), ""), "{}\n{err}", self.line);
        let last = err.lines().last().unwrap_or_default();
        assert!(err.contains("Ways to fit:") && last.starts_with("spec: ") && last.contains("--mem-limit"), "{err}");
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert!(self.output.status.success(), "{}\n{}", self.line, self.err());
        serde_json::from_str(&self.out()).unwrap_or_else(|error| panic!("{}\n{error}\n{}", self.line, self.out()))
    }
}

/// Whether an answer ended before a drafter had to be tried: where lengths are measured, one of random weights, which are sure of nothing, waits a while.
fn is_short_for_trials(draft: &str, got: &Value) -> bool {
    !draft.contains("--draft-len") && got["speculation"]["rounds"].as_u64() <= Some(30)
}

#[test]
fn every_drafter_gives_the_same_tokens_as_none() {
    let files = Files::new();
    let prompt: String = (0..60).map(|i| (65 + i % 7).to_string() + ",").collect::<String>() + "65";
    for sampling in [
        "",
        " --temperature 0.8 --seed 5",
        " --temperature 1 --top-p 0.9 --top-k 40 --min-p 0.01 --seed 6",
        " --repeat-penalty 1.2",
    ] {
        for kv in ["f16", "f32", "q8"] {
            let base = format!("generate --model target.gguf --ids {prompt} -n 60 --json --kv {kv}{sampling}");
            let plain = files.spec(&format!("{base} --draft none")).json();
            assert_eq!(plain["speculation"]["drafted"], 0);
            for draft in [
                "--draft ngram",
                "--draft self --draft-len 5",
                "--draft self",
                "--draft-model draft.gguf",
                "--draft model --draft-model draft.gguf --draft-len 7",
            ] {
                let got = files.spec(&format!("{base} {draft}")).json();
                assert_eq!(got["tokens"], plain["tokens"], "{draft}{sampling} {kv}");
                assert_eq!(got["text"], plain["text"]);
                // Random weights sampled at a temperature hardly repeat themselves: n-grams have nothing to copy then.
                let nothing_to_copy = draft == "--draft ngram" && sampling.contains("temperature");
                let drafted = got["speculation"]["drafted"].as_u64();
                let idle = nothing_to_copy || is_short_for_trials(draft, &got);
                assert!(drafted > Some(0) || idle, "{draft}{sampling}: {}", got["speculation"]);
                // With a length that is measured, trials read a part of the text only.
                if draft == "--draft self --draft-len 5" {
                    assert_eq!(got["speculation"]["accepted"], got["speculation"]["drafted"], "{sampling} {kv}");
                }
            }
        }
    }
}

#[test]
fn floats_are_quantised_while_loading_and_what_falls_back_is_said() {
    let files = Files::new();
    let spec = TinySpec { types: TinyTypes::all(TensorType::F16), ..TinySpec::llama() };
    std::fs::write(files.path("floats.gguf"), tiny::gguf(spec)).expect("a file");
    for (name, quantizer) in [("q8_0", Quantizer::Q8_0), ("q4_0", Quantizer::Q4_0), ("q4_K", Quantizer::Q4K)] {
        std::fs::write(files.path("stored.gguf"), tiny::gguf_quantized(spec, quantizer)).expect("a file");
        let rest = "--ids 65,66,67 -n 30 --json --temperature 0.9 --seed 4 --logprobs 2";
        let stored = files.spec(&format!("generate --model stored.gguf {rest}")).json();
        let ran = files.spec(&format!("generate --model floats.gguf --quant {name} {rest}"));
        let said = ran.err();
        let loaded = ran.json();
        assert_eq!((&loaded["tokens"], &loaded["logprobs"]), (&stored["tokens"], &stored["logprobs"]), "{name}");
        let note = "11 matrices of 96 inputs, which is no multiple of 256, stored as Q8_0";
        assert_eq!(said.contains(note), name == "q4_K", "{name}: {said}");
    }
    files.spec("generate --model floats.gguf -p hi --quant q5_0").refused(2, &["q5_0", "q4_K"]);
}

#[test]
fn json_has_every_field_that_is_promised() {
    let files = Files::new();
    let json = files.spec("generate --model target.gguf -p abcabcabc -n 20 --logprobs 2 --json --seed 3").json();
    for field in ["tokens", "text", "finish_reason", "prompt_tokens", "completion_tokens", "seed", "logprobs"] {
        assert!(!json[field].is_null(), "{field}: {json}");
    }
    for field in [
        "load_ms",
        "prefill_ms",
        "decode_ms",
        "draft_ms",
        "ahead_ms",
        "verify_ms",
        "sample_ms",
        "rollback_ms",
        "decode_tokens_per_second",
    ] {
        assert!(json["timings"][field].as_f64().is_some(), "{field}: {json}");
    }
    for field in [
        "drafter",
        "rule",
        "rounds",
        "drafted",
        "accepted",
        "acceptance_rate",
        "mean_accepted_length",
        "tokens_per_round",
        "accepted_by_position",
        "ahead",
    ] {
        assert!(!json["speculation"][field].is_null(), "{field}: {json}");
    }
    assert_eq!(json["seed"], 3);
    let tokens = json["tokens"].as_array().expect("ids");
    let logprobs = json["logprobs"].as_array().expect("a list");
    assert_eq!(tokens.len(), logprobs.len());
    for (token, logprob) in tokens.iter().zip(logprobs) {
        assert_eq!(logprob["id"], *token);
        assert!(logprob["logprob"].as_f64() <= Some(0.0));
        let top = logprob["top"].as_array().expect("alternatives");
        assert_eq!(top.len(), 2);
        assert_eq!(top[0][0], *token, "the greedy token is the likeliest");
    }
}

#[test]
fn ids_come_back_as_ids() {
    let files = Files::new();
    let json = files.spec("generate --model target.gguf --ids 70,71,72 -n 8 --json").json();
    let ids: Vec<String> = json["tokens"].as_array().expect("ids").iter().map(Value::to_string).collect();
    let printed = files.spec("generate --model target.gguf --ids 70,71,72 -n 8 --output ids").ok().out();
    assert_eq!(printed.trim_end(), ids.join(","));
}

#[test]
fn limits_are_kept_and_stops_reported() {
    let files = Files::new();
    let run = |rest: &str| files.spec(&format!("generate --model target.gguf --ids 70,71,72 --json {rest}")).json();
    let full = run("-n 30");
    let tokens = full["tokens"].as_array().expect("ids");
    assert_eq!((tokens.len(), &full["finish_reason"]), (30, &Value::from("length")));
    let stop = &tokens[12];
    let first = tokens.iter().position(|token| token == stop).expect("it is there");
    let stopped = run(&format!("-n 30 --stop-id {stop} --draft self"));
    assert_eq!(stopped["finish_reason"], "stop");
    assert_eq!(stopped["tokens"].as_array().map(Vec::len), Some(first), "the end token is not shown");
    assert_eq!(stopped["completion_tokens"], first + 1, "and is counted");
    assert_eq!(run("-n 0")["tokens"], Value::Array(Vec::new()));
}

#[test]
fn a_stop_text_never_shows() {
    let files = Files::new();
    let full = files.spec("generate --model target.gguf -p hello -n 40 --json").json();
    let text = full["text"].as_str().expect("text");
    let stop: String = text.chars().filter(char::is_ascii_alphabetic).nth(5).expect("a letter").to_string();
    let ran =
        files.spec(&format!("generate --model target.gguf -p hello -n 40 --stop {stop} --draft self --json")).json();
    assert_eq!(ran["text"].as_str(), Some(&text[..text.find(&stop).expect("it is there")]));
    assert_eq!(ran["finish_reason"], "stop");
}

#[test]
fn text_streams_to_standard_output_and_figures_to_standard_error() {
    let files = Files::new();
    let ran = files.spec("generate --model target.gguf -p abcabcabc -n 20").ok();
    let json = files.spec("generate --model target.gguf -p abcabcabc -n 20 --json").json();
    assert_eq!(ran.out(), json["text"].as_str().expect("text"));
    assert!(ran.err().contains("tokens/s"), "{}", ran.err());
}

#[test]
fn the_chat_template_is_used_when_asked_for() {
    let files = Files::new();
    let chat = files.spec("generate --model target.gguf --chat -p hi -n 2 --json").json();
    let bare = files.spec("generate --model target.gguf -p hi -n 2 --json").json();
    assert!(chat["prompt_tokens"].as_u64() > bare["prompt_tokens"].as_u64());
}

#[test]
fn prompts_come_from_files_and_standard_input() {
    let files = Files::new();
    std::fs::write(files.path("prompt.txt"), "abcabc").expect("a file");
    let from_file = files.spec("generate --model target.gguf -f prompt.txt -n 9 --json").json();
    let given = files.spec("generate --model target.gguf -p abcabc -n 9 --json").json();
    assert_eq!(from_file["tokens"], given["tokens"]);
}

#[test]
fn wrong_command_lines_are_refused_in_one_line_with_code_2() {
    let files = Files::new();
    for (line, words) in [
        ("generate --model target.gguf", &["prompt"][..]),
        ("generate --model target.gguf -p hi -n -1", &["-1"]),
        ("generate --model target.gguf -p hi -n many", &["many"]),
        ("generate --model target.gguf -p hi --temperature -1", &["temperature"]),
        ("generate --model target.gguf -p hi --temperature nan", &["temperature"]),
        ("generate --model target.gguf -p hi --top-p 1.5", &["top"]),
        ("generate --model target.gguf -p hi --min-p 2", &["min"]),
        ("generate --model target.gguf -p hi --repeat-penalty 0", &["repeat"]),
        ("generate --model target.gguf -p hi --draft wings", &["wings", "ngram"]),
        ("generate --model target.gguf -p hi --draft model", &["--draft-model"]),
        (
            "generate --model target.gguf -p hi --draft-len 3 --length-policy goodput",
            &["--draft-len 3", "--length-policy"],
        ),
        ("generate --model target.gguf -p hi --rule nope", &["nope", "epsilon-published:x"]),
        ("generate --model target.gguf -p hi --rule epsilon:7", &["from 0 to 1"]),
        ("generate --model target.gguf -p hi --rule epsilon-published", &["ngram", "draft with a model"]),
        ("generate --model target.gguf -p hi --rule greedy --temperature 1", &["--rule greedy"]),
        ("generate --model target.gguf -p hi --length-policy nope", &["nope", "goodput:x"]),
        ("generate --model target.gguf -p hi --draft-len 1000", &["1000", "64"]),
        ("generate --model target.gguf -p hi --threads 0", &["threads"]),
        ("generate --model target.gguf -p hi --kv q3", &["q3", "f16"]),
        ("generate --model target.gguf --ids 1,2,9999", &["9999", "331"]),
        ("generate --model target.gguf --ids 1,x", &["x"]),
        ("generate --model target.gguf -p hi --stop-id 9999", &["9999"]),
        ("generate --model target.gguf -p hi --context 9999", &["9999", "256"]),
        ("generate --model target.gguf -p hi --frobnicate", &["frobnicate"]),
        ("generate --model target.gguf -p hi --temprature 1", &["--temprature", "--temperature"]),
        ("generate --model target.gguf -p hi --mem-limit much", &["much", "300MB"]),
        ("generate --model target.gguf -p hi --show-accept=some", &["some", "kept", "all"]),
        ("chat --model target.gguf --context 9999", &["9999", "256"]),
        ("chat --model target.gguf --rule greedy --temperature 1", &["--rule greedy"]),
        ("completions tcsh", &["tcsh", "bash"]),
        ("genrate", &["genrate", "generate"]),
        ("conjure", &["conjure"]),
        ("bench forward --model target.gguf --rows 0", &["--rows"]),
        ("bench forward --model target.gguf --rows 1 --context 300", &["256"]),
    ] {
        files.spec(line).refused(2, words);
    }
    files.spec_words(&["generate", "--model", "target.gguf", "-p", ""]).refused(2, &["prompt"]);
    files.spec_words(&["generate", "--model", "short.gguf", "-p", &"q ".repeat(64)]).refused(2, &["128 tokens", "64"]);
    files.spec_words(&["generate", "--model", "target.gguf", "-p", "hi", "--stop", ""]).refused(2, &["--stop"]);
}

#[test]
fn files_that_cannot_be_used_are_named_with_code_1() {
    let files = Files::new();
    let whole = tiny::gguf(TinySpec::llama());
    std::fs::write(files.path("cut.gguf"), &whole[..whole.len() - 1]).expect("a file");
    std::fs::write(files.path("page.gguf"), "<!DOCTYPE html><html>").expect("a file");
    std::fs::write(files.path("binary.txt"), [0xff, 0xfe, 0x00]).expect("a file");
    for (line, words) in [
        ("generate --model missing.gguf -p hi", &["missing.gguf"][..]),
        ("generate --model cut.gguf -p hi", &["cut.gguf"]),
        ("generate --model page.gguf -p hi", &["page.gguf"]),
        ("inspect --model page.gguf", &["page.gguf"]),
        ("generate --model target.gguf -f nowhere.txt", &["nowhere.txt"]),
        ("generate --model target.gguf -f binary.txt", &["binary.txt", "UTF-8"]),
        ("generate --model target.gguf -p hi --draft-model cut.gguf", &["cut.gguf"]),
        ("generate --model target.gguf -p hi --draft-model other.gguf", &["other.gguf", "id 318"]),
    ] {
        files.spec(line).refused(1, words);
    }
}

#[test]
fn a_draft_model_that_is_not_used_is_not_loaded() {
    let files = Files::new();
    for draft in ["none", "ngram", "self"] {
        files.spec(&format!("generate --model target.gguf -p hi -n 3 --draft {draft} --draft-model missing.gguf")).ok();
    }
}

#[test]
fn a_drafter_past_its_own_context_stops_drafting_and_not_the_answer() {
    let files = Files::new();
    let run =
        |draft: &str| files.spec(&format!("generate --model target.gguf --ids 70,71,72 -n 150 --json {draft}")).json();
    let (plain, got) = (run("--draft none"), run("--draft model --draft-model short.gguf --draft-len 5"));
    assert_eq!(got["tokens"], plain["tokens"]);
    let drafted = got["speculation"]["drafted"].as_u64().expect("a count");
    assert!((20..=70).contains(&drafted), "{drafted}");
    // The same weights, but for tokens that are not on the shortlist yet.
    let accepted = got["speculation"]["accepted"].as_u64().expect("a count");
    assert!(2 * accepted > drafted, "{accepted} of {drafted}");
}

#[test]
fn tokenize_and_inspect_show_what_a_file_holds() {
    let files = Files::new();
    let json = files.spec("tokenize --model target.gguf --json hello").json();
    assert!(json["tokens"].as_array().is_some_and(|tokens| !tokens.is_empty()));
    let shown = files.spec("inspect --model target.gguf").ok().out();
    for word in ["llama", "331", "token_embd.weight", "Q4_1", "chat template", "parameters", "KV q8", "GGUF version 3"]
    {
        assert!(shown.contains(word), "{word}\n{shown}");
    }
    let json = files.spec("inspect --model target.gguf --json").json();
    let (spec, memory) = (TinySpec::llama(), json["memory"].as_array().expect("a list"));
    let last = memory.last().expect("the model's own context");
    assert_eq!(last["context"], 256);
    // Keys and values of every layer and head, at two bytes an element.
    assert_eq!(last["kv_bytes"]["f16"], 256 * 2 * spec.layers * spec.kv_heads * spec.head_dim * 2);
    assert_eq!(json["types"]["Q4_1"]["tensors"], 7 * spec.layers);
    let weights: u64 = json["types"].as_object().expect("types").values().filter_map(|t| t["bytes"].as_u64()).sum();
    assert_eq!(last["weights_bytes"], weights);
    assert!(json["parameters"].as_u64() > Some(100_000) && json["chat_template"] == true, "{json}");
    assert_eq!(json["tokenizer"]["end_ids"][0], 330);
}

#[test]
fn bench_forward_reports_every_row_count_and_both_ceilings() {
    let files = Files::new();
    let json = files.spec("bench forward --model target.gguf --rows 1,3 --context 20 --rounds 2 --json").json();
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.iter().map(|row| row["rows"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(3)]);
    for field in ["ms", "p95_ms", "tokens_per_second", "bytes_per_second"] {
        assert!(rows.iter().all(|row| row[field].as_f64() > Some(0.0)), "{field}: {json}");
    }
    assert!(json["bandwidth"].as_f64() > Some(1e8) && json["peak_int8_macs"].as_f64() > Some(1e8), "{json}");
    assert_eq!(json["context_length"], 256);
    assert!(
        ["model", "device"].iter().all(|field| json[*field].as_str().is_some_and(|name| !name.is_empty())),
        "{json}"
    );
}

#[test]
fn demo_compares_plain_and_speculative() {
    let files = Files::new();
    std::fs::write(files.path("one.txt"), "abcabcabcabc").expect("a file");
    let folder = files.folder.path().display().to_string();
    let ran = files.spec_words(&["demo", "--model", "target.gguf", "--prompts", &folder, "-n", "40", "--json"]);
    let json = ran.json();
    assert_eq!((&json["prompt"], &json["equal"]), (&Value::from("one"), &Value::from(true)));
    assert!(json["drafted"].as_u64() > Some(0));
}

#[test]
fn help_is_help_and_goes_to_standard_output() {
    let files = Files::new();
    assert!(files.spec("generate --help").ok().out().contains("--draft-len"));
    assert!(files.spec("--version").ok().out().starts_with("spec "));
}

#[test]
fn cold_starts_accept_alike() {
    let files = Files::new();
    // The default length goes by the clock, which may change what is drafted, never what is written.
    let line = "generate --model target.gguf --ids 70,71,72 -n 30 --json --draft-model draft.gguf --draft-len 5";
    let run = || files.spec(line).json();
    let first = run();
    assert!(first["speculation"]["drafted"].as_u64() > Some(0));
    for _ in 0..20 {
        let again = run();
        assert_eq!((&again["tokens"], &again["speculation"]), (&first["tokens"], &first["speculation"]));
    }
}

#[test]
fn portable_kernels_give_the_same_answer_with_and_without_drafts_and_say_that_they_ran() {
    let files = Files::new();
    let words = ["generate", "--model", "target.gguf", "-p", "abcabcabc", "-n", "20", "--draft"];
    let run = |draft| files.spec_with(&[&words[..], &[draft]].concat(), &[("SPEC_CPU_ISA", "portable")]).ok();
    let (plain, copied) = (run("none"), run("self"));
    assert_eq!(plain.out(), copied.out());
    assert!(plain.err().contains("portable kernels"), "{}", plain.err());
    files.spec_with(&words[..7], &[("SPEC_CPU_ISA", "abacus")]).refused(1, &["abacus", "portable"]);
}

impl Files {
    fn gpt2(&self, name: &str) {
        std::fs::write(self.path(name), tiny::gguf(TinySpec::gpt2())).expect("a file");
    }

    /// Writes `name`, the target's file with the bytes behind `key` replaced; `skip` of them stay.
    fn patched(&self, name: &str, key: &str, skip: usize, with: &[u8]) {
        let mut bytes = std::fs::read(self.path("target.gguf")).expect("the target");
        let at = bytes.windows(key.len()).position(|window| window == key.as_bytes()).expect("the key");
        let start = at + key.len() + skip;
        bytes[start..start + with.len()].copy_from_slice(with);
        std::fs::write(self.path(name), bytes).expect("a file");
    }
}

#[test]
fn the_targets_end_tokens_rule_whatever_the_drafts_are() {
    let files = Files::new();
    // Behind the key stand the type and the value: for the draft a letter ends a text.
    files.patched("ends.gguf", "tokenizer.ggml.eos_token_id", 4, &97_u32.to_le_bytes());
    let tail = "--draft-len 4 -n 60 -p hello --output ids";
    let plain = files.spec(&format!("generate --model target.gguf --draft none {tail}")).ok().out();
    let drafted = files.spec(&format!("generate --model target.gguf --draft model --draft-model ends.gguf {tail}"));
    assert_eq!(drafted.ok().out(), plain);
}

#[test]
fn a_file_that_does_not_say_how_text_is_split_is_refused_until_somebody_says() {
    let files = Files::new();
    // Behind the key stand the type and the length of the text.
    files.patched("odd.gguf", "tokenizer.ggml.pre", 12, b"xyz-2");
    let line = "tokenize --model odd.gguf hello";
    files.spec(line).refused(2, &["odd.gguf", "`xyz-2`", "qwen2", "llama-bpe", "--pre-tokenizer"]);
    files.spec(&format!("{line} --pre-tokenizer nope")).refused(2, &["`nope`", "llama-bpe"]);
    let named = files.spec(&format!("{line} --pre-tokenizer gpt-2")).ok().out();
    assert_eq!(named, files.spec("tokenize --model target.gguf hello").ok().out());
}

#[test]
fn chat_without_a_template_is_refused_with_the_reason() {
    let files = Files::new();
    files.patched("bare.gguf", "tokenizer.chat_templat", 0, b"f");
    files.spec("generate --model bare.gguf --chat -p hi").refused(2, &["bare.gguf", "no chat template"]);
    files.spec("generate --model bare.gguf -n 2 -p hi").ok();
}
