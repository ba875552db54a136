use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::Want;

const BLOCK: usize = 4;

pub(super) fn row(seq: SeqId, position: usize, parent: Option<u32>) -> Row {
    Row { seq, token: 0, position, parent, want: Want::Nothing }
}

/// Appends a chain of `count` rows behind the committed text.
fn chain(pages: &mut PagedKv, seq: SeqId, count: usize) -> Vec<Place> {
    let committed = pages.committed(seq).expect("open");
    let rows: Vec<Row> = (0..count).map(|i| row(seq, committed + i, (i as u32).checked_sub(1))).collect();
    pages.append(&rows).expect("legal rows")
}

/// All that can be seen of a sequence.
fn view(pages: &PagedKv, seq: SeqId) -> (usize, Vec<u32>, usize) {
    (pages.committed(seq).expect("open"), pages.blocks(seq).expect("open").to_vec(), pages.free_blocks())
}

#[test]
fn committed_tokens_lie_at_their_positions() {
    let mut pages = PagedKv::new(8, BLOCK, 100);
    let seq = pages.open();
    pages.reserve(seq, 10).expect("room");
    let places = chain(&mut pages, seq, 10);
    assert_eq!(pages.settle(seq, &[0, 1, 2, 3, 4, 5]).expect("a path"), []);
    assert_eq!(pages.committed(seq).expect("open"), 6);
    let blocks = pages.blocks(seq).expect("open").to_vec();
    assert_eq!(blocks.len(), 2, "the third block is given back");
    for (position, place) in places[..6].iter().enumerate() {
        assert_eq!(place.slot, blocks[position / BLOCK] as usize * BLOCK + position % BLOCK);
        assert_eq!(place.row, position as u32);
    }
}

#[test]
fn a_committed_branch_moves_down() {
    let mut pages = PagedKv::new(8, BLOCK, 100);
    let seq = pages.open();
    pages.reserve(seq, 5).expect("room");
    let rows =
        [(0, None), (0, None), (1, Some(0)), (1, Some(1)), (2, Some(3))].map(|(at, parent)| row(seq, at, parent));
    let places = pages.append(&rows).expect("legal rows");
    assert_eq!(pages.path(seq, 4).expect("open"), [1, 3, 4]);
    let slot = |row: usize| places[row].slot;
    let moves = pages.settle(seq, &[1, 3, 4]).expect("a path");
    assert_eq!(moves, [(1, 0), (3, 1), (4, 2)].map(|(from, to)| Move { from: slot(from), to: slot(to) }));
    assert_eq!(pages.committed(seq).expect("open"), 3);
    assert_eq!(pages.free_blocks(), 7);
}

#[test]
fn a_slot_used_again_has_another_generation() {
    let mut pages = PagedKv::new(2, BLOCK, 100);
    let first = pages.open();
    pages.reserve(first, 5).expect("room");
    pages.close(first);
    assert_eq!(pages.free_blocks(), 2, "an open reservation is freed, too");
    let second = pages.open();
    assert_eq!(first.slot, second.slot);
    assert_ne!(first.generation, second.generation);
    pages.close(first);
    assert_eq!(pages.committed(second).expect("still open"), 0);
    for refused in [pages.committed(first).err(), pages.reserve(first, 1).err(), pages.settle(first, &[]).err()] {
        assert!(matches!(refused, Some(RuntimeError::UnknownSequence(id)) if id == first));
    }
    let stale = pages.append(&[row(first, 0, None)]);
    assert!(matches!(stale, Err(RuntimeError::BadRow { row: 0, .. })));
}

#[test]
fn an_exhausted_pool_says_what_is_missing_and_holds_nothing() {
    let mut pages = PagedKv::new(4, BLOCK, 100);
    let (a, b) = (pages.open(), pages.open());
    pages.reserve(a, 9).expect("three blocks");
    let before = view(&pages, b);
    let refused = pages.reserve(b, 5).expect_err("two blocks are not free");
    assert!(matches!(refused, RuntimeError::KvExhausted { needed: 2, free: 1, block_tokens: BLOCK }), "{refused}");
    assert_eq!(view(&pages, b), before);
    pages.reserve(b, 4).expect("no reservation was left open");
    pages.settle(a, &[]).expect("a rollback");
    assert_eq!(pages.free_blocks(), 3);
}

