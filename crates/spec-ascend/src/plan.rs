//! What a model takes of the device and of the host, before anything is taken.

use std::fmt;

use atb_rs::Chip;
use spec_model::Checkpoint;

use crate::graphs::Role;
use crate::shape::Shape;
use crate::upload::Uploader;
use crate::{AscendError, HalfType, LoadOptions};

/// Bytes of a context of ATB: 32 blocks of 3 MiB for the tiling of its kernels.
const ATB_CONTEXT: u64 = 96 << 20;
/// Workspaces, and what lies in them, are multiples of it.
const WORKSPACE_UNIT: u64 = 512;
/// What AscendCL adds to an allocation: it rounds up to 32 bytes and reserves as many behind.
const OVERHEAD: u64 = 64;
/// Rows with logits of a verification: what is set aside for them at once.
pub(crate) const SCORED_ROWS: usize = 16;

/// Bytes of device and host that a model takes on one stream. Lines that end in "estimated" depend on kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    lines: Vec<(String, u64)>,
    host: u64,
}

impl MemoryPlan {
    /// The plan of a checkpoint on a chip, with the options it is going to be loaded with.
    ///
    /// # Errors
    /// What [`AscendModel::load`](crate::AscendModel::load) would refuse: [`AscendError::Unsupported`],
    /// [`AscendError::Limit`], [`AscendError::Choice`].
    pub fn new(checkpoint: &Checkpoint, chip: Chip, options: &LoadOptions<'_>) -> Result<Self, AscendError> {
        Ok(Self::of(&Shape::new(checkpoint, chip, options)?))
    }

    pub(crate) fn of(shape: &Shape) -> Self {
        let half = HalfType::SIZE as u64;
        let size = |elements: usize| elements as u64;
        let rows = shape.max_rows.next_power_of_two();

        let embedding = size(shape.vocab) * size(shape.hidden) * half;
        let mut matrices = 0;
        let mut tensors = 2;
        for (outputs, inputs) in shape.matrices() {
            let scale = if shape.int8 { 4 * size(outputs) } else { 0 };
            matrices += size(outputs) * size(inputs) * if shape.int8 { 1 } else { half } + scale;
            tensors += if shape.int8 { 2 } else { 1 };
        }
        let vectors: u64 = shape.vectors().map(|length| size(length) * half).sum();
        tensors += shape.vectors().count() as u64;
        let heads = if shape.tied { embedding } else { 2 * embedding };
        let layers = size(shape.layers);
        let weights = heads + layers * (matrices + vectors) + size(shape.hidden) * half;

        let table = size(shape.context) * size(shape.head_dim) * shape.table_type().size() as u64;
        let ropes = 1 + u64::from(shape.windows.as_ref().is_some_and(|windows| windows.rope.is_some()));
        let turned = size(rows) * size(shape.head_dim) * shape.table_type().size() as u64;
        let activations = 2 * size(rows) * size(shape.hidden) * half + 2 * ropes * turned;

        let cache = 2 * layers * size(shape.cache_blocks() * shape.block_tokens * shape.key_width()) * half;
        let masks = 1 + u64::from(shape.windows.is_some());
        let inputs = masks * size(rows) * size(shape.widest()) * half + size(shape.integers()) * 4;
        let logits = size(SCORED_ROWS.min(rows)) * size(shape.vocab) * half;

        let allocations = layers * tensors + 2 * layers + 16;
        Self {
            lines: vec![
                ("weights".to_owned(), weights),
                (format!("KV cache, {} blocks of {} tokens", shape.cache_blocks(), shape.block_tokens), cache),
                ("rotary tables".to_owned(), 2 * ropes * table),
                (format!("activations of {rows} rows"), activations),
                ("masks, tables and other inputs".to_owned(), inputs),
                (format!("logits of {} rows", SCORED_ROWS.min(rows)), logits),
                ("workspace, estimated".to_owned(), shape.workspace(rows)),
                ("a context of ATB for the stream".to_owned(), ATB_CONTEXT),
                (format!("ends of {allocations} allocations"), allocations * OVERHEAD),
            ],
            host: inputs + logits + Uploader::pinned_bytes() as u64,
        }
    }

