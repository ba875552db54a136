//! The supported architectures, as data.

/// How rotary position embedding pairs the elements of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Elements `2 i` and `2 i + 1` turn together (the original RoFormer order, arXiv 2104.09864). GGUF stores the
    /// query and key rows of `llama` permuted for it.
    Interleaved,
    /// Elements `i` and `i + dims / 2` turn together (GPT-NeoX).
    Halves,
}

/// What distinguishes one decoder architecture from another: a new one is a line of [`ARCHITECTURES`].
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Architecture {
    /// Value of `general.architecture`, and prefix of the model's keys.
    pub name: &'static str,
    /// Pairing of rotated elements.
    pub rope_style: RopeStyle,
    /// True when query, key and value projections have a bias.
    pub attention_bias: bool,
}

/// Every architecture this version reads. All are pre-norm decoders with RMS norm, grouped-query attention with rotary
/// positions, and a SiLU-gated feed-forward block.
pub static ARCHITECTURES: [Architecture; 2] = [
    Architecture { name: "llama", rope_style: RopeStyle::Interleaved, attention_bias: false },
    Architecture { name: "qwen2", rope_style: RopeStyle::Halves, attention_bias: true },
];