#[test]
fn errors_leave_the_state_as_it_was() {
    let mut pages = PagedKv::new(8, BLOCK, 6);
    let (seq, other) = (pages.open(), pages.open());
    assert!(matches!(pages.append(&[row(seq, 0, None)]), Err(RuntimeError::BadRow { row: 0, .. })), "no reservation");
    pages.reserve(seq, 3).expect("room");
    pages.reserve(other, 8).expect("room");
    assert!(matches!(pages.reserve(seq, 1), Err(RuntimeError::ReservationOpen(id)) if id == seq));
    chain(&mut pages, seq, 1);
    let bad: [&[Row]; 4] = [
        &[row(seq, 1, Some(0)), row(seq, 2, Some(7))],
        &[row(seq, 1, Some(0)), row(seq, 3, Some(1))],
        &[row(seq, 1, Some(0)), row(other, 0, None), row(seq, 1, Some(0)), row(seq, 1, Some(0))],
        &[row(seq, 1, Some(0)), row(SeqId { slot: 9, generation: 0 }, 0, None)],
    ];
    for rows in bad {
        let refused = pages.append(rows).expect_err("the last row is wrong");
        assert!(matches!(refused, RuntimeError::BadRow { row, .. } if row == rows.len() - 1), "{refused}");
    }
    let past: Vec<Row> = (0..7).map(|i| row(other, i, (i as u32).checked_sub(1))).collect();
    let refused = pages.append(&past).expect_err("position 6 is past the context");
    assert!(matches!(refused, RuntimeError::BadRow { row: 6, .. }), "{refused}");
    // All rows of the refused batches are gone: the next number is 1 in one sequence and 0 in the other.
    assert_eq!(pages.append(&[row(seq, 1, Some(0))]).expect("legal")[0].row, 1);
    assert_eq!(pages.append(&[row(other, 0, None)]).expect("legal")[0].row, 0);

    for path in [&[1][..], &[0, 2], &[1, 0], &[0, 0]] {
        let mut pages = PagedKv::new(8, BLOCK, 6);
        let seq = pages.open();
        pages.reserve(seq, 3).expect("room");
        chain(&mut pages, seq, 2);
        let refused = pages.settle(seq, path).expect_err("no path");
        assert!(matches!(&refused, RuntimeError::BadPath { path: given, .. } if given == path), "{refused}");
        assert_eq!(view(&pages, seq), (0, vec![], 8), "{path:?} is rolled back");
    }
}

#[test]
fn a_full_context_takes_no_reservation() {
    let mut pages = PagedKv::new(8, BLOCK, 5);
    let seq = pages.open();
    pages.reserve(seq, 5).expect("room");
    chain(&mut pages, seq, 5);
    pages.settle(seq, &[0, 1, 2, 3, 4]).expect("a path");
    assert!(matches!(pages.reserve(seq, 1), Err(RuntimeError::ContextExceeded { position: 5, context: 5 })));
    pages.reserve(seq, 0).expect("room for nothing is always there");
}

#[test]
fn a_cut_frees_the_blocks_behind_it() {
    let mut pages = PagedKv::new(8, BLOCK, 5 * BLOCK);
    let seq = pages.open();
    pages.reserve(seq, 3 * BLOCK).expect("room");
    assert!(matches!(pages.truncate(seq, 0), Err(RuntimeError::ReservationOpen(_))));
    chain(&mut pages, seq, 3 * BLOCK);
    pages.settle(seq, &(0..3 * BLOCK as u32).collect::<Vec<_>>()).expect("a path");
    for (length, kept, free) in
        [(4 * BLOCK, 3 * BLOCK, 5), (2 * BLOCK + 1, 2 * BLOCK + 1, 5), (BLOCK, BLOCK, 7), (0, 0, 8)]
    {
        pages.truncate(seq, length).expect("open");
        assert_eq!((pages.committed(seq).expect("open"), pages.free_blocks()), (kept, free), "cut to {length}");
    }
    pages.close(seq);
    assert!(matches!(pages.truncate(seq, 0), Err(RuntimeError::UnknownSequence(_))));
}

/// One step of a random life.
#[derive(Clone, Debug)]
enum Step {
    Open,
    Close(usize),
    Reserve(usize, usize),
    /// Parents are chosen among the rows so far and the committed text.
    Append(usize, Vec<usize>),
    /// Keeps the path to this row.
    Settle(usize, usize),
    /// Cuts the committed text to a length.
    Truncate(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Open),
        1 => (0_usize..8).prop_map(Step::Close),
        4 => (0_usize..8, 0_usize..14).prop_map(|(seq, rows)| Step::Reserve(seq, rows)),
        6 => (0_usize..8, prop::collection::vec(0_usize..16, 1..5)).prop_map(|(seq, rows)| Step::Append(seq, rows)),
        4 => (0_usize..8, 0_usize..16).prop_map(|(seq, row)| Step::Settle(seq, row)),
        2 => (0_usize..8, 0_usize..24).prop_map(|(seq, length)| Step::Truncate(seq, length)),
    ]
}

