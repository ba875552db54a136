//! The sizes of a model on a device, after everything that ATB's operators demand has been looked at.

use atb_rs::Chip;
use spec_model::{Activation, Checkpoint, ModelConfig, NormKind, RopeConfig};

use crate::{AscendError, HalfType, LoadOptions};

/// Columns of the smallest block, and what head sizes and widths are multiples of: 32 bytes of a half type.
const UNIT: usize = 16;
/// Tokens of a block at most, in verification.
const MAX_BLOCK: usize = 128;
/// Head size times heads, and head size times tokens of a block, at most.
const MAX_AREA: usize = 16_384;
/// Query heads at most, in verification.
const MAX_HEADS: usize = 256;
/// Elements of a head at most, in attention over pages.
const MAX_HEAD: usize = 256;
/// Rows of a pass: the largest power of two of which each may be a sequence of its own. Verification takes 2000.
const MAX_ROWS: usize = 1024;
/// Query rows of an entry that ATB's own tests go to.
const MAX_QUERY_ROWS: usize = 128;
/// Tokens of a second sequence that a drafter may open beside the first, to try what a shorter text would do.
const ASIDE_TOKENS: usize = 128;
/// Rows that are quantised at most, in f16 and in bf16.
const MAX_QUANTISED: [usize; 2] = [26_624, 7552];

/// What a model is made of here.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) model: String,
    pub(crate) chip: Chip,
    pub(crate) dtype: HalfType,
    pub(crate) int8: bool,
    pub(crate) layers: usize,
    pub(crate) hidden: usize,
    pub(crate) ffn: usize,
    pub(crate) vocab: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) tied: bool,
    pub(crate) epsilon: f32,
    pub(crate) attention_scale: f32,
    pub(crate) embedding_scale: f32,
    pub(crate) logit_softcap: Option<f32>,
    /// GELU by tanh in the place of SiLU.
    pub(crate) gelu: bool,
    pub(crate) head_norms: bool,
    pub(crate) post_norms: bool,
    pub(crate) bias: Biases,
    pub(crate) rope: RopeConfig,
    pub(crate) windows: Option<Windows>,
    pub(crate) context: usize,
    pub(crate) block_tokens: usize,
    pub(crate) kv_blocks: usize,
    pub(crate) max_rows: usize,
    pub(crate) max_query_rows: usize,
}

/// Which packed projections have a bias. Layers without one get zeros where another layer has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Biases {
    pub(crate) qkv: bool,
    pub(crate) out: bool,
    pub(crate) gate_up: bool,
    pub(crate) down: bool,
}

/// Layers that see the newest positions only.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    pub(crate) size: usize,
    pub(crate) layers: Vec<bool>,
    /// Rotary embedding of these layers, where they have one of their own.
    pub(crate) rope: Option<RopeConfig>,
}

