//! Damaged files of every kind: none may panic, and none may make a parser allocate more than a small multiple of the file.
//! `PROPTEST_CASES` asks for more of them than CI has.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod exercise;
mod tiny;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use exercise::exercise;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use spec_model::Checkpoint;
use spec_model::gguf::Gguf;
use spec_model::safetensors::Safetensors;

/// The system's allocator, counting the bytes that the current thread holds at most.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn account(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is forwarded unchanged to the system's allocator; the counters are plain thread-local cells without
// destructors, so that counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        account(layout.size() as isize);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        account(-(layout.size() as isize));
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak of bytes held above the level at the call.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before) as usize
}

#[derive(Debug, Clone)]
enum Mutation {
    FlipBit(usize, u8),
    SetByte(usize, u8),
    Truncate(usize),
    /// Copies a stretch of the file over another place.
    Splice {
        from: usize,
        to: usize,
        length: usize,
    },
    Remove {
        at: usize,
        length: usize,
    },
    Extreme32(usize, u32),
    Extreme64(usize, u64),
}

impl Mutation {
    /// Positions are taken modulo the length, so that every one hits.
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let size = bytes.len();
        let mut put = |at: usize, value: &[u8]| {
            let at = at % size;
            let count = value.len().min(size - at);
            bytes[at..at + count].copy_from_slice(&value[..count]);
        };
        match *self {
            Self::FlipBit(at, bit) => bytes[at % size] ^= 1 << (bit % 8),
            Self::SetByte(at, byte) => put(at, &[byte]),
            Self::Truncate(length) => bytes.truncate(length % size),
            Self::Splice { from, to, length } => {
                let from = from % size;
                let piece = bytes[from..(from + length).min(size)].to_vec();
                let to = to % size;
                bytes.splice(to..to, piece);
            }
            Self::Remove { at, length } => {
                let at = at % size;
                bytes.drain(at..(at + length).min(size));
            }
            Self::Extreme32(at, value) => put(at, &value.to_le_bytes()),
            Self::Extreme64(at, value) => put(at, &value.to_le_bytes()),
        }
    }
}

/// Positions of every integer field: the counts, and each length, count and dimension before or after a name.
fn integer_positions(bytes: &[u8]) -> Vec<usize> {
    let mut positions = vec![4, 8, 16];
    for at in 24..bytes.len().saturating_sub(8) {
        let word = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if (1..1 << 12).contains(&word) {
            positions.push(at);
        }
    }
    positions
}

fn mutation(fields: Vec<usize>, header: usize) -> impl Strategy<Value = Mutation> {
    let field = || proptest::sample::select(fields.clone());
    let extreme64 = prop_oneof![
        proptest::sample::select(vec![
            0,
            1,
            u64::MAX,
            u64::MAX - 31,
            1 << 63,
            1 << 60,
            1 << 40,
            1 << 32,
            1 << 20,
            1 << 16
        ]),
        any::<u64>(),
        0_u64..4096,
    ];
    let extreme32 = prop_oneof![0_u32..40, any::<u32>()];
    prop_oneof![
        2 => (0..header, any::<u8>()).prop_map(|(at, bit)| Mutation::FlipBit(at, bit)),
        2 => (0..header, any::<u8>()).prop_map(|(at, byte)| Mutation::SetByte(at, byte)),
        1 => any::<usize>().prop_map(Mutation::Truncate),
        1 => (0..header, 0..header, 0_usize..200).prop_map(|(from, to, length)| Mutation::Splice { from, to, length }),
        1 => (0..header, 0_usize..64).prop_map(|(at, length)| Mutation::Remove { at, length }),
        2 => (field(), extreme32).prop_map(|(at, value)| Mutation::Extreme32(at, value)),
        4 => (field(), extreme64).prop_map(|(at, value)| Mutation::Extreme64(at, value)),
    ]
}

/// So many cases, or more where `PROPTEST_CASES` asks for them.
fn runner(cases: u32) -> TestRunner {
    let config = Config { failure_persistence: None, ..Config::default() };
    TestRunner::new(Config { cases: cases.max(config.cases), ..config })
}

