//! Matrix kernels in plain Rust, in the order of the vector ones.

use super::Sums;
use crate::activation::Tile;
use crate::packed::{LANES, WeightType, q4_k, q6_k, split_block};
use crate::vector::f16_to_f32;

/// Codes of four inputs by sixteen outputs, as unsigned bytes.
type Quad = [u8; 64];

pub(super) fn panel(ty: WeightType, panel: &[u8], tile: &Tile<'_>, sums: &mut Sums) {
    for sums in &mut sums[..tile.rows] {
        *sums = [0.0; LANES];
    }
    match ty {
        WeightType::F32 => {
            float(panel, tile, sums, 4, |bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        }
        WeightType::F16 => float(panel, tile, sums, 2, |bytes| f16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]]))),
        WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q8_0 => {
            for block in 0..tile.blocks {
                block32(ty, panel, tile, block, sums);
            }
        }
        WeightType::Q4_K => {
            for (block, weights) in panel.chunks_exact(q4_k::BYTES).enumerate() {
                super_block_q4_k(weights, tile, block, sums);
            }
        }
        WeightType::Q6_K => {
            for (block, weights) in panel.chunks_exact(q6_k::BYTES).enumerate() {
                super_block_q6_k(weights, tile, block, sums);
            }
        }
    }
}

fn float(panel: &[u8], tile: &Tile<'_>, sums: &mut Sums, size: usize, decode: impl Fn(&[u8]) -> f32) {
    let inputs = panel.chunks_exact(LANES * size).zip(tile.floats.chunks_exact(tile.rows));
    for (bytes, activations) in inputs {
        let mut weights = [0.0; LANES];
        for (weight, bytes) in weights.iter_mut().zip(bytes.chunks_exact(size)) {
            *weight = decode(bytes);
        }
        for (sums, activation) in sums.iter_mut().zip(activations) {
            for lane in 0..LANES {
                sums[lane] += weights[lane] * activation;
            }
        }
    }
}

fn halves(panel: &[u8], at: usize) -> [f32; LANES] {
    let bytes = &panel[at..at + 2 * LANES];
    std::array::from_fn(|lane| f16_to_f32(u16::from_le_bytes([bytes[2 * lane], bytes[2 * lane + 1]])))
}

fn vector(panel: &[u8], at: usize) -> &Quad {
    panel[at..].first_chunk().expect("a panel holds whole vectors")
}

/// Expands a vector of nibbles: first the low ones, then the high ones.
fn nibbles(panel: &[u8], at: usize) -> [Quad; 2] {
    let bytes = vector(panel, at);
    [bytes.map(|byte| byte & 15), bytes.map(|byte| byte >> 4)]
}

/// Adds the products of four inputs to the sixteen sums.
fn multiply(dot: &mut [i32; LANES], weights: &Quad, activations: &[i8]) {
    let activations: [i32; 4] = std::array::from_fn(|input| i32::from(activations[input]));
    for (dot, weights) in dot.iter_mut().zip(weights.chunks_exact(4)) {
        for input in 0..4 {
            *dot += i32::from(weights[input]) * activations[input];
        }
    }
}

fn block32(ty: WeightType, panel: &[u8], tile: &Tile<'_>, block: usize, sums: &mut Sums) {
    let (codes, scales) = split_block(ty, block, tile.blocks);
    let mut quads = [[0; 64]; 8];
    if ty == WeightType::Q8_0 {
        for (index, quad) in quads.iter_mut().enumerate() {
            *quad = *vector(panel, codes + index * 64);
        }
    } else {
        for (index, pair) in quads.chunks_exact_mut(2).enumerate() {
            pair.copy_from_slice(&nibbles(panel, codes + index * 64));
        }
    }
    if ty == WeightType::Q5_0 {
        for (index, quad) in quads.iter_mut().enumerate() {
            for (bit, code) in quad.iter_mut().enumerate() {
                *code |= (panel[codes + 256 + index * 8 + bit / 8] >> (bit % 8) & 1) << 4;
            }
        }
    }
    let scale = halves(panel, scales);
    let min = if ty == WeightType::Q4_1 { halves(panel, scales + 32) } else { [0.0; LANES] };
    for (row, sums) in sums[..tile.rows].iter_mut().enumerate() {
        let at = block * tile.rows + row;
        let start = match ty {
            WeightType::Q5_0 => tile.starts[at],
            WeightType::Q8_0 => tile.sums[at],
            _ => 0,
        };
        let mut dot = [start; LANES];
        for (quad, activations) in quads.iter().zip(tile.codes[at].0.chunks_exact(4)) {
            multiply(&mut dot, quad, activations);
        }
        for lane in 0..LANES {
            sums[lane] += dot[lane] as f32 * tile.scales[at] * scale[lane];
        }
        if ty == WeightType::Q4_1 {
            for lane in 0..LANES {
                sums[lane] += min[lane] * tile.scaled_sums[at];
            }
        }
    }
}

