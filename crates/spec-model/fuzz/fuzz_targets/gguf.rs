//! Any bytes as a GGUF file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spec_model::Checkpoint;

#[path = "../../tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(checkpoint) = Checkpoint::from_bytes(bytes.to_vec(), "fuzzed.gguf") {
        exercise::exercise(&checkpoint);
    }
});
