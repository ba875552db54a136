//! Weight matrices repacked for kernels that multiply sixteen outputs at a time.
//!
//! GGUF stores one output row after the other. Here sixteen rows form a *panel*, and within a panel
//! every 64-byte vector of codes holds, for four consecutive inputs, one 32-bit lane per output: the unsigned operand of `vpdpbusd`, whose
//! signed operand is the four activations broadcast. Scales lie beside the codes they belong to, so one pass over
//! a matrix reads memory strictly forward. Codes keep the bits they have in the file; of the scales, those of Q3_K and IQ4_XS grow from
//! six bits to eight.

mod layout;
mod memory;
mod repack;
#[cfg(test)]
mod tests;
mod unpack;

pub(crate) use layout::{LANES, PAIR, iq4_xs, q2_k, q3_k, q4_k, q5_k, q6_k, split_block, super_block_bytes};
pub use memory::WeightMemory;

pub(crate) use memory::Region;

use std::ops::Range;

use spec_model::{Quantizer, TensorType};

use crate::{ActivationForm, CpuError, Pool, SharedSlice};

/// Storage types that can be packed. Names and block formats are GGUF's, described at [`TensorType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(non_camel_case_types, reason = "the field writes Q4_K")]
#[allow(missing_docs, reason = "described where they are defined")]
pub enum WeightType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    BF16,
}

impl WeightType {
    /// Every type, in the order of their declaration.
    pub const ALL: [Self; 15] = [
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::BF16,
    ];

    /// The type of a checkpoint's tensor that this is.
    #[must_use]
    pub fn tensor_type(self) -> TensorType {
        match self {
            Self::F32 => TensorType::F32,
            Self::F16 => TensorType::F16,
            Self::Q4_0 => TensorType::Q4_0,
            Self::Q4_1 => TensorType::Q4_1,
            Self::Q5_0 => TensorType::Q5_0,
            Self::Q5_1 => TensorType::Q5_1,
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q2_K => TensorType::Q2K,
            Self::Q3_K => TensorType::Q3K,
            Self::Q4_K => TensorType::Q4K,
            Self::Q5_K => TensorType::Q5K,
            Self::Q6_K => TensorType::Q6K,
            Self::IQ4_NL => TensorType::IQ4NL,
            Self::IQ4_XS => TensorType::IQ4XS,
            Self::BF16 => TensorType::BF16,
        }
    }

    /// The type that kernels know a checkpoint's tensor by; `None` if there are no kernels for it.
    #[must_use]
    pub fn of(tensor_type: TensorType) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.tensor_type() == tensor_type)
    }

    /// Inputs per block in the file.
    #[must_use]
    pub fn block(self) -> usize {
        self.tensor_type().block_size()
    }

    /// Bytes per block in the file.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        self.tensor_type().block_bytes()
    }

    /// The form of activations that kernels for this type read.
    #[must_use]
    pub fn activation_form(self) -> ActivationForm {
        match self.block() {
            1 => ActivationForm::Float,
            32 => ActivationForm::Block32,
            _ => ActivationForm::Block256,
        }
    }
}

/// Bytes of a tensor that are packed before its pages are let go.
pub(crate) const PART: usize = 16 << 20;

/// A weight matrix of `outputs` x `inputs`, packed.
#[derive(Debug)]
pub struct PackedMatrix {
    ty: WeightType,
    outputs: usize,
    inputs: usize,
    panel_bytes: usize,
    region: Region,
}

impl PackedMatrix {
    /// Packs the GGUF tensor `bytes`, row-major `outputs` x `inputs`, into memory of its own.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack_in`].
    pub fn pack(ty: WeightType, outputs: usize, inputs: usize, bytes: &[u8], pool: &Pool) -> Result<Self, CpuError> {
        Self::pack_in(&WeightMemory::exact(), ty, outputs, inputs, bytes, pool)
    }