/// A sequence as plain vectors: the number stored for each committed token and each row.
struct Plain {
    seq: SeqId,
    text: Vec<u64>,
    reserved: Option<usize>,
    rows: Vec<(Option<u32>, usize, u64)>,
}

proptest! {
    /// Storage driven by the places and moves holds, for every sequence and at every moment, what plain vectors hold.
    #[test]
    fn paged_storage_equals_plain_vectors(steps in prop::collection::vec(step(), 1..120)) {
        const BLOCKS: usize = 9;
        const CONTEXT: usize = 24;
        let mut pages = PagedKv::new(BLOCKS, BLOCK, CONTEXT);
        let mut storage = vec![0_u64; BLOCKS * BLOCK];
        let mut plain: Vec<Plain> = Vec::new();
        let mut next = 1;
        for step in steps {
            match step {
                Step::Open => plain.push(Plain { seq: pages.open(), text: vec![], reserved: None, rows: vec![] }),
                Step::Close(at) if at < plain.len() => pages.close(plain.swap_remove(at).seq),
                Step::Reserve(at, rows) => {
                    let free = pages.free_blocks();
                    let Some(own) = plain.get_mut(at) else { continue };
                    let held = pages.blocks(own.seq).expect("open").len();
                    let fits = (own.text.len() + rows).div_ceil(BLOCK).saturating_sub(held) <= free;
                    let may = own.reserved.is_none() && fits && (rows == 0 || own.text.len() < CONTEXT);
                    prop_assert_eq!(pages.reserve(own.seq, rows).is_ok(), may);
                    if may {
                        own.reserved = Some(rows);
                    }
                }
                Step::Append(at, parents) => {
                    let Some(own) = plain.get_mut(at) else { continue };
                    let before = own.rows.len();
                    let mut batch = Vec::new();
                    for parent in parents {
                        let parent = (parent < own.rows.len()).then_some(parent as u32);
                        let position = parent.map_or(own.text.len(), |parent| own.rows[parent as usize].1 + 1);
                        own.rows.push((parent, position, next));
                        batch.push(row(own.seq, position, parent));
                        next += 1;
                    }
                    let may = own.reserved.is_some_and(|rows| own.rows.len() <= rows)
                        && own.rows.iter().all(|row| row.1 < CONTEXT);
                    let placed = pages.append(&batch);
                    prop_assert_eq!(placed.is_ok(), may);
                    match placed {
                        Ok(places) => for (place, row) in places.iter().zip(&own.rows[before..]) {
                            prop_assert_eq!(place.slot, pages.row_slot(own.seq, place.row).expect("open"));
                            storage[place.slot] = row.2;
                        },
                        Err(_) => own.rows.truncate(before),
                    }
                }
                Step::Settle(at, leaf) => {
                    let Some(own) = plain.get_mut(at) else { continue };
                    let mut path = Vec::new();
                    let mut row = (leaf < own.rows.len()).then_some(leaf as u32);
                    while let Some(number) = row {
                        path.insert(0, number);
                        row = own.rows[number as usize].0;
                    }
                    if leaf < own.rows.len() {
                        prop_assert_eq!(&pages.path(own.seq, leaf as u32).expect("open"), &path);
                    }
                    for step in pages.settle(own.seq, &path).expect("a path") {
                        storage[step.to] = storage[step.from];
                    }
                    own.text.extend(path.iter().map(|&row| own.rows[row as usize].2));
                    own.rows.clear();
                    own.reserved = None;
                }
                Step::Truncate(at, length) => {
                    let Some(own) = plain.get_mut(at) else { continue };
                    match pages.truncate(own.seq, length) {
                        Ok(()) => own.text.truncate(length),
                        Err(error) => prop_assert!(matches!(error, RuntimeError::ReservationOpen(_)), "{}", error),
                    }
                }
                Step::Close(_) => {}
            }

            let mut held = HashSet::new();
            for own in &plain {
                let blocks = pages.blocks(own.seq).expect("open");
                prop_assert!(blocks.iter().all(|&block| held.insert(block)), "a block has two owners");
                prop_assert_eq!(blocks.len(), (own.text.len() + own.reserved.unwrap_or(0)).div_ceil(BLOCK));
                prop_assert_eq!(pages.committed(own.seq).expect("open"), own.text.len());
                for (position, value) in own.text.iter().enumerate() {
                    prop_assert_eq!(storage[blocks[position / BLOCK] as usize * BLOCK + position % BLOCK], *value);
                }
                for (number, row) in own.rows.iter().enumerate() {
                    prop_assert_eq!(storage[pages.row_slot(own.seq, number as u32).expect("open")], row.2);
                }
            }
            prop_assert_eq!(held.len() + pages.free_blocks(), BLOCKS);
        }
    }
}