#[test]
fn ten_thousand_damaged_headers_neither_panic_nor_allocate_without_bound() {
    let whole = tiny::llama().finish();
    let header = Gguf::parse(whole.as_slice(), "tiny.gguf").unwrap().tensors()[0].range.start;
    let fields = integer_positions(&whole[..header]);
    let (refused, accepted) = (Cell::new(0), Cell::new(0));
    let mut runner = runner(10_000);
    let strategy = proptest::collection::vec(mutation(fields, header), 1..4);
    let outcome = runner.run(&strategy, |mutations| {
        let mut bytes = whole.clone();
        mutations.iter().for_each(|m| m.apply(&mut bytes));
        let mut parsed = false;
        let peak = peak_of(|| parsed = Gguf::parse(bytes.as_slice(), "damaged.gguf").is_ok());
        prop_assert!(peak <= 16 * bytes.len() + 4096, "{peak} bytes held for a file of {}", bytes.len());
        let count = if parsed { &accepted } else { &refused };
        count.set(count.get() + 1);
        // What parses goes on to the checks behind it.
        if parsed && let Ok(checkpoint) = Checkpoint::from_bytes(bytes, "damaged.gguf") {
            exercise(&checkpoint);
        }
        Ok(())
    });
    outcome.unwrap();
    let (refused, accepted) = (refused.get(), accepted.get());
    println!("refused {refused}, accepted {accepted}");
    // The mutations are neither so mild that nothing breaks nor so harsh that only the first check is reached.
    assert!(refused > 2_000 && accepted > 100, "refused {refused}, accepted {accepted}");
}

/// What is put into JSON: what it is made of, and numbers that are too large for something.
const JSON_PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "-1",
    "0",
    "1",
    "2",
    "1.5",
    "1e999",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999",
    "[[[[[[[[",
    "\"a\":",
    "{\"a\":1}",
    "\\u0000",
    "BF16",
    "I64",
];

#[derive(Debug, Clone)]
enum JsonEdit {
    /// In the place of a number of the text, counted from its start.
    Number(usize, usize),
    Insert(usize, usize),
    Overwrite(usize, usize),
    Remove {
        at: usize,
        length: usize,
    },
}

impl JsonEdit {
    fn apply(&self, text: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        let size = text.len();
        let piece = |index: usize| JSON_PIECES[index % JSON_PIECES.len()].bytes();
        match *self {
            Self::Number(which, value) => {
                let starts: Vec<usize> = (1..size)
                    .filter(|&at| text[at].is_ascii_digit() && !text[at - 1].is_ascii_alphanumeric())
                    .collect();
                let Some(&start) = starts.get(which % starts.len().max(1)) else { return };
                let end = (start..size).find(|&at| !text[at].is_ascii_digit()).unwrap_or(size);
                // Numbers and what may stand for one.
                text.splice(start..end, piece(7 + value % 11));
            }
            Self::Insert(at, index) => drop(text.splice(at % size..at % size, piece(index))),
            Self::Overwrite(at, index) => {
                let at = at % size;
                let end = (at + piece(index).len()).min(size);
                text.splice(at..end, piece(index));
            }
            Self::Remove { at, length } => drop(text.drain(at % size..(at % size + length).min(size))),
        }
    }
}

fn json_edit() -> impl Strategy<Value = JsonEdit> {
    prop_oneof![
        4 => (any::<usize>(), any::<usize>()).prop_map(|(which, value)| JsonEdit::Number(which, value)),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(at, piece)| JsonEdit::Insert(at, piece)),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(at, piece)| JsonEdit::Overwrite(at, piece)),
        1 => (any::<usize>(), 1_usize..40).prop_map(|(at, length)| JsonEdit::Remove { at, length }),
    ]
}

/// The JSON header of a safetensors file with edits, its length put right.
fn edited_header(whole: &[u8], edits: &[JsonEdit]) -> Vec<u8> {
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut header = whole[8..8 + length].to_vec();
    edits.iter().for_each(|edit| edit.apply(&mut header));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(&header);
    bytes.extend(&whole[8 + length..]);
    bytes
}

