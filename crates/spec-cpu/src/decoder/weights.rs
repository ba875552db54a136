//! The weights of a decoder, packed.

use spec_model::{Checkpoint, Linear, NormKind, StoredTensor, TensorType, TensorView};

use super::Activations;
use crate::load::Quantizing;
use crate::packed::Packing;
use crate::shortlist::{Head, StoredHead};
use crate::vector::Norm;
use crate::{CpuError, PackedMatrix, Pool, Product, WeightMemory, WeightType};

/// A projection: outputs x inputs, and what is added to its outputs.
#[derive(Debug)]
pub(crate) struct Projection {
    pub(crate) matrix: PackedMatrix,
    pub(crate) bias: Option<Vec<f32>>,
}

impl Projection {
    /// The product of `rows` with the matrix, plus the bias.
    pub(super) fn of<'a>(&'a self, rows: &'a Activations, output: &'a mut [f32]) -> Product<'a> {
        Product::new(&self.matrix, rows.of(&self.matrix), output).bias(self.bias.as_deref())
    }
}

/// The vectors of a norm, of one of the two kinds.
#[derive(Debug)]
pub(crate) struct NormWeights {
    weight: Vec<f32>,
    /// Of norms that remove the mean.
    bias: Option<Vec<f32>>,
}

impl NormWeights {
    pub(crate) fn with(&self, epsilon: f32) -> Norm<'_> {
        let weight = &self.weight;
        match &self.bias {
            None => Norm::Rms { weight, epsilon },
            Some(bias) => Norm::Layer { weight, bias, epsilon },
        }
    }

    fn vectors(&self) -> impl Iterator<Item = &Vec<f32>> {
        [&self.weight].into_iter().chain(&self.bias)
    }
}

/// One layer.
#[derive(Debug)]
pub(crate) struct LayerWeights {
    pub(crate) attn_norm: NormWeights,
    pub(crate) q: Projection,
    pub(crate) k: Projection,
    pub(crate) v: Projection,
    /// Norms of each head of queries and keys.
    pub(crate) q_norm: Option<NormWeights>,
    pub(crate) k_norm: Option<NormWeights>,
    pub(crate) attn_output: Projection,
    pub(crate) post_attn_norm: Option<NormWeights>,
    pub(crate) ffn_norm: NormWeights,
    pub(crate) gate: Option<Projection>,
    pub(crate) up: Projection,
    pub(crate) down: Projection,
    pub(crate) post_ffn_norm: Option<NormWeights>,
}

impl LayerWeights {
    fn projections(&self) -> impl Iterator<Item = &Projection> {
        [&self.q, &self.k, &self.v, &self.attn_output, &self.up, &self.down].into_iter().chain(&self.gate)
    }

    fn vectors(&self) -> impl Iterator<Item = &Vec<f32>> {
        let optional = [&self.q_norm, &self.k_norm, &self.post_attn_norm, &self.post_ffn_norm];
        let norms = [&self.attn_norm, &self.ffn_norm].into_iter().chain(optional.into_iter().flatten());
        norms.flat_map(NormWeights::vectors).chain(self.projections().filter_map(|projection| projection.bias.as_ref()))
    }
}

/// Rows that tokens stand for.
#[derive(Debug)]
pub(crate) enum Embedding {
    Packed(PackedMatrix),
    Stored(StoredTensor),
}

impl Embedding {
    /// Writes the row of a token.
    pub(crate) fn row(&self, token: usize, values: &mut [f32]) -> Result<(), CpuError> {
        match self {
            Self::Packed(matrix) => matrix.dequantize_row(token, values),
            Self::Stored(tensor) => {
                let found = tensor.bytes(token..token + 1);
                spec_model::dequantize(tensor.tensor_type(), found, values).map_err(|_| CpuError::Shape {
                    operation: "Embedding::row",
                    what: "rows of the embedding, above the token asked for,",
                    expected: token + 1,
                    found: tensor.rows(),
                })
            }
        }
    }

    fn inputs(&self) -> usize {
        match self {
            Self::Packed(matrix) => matrix.inputs(),
            Self::Stored(tensor) => tensor.cols(),
        }
    }

    /// Bytes in the file of `rows` rows, no more than there are.
    fn file_bytes(&self, rows: usize) -> usize {
        match self {
            Self::Packed(matrix) => rows.min(matrix.outputs()) * (matrix.file_bytes() / matrix.outputs()),
            Self::Stored(tensor) => tensor.bytes(0..rows).len(),
        }
    }
}

