//! Shared prefixes against plain vectors.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::tests::row;
use super::*;

const BLOCK: usize = 4;

/// A pool with the numbers that its slots hold, as a model keeps them.
struct Stored {
    pages: PagedKv,
    slots: Vec<u64>,
}

/// What a row comes to: a function of its text alone.
fn number(text: &[Token]) -> u64 {
    text.iter().fold(7, |hash, &token| (hash ^ u64::from(token)).wrapping_mul(0x100_0000_01b3).rotate_left(23))
}

impl Stored {
    fn new(blocks: usize, context: usize) -> Self {
        Self { pages: PagedKv::new(blocks, BLOCK, context), slots: vec![0; blocks * BLOCK] }
    }

    fn follow(&mut self, moves: &[Move]) {
        for step in moves {
            self.slots[step.to] = self.slots[step.from];
        }
    }

    fn adopt(&mut self, seq: SeqId, scope: u64, tokens: &[Token]) -> usize {
        let Adopted { length, moves } = self.pages.adopt(seq, scope, tokens).expect("an empty sequence");
        self.follow(&moves);
        length
    }

    /// A sequence of `scope` that holds `text`, and how much of it was adopted.
    fn open(&mut self, scope: u64, text: &[Token]) -> (SeqId, usize) {
        let seq = self.pages.open();
        let adopted = self.adopt(seq, scope, text);
        self.extend(seq, text, adopted).expect("room");
        (seq, adopted)
    }

    /// Commits `text` behind its first `done` tokens.
    fn extend(&mut self, seq: SeqId, text: &[Token], done: usize) -> Result<(), RuntimeError> {
        let moves = self.pages.reserve(seq, text.len() - done)?;
        self.follow(&moves);
        let rows: Vec<Row> = (done..text.len())
            .map(|at| Row { token: text[at], ..row(seq, at, ((at - done) as u32).checked_sub(1)) })
            .collect();
        for place in self.pages.append(&rows)? {
            self.slots[place.slot] = number(&text[..=done + place.row as usize]);
        }
        let path: Vec<u32> = (0..rows.len() as u32).collect();
        let moves = self.pages.settle(seq, &path)?;
        self.follow(&moves);
        Ok(())
    }

    fn holds(&self, seq: SeqId, text: &[Token]) -> bool {
        let blocks = self.pages.blocks(seq).expect("open");
        let slot = |at: usize| blocks[at / BLOCK] as usize * BLOCK + at % BLOCK;
        self.pages.committed(seq).expect("open") == text.len()
            && (0..text.len()).all(|at| self.slots[slot(at)] == number(&text[..=at]))
    }

    fn cached(&self) -> usize {
        self.pages.usage().cached
    }
}

fn text(start: Token, length: usize) -> Vec<Token> {
    (start..).take(length).collect()
}

#[test]
fn a_closed_text_is_found_by_its_scope_and_by_no_other() {
    let mut kv = Stored::new(16, 64);
    let (first, adopted) = kv.open(1, &text(0, 10));
    assert_eq!((adopted, kv.cached()), (0, 0));
    kv.pages.close(first);
    // The end of the text fills no block.
    assert_eq!((kv.pages.free_blocks(), kv.cached()), (16, 2));
    assert_eq!(kv.open(2, &text(0, 10)).1, 0, "another scope");
    let (again, adopted) = kv.open(1, &text(0, 10));
    assert_eq!((adopted, kv.cached()), (8, 0));
    assert!(kv.holds(again, &text(0, 10)));
    let plain = kv.pages.open();
    kv.extend(plain, &text(40, 8), 0).expect("room");
    kv.pages.close(plain);
    assert_eq!(kv.cached(), 0, "what never adopted is not kept");
}

#[test]
fn a_running_sequence_is_shared_and_texts_that_meet_become_one() {
    let mut kv = Stored::new(16, 64);
    let (a, _) = kv.open(1, &text(0, 9));
    let (b, adopted) = kv.open(1, &text(0, 9));
    assert_eq!(adopted, 8);
    assert_eq!(kv.pages.blocks(a).expect("open")[..2], kv.pages.blocks(b).expect("open")[..2]);
    // Both go on alike at the same time: the second to fill a block takes the first one's.
    for seq in [a, b] {
        kv.extend(seq, &text(0, 12), 9).expect("room");
        assert!(kv.holds(seq, &text(0, 12)));
    }
    assert_eq!(kv.pages.blocks(a).expect("open"), kv.pages.blocks(b).expect("open"));
    assert_eq!(kv.pages.usage(), KvUsage { block_tokens: BLOCK, total: 16, free: 13, cached: 0, shared: 3 });
    kv.pages.close(a);
    assert!(kv.holds(b, &text(0, 12)));
    assert_eq!(kv.pages.usage().shared, 0);
}

