//! Passes that claims about rows are made of, and what their logits are compared by.

use spec_runtime::{Batch, HostStream, Model, Row, Rows, SeqId, Want};

/// A pass, waited for.
///
/// # Panics
/// When the model refuses it, or fails.
pub fn submit(model: &dyn Model, rows: Vec<Row>) -> Box<dyn Rows> {
    model.submit(&HostStream, &Batch { rows }).expect("legal rows").wait().expect("a pass")
}

/// A row that is scored.
pub fn row(seq: SeqId, token: u32, position: usize, parent: Option<u32>) -> Row {
    Row { seq, token, position, parent, want: Want::Logits }
}

/// Rows for `tokens` behind what is committed, the first of them number `first` of the reservation.
pub fn chain(seq: SeqId, tokens: &[u32], committed: usize, first: u32) -> Vec<Row> {
    let number = |i: usize| first + i as u32;
    let parent = |i: usize| number(i).checked_sub(1);
    tokens.iter().enumerate().map(|(i, &token)| row(seq, token, committed + number(i) as usize, parent(i))).collect()
}

/// The logits of the first `count` rows.
///
/// # Panics
/// When one has none, or they are not finite.
pub fn all_logits(rows: &dyn Rows, count: usize) -> Vec<Vec<f32>> {
    let logits: Vec<Vec<f32>> = (0..count).map(|i| rows.logits(i).expect("wanted").to_vec()).collect();
    assert!(logits.iter().flatten().all(|x| x.is_finite()), "tiny models give finite logits");
    logits
}

/// Feeds `tokens` in chunks, commits them, and gives the logits of every row.
///
/// # Panics
/// When the model refuses a pass, or fails.
pub fn feed(model: &dyn Model, seq: SeqId, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
    let mut logits = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let committed = model.kv_len(seq).expect("open");
        model.reserve(seq, tokens.len()).expect("room");
        let rows = submit(model, chain(seq, tokens, committed, 0));
        logits.extend(all_logits(&*rows, tokens.len()));
        let path: Vec<u32> = (0..tokens.len() as u32).collect();
        model.settle(seq, &path).expect("a chain");
    }
    logits
}

/// Logits of every token of `tokens` in a sequence of their own, in passes of `chunk` rows.
///
/// # Panics
/// As [`feed`].
pub fn alone(model: &dyn Model, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
    let seq = model.open().expect("room");
    let logits = feed(model, seq, tokens, chunk);
    model.close(seq);
    logits
}

/// Which of two lists of rows differ; comparing whole vectors would print them.
///
/// # Panics
/// When they are not as long.
pub fn differing(a: &[Vec<f32>], b: &[Vec<f32>]) -> Vec<usize> {
    assert_eq!(a.len(), b.len(), "as many rows");
    let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    (0..a.len()).filter(|&i| bits(&a[i]) != bits(&b[i])).collect()
}

/// Asserts that rows are equal bit for bit.
///
/// # Panics
/// When they are not.
#[track_caller]
pub fn assert_same(a: &[Vec<f32>], b: &[Vec<f32>], what: &str) {
    let rows = differing(a, b);
    assert!(rows.is_empty(), "{what}: rows {rows:?} differ");
}

/// Parents and tokens of three trees: a comb, a bush, and chains that part at the root.
pub fn trees() -> [Vec<(Option<u32>, u32)>; 3] {
    [
        vec![(None, 11), (Some(0), 12), (Some(0), 13), (Some(1), 14), (Some(1), 15), (Some(3), 16), (Some(3), 17)],
        vec![(None, 21), (None, 22), (None, 23), (Some(2), 24), (Some(2), 25), (Some(1), 24), (Some(3), 26)],
        vec![
            (None, 31),
            (None, 32),
            (Some(0), 33),
            (Some(1), 33),
            (Some(2), 34),
            (Some(3), 34),
            (Some(4), 35),
            (Some(5), 35),
        ],
    ]
}

/// The tokens from the root to a row, and the rows.
pub fn path(tree: &[(Option<u32>, u32)], row: usize) -> (Vec<u32>, Vec<u32>) {
    let mut rows = vec![row as u32];
    while let Some(parent) = tree[rows[rows.len() - 1] as usize].0 {
        rows.push(parent);
    }
    rows.reverse();
    (rows.iter().map(|&row| tree[row as usize].1).collect(), rows)
}

/// The rows of a tree behind what is committed.
pub fn tree_rows(seq: SeqId, tree: &[(Option<u32>, u32)], committed: usize) -> Vec<Row> {
    let depth = |row: usize| path(tree, row).0.len();
    tree.iter().enumerate().map(|(i, &(parent, token))| row(seq, token, committed + depth(i) - 1, parent)).collect()
}
