use half::f16;
use spec_runtime::kv::PagedKv;
use spec_runtime::{Row, SeqId, Want};

use super::*;
use crate::kv::tests::as_stored;
use crate::kv::{BLOCK_TOKENS, KvShape, store_token};

/// Sizes of the heads, and what is special about scores.
#[derive(Clone, Copy, Debug)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
    softcap: Option<f32>,
}

const fn shape(heads: usize, kv_heads: usize, head_dim: usize) -> Shape {
    Shape { heads, kv_heads, head_dim, window: None, softcap: None }
}

impl Shape {
    const fn window(self, positions: usize) -> Self {
        Self { window: Some(positions), ..self }
    }

    const fn softcap(self, cap: f32) -> Self {
        Self { softcap: Some(cap), ..self }
    }
}

const SHAPES: [Shape; 10] = [
    shape(6, 2, 64),
    shape(3, 3, 32),
    shape(12, 1, 16),
    shape(7, 1, 144),
    shape(4, 1, 256).softcap(3.0),
    shape(2, 2, 80).window(1),
    shape(6, 2, 96).window(5),
    shape(12, 1, 16).window(16),
    shape(4, 2, 16).window(17).softcap(2.0),
    shape(3, 3, 32).window(37),
];

/// Numbers in [-1, 1) that depend on `seed` and `index` only.
fn noise(seed: u64, index: usize) -> f32 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index as u64);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x >> 40) as f32 / (1 << 23) as f32) - 1.0
}

/// A path of tokens gives each row its numbers, so equal paths in different places must give equal results.
fn vector(kind: u64, path: &[u32], width: usize) -> Vec<f32> {
    let seed = path.iter().fold(kind, |hash, &token| hash.wrapping_mul(1_000_003).wrapping_add(u64::from(token) + 1));
    (0..width).map(|i| 2.0 * noise(seed, i)).collect()
}

struct Bench<E: KvElement> {
    isa: Isa,
    form: Shape,
    arena: KvArena<E>,
    pages: PagedKv,
    scratch: AttentionScratch<E>,
    pool: Pool,
    /// Per sequence slot: token paths of the committed text.
    texts: Vec<Vec<u32>>,
}

impl<E: KvElement> Bench<E> {
    fn new(isa: Isa, threads: usize, form: Shape) -> Self {
        let blocks = 48;
        let shape = KvShape { layers: 2, blocks, kv_heads: form.kv_heads, head_dim: form.head_dim };
        let mut arena = KvArena::new(shape).expect("a small arena");
        // What closed sequences leave behind.
        let left: Vec<f32> = (0..arena.elements().len()).map(|i| 50.0 * noise(99, i)).collect();
        E::encode(isa, &left, 1.0, arena.elements_mut());
        Self {
            isa,
            form,
            arena,
            pages: PagedKv::new(blocks, BLOCK_TOKENS, 700),
            scratch: AttentionScratch::new(threads),
            pool: Pool::new(threads).expect("threads"),
            texts: Vec::new(),
        }
    }

    fn open(&mut self) -> SeqId {
        let seq = self.pages.open();
        self.texts.resize(self.texts.len().max(seq.slot as usize + 1), Vec::new());
        self.texts[seq.slot as usize].clear();
        seq
    }

