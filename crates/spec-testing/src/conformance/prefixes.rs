//! The claim about prefixes that sequences share.

use spec_runtime::{KvUsage, Model};

use super::passes::{all_logits, alone, assert_same, feed, path, submit, tree_rows, trees};
use super::{Backend, text};

/// A prefix that is found in the cache holds the rows that a prefill would compute.
///
/// # Panics
/// When the claim does not hold.
pub fn rows_behind_a_prefix_that_was_found_are_those_of_a_cold_run(backend: &Backend<'_>) {
    backend.each(|model, name| check_prefixes(&**model, name));
}

/// The claim for one model, whose cache is empty: chains and trees behind a prefix of a text that is still open, and of one that
/// is closed; whole blocks of it, and the beginning of one that goes on otherwise.
///
/// # Panics
/// When it does not hold.
pub fn check_prefixes(model: &dyn Model, name: &str) {
    let usage = || model.kv_usage().expect("a device tells what its cache is used for");
    let KvUsage { block_tokens: block, total, free, .. } = usage();
    assert_eq!(free, total, "{name}: the cache is empty");
    let said = text(5, 2 * block + 3);
    let first = model.open().expect("room");
    assert_eq!(model.adopt(first, 1, &said).expect("an empty sequence"), 0, "{name}");
    feed(model, first, &said, 64);
    for (index, parts_at) in [block - 1, block, block + 1, 2 * block].into_iter().enumerate() {
        if index == 2 {
            model.close(first);
        }
        let what = format!("{name}, behind {parts_at} tokens");
        let mut own = said[..parts_at].to_vec();
        own.extend((0..block as u32 + 5).map(|more| (said[parts_at] + 1 + more * (index as u32 + 3)) % 299));
        let expected = alone(model, &own, 64);
        let stranger = model.open().expect("room");
        assert_eq!(model.adopt(stranger, 2, &own).expect("an empty sequence"), 0, "{what}: another scope");
        model.close(stranger);

        let seq = model.open().expect("room");
        let found = model.adopt(seq, 1, &own[..own.len() - 1]).expect("an empty sequence");
        assert_eq!((found, model.kv_len(seq).expect("open")), (parts_at, parts_at), "{what}");
        // With the text that is still open.
        assert_eq!(usage().shared, if index == 1 { 1 } else { 0 }, "{what}");
        let rows = feed(model, seq, &own[found..], 7);
        assert_same(&rows, &expected[found..], &what);

        let tree = &trees()[index % 3];
        model.reserve(seq, tree.len()).expect("room");
        let rows = all_logits(&*submit(model, tree_rows(seq, tree, own.len())), tree.len());
        let (tokens, leaf) = path(tree, tree.len() - 1);
        let line: Vec<u32> = own.iter().chain(&tokens).chain(&[41, 42]).copied().collect();
        let expected = alone(model, &line, 64);
        let on_path: Vec<_> = leaf.iter().map(|&row| rows[row as usize].clone()).collect();
        let end = own.len() + leaf.len();
        assert_same(&on_path, &expected[own.len()..end], &format!("{what}, a tree"));
        model.settle(seq, &leaf).expect("a path");
        assert_same(&feed(model, seq, &[41, 42], 1), &expected[end..], &format!("{what}, behind a tree"));
        model.close(seq);
    }
    // What was there all the time has not been touched.
    let last = model.open().expect("room");
    let found = model.adopt(last, 1, &said).expect("an empty sequence");
    assert_eq!(found, 2 * block, "{name}");
    let rows = feed(model, last, &said[found..], 64);
    assert_same(&rows, &alone(model, &said, 64)[found..], name);
    model.close(last);
    let KvUsage { free, cached, shared, .. } = usage();
    assert_eq!((free, shared), (total, 0), "{name}: blocks leak");
    assert!(cached > 0, "{name}: nothing is kept");
}
