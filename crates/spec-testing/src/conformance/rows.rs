//! Claims about rows: each is a function of its own text, whatever shares its pass or had its place before.

use spec_runtime::{Batch, HostStream, Row, RuntimeError, SeqId, Want};

use super::passes::{all_logits, alone, assert_same, chain, differing, feed, path, row, submit, tree_rows, trees};
use super::{Backend, text};

/// Rows that a test puts into one pass at most.
const WIDEST: usize = 64;

/// Attention sees what is before, and where it is.
///
/// # Panics
/// When the claim does not hold.
pub fn the_same_text_has_other_logits_behind_another_prefix(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let (a, b) = (alone(&**model, &[1, 2, 3], 1), alone(&**model, &[2, 2, 3], 1));
        assert_eq!(differing(&a, &b), [0, 1, 2], "{name}: attention is blind");
        let (a, b) = (alone(&**model, &[5, 6, 7], 1), alone(&**model, &[6, 5, 7], 1));
        assert_eq!(differing(&a, &b), [0, 1, 2], "{name}: positions do not count");
    });
}

/// Verification gives the logits that plain decoding gives, on both sides of the ends of blocks.
///
/// # Panics
/// When the claim does not hold.
pub fn a_chain_of_any_length_equals_decoding_one_by_one(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let text = text(0, 2 * backend.block_tokens + 17);
        let expected = alone(&**model, &text, 1);
        for committed in backend.around_blocks() {
            for rows in [1, 2, 3, 5, 8, 15, 16, 17] {
                let seq = model.open().expect("room");
                feed(&**model, seq, &text[..committed], WIDEST);
                let found = feed(&**model, seq, &text[committed..committed + rows], rows);
                let what = format!("{name}, {rows} rows behind {committed}");
                assert_same(&found, &expected[committed..committed + rows], &what);
                model.close(seq);
            }
        }
    });
}

/// Prefill is decoding.
///
/// # Panics
/// When the claim does not hold.
pub fn the_prompt_may_come_in_chunks_of_any_size(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let text = text(3, 70);
        let expected = alone(&**model, &text, 1);
        for chunk in [7, 16, 33, 64, 70] {
            assert_same(&alone(&**model, &text, chunk), &expected, &format!("{name}, chunks of {chunk}"));
        }
    });
}

/// Tree masks, and the compaction of accepted paths.
///
/// # Panics
/// When the claim does not hold.
pub fn a_tree_row_equals_its_path_and_so_does_what_follows_its_commit(backend: &Backend<'_>) {
    backend.each(|model, name| {
        for tree in trees() {
            for committed in [0, 1].into_iter().chain(backend.around_blocks()) {
                let text = text(5, committed);
                let seq = model.open().expect("room");
                feed(&**model, seq, &text, WIDEST);
                let what = format!("{name}, tree {tree:?} behind {committed}");
                model.reserve(seq, tree.len()).expect("room");
                let found = all_logits(&*submit(&**model, tree_rows(seq, &tree, committed)), tree.len());
                let is_leaf = |row: &usize| tree.iter().all(|&(parent, _)| parent != Some(*row as u32));
                let leaves: Vec<usize> = (0..tree.len()).filter(is_leaf).collect();
                let mut kept = None;
                for (i, &leaf) in leaves.iter().enumerate() {
                    let (tokens, rows) = path(&tree, leaf);
                    let line: Vec<u32> = text.iter().chain(&tokens).chain(&[41, 42]).copied().collect();
                    let expected = alone(&**model, &line, WIDEST);
                    let on_path: Vec<_> = rows.iter().map(|&row| found[row as usize].clone()).collect();
                    let end = committed + rows.len();
                    assert_same(&on_path, &expected[committed..end], &format!("{what}, leaf {leaf}"));
                    if i == committed % leaves.len() {
                        kept = Some((rows, expected[end..].to_vec()));
                    }
                }
                let (rows, expected) = kept.expect("a tree has leaves");
                model.settle(seq, &rows).expect("a path");
                assert_eq!(model.kv_len(seq).expect("open"), committed + rows.len());
                let next = feed(&**model, seq, &[41, 42], 1);
                assert_same(&next, &expected, &format!("{what}, after committing {rows:?}"));
                model.close(seq);
            }
        }
    });
}

