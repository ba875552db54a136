//! Links spec-core without the standard library. The build is the proof: anything in spec-core or below it that needed std
//! would bring a second panic handler, and the build would fail.
#![no_std]

extern crate alloc;

use alloc::sync::Arc;
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};

use spec_core::{
    AcceptanceRule, Coupled, DraftTree, FlatRows, Greedy, KeyedChoices, Noise, Origin, PathLaws, Pipeline,
    SamplingParams, ScalarScan, VerifyError,
};

/// Hands out a fixed arena and takes nothing back.
struct Arena {
    used: AtomicUsize,
}

const ARENA_BYTES: usize = 1 << 20;

#[repr(align(64))]
struct Bytes(core::cell::UnsafeCell<[u8; ARENA_BYTES]>);

// SAFETY: the bytes are reached only through ranges that `Arena::alloc` hands out, each once.
unsafe impl Sync for Bytes {}

static BYTES: Bytes = Bytes(core::cell::UnsafeCell::new([0; ARENA_BYTES]));

#[global_allocator]
static ARENA: Arena = Arena { used: AtomicUsize::new(0) };

// SAFETY: ranges are disjoint because `used` only grows, in one atomic step; they are aligned because the arena is aligned to
// 64 and offsets are rounded up (greater alignments are refused), and they lie inside it because the end is checked.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 64 {
            return core::ptr::null_mut();
        }
        let place = |used: usize| {
            let start = used.checked_next_multiple_of(layout.align())?;
            start.checked_add(layout.size()).filter(|&end| end <= ARENA_BYTES)
        };
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place) {
            Ok(used) => BYTES.0.get().cast::<u8>().wrapping_add(used.next_multiple_of(layout.align())),
            Err(_) => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

fn verify(rule: &dyn AcceptanceRule, temperature: f32) -> Result<u32, VerifyError> {
    let tree = DraftTree::chain(&[1], Origin::Fixed);
    let rows = FlatRows { logits: &[0.0, 1.0, 1.0, 0.0], width: 2 };
    let mut pipeline = Pipeline::new(SamplingParams { temperature, ..SamplingParams::default() }, 2)?;
    let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, 0, None);
    Ok(rule.verify(&tree, &mut laws, &mut KeyedChoices::new(0, 0))?.next)
}

/// Verifies a small draft under both rules; 1 when that went well.
#[unsafe(no_mangle)]
pub extern "C" fn spec_core_proof() -> u32 {
    let coupled = Coupled::new(Noise::new(1), Arc::new(ScalarScan));
    u32::from(verify(&Greedy, 0.0).is_ok() && verify(&coupled, 0.8).is_ok())
}
