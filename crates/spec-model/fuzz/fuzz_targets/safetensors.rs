//! Any bytes as a folder: up to the first zero byte its `config.json`, behind it a safetensors file.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use spec_model::Checkpoint;
use tempfile::TempDir;

#[path = "../../tests/exercise/mod.rs"]
mod exercise;

static FOLDER: OnceLock<TempDir> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder")).path();
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    for name in ["config.json", "model.safetensors"] {
        std::fs::write(folder.join(name), parts.next().unwrap_or_default()).expect("room for the file");
    }
    if let Ok(checkpoint) = Checkpoint::open(folder) {
        exercise::exercise(&checkpoint);
    }
});
