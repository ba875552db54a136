//! Files that announce far more than they hold, opened by a process that may have four gibibytes of addresses.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod tiny;

use std::path::Path;
use std::process::Command;

use spec_model::Checkpoint;

/// Set in the process that is limited.
const LIMITED: &str = "SPEC_TEST_LIMITED";
const KIBIBYTES: u32 = 4 << 20;

#[test]
fn hostile_files_are_refused_within_four_gibibytes() {
    if std::env::var_os(LIMITED).is_some() {
        open_everything();
        return;
    }
    let limited = format!("ulimit -v {KIBIBYTES} && exec \"$0\" \"$@\"");
    let run = Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "hostile_files_are_refused_within_four_gibibytes", "--nocapture"])
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let shown = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{shown}");
    // The limit holds: a file of eight gibibytes could not be mapped.
    assert!(shown.contains("cannot map"), "{shown}");
}

fn open_everything() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let refused = |path: &Path| println!("{}", Checkpoint::open(path).unwrap_err());

    let whole = tiny::llama().finish();
    std::fs::write(at("good.gguf"), &whole).unwrap();
    Checkpoint::open(at("good.gguf")).unwrap().tokenizer().unwrap();
    for (place, value) in [(8, 1_u64 << 60), (16, 1 << 60), (8, u64::MAX), (24, 1 << 40)] {
        let mut hostile = whole.clone();
        hostile[place..place + 8].copy_from_slice(&value.to_le_bytes());
        std::fs::write(at("hostile.gguf"), hostile).unwrap();
        refused(&at("hostile.gguf"));
    }
    std::fs::OpenOptions::new().write(true).open(at("good.gguf")).unwrap().set_len(8 << 30).unwrap();
    refused(&at("good.gguf"));
    std::fs::remove_file(at("good.gguf")).unwrap();
    std::fs::remove_file(at("hostile.gguf")).unwrap();

    let tensors = tiny::folder::tensors("llama", 1);
    tiny::folder::write(folder.path(), &tiny::folder::config("llama", 1), &tensors);
    Checkpoint::open(folder.path()).unwrap();
    // JSON that takes the most memory for its bytes: empty lists, short entries, deep nesting.
    let many = |piece: &str, bytes: usize| piece.repeat(bytes / piece.len());
    let header = |text: String| {
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text.into_bytes());
        bytes
    };
    let bombs = [
        header(format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":[{}1],\"data_offsets\":[0,4]}}}}", many("0,", 60 << 20))),
        header(format!("{{\"__metadata__\":[{}[]]}}", many("[],", 60 << 20))),
        header(format!("{{\"__metadata__\":{}", many("[", 60 << 20))),
        header(format!("{{{}\"a\":1}}", many("\"__metadata__\":{},", 60 << 20))),
    ];
    for bomb in bombs {
        std::fs::write(at("model.safetensors"), bomb).unwrap();
        refused(folder.path());
    }
    tiny::folder::write(folder.path(), &tiny::folder::config("llama", 1), &tensors);
    for bomb in [
        format!("{{\"a\":[{}[]]}}", many("[],", 1 << 20)),
        format!("{{\"model_type\":\"llama\",\"layer_types\":[{}[]]}}", many("[],", (1 << 20) - 100)),
        many("[", 1 << 20),
    ] {
        std::fs::write(at("config.json"), bomb).unwrap();
        refused(folder.path());
    }
    tiny::folder::write(folder.path(), &tiny::folder::config("llama", 1), &tensors);
    let entries: String = (0..2_000_000).map(|i| format!("\"{i}\":\"{i}.safetensors\",")).collect();
    for bomb in [format!("{{\"weight_map\":{{{entries}\"a\":\"a.safetensors\"}}}}"), many("[", 60 << 20)] {
        std::fs::write(at("model.safetensors.index.json"), bomb).unwrap();
        refused(folder.path());
    }
}
