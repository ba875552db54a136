//! What both attentions share: one query row of one head over keys and values, and masks in memory.

use super::product::Dot;
use super::tensor::{Desc, Format, Tensor};
use crate::failure::Failure;
use acl_sys::Status;

/// How scores are made.
#[derive(Clone, Copy)]
pub(crate) struct Scores {
    pub(crate) scale: f32,
    pub(crate) clamp: Option<(f32, f32)>,
}

impl Scores {
    /// One row: softmax(scale * q k + mask) v, in f32, ascending over positions. `keys` and `values` are rows by
    /// position; `mask` is as long as there are positions.
    pub(crate) fn attend(self, dot: Dot, query: &[f32], keys: &[f32], values: &[f32], mask: &[f32], out: &mut [f32]) {
        let scores = keys.chunks_exact(query.len()).zip(mask).map(|(key, mask)| {
            let score = dot.of(query, key) * self.scale;
            self.clamp.map_or(score, |(low, high)| score.clamp(low, high)) + mask
        });
        let mut weights: Vec<f32> = scores.collect();
        let largest = weights.iter().fold(f32::NEG_INFINITY, |largest, score| largest.max(*score));
        let mut sum = 0.0;
        for weight in &mut weights {
            *weight = (*weight - largest).exp();
            sum += *weight;
        }
        out.fill(0.0);
        for (weight, value) in weights.iter().zip(values.chunks_exact(out.len())) {
            out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
        }
        out.iter_mut().for_each(|out| *out /= sum);
    }
}

/// A matrix that may be tiled: rows of queries, columns of positions.
pub(crate) struct Matrix<'a> {
    pub(crate) tensor: &'a Tensor,
    /// Elements before it.
    pub(crate) start: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Matrix<'_> {
    /// `to.len()` columns of a row, from the first.
    pub(crate) fn row(&self, row: usize, to: &mut [f32]) {
        if self.tensor.desc.format == Format::Nz {
            for (tile, to) in to.chunks_mut(16).enumerate() {
                self.tensor.read_floats(self.start + (tile * self.rows + row) * 16, to);
            }
        } else {
            self.tensor.read_floats(self.start + row * self.columns, to);
        }
    }
}

/// Rows and columns of a matrix that is plain, or tiled as [1, columns / 16, rows, 16].
pub(crate) fn matrix_size(desc: &Desc) -> Option<(usize, usize)> {
    match (&desc.format, &desc.dims[..]) {
        (Format::Nd, [.., rows, columns]) => Some((*rows, *columns)),
        (Format::Nz, [_, tiles, rows, 16]) => Some((*rows, tiles * 16)),
        _ => None,
    }
}

/// What ATB has and the simulator does not.
pub(crate) fn unsupported(text: &str) -> Failure {
    Failure::new(Status::SPEC_ATB_ERROR_UNSUPPORTED, format!("the simulator does not have {text}"))
}