    /// Packs the GGUF tensor `bytes`, row-major `outputs` x `inputs`, into a part of `memory`.
    ///
    /// # Errors
    /// [`CpuError::WeightShape`] when `inputs` is zero or not a multiple of the block, [`CpuError::WeightBytes`] when `bytes`
    /// has not the matrix's length, [`CpuError::Memory`] when the system refuses memory.
    pub fn pack_in(
        memory: &WeightMemory,
        ty: WeightType,
        outputs: usize,
        inputs: usize,
        bytes: &[u8],
        pool: &Pool,
    ) -> Result<Self, CpuError> {
        Self::fill(memory, Packing { from: ty, quantizer: None, inputs }, outputs, bytes, pool, &mut |_| ())
    }

    /// Packs the tensor `bytes` of type `ty`, row-major `outputs` x `inputs`, after quantising it. Every task holds one panel, quantised, and
    /// one row as f32 besides.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack_in`], for the blocks of either type.
    pub fn quantize_in(
        memory: &WeightMemory,
        quantizer: Quantizer,
        ty: WeightType,
        (outputs, inputs): (usize, usize),
        bytes: &[u8],
        pool: &Pool,
    ) -> Result<Self, CpuError> {
        let packing = Packing { from: ty, quantizer: Some(quantizer), inputs };
        Self::fill(memory, packing, outputs, bytes, pool, &mut |_| ())
    }

    /// Bytes that a matrix takes in memory when it is packed.
    pub(crate) fn bytes_of(ty: WeightType, outputs: usize, inputs: usize) -> usize {
        outputs.div_ceil(LANES) * layout::panel_bytes(ty, inputs)
    }

    /// Packs the tensor `bytes` with `outputs` rows part by part; `done` is told which bytes are not needed any more.
    pub(crate) fn fill(
        memory: &WeightMemory,
        packing: Packing,
        outputs: usize,
        bytes: &[u8],
        pool: &Pool,
        done: &mut dyn FnMut(Range<usize>),
    ) -> Result<Self, CpuError> {
        packing.check(outputs, bytes.len())?;
        let (ty, inputs, row_bytes) = (packing.to(), packing.inputs, packing.row_bytes());
        // No overflow: the packed size is within a small factor of the tensor's bytes, which exist.
        let panel_bytes = layout::panel_bytes(ty, inputs);
        let panels = outputs.div_ceil(LANES);
        let mut region = memory.reserve(panels * panel_bytes)?;
        let packed = SharedSlice::new(region.as_mut_slice());
        let panels_at_once = (PART / (LANES * row_bytes).max(1)).max(1);
        for first in (0..panels).step_by(panels_at_once) {
            let rows = |panel: usize| panel * LANES..outputs.min((panel + 1) * LANES);
            let last = panels.min(first + panels_at_once) - 1;
            pool.run(last + 1 - first, |panel| {
                let (panel, rows) = (first + panel, rows(first + panel));
                // SAFETY: panels are disjoint and each is packed by one task.
                let target = unsafe { packed.slice(panel * panel_bytes..(panel + 1) * panel_bytes) };
                packing.panel(&bytes[rows.start * row_bytes..rows.end * row_bytes], target);
            });
            done(rows(first).start * row_bytes..rows(last).end * row_bytes);
        }
        Ok(Self { ty, outputs, inputs, panel_bytes, region })
    }

    /// A matrix of panels of another, none yet, with room for `panels` of them.
    pub(crate) fn selection(ty: WeightType, inputs: usize, panels: usize) -> Result<Self, CpuError> {
        let panel_bytes = layout::panel_bytes(ty, inputs);
        let region = WeightMemory::exact().reserve(panels * panel_bytes)?;
        Ok(Self { ty, outputs: 0, inputs, panel_bytes, region })
    }

    /// Appends a panel that `fill` writes, all of it; `false` when there is no room left.
    pub(crate) fn append_panel(&mut self, fill: impl FnOnce(&mut [u8])) -> bool {
        let start = self.panels() * self.panel_bytes;
        let Some(target) = self.region.as_mut_slice().get_mut(start..start + self.panel_bytes) else { return false };
        fill(target);
        self.outputs += LANES;
        true
    }

    /// Storage type.
    #[must_use]
    pub fn weight_type(&self) -> WeightType {
        self.ty
    }

