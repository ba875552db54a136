//! The part of the head that drafts are scored with.
//!
//! The head is a third of a small model's bytes, most of it for tokens that hardly ever come. Panels of sixteen tokens that are
//! worth scoring are copied together, so that a pass reads them alone, and strictly forward.

use spec_core::Token;

use crate::packed::LANES;
use crate::{CpuError, PackedMatrix};

/// Panels that a shortlist begins with room for; it doubles when full.
const ROOM: usize = 2048;

/// Panels of a head, in the order in which they were asked for.
#[derive(Debug)]
pub(crate) struct Shortlist {
    panels: Vec<u32>,
    listed: Vec<bool>,
    matrix: PackedMatrix,
}

impl Shortlist {
    pub(crate) fn new(head: &PackedMatrix) -> Result<Self, CpuError> {
        let listed = vec![false; head.panels()];
        Ok(Self { panels: Vec::new(), matrix: head.selection_of(ROOM.min(head.panels()))?, listed })
    }

    /// Adds the panels of `tokens`.
    pub(crate) fn extend(&mut self, head: &PackedMatrix, tokens: &[Token]) -> Result<(), CpuError> {
        for &token in tokens {
            let panel = token as usize / LANES;
            if self.listed.get(panel).is_none_or(|&listed| listed) {
                continue;
            }
            if !self.matrix.append_panel(head, panel) {
                let mut larger = head.selection_of((2 * self.panels.len()).min(head.panels()))?;
                for &panel in &self.panels {
                    larger.append_panel(head, panel as usize);
                }
                larger.append_panel(head, panel);
                self.matrix = larger;
            }
            self.listed[panel] = true;
            self.panels.push(panel as u32);
        }
        Ok(())
    }

    /// The matrix that makes the logits of the listed panels.
    pub(crate) fn matrix(&self) -> &PackedMatrix {
        &self.matrix
    }

    /// Spreads rows of its logits over rows of the vocabulary; all others become `-inf`.
    pub(crate) fn spread(&self, listed: &[f32], logits: &mut [f32], vocab: usize) {
        for (listed, logits) in listed.chunks_exact(self.matrix.outputs()).zip(logits.chunks_exact_mut(vocab)) {
            logits.fill(f32::NEG_INFINITY);
            for (values, &panel) in listed.chunks_exact(LANES).zip(&self.panels) {
                let start = panel as usize * LANES;
                let end = vocab.min(start + LANES);
                logits[start..end].copy_from_slice(&values[..end - start]);
            }
        }
    }
}
