//! Cosines and sines of rotary position embedding.

use spec_model::{RopeConfig, RopeStyle};

use crate::{Isa, vector};

/// The table of a model, grown as positions come up.
#[derive(Debug)]
pub(super) struct Rope {
    style: RopeStyle,
    /// Radians per position of each pair.
    frequencies: Vec<f64>,
    magnitude: f64,
    /// `[position][pair]`, times the magnitude.
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Rope {
    pub(super) fn new(config: &RopeConfig) -> Self {
        Self {
            style: config.style,
            frequencies: config.frequencies(),
            magnitude: f64::from(config.magnitude()),
            cos: Vec::new(),
            sin: Vec::new(),
        }
    }

    /// Makes the table hold `positions` positions.
    pub(super) fn grow(&mut self, positions: usize) {
        // Angles reach thousands of turns: reduced in f64, rounded once.
        for position in self.cos.len() / self.frequencies.len().max(1)..positions {
            for frequency in &self.frequencies {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                self.cos.push((cos * self.magnitude) as f32);
                self.sin.push((sin * self.magnitude) as f32);
            }
        }
    }

    /// Rotates the heads of `row`, each `head_dim` wide. The table must hold `position`.
    pub(super) fn rotate(&self, isa: Isa, position: usize, head_dim: usize, row: &mut [f32]) {
        let pairs = self.frequencies.len();
        let range = position * pairs..(position + 1) * pairs;
        let (cos, sin) = (&self.cos[range.clone()], &self.sin[range]);
        for head in row.chunks_exact_mut(head_dim) {
            match self.style {
                RopeStyle::Interleaved => vector::rope_interleaved(isa, &mut head[..2 * pairs], cos, sin),
                RopeStyle::Halves => vector::rope_halves(isa, &mut head[..2 * pairs], cos, sin),
            }
        }
    }
}