    /// Output rows.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Input columns.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Bytes that the matrix takes in its file, which is what bandwidth figures count.
    #[must_use]
    pub fn file_bytes(&self) -> usize {
        self.outputs * (self.inputs / self.ty.block()) * self.ty.block_bytes()
    }

    /// Bytes that the packed matrix takes in memory.
    #[must_use]
    pub fn packed_bytes(&self) -> usize {
        self.panels() * self.panel_bytes
    }

    /// The form of activations that this matrix multiplies.
    #[must_use]
    pub fn activation_form(&self) -> ActivationForm {
        self.ty.activation_form()
    }

    /// Writes output row `row` (an embedding, when the matrix is one) as f32.
    ///
    /// # Errors
    /// [`CpuError::Shape`] when `row` is not below `outputs` or `values` does not have `inputs` items.
    pub fn dequantize_row(&self, row: usize, values: &mut [f32]) -> Result<(), CpuError> {
        let operation = "dequantize_row";
        if row >= self.outputs {
            let (what, expected) = ("rows of the matrix, above the row asked for,", row + 1);
            return Err(CpuError::Shape { operation, what, expected, found: self.outputs });
        }
        if values.len() != self.inputs {
            let (what, expected) = ("values", self.inputs);
            return Err(CpuError::Shape { operation, what, expected, found: values.len() });
        }
        unpack::row(self.ty, self.panel(row / LANES), row % LANES, values);
        Ok(())
    }

    /// Panels of sixteen outputs, the last padded with zero weights.
    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(LANES)
    }

    /// Bytes per panel, a multiple of 64.
    pub(crate) fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// The bytes of one panel, aligned to 64.
    pub(crate) fn panel(&self, panel: usize) -> &[u8] {
        &self.region.as_slice()[panel * self.panel_bytes..(panel + 1) * self.panel_bytes]
    }
}

/// How rows of a tensor become panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    /// What the tensor is stored as.
    pub(crate) from: WeightType,
    /// What its rows are quantised to first.
    pub(crate) quantizer: Option<Quantizer>,
    pub(crate) inputs: usize,
}

impl Packing {
    /// What the panels are made of.
    pub(crate) fn to(&self) -> WeightType {
        let quantized = self.quantizer.map(|quantizer| {
            WeightType::of(quantizer.tensor_type()).expect("there are kernels for every type that is quantised to")
        });
        quantized.unwrap_or(self.from)
    }

    fn row_bytes(&self) -> usize {
        (self.inputs / self.from.block()).saturating_mul(self.from.block_bytes())
    }

    /// Whether a tensor of `bytes` bytes is a matrix of these sizes, in blocks of either type.
    pub(crate) fn check(&self, outputs: usize, bytes: usize) -> Result<(), CpuError> {
        let inputs = self.inputs;
        for ty in [self.from, self.to()] {
            let block = ty.block();
            if inputs == 0 || !inputs.is_multiple_of(block) {
                return Err(CpuError::WeightShape { ty, outputs, inputs, block });
            }
        }
        let expected = self.row_bytes().saturating_mul(outputs);
        if bytes != expected {
            return Err(CpuError::WeightBytes { ty: self.from, outputs, inputs, expected, found: bytes });
        }
        Ok(())
    }

    /// Packs up to sixteen rows; [`check`](Self::check) has passed.
    pub(crate) fn panel(&self, rows: &[u8], target: &mut [u8]) {
        let inputs = self.inputs;
        let Some(quantizer) = self.quantizer else { return repack::panel(self.from, inputs, rows, target) };
        let (to, row_bytes) = (self.to(), self.row_bytes());
        let quantized_bytes = inputs / to.block() * to.block_bytes();
        let mut values = vec![0.0; inputs];
        let mut quantized = vec![0; rows.len() / row_bytes * quantized_bytes];
        for (row, quantized) in rows.chunks_exact(row_bytes).zip(quantized.chunks_exact_mut(quantized_bytes)) {
            spec_model::dequantize(self.from.tensor_type(), row, &mut values).expect("a row of whole blocks");
            quantizer.quantize(&values, quantized).expect("a row of whole blocks");
        }
        repack::panel(to, inputs, &quantized, target);
    }
}
