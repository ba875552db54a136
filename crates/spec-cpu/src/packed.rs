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
        let row_bytes = row_bytes(ty, outputs, inputs, bytes)?;
        Self::fill(memory, ty, outputs, inputs, pool, |first, rows, target| {
            repack::panel(ty, inputs, &bytes[first * row_bytes..(first + rows) * row_bytes], target);
        })
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
        let row_bytes = row_bytes(ty, outputs, inputs, bytes)?;
        let to =
            WeightType::of(quantizer.tensor_type()).expect("there are kernels for every type that is quantised to");
        let block = to.block();
        if !inputs.is_multiple_of(block) {
            return Err(CpuError::WeightShape { ty: to, outputs, inputs, block });
        }
        let quantized_bytes = inputs / block * to.block_bytes();
        Self::fill(memory, to, outputs, inputs, pool, |first, rows, target| {
            let mut values = vec![0.0; inputs];
            let mut quantized = vec![0; rows * quantized_bytes];
            let rows = bytes[first * row_bytes..(first + rows) * row_bytes].chunks_exact(row_bytes);
            for (row, quantized) in rows.zip(quantized.chunks_exact_mut(quantized_bytes)) {
                spec_model::dequantize(ty.tensor_type(), row, &mut values).expect("a row of whole blocks");
                quantizer.quantize(&values, quantized).expect("a row of whole blocks");
            }
            repack::panel(to, inputs, &quantized, target);
        })
    }

    /// Bytes that a matrix takes in memory when it is packed.
    pub(crate) fn bytes_of(ty: WeightType, outputs: usize, inputs: usize) -> usize {
        outputs.div_ceil(LANES) * layout::panel_bytes(ty, inputs)
    }

    /// A matrix whose panels are packed by `pack(first row, rows, panel)`.
    fn fill(
        memory: &WeightMemory,
        ty: WeightType,
        outputs: usize,
        inputs: usize,
        pool: &Pool,
        pack: impl Fn(usize, usize, &mut [u8]) + Sync,
    ) -> Result<Self, CpuError> {
        // No overflow: the packed size is within a small factor of the tensor's bytes, which exist.
        let panel_bytes = layout::panel_bytes(ty, inputs);
        let panels = outputs.div_ceil(LANES);
        let mut region = memory.reserve(panels * panel_bytes)?;
        let packed = SharedSlice::new(region.as_mut_slice());
        pool.run(panels, |panel| {
            let first = panel * LANES;
            // SAFETY: panels are disjoint and each is packed by one task.
            let target = unsafe { packed.slice(panel * panel_bytes..(panel + 1) * panel_bytes) };
            pack(first, LANES.min(outputs - first), target);
        });
        Ok(Self { ty, outputs, inputs, panel_bytes, region })
    }

    /// A matrix of panels of another, none yet, with room for `panels` of them.
    pub(crate) fn selection_of(&self, panels: usize) -> Result<Self, CpuError> {
        let region = WeightMemory::exact().reserve(panels * self.panel_bytes)?;
        Ok(Self { ty: self.ty, outputs: 0, inputs: self.inputs, panel_bytes: self.panel_bytes, region })
    }

    /// Appends a panel of `source`; `false` when there is no room left.
    pub(crate) fn append_panel(&mut self, source: &Self, panel: usize) -> bool {
        debug_assert_eq!((self.ty, self.inputs), (source.ty, source.inputs), "a selection of this matrix");
        let start = self.panels() * self.panel_bytes;
        let Some(target) = self.region.as_mut_slice().get_mut(start..start + self.panel_bytes) else { return false };
        target.copy_from_slice(source.panel(panel));
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

/// Bytes of a row of the tensor `bytes`, if it is a matrix of these sizes.
fn row_bytes(ty: WeightType, outputs: usize, inputs: usize, bytes: &[u8]) -> Result<usize, CpuError> {
    let block = ty.block();
    if inputs == 0 || !inputs.is_multiple_of(block) {
        return Err(CpuError::WeightShape { ty, outputs, inputs, block });
    }
    let row_bytes = (inputs / block).saturating_mul(ty.block_bytes());
    let expected = row_bytes.saturating_mul(outputs);
    if bytes.len() != expected {
        let found = bytes.len();
        return Err(CpuError::WeightBytes { ty, outputs, inputs, expected, found });
    }
    Ok(row_bytes)
}
