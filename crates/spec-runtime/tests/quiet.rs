//! What nobody asks for costs nothing: observers and logs, counted in allocations and in texts that were made.

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spec_core::{Fixed, Token};
use spec_runtime::{
    Completion, DecisionDetail, DecisionLog, Engine, Model, ModelDrafter, Request, RoundObserver, RoundReport,
    TokenText,
};
use spec_testing::{HashModel, HashSpec, Letters};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks of it.
struct Counting;

// SAFETY: every call goes on to the system's allocator as it came. The counter is a plain number of the thread, whose access takes no
// memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from there.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts how often it is asked for the text of a token.
#[derive(Default)]
struct Asked(AtomicUsize);

impl TokenText for Asked {
    fn vocab(&self) -> usize {
        HashSpec::default().vocab
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        self.0.fetch_add(1, Relaxed);
        Cow::Owned(Letters(self.vocab()).bytes(token).into_owned())
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        self.0.fetch_add(1, Relaxed);
        Cow::Owned(Letters(self.vocab()).label(token).into_owned())
    }
}

struct Silent;

impl RoundObserver for Silent {
    fn round(&mut self, _: &RoundReport<'_>) {}
}

/// Allocations of a whole generation, and the texts that its observers made.
fn cost(observer: impl FnOnce(Arc<Asked>) -> Option<Box<dyn RoundObserver>>) -> (usize, usize, Completion) {
    let spec = HashSpec::default();
    let drafter = ModelDrafter::new(HashModel::new(HashSpec { noise: 0.4, ..spec.clone() }));
    let text = Arc::new(Letters(spec.vocab));
    let mut engine = Engine::new(HashModel::new(spec) as Arc<dyn Model>, text).with_drafter(Box::new(drafter));
    let asked = Arc::new(Asked::default());
    let request = Request {
        seed: Some(7),
        draft_len: Box::new(Fixed(4)),
        observers: observer(Arc::clone(&asked)).into_iter().collect(),
        ..Request::new(vec![3, 1, 4, 1, 5], 60)
    };
    let before = ALLOCATIONS.with(Cell::get);
    let completion = engine.generate(request, &mut |_| {}).expect("a generation");
    (ALLOCATIONS.with(Cell::get) - before, asked.0.load(Relaxed), completion)
}

#[test]
fn rounds_that_nobody_hears_of_take_no_memory_and_make_no_text() {
    // What is made once in a process is made here.
    cost(|_| None);
    let (unobserved, _, plain) = cost(|_| None);
    assert!(plain.speculation.accepted > 0 && plain.speculation.accepted < plain.speculation.drafted);
    let (silent, _, _) = cost(|_| Some(Box::new(Silent)));
    assert_eq!(silent, unobserved, "telling an observer takes no memory");
    let (unread, texts, same) = cost(|text| Some(Box::new(DecisionLog::new(DecisionDetail::Tokens, text))));
    assert_eq!((unread, texts), (unobserved, 0), "a log that nothing reads makes no text");
    assert_eq!(same.tokens, plain.tokens);
}

#[test]
fn the_counters_count() {
    let before = ALLOCATIONS.with(Cell::get);
    drop(std::hint::black_box(vec![1u8; 10]));
    assert_eq!(ALLOCATIONS.with(Cell::get), before + 1);
    let asked = Asked::default();
    assert_eq!(asked.bytes(0).as_ref(), b"a");
    assert_eq!(asked.0.load(Relaxed), 1);
}