    /// Bytes of the device, with a stream of the model's own.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.lines.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of the device beside the stream's context of ATB, which another model may share.
    #[must_use]
    pub fn device_bytes_without_stream(&self) -> u64 {
        self.device_bytes() - ATB_CONTEXT
    }

    /// Bytes of pinned memory of the host at most, loading included.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        self.host
    }

    /// What takes how many bytes of the device.
    pub fn lines(&self) -> impl Iterator<Item = (&str, u64)> {
        self.lines.iter().map(|(what, bytes)| (what.as_str(), *bytes))
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        for (what, bytes) in self.lines() {
            writeln!(f, "  {what:<44} {:>10.1} MiB", mib(bytes))?;
        }
        writeln!(f, "  {:<44} {:>10.1} MiB", "device", mib(self.device_bytes()))?;
        write!(f, "  {:<44} {:>10.1} MiB", "host, pinned", mib(self.host))
    }
}

impl Shape {
    /// Outputs and inputs of a layer's packed projections.
    pub(crate) fn matrices(&self) -> [(usize, usize); 4] {
        [
            (self.qkv_width(), self.hidden),
            (self.hidden, self.query_width()),
            (2 * self.ffn, self.hidden),
            (self.hidden, self.ffn),
        ]
    }

    /// Lengths of a layer's vectors.
    fn vectors(&self) -> impl Iterator<Item = usize> {
        let lengths = self.roles().into_iter().filter_map(|role| match role {
            Role::AttnNorm | Role::FfnNorm | Role::PostAttnNorm | Role::PostFfnNorm => Some(self.hidden),
            Role::QNorm | Role::KNorm => Some(self.head_dim),
            Role::QkvBias => Some(self.qkv_width()),
            Role::OutBias | Role::DownBias => Some(self.hidden),
            Role::GateUpBias => Some(2 * self.ffn),
            _ => None,
        });
        lengths.collect::<Vec<_>>().into_iter()
    }

    /// Columns of the block tables at most: of a sequence of the whole context with a pass of draft rows behind it, or
    /// of rows that have no sequence.
    pub(crate) fn most_columns(&self) -> usize {
        (self.context + self.max_rows).max(self.max_query_rows).div_ceil(self.block_tokens).next_power_of_two()
    }

    /// Columns of a mask at most.
    pub(crate) fn widest(&self) -> usize {
        self.most_columns() * self.block_tokens
    }

    /// Integers that a pass brings along at most.
    pub(crate) fn integers(&self) -> usize {
        let rows = self.max_rows.next_power_of_two();
        // Tokens, positions, slots, scored rows; tables of as many entries as rows.
        4 * rows + rows * self.most_columns()
    }

    /// The largest workspace of a layer: its inner tensors, and what kernels take beside them, which is taken to be
    /// attention's partial results, or a tile of a product's sums.
    fn workspace(&self, rows: usize) -> u64 {
        let (t, half) = (rows, HalfType::SIZE);
        let round = |bytes: usize| (bytes as u64).next_multiple_of(WORKSPACE_UNIT);
        let mut inner = vec![
            t * self.hidden * half,
            t * self.qkv_width() * half,
            t * self.qkv_width() * half,
            t * (self.query_width() + self.key_width()) * half,
            t * self.query_width() * half,
            t * self.hidden * half,
            t * self.hidden * half,
            t * self.hidden * half,
            t * 2 * self.ffn * half,
            t * self.ffn * half,
            t * self.hidden * half,
        ];
        if self.head_norms {
            inner.push(t * (self.query_width() + self.key_width()) * half);
        }
        if self.post_norms {
            inner.extend([t * self.hidden * half; 2]);
        }
        if self.gelu {
            inner.extend([t * self.ffn * half; 3]);
        }
        if self.int8 {
            inner.push(t * (2 * self.hidden + self.query_width() + self.ffn));
            inner.extend([t * 4; 4]);
            inner.push(t * self.qkv_width() * half);
        }
        let (attention, tile) = (t * self.heads * (self.head_dim + 2) * 4, t.min(128) * 256 * 4);
        inner.into_iter().map(round).sum::<u64>() + round(attention.max(tile)) + 64 * WORKSPACE_UNIT
    }
}