/// The head, where it is not the packed embedding.
#[derive(Debug)]
enum Output {
    Packed(PackedMatrix),
    /// Only what is listed is packed, elsewhere.
    Stored(StoredHead),
}

/// All weights. The embedding is packed like the matrices, and is the head where the checkpoint ties the two; with a trimmed head
/// neither is.
#[derive(Debug)]
pub(crate) struct DecoderWeights {
    pub(crate) embedding: Embedding,
    /// Learned positions, one row each.
    pub(crate) positions: Option<Vec<f32>>,
    pub(crate) output_norm: NormWeights,
    output: Option<Output>,
    pub(crate) layers: Vec<LayerWeights>,
    /// What was not stored as asked for.
    pub(crate) notes: Vec<String>,
}

impl DecoderWeights {
    /// Packs every tensor, matrices quantised as `quantizing` says, letting its pages go afterwards; with a trimmed head, all but
    /// embedding and head. `progress` hears of the bytes done and of all bytes.
    pub(crate) fn load(
        checkpoint: &Checkpoint,
        pool: &Pool,
        mut quantizing: Quantizing,
        trimmed_head: bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CpuError> {
        let weights = checkpoint.weights();
        let kind = checkpoint.config().norm;
        let matrices = |layer: &spec_model::LayerWeights<TensorView<'_>>| {
            [&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.up, &layer.down]
                .into_iter()
                .chain(&layer.gate)
                .map(|linear| linear.weight.stored_bytes())
                .sum::<usize>()
        };
        let tables = [&weights.embedding].into_iter().chain(&weights.output).filter(|_| !trimmed_head);
        let total = weights.layers.iter().map(matrices).sum::<usize>()
            + tables.map(|table| table.stored_bytes()).sum::<usize>();
        let memory = WeightMemory::new();
        let mut done = 0;
        progress(0, total);
        let mut pack = |tensor: &TensorView<'_>| -> Result<PackedMatrix, CpuError> {
            let named = |source| CpuError::Tensor { tensor: tensor.name.to_owned(), source: Box::new(source) };
            let ty = weight_type(tensor.tensor_type).map_err(named)?;
            let (rows, cols, bytes) = (tensor.rows, tensor.cols, tensor.bytes());
            let packing = Packing { from: ty, quantizer: quantizing.choose(ty, cols), inputs: cols };
            let mut release = |part| checkpoint.release_part(tensor, part);
            let packed = PackedMatrix::fill(&memory, packing, rows, &bytes, pool, &mut release).map_err(named)?;
            checkpoint.release(tensor);
            done += tensor.stored_bytes();
            progress(done, total);
            Ok(packed)
        };
        let vector = |tensor: &TensorView<'_>| tensor.to_f32();
        let mut project = |linear: &Linear<TensorView<'_>>| -> Result<Projection, CpuError> {
            Ok(Projection { matrix: pack(&linear.weight)?, bias: linear.bias.as_ref().map(vector) })
        };
        let norm = |norm: &spec_model::Norm<TensorView<'_>>| -> Result<NormWeights, CpuError> {
            let weight = vector(&norm.weight);
            let bias = match kind {
                NormKind::Rms => None,
                // One without a bias adds nothing.
                NormKind::Layer => Some(norm.bias.as_ref().map_or_else(|| vec![0.0; weight.len()], vector)),
                other => return Err(unknown(format!("the kind of norm {other:?}"))),
            };
            Ok(NormWeights { weight, bias })
        };
        let head_norm = |weight: &TensorView<'_>| NormWeights { weight: vector(weight), bias: None };
        // The order of a pass, so that a pass walks through memory.
        let layers = weights
            .layers
            .iter()
            .map(|layer| {
                Ok(LayerWeights {
                    attn_norm: norm(&layer.attn_norm)?,
                    q: project(&layer.q)?,
                    k: project(&layer.k)?,
                    v: project(&layer.v)?,
                    q_norm: layer.q_norm.as_ref().map(head_norm),
                    k_norm: layer.k_norm.as_ref().map(head_norm),
                    attn_output: project(&layer.attn_output)?,
                    post_attn_norm: layer.post_attn_norm.as_ref().map(norm).transpose()?,
                    ffn_norm: norm(&layer.ffn_norm)?,
                    gate: layer.gate.as_ref().map(&mut project).transpose()?,
                    up: project(&layer.up)?,
                    down: project(&layer.down)?,
                    post_ffn_norm: layer.post_ffn_norm.as_ref().map(norm).transpose()?,
                })
            })
            .collect::<Result<Vec<_>, CpuError>>()?;
        let (output, embedding) = if trimmed_head {
            let head = weights.output.as_ref().unwrap_or(&weights.embedding);
            let named = |source| CpuError::Tensor { tensor: head.name.to_owned(), source: Box::new(source) };
            let from = weight_type(head.tensor_type).map_err(named)?;
            let packing = Packing { from, quantizer: quantizing.choose(from, head.cols), inputs: head.cols };
            let output = StoredHead::new(checkpoint.keep(head), packing).map_err(named)?;
            (Some(Output::Stored(output)), Embedding::Stored(checkpoint.keep(&weights.embedding)))
        } else {
            let output = weights.output.as_ref().map(&mut pack).transpose()?;
            (output.map(Output::Packed), Embedding::Packed(pack(&weights.embedding)?))
        };
        let positions = weights.positions.as_ref().map(vector);
        let output_norm = norm(&weights.output_norm)?;
        Ok(Self { embedding, positions, output_norm, output, layers, notes: quantizing.notes() })
    }

    /// The matrix that makes logits.
    pub(crate) fn head(&self) -> Head<'_> {
        match (&self.output, &self.embedding) {
            (Some(Output::Packed(matrix)), _) | (None, Embedding::Packed(matrix)) => Head::Packed(matrix),
            (Some(Output::Stored(head)), _) => Head::Stored(head),
            (None, Embedding::Stored(_)) => unreachable!("an embedding stays in its file beside a head that does"),
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let layers = self.layers.iter();
        let matrices = layers.clone().flat_map(LayerWeights::projections).map(|projection| &projection.matrix);
        let embedding = if let Embedding::Packed(matrix) = &self.embedding { Some(matrix) } else { None };
        let output = if let Some(Output::Packed(matrix)) = &self.output { Some(matrix) } else { None };
        let packed: usize = matrices.chain(output).chain(embedding).map(PackedMatrix::packed_bytes).sum();
        let vectors = layers.flat_map(LayerWeights::vectors).chain(self.output_norm.vectors()).chain(&self.positions);
        packed + vectors.map(|vector| size_of_val(vector.as_slice())).sum::<usize>()
    }

    /// Bytes, in the file, of what a pass of `rows` scored rows must read.
    pub(crate) fn pass_bytes(&self, rows: usize) -> usize {
        let bytes = |vector: &Vec<f32>| size_of_val(vector.as_slice());
        let layers = self.layers.iter().map(|layer| {
            let matrices: usize = layer.projections().map(|projection| projection.matrix.file_bytes()).sum();
            matrices + layer.vectors().map(bytes).sum::<usize>()
        });
        // A tied embedding is read as the head.
        let embedded = match self.output {
            Some(_) => self.embedding.file_bytes(rows),
            None => 0,
        };
        let positions = self.positions.as_ref().map_or(0, |_| rows * self.embedding.inputs() * size_of::<f32>());
        let norm: usize = self.output_norm.vectors().map(bytes).sum();
        layers.sum::<usize>() + norm + self.head().file_bytes() + embedded + positions
    }

    /// Weights that a scored row is multiplied with.
    pub(crate) fn row_macs(&self) -> u64 {
        let macs = |matrix: &PackedMatrix| matrix.outputs() as u64 * matrix.inputs() as u64;
        let matrices = self.layers.iter().flat_map(LayerWeights::projections).map(|projection| &projection.matrix);
        matrices.map(macs).sum::<u64>() + self.head().weights()
    }
}

/// Something that a later version of the description may have.
pub(super) fn unknown(what: String) -> CpuError {
    CpuError::Unsupported { what, instead: "use a model of another architecture" }
}

fn weight_type(ty: TensorType) -> Result<WeightType, CpuError> {
    WeightType::of(ty).ok_or_else(|| CpuError::Unsupported {
        what: format!("tensor type {ty}"),
        instead: "convert the model to a type that the documentation of WeightType lists",
    })
}
