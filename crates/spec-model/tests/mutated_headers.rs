//! 10,000 damaged headers: none may panic, and none may make the parser allocate more than a small multiple of the file.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod tiny;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use spec_model::Checkpoint;
use spec_model::gguf::Gguf;

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

#[test]
fn ten_thousand_damaged_headers_neither_panic_nor_allocate_without_bound() {
    let whole = tiny::llama().finish();
    let header = Gguf::parse(whole.as_slice(), "tiny.gguf").unwrap().tensors()[0].range.start;
    let fields = integer_positions(&whole[..header]);
    let (refused, accepted) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() });
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
            let _ = checkpoint.weights().embedding.row(0);
            let _ = checkpoint.tokenizer();
            let _ = checkpoint.chat_template();
        }
        Ok(())
    });
    outcome.unwrap();
    let (refused, accepted) = (refused.get(), accepted.get());
    println!("refused {refused}, accepted {accepted}");
    // The mutations are neither so mild that nothing breaks nor so harsh that only the first check is reached.
    assert!(refused > 2_000 && accepted > 100, "refused {refused}, accepted {accepted}");
}