#[test]
fn damaged_safetensors_neither_panic_nor_allocate_without_bound() {
    let whole = tiny::folder::serialize(&tiny::folder::tensors("qwen2", 1));
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let strategy =
        (proptest::collection::vec(json_edit(), 0..4), proptest::collection::vec(mutation(vec![0], header), 0..2));
    let (refused, accepted) = (Cell::new(0), Cell::new(0));
    let outcome = runner(5000).run(&strategy, |(edits, mutations)| {
        let mut bytes = edited_header(&whole, &edits);
        mutations.iter().for_each(|m| m.apply(&mut bytes));
        let mut parsed = None;
        let peak = peak_of(|| parsed = Safetensors::parse(bytes.as_slice(), "damaged").ok());
        prop_assert!(peak <= 16 * bytes.len() + 4096, "{peak} bytes held for a file of {}", bytes.len());
        match parsed {
            Some(file) => {
                let all: usize = (0..file.tensors().len()).map(|index| file.tensor_bytes(index).len()).sum();
                prop_assert!(all <= bytes.len());
                accepted.set(accepted.get() + 1);
            }
            None => refused.set(refused.get() + 1),
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(refused.get() > 1000 && accepted.get() > 100, "refused {}, accepted {}", refused.get(), accepted.get());
}

#[test]
fn damaged_folders_are_refused_or_make_sense() {
    for model_type in ["gemma3_text", "gpt2", "qwen3"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut config = tiny::folder::config(model_type, 2);
        if model_type == "qwen3" {
            let yarn = r#"{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":64,"beta_fast":32}"#;
            config["rope_scaling"] = serde_json::from_str(yarn).unwrap();
            config["use_sliding_window"] = true.into();
            config["sliding_window"] = 8.into();
            config["max_window_layers"] = 1.into();
        }
        tiny::folder::write_set(folder.path(), &config, &tiny::folder::tensors(model_type, 2), 2);
        let names = ["config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"];
        let whole = names.map(|name| std::fs::read(path(name)).unwrap());
        let strategy = (0..names.len(), proptest::collection::vec(json_edit(), 1..4));
        let (refused, accepted) = (Cell::new(0), Cell::new(0));
        let outcome = runner(4_000).run(&strategy, |(which, edits)| {
            let mut bytes = whole[which].clone();
            if names[which].ends_with(".json") {
                edits.iter().for_each(|edit| edit.apply(&mut bytes));
            } else {
                bytes = edited_header(&bytes, &edits);
            }
            std::fs::write(path(names[which]), &bytes).unwrap();
            match Checkpoint::open(folder.path()) {
                Ok(checkpoint) => {
                    exercise(&checkpoint);
                    accepted.set(accepted.get() + 1);
                }
                Err(error) => {
                    prop_assert!(!error.to_string().is_empty());
                    refused.set(refused.get() + 1);
                }
            }
            std::fs::write(path(names[which]), &whole[which]).unwrap();
            Ok(())
        });
        outcome.unwrap();
        let (refused, accepted) = (refused.get(), accepted.get());
        assert!(refused > 100 && accepted > 10, "{model_type}: refused {refused}, accepted {accepted}");
    }
}

#[test]
fn damaged_sets_are_refused_or_make_sense() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().join(format!("tiny-{number:05}-of-00002.gguf"));
    let shard = |number: u32| {
        let keys = if number == 0 { tiny::llama() } else { spec_model::gguf::write::Writer::new() };
        keys.key("split.no", number).key("split.count", 2_u32).key("split.tensors.count", 11_u32)
    };
    let whole = tiny::llama().finish();
    let whole = Gguf::parse(whole.as_slice(), "whole").unwrap();
    let mut shards = [shard(0), shard(1)];
    for (index, info) in whole.tensors().iter().enumerate() {
        let dims: Vec<u64> = info.dims.iter().map(|&dim| dim as u64).collect();
        // The first file began with all of them.
        shards[0] = shards[0].clone().without_tensor(&info.name);
        let target = &mut shards[usize::from(index >= 6)];
        *target = target.clone().tensor(&info.name, info.tensor_type, &dims, whole.tensor_bytes(index));
    }
    let files = [1, 2].map(|number| shards[number - 1].clone().finish());
    for number in [1, 2] {
        std::fs::write(path(number), &files[number - 1]).unwrap();
    }
    assert!(Checkpoint::open(path(2)).is_ok());
    let header = 600.min(files[1].len());
    let fields = integer_positions(&files[1][..header]);
    let strategy = (0..2_usize, proptest::collection::vec(mutation(fields, header), 1..4));
    let (refused, accepted) = (Cell::new(0), Cell::new(0));
    let outcome = runner(4_000).run(&strategy, |(which, mutations)| {
        let mut bytes = files[which].clone();
        mutations.iter().for_each(|m| m.apply(&mut bytes));
        std::fs::write(path(which + 1), &bytes).unwrap();
        match Checkpoint::open(path(2 - which)) {
            Ok(checkpoint) => {
                exercise(&checkpoint);
                accepted.set(accepted.get() + 1);
            }
            Err(_) => refused.set(refused.get() + 1),
        }
        std::fs::write(path(which + 1), &files[which]).unwrap();
        Ok(())
    });
    outcome.unwrap();
    assert!(refused.get() > 100 && accepted.get() > 10, "refused {}, accepted {}", refused.get(), accepted.get());
}
