//! Splitting rules before byte-pair merging, by the names of `tokenizer.ggml.pre`.

use crate::{Error, Result};

/// One set of rules. Each pattern splits the pieces that the ones before it left; what it does not match stays a piece.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    pub(super) names: &'static [&'static str],
    /// Text is brought to Unicode form C first, as the model's published tokenizer does.
    pub(super) compose: bool,
    pub(super) patterns: &'static [&'static str],
    /// What to do about BOS when `tokenizer.ggml.add_bos_token` is absent.
    pub(super) adds_bos: bool,
    /// A piece that is itself a token is taken whole, without merging.
    pub(super) ignore_merges: bool,
}

/// The rules of GPT-2 (Radford et al. 2019), which several later tokenizers keep.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

static TABLE: [PreTokenizer; 4] = [
    PreTokenizer {
        names: &["gpt-2", "default"],
        compose: false,
        patterns: &[GPT2],
        adds_bos: false,
        ignore_merges: false,
    },
    PreTokenizer {
        names: &["smollm"],
        compose: false,
        patterns: &[r"\p{N}", GPT2],
        adds_bos: false,
        ignore_merges: false,
    },
    PreTokenizer {
        names: &["qwen2"],
        compose: true,
        patterns: &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        )],
        adds_bos: false,
        ignore_merges: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        compose: false,
        patterns: &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        )],
        adds_bos: true,
        ignore_merges: true,
    },
];

/// Every name that `tokenizer.ggml.pre`, or an override of it, may have.
pub fn known_pre_tokenizers() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|rules| rules.names).copied()
}

pub(super) fn find(file: &str, name: &str) -> Result<&'static PreTokenizer> {
    let rules = TABLE.iter().find(|rules| rules.names.contains(&name));
    rules.ok_or_else(|| Error::PreTokenizer {
        file: file.to_owned(),
        found: name.to_owned(),
        known: known_pre_tokenizers().collect::<Vec<_>>().join(", "),
    })
}