/// A drafter grows its block pass by pass.
///
/// # Panics
/// When the claim does not hold.
pub fn rows_of_a_reservation_may_come_in_several_passes(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let block = backend.block_tokens;
        let text = text(7, block + 5);
        let expected = alone(&**model, &text, 1);
        let seq = model.open().expect("room");
        feed(&**model, seq, &text[..block - 1], WIDEST);
        model.reserve(seq, 6).expect("room");
        let part = |from: usize, to: usize| chain(seq, &text[block - 1 + from..block - 1 + to], block - 1, from as u32);
        let mut found = all_logits(&*submit(&**model, part(0, 2)), 2);
        found.extend(all_logits(&*submit(&**model, part(2, 3)), 1));
        found.extend(all_logits(&*submit(&**model, part(3, 6)), 3));
        assert_same(&found, &expected[block - 1..], name);
        model.settle(seq, &[0, 1, 2, 3, 4, 5]).expect("a chain");
        model.close(seq);
    });
}

/// Several sequences in a pass, their rows in any order, a tree among them.
///
/// # Panics
/// When the claim does not hold.
pub fn sequences_in_one_pass_do_not_see_each_other(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let texts: Vec<Vec<u32>> = [3, 18, 33].map(|len| text(len, len as usize)).into();
        let next = [50, 51, 52, 53];
        let seqs: Vec<SeqId> = texts.iter().map(|_| model.open().expect("room")).collect();
        for (&seq, text) in seqs.iter().zip(&texts) {
            feed(&**model, seq, text, 7);
            model.reserve(seq, 8).expect("room");
        }
        let tree = &trees()[0];
        let mut rows = Vec::new();
        let mut streams: Vec<_> = seqs
            .iter()
            .zip(&texts)
            .enumerate()
            .map(|(i, (&seq, text))| match i {
                1 => tree_rows(seq, tree, text.len()).into_iter(),
                _ => chain(seq, &next, text.len(), 0).into_iter(),
            })
            .collect();
        while streams.iter().any(|stream| stream.len() > 0) {
            rows.extend(streams.iter_mut().filter_map(Iterator::next));
        }
        let order: Vec<SeqId> = rows.iter().map(|row| row.seq).collect();
        let found = all_logits(&*submit(&**model, rows), order.len());
        for (i, (&seq, text)) in seqs.iter().zip(&texts).enumerate() {
            let own: Vec<_> = (0..found.len()).filter(|&row| order[row] == seq).map(|row| found[row].clone()).collect();
            let line = |tokens: &[u32]| text.iter().chain(tokens).copied().collect::<Vec<u32>>();
            if i == 1 {
                for (leaf, own) in own.iter().enumerate() {
                    let expected = alone(&**model, &line(&path(tree, leaf).0), WIDEST).pop().expect("a row");
                    assert_same(std::slice::from_ref(own), &[expected], &format!("{name}, tree row {leaf}"));
                }
            } else {
                let expected = alone(&**model, &line(&next), WIDEST);
                assert_same(&own, &expected[text.len()..], &format!("{name}, sequence {i}"));
            }
        }
        seqs.into_iter().for_each(|seq| model.close(seq));
    });
}

/// Rows that were rolled back are gone, and their blocks free.
///
/// # Panics
/// When the claim does not hold.
pub fn a_rollback_leaves_no_trace(backend: &Backend<'_>) {
    backend.each(|model, name| {
        for committed in backend.around_blocks() {
            let text = text(11, committed + 6);
            let expected = alone(&**model, &text, WIDEST);
            let seq = model.open().expect("room");
            feed(&**model, seq, &text[..committed], WIDEST);
            for width in [1, 5, 40] {
                model.reserve(seq, width).expect("room");
                let wrong: Vec<u32> = (0..width as u32).map(|i| 200 + i).collect();
                submit(&**model, chain(seq, &wrong, committed, 0));
                model.settle(seq, &[]).expect("a rollback");
                assert_eq!(model.kv_len(seq).expect("open"), committed, "{name}: a rollback keeps rows");
            }
            let found = feed(&**model, seq, &text[committed..], 3);
            assert_same(&found, &expected[committed..], &format!("{name}, rolled back at {committed}"));
            model.close(seq);
        }
    });
}

