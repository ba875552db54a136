//! The part of the head that drafts are scored with.
//!
//! The head is a third of a small model's bytes, most of it for tokens that hardly ever come. Panels of sixteen tokens that are
//! worth scoring are copied together, so that a pass reads them alone, and strictly forward.

use spec_core::Token;
use spec_model::StoredTensor;

use crate::packed::{LANES, Packing};
use crate::{CpuError, PackedMatrix, WeightType};

/// Panels that a shortlist begins with room for; it doubles when full.
const ROOM: usize = 2048;
/// Panels read at once from a file, from which on its pages are let go: those of a list's beginning.
const MANY: usize = 64;

/// The matrix that makes logits of every token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head<'a> {
    Packed(&'a PackedMatrix),
    Stored(&'a StoredHead),
}

/// A head that is read panel by panel from its file.
#[derive(Debug)]
pub(crate) struct StoredHead {
    tensor: StoredTensor,
    packing: Packing,
}

impl StoredHead {
    pub(crate) fn new(tensor: StoredTensor, packing: Packing) -> Result<Self, CpuError> {
        packing.check(tensor.rows(), tensor.bytes(0..tensor.rows()).len())?;
        Ok(Self { tensor, packing })
    }
}

impl Head<'_> {
    fn panels(self) -> usize {
        match self {
            Self::Packed(matrix) => matrix.panels(),
            Self::Stored(head) => head.tensor.rows().div_ceil(LANES),
        }
    }

    /// What its panels are made of, and inputs.
    fn shape(self) -> (WeightType, usize) {
        match self {
            Self::Packed(matrix) => (matrix.weight_type(), matrix.inputs()),
            Self::Stored(head) => (head.packing.to(), head.packing.inputs),
        }
    }

    fn write(self, panel: usize, target: &mut [u8]) {
        match self {
            Self::Packed(matrix) => target.copy_from_slice(matrix.panel(panel)),
            Self::Stored(head) => head.packing.panel(head.tensor.bytes(panel * LANES..(panel + 1) * LANES), target),
        }
    }

    fn release(self) {
        if let Self::Stored(head) = self {
            head.tensor.release();
        }
    }

    /// Weights, of all tokens.
    pub(crate) fn weights(self) -> u64 {
        match self {
            Self::Packed(matrix) => matrix.outputs() as u64 * matrix.inputs() as u64,
            Self::Stored(head) => head.tensor.rows() as u64 * head.packing.inputs as u64,
        }
    }

    /// Bytes in the file.
    pub(crate) fn file_bytes(self) -> usize {
        match self {
            Self::Packed(matrix) => matrix.file_bytes(),
            Self::Stored(head) => head.tensor.bytes(0..head.tensor.rows()).len(),
        }
    }
}

/// Panels of a head, in the order in which they were asked for.
#[derive(Debug)]
pub(crate) struct Shortlist {
    panels: Vec<u32>,
    listed: Vec<bool>,
    matrix: PackedMatrix,
}

impl Shortlist {
    pub(crate) fn new(head: Head<'_>) -> Result<Self, CpuError> {
        let (ty, inputs) = head.shape();
        let matrix = PackedMatrix::selection(ty, inputs, ROOM.min(head.panels()))?;
        Ok(Self { panels: Vec::new(), matrix, listed: vec![false; head.panels()] })
    }

    /// Adds the panels of `tokens`.
    pub(crate) fn extend(&mut self, head: Head<'_>, tokens: &[Token]) -> Result<(), CpuError> {
        let before = self.panels.len();
        for &token in tokens {
            let panel = token as usize / LANES;
            if self.listed.get(panel).is_none_or(|&listed| listed) {
                continue;
            }
            if !self.matrix.append_panel(|target| head.write(panel, target)) {
                let (ty, inputs) = head.shape();
                let mut larger = PackedMatrix::selection(ty, inputs, (2 * self.panels.len()).min(head.panels()))?;
                for index in 0..self.panels.len() {
                    larger.append_panel(|target| target.copy_from_slice(self.matrix.panel(index)));
                }
                larger.append_panel(|target| head.write(panel, target));
                self.matrix = larger;
            }
            self.listed[panel] = true;
            self.panels.push(panel as u32);
        }
        if self.panels.len() - before >= MANY {
            head.release();
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
