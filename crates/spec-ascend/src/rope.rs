//! Rotary position embedding as ATB takes it: halves of a head turn together, by tables as wide as the head.
//!
//! Checkpoints that turn neighbours, and those that turn a part of the head only, are brought into that form by another
//! order of the rows that make queries and keys. Their products do not change when both have the same order.

use spec_model::{RopeConfig, RopeStyle};

/// For each element of a head as ATB has it, the element of the checkpoint's head; `None` when both are alike.
pub(crate) fn head_order(rope: &RopeConfig, head_dim: usize) -> Option<Vec<usize>> {
    let (pairs, half) = (rope.dims / 2, head_dim / 2);
    let mut order = vec![0; head_dim];
    for pair in 0..pairs {
        let (first, second) = match rope.style {
            RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
            RopeStyle::Halves => (pair, pair + pairs),
        };
        (order[pair], order[half + pair]) = (first, second);
    }
    // What is not turned fills both halves up.
    for (at, element) in (pairs..half).chain(half + pairs..head_dim).zip(rope.dims..) {
        order[at] = element;
    }
    order.iter().enumerate().any(|(at, &element)| at != element).then_some(order)
}

/// The same for rows of a whole projection.
pub(crate) fn row_order(rope: &RopeConfig, heads: usize, head_dim: usize) -> Option<Vec<usize>> {
    let order = head_order(rope, head_dim)?;
    Some((0..heads).flat_map(|head| order.iter().map(move |element| head * head_dim + element)).collect())
}

/// Cosines and sines, `[positions, head_dim]` each.
pub(crate) fn tables(rope: &RopeConfig, head_dim: usize, positions: usize) -> [Vec<f32>; 2] {
    let (frequencies, magnitude) = (rope.frequencies(), f64::from(rope.magnitude()));
    let half = head_dim / 2;
    // Elements that are not turned.
    let mut tables = [vec![1.0; positions * head_dim], vec![0.0; positions * head_dim]];
    for position in 0..positions {
        for (pair, frequency) in frequencies.iter().enumerate() {
            // Angles reach thousands of turns: reduced in f64, rounded once.
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            for at in [pair, half + pair] {
                tables[0][position * head_dim + at] = (cos * magnitude) as f32;
                tables[1][position * head_dim + at] = (sin * magnitude) as f32;
            }
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec_testing::tiny::{self, TinySpec};

    fn rope(spec: TinySpec) -> RopeConfig {
        let checkpoint = spec_model::Checkpoint::from_bytes(tiny::gguf(spec), "tiny.gguf").expect("a legal file");
        checkpoint.config().rope.clone().expect("a rotary embedding")
    }

    /// Turns a head as the checkpoint means it.
    fn turn(rope: &RopeConfig, position: usize, head: &[f64]) -> Vec<f64> {
        let (mut turned, pairs) = (head.to_vec(), rope.dims / 2);
        for (pair, frequency) in rope.frequencies().iter().enumerate() {
            let (a, b) = match rope.style {
                RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
                RopeStyle::Halves => (pair, pair + pairs),
            };
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            (turned[a], turned[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
        }
        turned
    }

    #[test]
    fn heads_in_the_new_order_turn_as_the_checkpoint_means_them() {
        let size = 32;
        for spec in [TinySpec::llama(), TinySpec::qwen_k()] {
            for dims in [size, 16] {
                let mut rope = rope(spec);
                rope.dims = dims;
                let order = head_order(&rope, size).unwrap_or_else(|| (0..size).collect());
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..size), "an order of all elements");
                let head: Vec<f64> = (0..size).map(|at| f64::from(at as u32 * 7 % 11) - 4.5).collect();
                let ours: Vec<f64> = order.iter().map(|&at| head[at]).collect();
                let [cos, sin] = tables(&rope, size, 40);
                let wanted = turn(&rope, 39, &head);
                for at in 0..size {
                    let (row, half) = (39 * size + at, size / 2);
                    let (partner, sign) = if at < half { (at + half, -1.0) } else { (at - half, 1.0) };
                    let got = ours[at] * f64::from(cos[row]) + sign * ours[partner] * f64::from(sin[row]);
                    assert!((got - wanted[order[at]]).abs() < 1e-5, "{} of {dims}, element {at}", spec.arch);
                }
            }
        }
    }
}
