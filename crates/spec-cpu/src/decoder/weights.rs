//! The weights of a decoder, packed.

use spec_model::{Checkpoint, Quantizer, TensorType, TensorView};

use crate::load::Fallbacks;
use crate::{CpuError, PackedMatrix, Pool, WeightMemory, WeightType};

/// One layer. Matrices are outputs x inputs.
#[derive(Debug)]
pub(crate) struct LayerWeights {
    pub(crate) attn_norm: Vec<f32>,
    pub(crate) q: PackedMatrix,
    pub(crate) k: PackedMatrix,
    pub(crate) v: PackedMatrix,
    pub(crate) q_bias: Option<Vec<f32>>,
    pub(crate) k_bias: Option<Vec<f32>>,
    pub(crate) v_bias: Option<Vec<f32>>,
    pub(crate) attn_output: PackedMatrix,
    pub(crate) ffn_norm: Vec<f32>,
    pub(crate) gate: PackedMatrix,
    pub(crate) up: PackedMatrix,
    pub(crate) down: PackedMatrix,
}

impl LayerWeights {
    fn matrices(&self) -> [&PackedMatrix; 7] {
        [&self.q, &self.k, &self.v, &self.attn_output, &self.gate, &self.up, &self.down]
    }

    fn vectors(&self) -> impl Iterator<Item = &Vec<f32>> {
        let biases = [&self.q_bias, &self.k_bias, &self.v_bias];
        [&self.attn_norm, &self.ffn_norm].into_iter().chain(biases.into_iter().flatten())
    }
}

/// All weights. The embedding is packed like the matrices, and is the head where the checkpoint ties the two.
#[derive(Debug)]
pub(crate) struct DecoderWeights {
    pub(crate) embedding: PackedMatrix,
    pub(crate) output_norm: Vec<f32>,
    output: Option<PackedMatrix>,
    pub(crate) layers: Vec<LayerWeights>,
    /// What was not stored as asked for.
    pub(crate) notes: Vec<String>,
}

impl DecoderWeights {
    /// Packs every tensor, matrices of floats quantised if `quant` says so, letting its pages go afterwards; `progress` hears
    /// of the bytes done and of all bytes.
    pub(crate) fn load(
        checkpoint: &Checkpoint,
        pool: &Pool,
        quant: Option<Quantizer>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CpuError> {
        let weights = checkpoint.weights();
        let matrices = |layer: &spec_model::LayerWeights<TensorView<'_>>| {
            [&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.up, &layer.down]
                .into_iter()
                .chain(&layer.gate)
                .map(|linear| linear.weight.stored_bytes())
                .sum::<usize>()
        };
        let total = weights.layers.iter().map(matrices).sum::<usize>()
            + weights.embedding.stored_bytes()
            + weights.output.as_ref().map_or(0, |output| output.stored_bytes());
        let memory = WeightMemory::new();
        let (mut done, mut fallbacks) = (0, Fallbacks::default());
        progress(0, total);
        let mut pack = |tensor: &TensorView<'_>| -> Result<PackedMatrix, CpuError> {
            let named = |source| CpuError::Tensor { tensor: tensor.name.to_owned(), source: Box::new(source) };
            let ty = weight_type(tensor.tensor_type).map_err(named)?;
            let (rows, cols, bytes) = (tensor.rows, tensor.cols, tensor.bytes());
            let packed = match fallbacks.choose(quant, ty, cols) {
                Some(quantizer) => PackedMatrix::quantize_in(&memory, quantizer, ty, (rows, cols), &bytes, pool),
                None => PackedMatrix::pack_in(&memory, ty, rows, cols, &bytes, pool),
            };
            let packed = packed.map_err(named)?;
            checkpoint.release(tensor);
            done += tensor.stored_bytes();
            progress(done, total);
            Ok(packed)
        };
        let vector = |tensor: &TensorView<'_>| tensor.to_f32();
        // The order of a pass, so that a pass walks through memory.
        let layers = weights
            .layers
            .iter()
            .map(|layer| {
                Ok(LayerWeights {
                    attn_norm: vector(&layer.attn_norm.weight),
                    q: pack(&layer.q.weight)?,
                    k: pack(&layer.k.weight)?,
                    v: pack(&layer.v.weight)?,
                    q_bias: layer.q.bias.as_ref().map(vector),
                    k_bias: layer.k.bias.as_ref().map(vector),
                    v_bias: layer.v.bias.as_ref().map(vector),
                    attn_output: pack(&layer.attn_output.weight)?,
                    ffn_norm: vector(&layer.ffn_norm.weight),
                    gate: pack(&layer.gate.as_ref().ok_or_else(ungated)?.weight)?,
                    up: pack(&layer.up.weight)?,
                    down: pack(&layer.down.weight)?,
                })
            })
            .collect::<Result<Vec<_>, CpuError>>()?;
        let output = weights.output.as_ref().map(&mut pack).transpose()?;
        let embedding = pack(&weights.embedding)?;
        Ok(Self {
            embedding,
            output_norm: vector(&weights.output_norm.weight),
            output,
            layers,
            notes: fallbacks.notes(),
        })
    }

    /// The matrix that makes logits.
    pub(crate) fn head(&self) -> &PackedMatrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }

    /// Bytes, in the file, of what a pass of `rows` scored rows must read.
    pub(crate) fn pass_bytes(&self, rows: usize) -> usize {
        let layers = self.layers.iter().map(|layer| {
            let matrices: usize = layer.matrices().iter().map(|matrix| matrix.file_bytes()).sum();
            let vectors: usize = layer.vectors().map(|vector| size_of_val(vector.as_slice())).sum();
            matrices + vectors
        });
        // A tied embedding is read as the head.
        let embedded = match self.output {
            Some(_) => rows.min(self.embedding.outputs()) * (self.embedding.file_bytes() / self.embedding.outputs()),
            None => 0,
        };
        layers.sum::<usize>() + size_of_val(self.output_norm.as_slice()) + self.head().file_bytes() + embedded
    }

    /// Weights that a scored row is multiplied with.
    pub(crate) fn row_macs(&self) -> u64 {
        let macs = |matrix: &PackedMatrix| matrix.outputs() as u64 * matrix.inputs() as u64;
        let layers = self.layers.iter().flat_map(LayerWeights::matrices).map(macs);
        layers.sum::<u64>() + macs(self.head())
    }
}

fn ungated() -> CpuError {
    CpuError::Unsupported { what: "a feed-forward block without a gate".into(), instead: "use a gated architecture" }
}

fn weight_type(ty: TensorType) -> Result<WeightType, CpuError> {
    WeightType::of(ty).ok_or_else(|| CpuError::Unsupported {
        what: format!("tensor type {ty}"),
        instead: "convert the model to a type that the documentation of WeightType lists",
    })
}