/// A block's next owner does not see what the last one wrote.
///
/// # Panics
/// When the claim does not hold.
pub fn blocks_used_before_do_not_show_through(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let text = text(13, 2 * backend.block_tokens + 5);
        let clean = alone(&**model, &text, WIDEST);
        let seqs: Vec<SeqId> = (0..3).map(|_| model.open().expect("room")).collect();
        for (i, &seq) in seqs.iter().enumerate() {
            let other: Vec<u32> = (0..250).map(|j| (j * 13 + i as u32 * 7) % 300).collect();
            feed(&**model, seq, &other, WIDEST);
        }
        seqs.into_iter().for_each(|seq| model.close(seq));
        assert_same(&alone(&**model, &text, 3), &clean, name);
    });
}

/// Each limit is an error of its own name, and what was there before still works.
///
/// # Panics
/// When the claim does not hold.
pub fn what_does_not_fit_is_refused_and_changes_nothing(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let config = model.config().clone();
        let text = text(17, 12);
        let expected = alone(&**model, &text, 1);
        let seq = model.open().expect("room");
        feed(&**model, seq, &text[..9], WIDEST);
        let start = |rows: Vec<Row>| model.submit(&HostStream, &Batch { rows });
        let bad_row = |rows: Vec<Row>, what: &str| {
            assert!(matches!(start(rows), Err(RuntimeError::BadRow { .. })), "{name}: {what}");
        };
        bad_row(chain(seq, &[1], 9, 0), "a row without a reservation");
        model.reserve(seq, 4).expect("room");
        assert!(matches!(model.reserve(seq, 1), Err(RuntimeError::ReservationOpen(_))), "{name}");
        bad_row(vec![row(seq, 1, 10, None)], "a position that its parent contradicts");
        bad_row(vec![row(seq, 1, 10, Some(3))], "a parent that was not submitted");
        bad_row(chain(seq, &[1; 5], 9, 0), "more rows than were reserved");
        let wide = vec![row(seq, 1, 9, None); config.max_rows + 1];
        bad_row(wide, "more rows than a pass carries");
        let unknown = start(vec![row(seq, config.vocab as u32, 9, None)]);
        assert!(matches!(unknown, Err(RuntimeError::BadToken { .. })), "{name}: a token past the vocabulary");
        assert!(matches!(model.settle(seq, &[0]), Err(RuntimeError::BadPath { .. })), "{name}: a path of nothing");

        model.reserve(seq, 3).expect("a bad path rolled back");
        let mut rows = chain(seq, &text[9..], 9, 0);
        rows[1].want = Want::Nothing;
        let results = submit(&**model, rows);
        assert!(matches!(results.logits(1), Err(RuntimeError::NotWanted { row: 1 })), "{name}");
        for at in [0, 2] {
            let found = results.logits(at).expect("wanted").to_vec();
            assert_same(&[found], &expected[9 + at..10 + at], &format!("{name}, after all refusals"));
        }
        let too_many = model.open().and_then(|other| {
            let refused = model.reserve(other, 1 << 20);
            model.close(other);
            refused
        });
        assert!(matches!(too_many, Err(RuntimeError::KvExhausted { .. })), "{name}: a cache without bounds");
        model.close(seq);
        assert!(matches!(model.kv_len(seq), Err(RuntimeError::UnknownSequence(_))), "{name}: a closed sequence");
    });
}

/// A pass that is dropped ends by itself, and its rows stay until they are settled.
///
/// # Panics
/// When the claim does not hold.
pub fn a_pass_that_nobody_waits_for_does_no_harm(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let text = text(19, 24);
        let expected = alone(&**model, &text, 1);
        let seq = model.open().expect("room");
        for (at, &token) in text.iter().enumerate().take(20) {
            model.reserve(seq, 3).expect("room");
            // Rows without a use, then the one that is kept.
            let others = vec![row(seq, 7, at, None), row(seq, 8, at + 1, Some(0))];
            drop(model.submit(&HostStream, &Batch { rows: others }).expect("legal rows"));
            drop(model.submit(&HostStream, &Batch { rows: vec![row(seq, token, at, None)] }).expect("legal rows"));
            model.settle(seq, &[2]).expect("a path");
        }
        let found = feed(&**model, seq, &text[20..], 4);
        assert_same(&found, &expected[20..], name);
        model.close(seq);
    });
}