    /// Attends in layer 1 for rows (sequence, parent, token); a reservation must be open. `paths` gives the tokens of
    /// each row's path within the reservation, by sequence slot and row number.
    fn pass(&mut self, rows: &[(SeqId, Option<u32>, u32)], paths: &mut Vec<Vec<Vec<u32>>>) -> Vec<Vec<f32>> {
        let shape = *self.arena.shape();
        let (q_width, kv_width) = (self.form.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        let mut batch = Vec::new();
        let mut queries = Vec::new();
        let mut stored = Vec::new();
        for &(seq, parent, token) in rows {
            let text = &self.texts[seq.slot as usize];
            paths.resize(paths.len().max(seq.slot as usize + 1), Vec::new());
            let known = &mut paths[seq.slot as usize];
            let mut path = parent.map_or_else(Vec::new, |parent| known[parent as usize].clone());
            path.push(token);
            batch.push(Row { seq, token, position: text.len() + path.len() - 1, parent, want: Want::Nothing });
            let full: Vec<u32> = text.iter().chain(&path).copied().collect();
            queries.extend(vector(1, &full, q_width));
            stored.push((vector(2, &full, kv_width), vector(3, &full, kv_width)));
            known.push(path);
        }
        let places = self.pages.append(&batch).expect("legal rows");
        let elements = SharedSlice::new(self.arena.elements_mut());
        for (place, (keys, values)) in places.iter().zip(&stored) {
            // SAFETY: no other thread works on the arena.
            unsafe { store_token(self.isa, &elements, &shape, (1, place.slot), (keys, values)) };
        }
        let mut plan = AttentionPlan::default();
        plan.build(&self.pages, &batch, &places).expect("placed rows");
        let mut out = vec![0.0; queries.len()];
        let attention = Attention {
            isa: self.isa,
            arena: &self.arena,
            plan: &plan,
            layer: 1,
            scoring: Scoring { scale: (shape.head_dim as f32).sqrt().recip(), softcap: self.form.softcap },
            window: self.form.window,
            heads: self.form.heads,
            queries: &queries,
        };
        attention.run(&self.pool, &self.scratch, &mut out);
        out.chunks_exact(q_width).map(<[f32]>::to_vec).collect()
    }

    /// Decodes `tokens` one at a time.
    fn decode(&mut self, seq: SeqId, tokens: &[u32]) -> Vec<Vec<f32>> {
        let mut out = Vec::new();
        for &token in tokens {
            self.pages.reserve(seq, 1).expect("room");
            out.extend(self.pass(&[(seq, None, token)], &mut Vec::new()));
            self.settle(seq, &[0], &[token]);
        }
        out
    }

    fn settle(&mut self, seq: SeqId, path: &[u32], tokens: &[u32]) {
        let moves = self.pages.settle(seq, path).expect("a path");
        self.arena.move_tokens(&moves);
        self.texts[seq.slot as usize].extend(tokens);
    }

    /// What f64 makes of the last token of `text`.
    fn reference(&self, text: &[u32]) -> Vec<f64> {
        let shape = *self.arena.shape();
        let kv_width = shape.kv_heads * shape.head_dim;
        let stored = |kind, end: usize| -> Vec<f64> {
            let row = vector(kind, &text[..end], kv_width);
            row.chunks(shape.head_dim).flat_map(|head| as_stored::<E>(self.isa, head)).map(f64::from).collect()
        };
        let seen = text.len() - self.form.window.unwrap_or(usize::MAX).min(text.len())..text.len();
        let keys: Vec<_> = seen.clone().map(|position| stored(2, position + 1)).collect();
        let values: Vec<_> = seen.map(|position| stored(3, position + 1)).collect();
        let queries = vector(1, text, self.form.heads * shape.head_dim);
        let mut out = Vec::new();
        for head in 0..self.form.heads {
            let kv = head / (self.form.heads / shape.kv_heads) * shape.head_dim;
            let query = &queries[head * shape.head_dim..(head + 1) * shape.head_dim];
            let scores: Vec<f64> = keys
                .iter()
                .map(|key| {
                    let dot: f64 = query.iter().zip(&key[kv..]).map(|(q, k)| f64::from(*q) * k).sum();
                    let score = dot / (shape.head_dim as f64).sqrt();
                    self.form.softcap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh())
                })
                .collect();
            let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - greatest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..shape.head_dim {
                out.push(weights.iter().zip(&values).map(|(w, v)| w * v[kv + d]).sum::<f64>() / sum);
            }
        }
        out
    }
}

fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| i * 7 % 31).collect()
}

/// Runs `check` for every instruction set, element type and shape.
macro_rules! everywhere {
    ($check:ident, $shapes:expr, $argument:expr) => {
        for isa in Isa::available() {
            for shape in $shapes {
                $check::<f16>(isa, shape, $argument);
                $check::<f32>(isa, shape, $argument);
                $check::<i8>(isa, shape, $argument);
            }
        }
    };
}

/// A shape with which texts of several chunks are quick to attend to.
const SMALL: [Shape; 4] =
    [shape(4, 2, 16), shape(4, 2, 16).window(100), shape(4, 2, 16).window(256), shape(4, 2, 16).window(300)];

fn decoding_matches<E: KvElement>(isa: Isa, shape: Shape, positions: &[usize]) {
    let mut bench = Bench::<E>::new(isa, 1, shape);
    let seq = bench.open();
    let text = tokens(positions[positions.len() - 1] + 1);
    let rows = bench.decode(seq, &text);
    for &i in positions {
        for (value, exact) in rows[i].iter().zip(bench.reference(&text[..=i])) {
            let error = (f64::from(*value) - exact).abs();
            assert!(error < 3e-6, "{isa:?} {shape:?}, position {i}: {value} for {exact}");
        }
    }
}

#[test]
fn decoding_matches_the_reference() {
    let all: Vec<usize> = (0..70).collect();
    everywhere!(decoding_matches, SHAPES, &all);
    everywhere!(decoding_matches, SMALL, &[0, 254, 255, 256, 257, 300, 511, 512, 513, 599]);
}