fn super_block_q4_k(weights: &[u8], tile: &Tile<'_>, block: usize, sums: &mut Sums) {
    let rows = tile.rows;
    let mut totals = [[0.0_f32; LANES]; crate::activation::ROW_TILE];
    for sub in 0..8 {
        let factors = &weights[q4_k::SCALES + sub * LANES..][..LANES];
        let mut quads = [[0; 64]; 8];
        for (index, pair) in quads.chunks_exact_mut(2).enumerate() {
            pair.copy_from_slice(&nibbles(weights, q4_k::CODES + (sub * 4 + index) * 64));
        }
        for (row, totals) in totals[..rows].iter_mut().enumerate() {
            let codes = &tile.codes[(block * 8 + sub) * rows + row].0;
            let mut dot = [0; LANES];
            for (quad, activations) in quads.iter().zip(codes.chunks_exact(4)) {
                multiply(&mut dot, quad, activations);
            }
            for lane in 0..LANES {
                totals[lane] += dot[lane] as f32 * f32::from(factors[lane]);
            }
        }
    }
    let (scale, min_scale) = (halves(weights, q4_k::SCALE), halves(weights, q4_k::MIN_SCALE));
    for row in 0..rows {
        let mut mins = [0_i32; LANES];
        for pair in 0..4 {
            let both = tile.sums[(block * 4 + pair) * rows + row];
            let (first, second) = (i32::from(both as i16), both >> 16);
            for (lane, sum) in mins.iter_mut().enumerate() {
                let at = q4_k::MINS + pair * 32 + lane * 2;
                *sum += i32::from(weights[at]) * first + i32::from(weights[at + 1]) * second;
            }
        }
        let activation_scale = tile.scales[block * rows + row];
        for lane in 0..LANES {
            let value = scale[lane] * totals[row][lane] - min_scale[lane] * mins[lane] as f32;
            sums[row][lane] += value * activation_scale;
        }
    }
}

fn super_block_q6_k(weights: &[u8], tile: &Tile<'_>, block: usize, sums: &mut Sums) {
    let rows = tile.rows;
    let mut totals = [[0.0_f32; LANES]; crate::activation::ROW_TILE];
    for sub in 0..16 {
        let factors = &weights[q6_k::SCALES + sub * LANES..][..LANES];
        let at = q6_k::CODES + sub * q6_k::SUB_BLOCK;
        let ([first, second], [third, fourth]) = (nibbles(weights, at), nibbles(weights, at + 64));
        let high = vector(weights, at + 128);
        let mut quads = [first, second, third, fourth];
        for (field, quad) in quads.iter_mut().enumerate() {
            for (code, high) in quad.iter_mut().zip(high) {
                *code |= (high >> (2 * field) & 3) << 4;
            }
        }
        for (row, totals) in totals[..rows].iter_mut().enumerate() {
            let codes = &tile.codes[(block * 8 + sub / 2) * rows + row].0[sub % 2 * 16..];
            let mut dot = [tile.starts[(block * 16 + sub) * rows + row]; LANES];
            for (quad, activations) in quads.iter().zip(codes.chunks_exact(4)) {
                multiply(&mut dot, quad, activations);
            }
            for lane in 0..LANES {
                let factor = f32::from(factors[lane].cast_signed());
                totals[lane] += dot[lane] as f32 * factor;
            }
        }
    }
    for row in 0..rows {
        let activation_scale = tile.scales[block * rows + row];
        for lane in 0..LANES {
            let at = q6_k::SCALE + lane * 4;
            let scale = [weights[at], weights[at + 1], weights[at + 2], weights[at + 3]];
            sums[row][lane] += totals[row][lane] * f32::from_le_bytes(scale) * activation_scale;
        }
    }
}

pub(super) fn read(bytes: &[u8]) -> u64 {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(*word.first_chunk().expect("a chunk of eight bytes")))
        .fold(0, u64::wrapping_add)
}

pub(super) fn spin_int8(rounds: usize) -> (u64, i32) {
    let mut dots = [[0; LANES]; 8];
    let weights: Quad = std::array::from_fn(|index| std::hint::black_box(index as u8));
    let activations: [i8; 4] = std::hint::black_box([1, -2, 3, -4]);
    for _ in 0..rounds {
        for dot in &mut dots {
            multiply(dot, std::hint::black_box(&weights), &activations);
        }
    }
    let macs = rounds as u64 * 8 * 64;
    (macs, dots.as_flattened().iter().fold(0, |sum, &dot| sum.wrapping_add(dot)))
}
