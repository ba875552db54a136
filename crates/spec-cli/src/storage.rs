//! How weights and caches are stored: what the flags say, as devices take it.

use anyhow::Result;
use spec_cpu::{KvType, LoadOptions};
use spec_model::Quantizer;

use crate::args::{DraftStorageArgs, HeadKind, KvKind, QuantKind, StorageArgs};
use crate::usage;

/// Rows of a draft model's pass: what more would save of the time of reading a prompt is little, and activations take memory by the row.
const DRAFT_ROWS: usize = 128;

/// How a model is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub(crate) kv: KvKind,
    pub(crate) quant: Option<QuantKind>,
    /// Whether matrices that are quantised already are quantised anew.
    pub(crate) requantize: bool,
    /// Whether only the listed part of the head is there.
    pub(crate) trimmed_head: bool,
    /// Rows that a pass may carry; as many as the device likes when not given.
    pub(crate) rows: Option<usize>,
}

impl From<StorageArgs> for Storage {
    fn from(StorageArgs { kv, quant }: StorageArgs) -> Self {
        Self { kv, quant, requantize: false, trimmed_head: false, rows: None }
    }
}

impl Storage {
    /// A draft model's, beside a target that is stored as `target` says.
    pub(crate) fn of_draft(target: StorageArgs, draft: DraftStorageArgs) -> Self {
        Self {
            kv: draft.draft_kv.unwrap_or(target.kv),
            quant: draft.draft_quant.or(target.quant),
            requantize: draft.draft_quant.is_some(),
            trimmed_head: draft.draft_head == HeadKind::Trimmed,
            rows: Some(DRAFT_ROWS),
        }
    }

    /// Puts it into what the CPU is told when it loads a model.
    pub(crate) fn apply(self, options: &mut LoadOptions<'_>) -> Result<()> {
        options.kv = kv_type(self.kv);
        options.quant = self.quant.map(quantizer).transpose()?;
        (options.requantize, options.trimmed_head) = (self.requantize, self.trimmed_head);
        options.max_rows = self.rows.unwrap_or(options.max_rows);
        Ok(())
    }
}

pub(crate) fn kv_type(kv: KvKind) -> KvType {
    match kv {
        KvKind::F16 => KvType::F16,
        KvKind::F32 => KvType::F32,
        KvKind::Q8 => KvType::Q8,
    }
}

pub(crate) fn quantizer(quant: QuantKind) -> Result<Quantizer> {
    Ok(match quant {
        QuantKind::Q8_0 => Quantizer::Q8_0,
        QuantKind::Q4_0 => Quantizer::Q4_0,
        QuantKind::Q4K => Quantizer::Q4K,
        QuantKind::Q3K => Quantizer::Q3K,
        QuantKind::Int8 => return Err(usage("int8 is for --device ascend; on the CPU q8_0 is as wide")),
    })
}