fn chains_equal_decoding<E: KvElement>(isa: Isa, shape: Shape, length: usize) {
    let text = tokens(length);
    let mut plain = Bench::<E>::new(isa, 1, shape);
    let seq = plain.open();
    let expected = plain.decode(seq, &text);
    for (threads, chunk) in [(1, 1), (2, 1), (2, 2), (1, 7), (3, 16), (2, 17), (3, 70), (1, 70), (4, length)] {
        let mut bench = Bench::<E>::new(isa, threads, shape);
        let seq = bench.open();
        let mut rows = Vec::new();
        for part in text.chunks(chunk) {
            bench.pages.reserve(seq, part.len()).expect("room");
            let batch: Vec<_> =
                part.iter().enumerate().map(|(i, &token)| (seq, (i as u32).checked_sub(1), token)).collect();
            rows.extend(bench.pass(&batch, &mut Vec::new()));
            let path: Vec<u32> = (0..part.len() as u32).collect();
            bench.settle(seq, &path, part);
        }
        assert!(rows == expected, "{isa:?} {shape:?}, {length} in chunks of {chunk}, {threads} threads");
    }
}

#[test]
fn chains_of_any_length_equal_decoding_bit_for_bit() {
    everywhere!(chains_equal_decoding, SHAPES, 70);
    everywhere!(chains_equal_decoding, SMALL, 600);
}

fn trees_equal_chains<E: KvElement>(isa: Isa, shape: Shape, all_committed: &[usize]) {
    const TREE: [(Option<u32>, u32); 9] = [
        (None, 1),
        (None, 2),
        (Some(0), 3),
        (Some(1), 4),
        (Some(2), 5),
        (Some(2), 6),
        (Some(3), 7),
        (Some(6), 8),
        (Some(7), 9),
    ];
    let mut chain = Bench::<E>::new(isa, 1, shape);
    let mut decode_alone = |parts: &[&[u32]]| {
        let alone = chain.open();
        let rows: Vec<_> = parts.iter().flat_map(|part| chain.decode(alone, part)).collect();
        chain.pages.close(alone);
        rows
    };
    for &committed in all_committed {
        let text = tokens(committed);
        let mut bench = Bench::<E>::new(isa, 2, shape);
        // A second sequence in the same pass, and one whose blocks are interleaved with the first's.
        let (other, seq) = (bench.open(), bench.open());
        bench.decode(other, &tokens(20));
        bench.decode(seq, &text);
        bench.pages.reserve(seq, TREE.len()).expect("room");
        bench.pages.reserve(other, 2).expect("room");
        let mut batch: Vec<_> = TREE.iter().map(|&(parent, token)| (seq, parent, token)).collect();
        batch.insert(3, (other, None, 3));
        batch.push((other, Some(0), 4));
        let mut paths = Vec::new();
        let mut rows = bench.pass(&batch, &mut paths);
        rows.pop();
        rows.remove(3);
        for (number, row) in rows.iter().enumerate() {
            let path = &paths[seq.slot as usize][number];
            let expected = decode_alone(&[&text, path]).pop().expect("a path has a row");
            assert_eq!(*row, expected, "{isa:?} {shape:?}, {committed} committed, row {number}");
        }
        // The commit moves the path where a chain would have put it.
        bench.settle(seq, &[1, 3, 6, 7], &[2, 4, 7, 8]);
        let next = bench.decode(seq, &[9, 10]);
        let expected = decode_alone(&[&text, &[2, 4, 7, 8], &[9, 10]]).split_off(committed + 4);
        assert_eq!(next, expected, "{isa:?} {shape:?}, {committed} committed, after a commit");
    }
}

#[test]
fn tree_rows_equal_the_same_path_as_a_chain_bit_for_bit() {
    everywhere!(trees_equal_chains, SHAPES, &[0, 1, 15, 16, 17, 30, 31, 32, 33, 47]);
    everywhere!(trees_equal_chains, SMALL, &[239, 251, 253, 255, 256, 257, 510]);
}

#[test]
fn instruction_sets_with_fused_operations_agree_bit_for_bit() {
    fn decoded(isa: Isa) -> Vec<Vec<f32>> {
        let mut bench = Bench::<f16>::new(isa, 2, shape(12, 2, 144).window(270));
        let seq = bench.open();
        bench.decode(seq, &tokens(300))
    }
    let fused: Vec<Isa> = Isa::available().into_iter().filter(|&isa| isa != Isa::Portable).collect();
    for pair in fused.windows(2) {
        assert!(decoded(pair[0]) == decoded(pair[1]), "{pair:?}");
    }
}