#[test]
fn of_a_block_that_goes_on_otherwise_the_beginning_is_copied() {
    let mut kv = Stored::new(16, 64);
    let (a, _) = kv.open(1, &text(0, 12));
    let mut other = text(0, 12);
    other[6] = 99;
    let (b, adopted) = kv.open(1, &other);
    assert_eq!(adopted, 6);
    assert!(kv.holds(a, &text(0, 12)) && kv.holds(b, &other));
    // Of two neighbours the one that shares more is taken.
    other[7] = 98;
    assert_eq!(kv.open(1, &other).1, 7);
}

#[test]
fn who_is_cut_within_a_shared_block_copies_it_before_it_goes_on() {
    let mut kv = Stored::new(4, 64);
    let (a, _) = kv.open(1, &text(0, 8));
    let (b, _) = kv.open(1, &text(0, 8));
    kv.pages.truncate(b, 6).expect("open");
    assert!(kv.pages.copies_on_reserve(b).expect("open"));
    let mut other = text(0, 8);
    other[6..].fill(50);
    kv.extend(b, &other, 6).expect("room");
    assert!(kv.holds(a, &text(0, 8)) && kv.holds(b, &other));
    assert_eq!(kv.pages.usage().shared, 1);
    kv.pages.close(a);
    // With nothing free a holder does without the copy, which nobody else can want.
    let (c, _) = kv.open(2, &text(60, 8));
    kv.pages.truncate(b, 5).expect("open");
    assert_eq!(kv.pages.free_blocks(), 0);
    other[5..].fill(51);
    kv.extend(b, &other, 5).expect("room is made");
    assert!(kv.holds(b, &other) && kv.holds(c, &text(60, 8)));
}

#[test]
fn room_is_made_of_the_text_that_was_used_least_recently_from_its_end() {
    let mut kv = Stored::new(6, 64);
    for start in [0, 100, 200] {
        let (seq, _) = kv.open(1, &text(start, 8));
        kv.pages.close(seq);
    }
    // The first is used again, and so the second goes first, block by block.
    let (seq, adopted) = kv.open(1, &text(0, 8));
    assert_eq!(adopted, 8);
    kv.pages.close(seq);
    let (seq, _) = kv.open(2, &text(300, 4));
    let found = |kv: &mut Stored, start: Token| {
        let probe = kv.pages.open();
        let found = kv.pages.adopt(probe, 1, &text(start, 8)).expect("an empty sequence").length;
        kv.pages.close(probe);
        found
    };
    assert_eq!([0, 100, 200].map(|start| found(&mut kv, start)), [8, 4, 8]);
    kv.pages.close(seq);
    assert_eq!(kv.pages.free_blocks(), 6);
    kv.pages.forget_prefixes();
    assert_eq!((kv.pages.free_blocks(), kv.cached(), found(&mut kv, 0)), (6, 0, 0));
}

#[test]
fn only_an_empty_sequence_adopts() {
    let mut kv = Stored::new(4, 64);
    let (seq, _) = kv.open(1, &text(0, 3));
    let refused = kv.pages.adopt(seq, 1, &text(0, 8));
    assert!(matches!(refused, Err(RuntimeError::SequenceNotEmpty { length: 3, .. })), "{refused:?}");
    let other = kv.pages.open();
    kv.pages.reserve(other, 1).expect("room");
    assert!(matches!(kv.pages.adopt(other, 1, &[]), Err(RuntimeError::ReservationOpen(_))));
}

#[derive(Clone, Debug)]
enum Step {
    /// Begins with so many tokens of a family of texts that part at every third token.
    Open {
        scope: Option<u64>,
        branches: [u32; 4],
        length: usize,
    },
    Extend {
        at: usize,
        branch: u32,
        count: usize,
    },
    Truncate {
        at: usize,
        length: usize,
    },
    Close(usize),
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let scope = prop_oneof![1 => Just(None), 5 => (0_u64..2).prop_map(Some)];
    let branches = prop::array::uniform4(0_u32..2);
    prop_oneof![
        5 => (scope, branches, 1_usize..13).prop_map(|(scope, branches, length)| Step::Open { scope, branches, length }),
        4 => (0_usize..6, 0_u32..2, 1_usize..7).prop_map(|(at, branch, count)| Step::Extend { at, branch, count }),
        3 => (0_usize..6, 0_usize..20).prop_map(|(at, length)| Step::Truncate { at, length }),
        4 => (0_usize..6).prop_map(Step::Close),
        1 => Just(Step::Forget),
    ]
}

