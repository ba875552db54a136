//! What users of such programs report, held against the binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use spec_testing::tiny::{self, TinySpec};

const DOCUMENTS: [(&str, &str); 4] = [
    ("README.md", include_str!("../../../README.md")),
    ("docs/README.zh-CN.md", include_str!("../../../docs/README.zh-CN.md")),
    ("docs/from-the-article.md", include_str!("../../../docs/from-the-article.md")),
    ("docs/from-the-article.zh-CN.md", include_str!("../../../docs/from-the-article.zh-CN.md")),
];

/// A folder with the files that the documents speak of.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let small = TinySpec { seed: 9, layers: 1, ..TinySpec::llama() };
        for (name, spec) in [("MODEL.gguf", TinySpec::llama()), ("SMALLER.gguf", small)] {
            std::fs::write(folder.path().join(name), tiny::gguf(spec)).expect("a file");
        }
        Self(folder)
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Runs a line in the folder as a shell would: it takes the quotes off, and knows comments and pipes.
    #[track_caller]
    fn shell(&self, line: &str) -> Output {
        let command = line.replacen("spec ", "\"$SPEC\" ", 1);
        let ran = Command::new("sh")
            .args(["-e", "-c", &command])
            .env("SPEC", env!("CARGO_BIN_EXE_spec"))
            .env("SPEC_NO_LAST_RUN", "1")
            .current_dir(self.folder())
            .output()
            .expect("a shell");
        assert!(ran.status.success(), "{line}\n{}", String::from_utf8_lossy(&ran.stderr));
        ran
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        serde_json::from_slice(&self.shell(line).stdout).expect("an object")
    }
}

/// Lines in blocks of code that start our program, without what needs a network.
fn commands(document: &str) -> impl Iterator<Item = &str> {
    document
        .split("```")
        .skip(1)
        .step_by(2)
        .flat_map(str::lines)
        .map(|line| line.trim_start_matches("target/release/"))
        .filter(|line| line.starts_with("spec ") && !line.contains("hf:"))
}

#[test]
fn commands_of_the_documents_work() {
    let files = Files::new();
    for (name, document) in DOCUMENTS {
        let mut count = 0;
        for command in commands(document) {
            count += 1;
            assert!(!files.shell(command).stdout.is_empty(), "{name}: {command} prints nothing");
        }
        assert!(count > 0, "{name} has a command to copy");
    }
}

#[test]
fn a_draft_whose_tokens_differ_in_kind_alone_is_taken() {
    let files = Files::new();
    let mut bytes = std::fs::read(files.path("SMALLER.gguf")).expect("the draft");
    let key = b"tokenizer.ggml.token_type";
    let at = bytes.windows(key.len()).position(|window| window == key).expect("the key") + key.len();
    // Types of the value and of its elements, their number, then four bytes for each token: 1 is a usual one, 4 one that a
    // user defined.
    let kinds = at + 4 + 4 + 8;
    let usual: Vec<usize> =
        (0..100).map(|token| kinds + 4 * token).filter(|&at| bytes[at..at + 4] == 1_u32.to_le_bytes()).collect();
    assert!(usual.len() > 50, "most tokens are usual ones");
    usual.iter().for_each(|&at| bytes[at..at + 4].copy_from_slice(&4_u32.to_le_bytes()));
    std::fs::write(files.path("KINDS.gguf"), bytes).expect("a file");
    let answer =
        |draft: &str| files.json(&format!("spec generate --model MODEL.gguf --ids 70,71,72 -n 40 --json {draft}"));
    let plain = answer("--draft none");
    let got = answer("--draft model --draft-model KINDS.gguf --draft-len 4");
    assert_eq!(got["tokens"], plain["tokens"]);
    assert!(got["speculation"]["drafted"].as_u64() > Some(0), "{got}");
}

#[test]
fn a_drafts_end_tokens_end_nothing() {
    let files = Files::new();
    let mut bytes = std::fs::read(files.path("SMALLER.gguf")).expect("the draft");
    let key = b"tokenizer.ggml.eos_token_id";
    let value = bytes.windows(key.len()).position(|window| window == key).expect("the key") + key.len() + 4;
    let answer = |draft: &str| files.json(&format!("spec generate --model MODEL.gguf -p hello -n 60 --json {draft}"));
    let plain = answer("--draft none");
    // For the draft, a token of the answer ends a text.
    let end = plain["tokens"][20].as_u64().expect("an id") as u32;
    bytes[value..value + 4].copy_from_slice(&end.to_le_bytes());
    std::fs::write(files.path("ENDS.gguf"), bytes).expect("a file");
    let got = answer("--draft model --draft-model ENDS.gguf --draft-len 4");
    assert_eq!((&got["tokens"], &got["finish_reason"]), (&plain["tokens"], &plain["finish_reason"]));
    assert!(got["speculation"]["drafted"].as_u64() > Some(0), "{got}");
}

#[test]
fn a_draft_with_less_context_is_said_once() {
    let files = Files::new();
    let spec = TinySpec { seed: 9, layers: 1, context: 64, ..TinySpec::llama() };
    std::fs::write(files.path("SHORT.gguf"), tiny::gguf(spec)).expect("a file");
    for (tokens, times) in [(100, 1), (40, 0)] {
        let draft = "--draft model --draft-model SHORT.gguf --draft-len 4";
        let line = format!("spec generate --model MODEL.gguf --ids 70 -n {tokens} {draft}");
        let said = String::from_utf8(files.shell(&line).stderr).expect("text");
        assert_eq!(said.matches("it holds 64 of 101 positions").count(), times, "{said}");
    }
}

#[test]
fn speed_and_acceptance_stand_side_by_side() {
    let files = Files::new();
    let line =
        "spec generate --model MODEL.gguf -p abcabc -n 30 --draft model --draft-model SMALLER.gguf --draft-len 4";
    let said = String::from_utf8(files.shell(line).stderr).expect("text");
    let footer = said.lines().find(|line| line.contains("tokens/s")).expect("a footer");
    assert!(footer.contains("% of") && footer.contains("draft tokens accepted"), "{footer}");
    let json = files.json(&format!("{line} --json"));
    assert!(json["timings"]["decode_tokens_per_second"].as_f64() > Some(0.0), "{json}");
    assert!(json["speculation"]["acceptance_rate"].as_f64().is_some(), "{json}");
}