impl Shape {
    pub(crate) fn new(checkpoint: &Checkpoint, chip: Chip, options: &LoadOptions<'_>) -> Result<Self, AscendError> {
        let config = checkpoint.config();
        let model = name(checkpoint);
        let rope = expressible(&model, config)?;
        let dtype = dtype(config, chip, options)?;
        let weights = checkpoint.weights();
        let biased =
            |has: fn(&spec_model::LayerWeights<spec_model::TensorView<'_>>) -> bool| weights.layers.iter().any(has);
        let limit = config.context_length;
        let context = options.context.unwrap_or(limit);
        let block_tokens = options.block_tokens.unwrap_or_else(|| largest_block(config.head_dim));
        let windows = config.sliding_window.as_ref().filter(|window| {
            // One that is never left is none.
            window.size < context && window.layers.contains(&true)
        });
        let shape = Self {
            chip,
            dtype,
            int8: options.int8,
            layers: config.layers,
            hidden: config.hidden_size,
            ffn: config.intermediate_size,
            vocab: config.vocab_size,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            tied: weights.output.is_none(),
            epsilon: config.norm_epsilon,
            attention_scale: config.attention_scale,
            embedding_scale: config.embedding_scale,
            logit_softcap: config.logit_softcap,
            gelu: config.activation == Activation::GeluTanh,
            head_norms: config.architecture.head_norms,
            post_norms: config.architecture.post_norms,
            bias: Biases {
                qkv: biased(|layer| [&layer.q, &layer.k, &layer.v].iter().any(|linear| linear.bias.is_some())),
                out: biased(|layer| layer.attn_output.bias.is_some()),
                gate_up: biased(|layer| layer.gate.iter().chain([&layer.up]).any(|linear| linear.bias.is_some())),
                down: biased(|layer| layer.down.bias.is_some()),
            },
            rope,
            windows: windows.map(|window| Windows {
                size: window.size,
                layers: window.layers.clone(),
                rope: window.rope.clone(),
            }),
            context,
            block_tokens,
            kv_blocks: options.kv_blocks.unwrap_or_else(|| {
                let blocks = |tokens: usize| tokens.div_ceil(block_tokens.max(1));
                blocks(context + options.max_rows) + blocks(ASIDE_TOKENS) + 1
            }),
            max_rows: options.max_rows,
            max_query_rows: options.max_query_rows,
            model,
        };
        shape.check_choices(limit)?;
        shape.check_limits()?;
        Ok(shape)
    }

    /// Whether layer `layer` has a window.
    pub(crate) fn is_windowed(&self, layer: usize) -> bool {
        self.windows.as_ref().is_some_and(|windows| windows.layers[layer])
    }

    /// The rotary embedding of layer `layer`.
    pub(crate) fn rope_of(&self, layer: usize) -> &RopeConfig {
        let own =
            self.windows.as_ref().filter(|windows| windows.layers[layer]).and_then(|windows| windows.rope.as_ref());
        own.unwrap_or(&self.rope)
    }

    /// Blocks of the caches: those of sequences, and the one that rows without a sequence write to.
    pub(crate) fn cache_blocks(&self) -> usize {
        self.kv_blocks + 1
    }

    pub(crate) fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    pub(crate) fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    pub(crate) fn qkv_width(&self) -> usize {
        self.query_width() + 2 * self.key_width()
    }

    /// Whether caches lie in tiles.
    pub(crate) fn is_tiled(&self) -> bool {
        self.chip == Chip::I310P
    }

    fn check_choices(&self, trained: usize) -> Result<(), AscendError> {
        let choice = |option, holds: bool, reason: String| match holds {
            true => Ok(()),
            false => Err(AscendError::Choice { option, reason }),
        };
        choice(
            "context",
            (1..=trained).contains(&self.context),
            format!("{} positions were asked for, and the model was trained for {trained}", self.context),
        )?;
        choice(
            "max_rows",
            (1..=MAX_ROWS).contains(&self.max_rows),
            format!("{} rows a pass, and 1 to {MAX_ROWS} are possible", self.max_rows),
        )?;
        choice(
            "max_query_rows",
            (1..=MAX_QUERY_ROWS).contains(&self.max_query_rows),
            format!("{} rows of a sequence, and 1 to {MAX_QUERY_ROWS} are possible", self.max_query_rows),
        )?;
        let slots = self.cache_blocks().saturating_mul(self.block_tokens);
        choice(
            "kv_blocks",
            self.kv_blocks >= 1 && i32::try_from(slots).is_ok(),
            format!("{} blocks of {} tokens; slots are counted in 31 bits", self.kv_blocks, self.block_tokens),
        )?;
        choice(
            "block_tokens",
            self.block_tokens.is_multiple_of(UNIT)
                && (UNIT..=MAX_BLOCK).contains(&self.block_tokens)
                && self.block_tokens * self.head_dim <= MAX_AREA,
            format!(
                "{} tokens a block; attention takes a multiple of {UNIT}, {} at most with heads of {}",
                self.block_tokens,
                largest_block(self.head_dim),
                self.head_dim
            ),
        )?;
        choice(
            "int8",
            !self.int8 || matches!(self.chip, Chip::A2 | Chip::Other),
            format!(
                "{:?} has int8 products with scales for channels alone, which need activations of a known range, and \
                 checkpoints do not say it; load f16",
                self.chip
            ),
        )
    }

    fn check_limits(&self) -> Result<(), AscendError> {
        let limit = |what, value: usize, holds: bool, limit: &str| match holds {
            true => Ok(()),
            false => Err(AscendError::Limit { model: self.model.clone(), what, value, limit: limit.to_owned() }),
        };
        if matches!(self.chip, Chip::A910 | Chip::I310B) {
            return Err(AscendError::Unsupported {
                model: self.model.clone(),
                feature: format!("attention over several rows on {:?}", self.chip),
                reason: "PagedAttention verifies drafts on Atlas A2, A3 and 300I Duo only".to_owned(),
            });
        }
        limit("the number of heads", self.heads, self.heads <= MAX_HEADS, "PagedAttention verifies 256 at most")?;
        limit(
            "the head size",
            self.head_dim,
            self.head_dim.is_multiple_of(UNIT) && self.head_dim <= MAX_HEAD,
            "PagedAttention and Rope take a multiple of 16, 256 at most",
        )?;
        limit(
            "the width of all heads",
            self.query_width(),
            self.query_width() <= MAX_AREA,
            "PagedAttention verifies 16384 at most",
        )?;
        limit("the hidden size", self.hidden, self.hidden.is_multiple_of(UNIT), "RmsNorm takes a multiple of 16")?;
        let step = if self.chip == Chip::I310P { UNIT } else { 1 };
        limit(
            "the feed-forward size",
            self.ffn,
            self.ffn.is_multiple_of(step),
            "SwiGLU takes a multiple of 16 on 310P",
        )?;
        let most = MAX_QUANTISED[usize::from(self.dtype == HalfType::Bf16)];
        let widest = self.hidden.max(self.ffn).max(self.query_width());
        limit(
            "the widest activation",
            widest,
            !self.int8 || widest <= most,
            "rows of 26624 can be quantised in f16, and 7552 in bf16; load without int8",
        )
    }
}

/// What to call the model in messages.
fn name(checkpoint: &Checkpoint) -> String {
    let config = checkpoint.config();
    match config.name.is_empty() {
        true => checkpoint.name().to_owned(),
        false => config.name.clone(),
    }
}

fn largest_block(head_dim: usize) -> usize {
    (MAX_AREA / head_dim.max(1) / UNIT * UNIT).clamp(UNIT, MAX_BLOCK)
}

/// Refuses what no operator does, by name; gives the rotary embedding, which everything that runs has.
fn expressible(model: &str, config: &ModelConfig) -> Result<RopeConfig, AscendError> {
    let arch = config.architecture.name;
    let refuse = |feature: String, reason: &str| {
        Err(AscendError::Unsupported { model: model.to_owned(), feature, reason: reason.to_owned() })
    };
    if config.norm != NormKind::Rms {
        return refuse(
            format!("norms with a mean ({arch})"),
            "of ATB's norms atb-rs offers RmsNorm, which removes no mean",
        );
    }
    if !config.architecture.gated {
        return refuse(
            format!("a feed-forward block without a gate ({arch})"),
            "the layer graph is made of gated blocks",
        );
    }
    if let Some(cap) = config.attention_softcap {
        return refuse(
            format!("attention scores capped at {cap} ({arch})"),
            "PagedAttention scores, masks and sums in one kernel, which has no cap",
        );
    }
    match config.activation {
        Activation::Silu | Activation::GeluTanh => {}
        other => return refuse(format!("the activation {other:?} ({arch})"), "ATB's Activation does not have it"),
    }
    let Some(rope) = &config.rope else {
        return refuse(format!("learned positions ({arch})"), "the layer graph turns queries and keys");
    };
    Ok(rope.clone())
}

fn dtype(config: &ModelConfig, chip: Chip, options: &LoadOptions<'_>) -> Result<HalfType, AscendError> {
    // Gemma's residual stream, whose embedding is scaled up, passes 65504.
    let wide = config.architecture.scaled_embedding && chip.has_bf16();
    let dtype = options.dtype.unwrap_or(if wide { HalfType::Bf16 } else { HalfType::F16 });
    match dtype == HalfType::Bf16 && !chip.has_bf16() {
        true => Err(AscendError::Choice { option: "dtype", reason: format!("{chip:?} has no bf16; load f16") }),
        false => Ok(dtype),
    }
}