proptest! {
    /// Whatever is shared, copied, given back and taken, every sequence holds its own text; holders add up; nothing leaks.
    #[test]
    fn shared_storage_equals_plain_vectors(steps in prop::collection::vec(step(), 1..80)) {
        const BLOCKS: usize = 9;
        let mut kv = Stored::new(BLOCKS, 24);
        let mut open: Vec<(SeqId, Vec<Token>, Option<u64>)> = Vec::new();
        // All that was ever committed in each scope: what is adopted must be the beginning of one of these.
        let mut said: HashMap<u64, HashSet<Vec<Token>>> = HashMap::new();
        for step in steps {
            match step {
                Step::Open { scope, branches, length } => {
                    let text: Vec<Token> = (0..length).map(|at| branches[at / 3] * 10 + at as Token).collect();
                    let seq = kv.pages.open();
                    let mut held = Vec::new();
                    if let Some(scope) = scope {
                        let adopted = kv.adopt(seq, scope, &text);
                        held.extend_from_slice(&text[..adopted]);
                        let known = said.get(&scope).is_some_and(|said| said.contains(&held));
                        prop_assert!(adopted == 0 || known, "scope {} never had {:?}", scope, held);
                    }
                    if kv.extend(seq, &text, held.len()).is_ok() {
                        held = text;
                    }
                    open.push((seq, held, scope));
                }
                Step::Extend { at, branch, count } if at < open.len() => {
                    let (seq, held, _) = &mut open[at];
                    let mut longer = held.clone();
                    longer.extend((0..count).map(|more| branch * 10 + (held.len() + more) as Token));
                    let needed = longer.len().div_ceil(BLOCK) - held.len().div_ceil(BLOCK);
                    let free = kv.pages.free_blocks();
                    let extended = kv.extend(*seq, &longer, held.len());
                    match extended {
                        Ok(()) => *held = longer,
                        Err(RuntimeError::KvExhausted { .. }) => {
                            // What two hold costs the one that was cut a block; its own never does.
                            prop_assert!(needed + 1 > free);
                        }
                        Err(error) => {
                            prop_assert!(longer.len() > 24, "{}", error);
                            kv.pages.settle(*seq, &[]).expect("open");
                        }
                    }
                }
                Step::Truncate { at, length } if at < open.len() => {
                    kv.pages.truncate(open[at].0, length).expect("open");
                    open[at].1.truncate(length);
                }
                Step::Close(at) if at < open.len() => kv.pages.close(open.swap_remove(at).0),
                Step::Forget => kv.pages.forget_prefixes(),
                Step::Extend { .. } | Step::Truncate { .. } | Step::Close(_) => {}
            }
            let mut holders: HashMap<u32, u32> = HashMap::new();
            let mut scopes: HashMap<u32, Option<u64>> = HashMap::new();
            for (seq, text, scope) in &open {
                prop_assert!(kv.holds(*seq, text), "{} should hold {:?}", seq, text);
                for &block in kv.pages.blocks(*seq).expect("open") {
                    *holders.entry(block).or_default() += 1;
                    let of = *scopes.entry(block).or_insert(*scope);
                    prop_assert!(of == *scope && (scope.is_some() || holders[&block] == 1), "block {} in two scopes", block);
                }
                if let Some(scope) = scope {
                    let said = said.entry(*scope).or_default();
                    said.extend((1..=text.len()).map(|length| text[..length].to_vec()));
                }
            }
            for (&block, &count) in &holders {
                prop_assert_eq!(kv.pages.blocks.holders(block), count);
            }
            let usage = kv.pages.usage();
            prop_assert_eq!(usage.free + holders.len(), BLOCKS);
            prop_assert_eq!(usage.shared, holders.values().filter(|&&count| count > 1).count());
            prop_assert!(usage.cached <= usage.free);
        }
        for (seq, ..) in open {
            kv.pages.close(seq);
        }
        prop_assert_eq!(kv.pages.free_blocks(), BLOCKS);
        // All of it can be taken for something else.
        let seq = kv.pages.open();
        prop_assert!(kv.pages.reserve(seq, 24).is_ok());
        let seq = kv.pages.open();
        prop_assert!(kv.pages.reserve(seq, (BLOCKS - 6) * BLOCK).is_ok());
    }
}
