//! Text to token ids and back, from GGUF metadata or from a `tokenizer.json`.
//!
//! Byte-pair encoding with a list of merges is left to the `tokenizers` crate, SentencePiece's merging by scores is done
//! here. Bytes of tokens come from the token list itself: decoding is exact, and independent of any cleaning up that a
//! decoder might do.

mod bpe;
mod byte_level;
pub(crate) mod described;
mod metadata;
mod pieces;
mod pre_tokenizer;
mod published;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use pre_tokenizer::known_pre_tokenizers;
pub use vocabulary::{TokenKind, Vocabulary};

use crate::gguf::Metadata;
use crate::{Error, Result};
use bpe::Bpe;
use pieces::Pieces;

/// Texts that end a turn or a document in published models, besides the ids that metadata names.
const END_TEXTS: [&str; 12] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "[EOT]",
];
/// Those that are an end only where they are control tokens: they also occur as plain text.
const CONTROL_END_TEXTS: [&str; 3] = ["</s>", "<eos>", "<EOT>"];

/// Text to ids and back in the vocabulary of one model.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    encoder: Encoder,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// Encoding puts a space in front of text.
    space_prefix: bool,
    ends: Vec<u32>,
}

enum Encoder {
    Bpe(Box<Bpe>),
    Pieces(Box<Pieces>),
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("bos", &self.bos)
            .field("add_bos", &self.add_bos)
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds the tokenizer that the metadata describes: byte-level BPE (`gpt2`), whose pre-tokenizer may be overridden by
    /// one of [`known_pre_tokenizers`], or SentencePiece with scores (`llama`), which has none.
    ///
    /// # Errors
    /// [`Error::PreTokenizer`] for missing or unknown splitting rules, [`Error::Tokenizer`] for tables that contradict
    /// each other, [`Error::Unsupported`] for other kinds of tokenizer, and the errors about keys.
    pub fn from_metadata(metadata: Metadata<'_>, pre_tokenizer: Option<&str>) -> Result<Self> {
        metadata::load(metadata, pre_tokenizer)
    }

    /// Builds the tokenizer of a model in the Hugging Face layout: the bytes of its `tokenizer.json`, and where there are
    /// such files, of `tokenizer_config.json` (special tokens) and `generation_config.json` (ids that end an answer).
    /// `file` stands for the first in messages.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for text that is not such JSON or contradicts itself, [`Error::Unsupported`] for models other
    /// than BPE and for components that are not among those that published decoders use.
    pub fn from_json(text: &[u8], config: Option<&[u8]>, generation: Option<&[u8]>, file: &str) -> Result<Self> {
        published::load(text, config, generation, file)
    }

    /// Token ids of `text`. Without `special` the text of control tokens is plain text. With it control tokens are
    /// parsed to their ids; BOS comes first, and EOS last, where the model's files say so and the text does not have
    /// them already.
    ///
    /// # Errors
    /// [`Error::Encode`] when a byte of the text has no token in this vocabulary: nothing is dropped.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let encoded = match &self.encoder {
            Encoder::Bpe(bpe) => bpe.encode(text, special, &mut ids),
            Encoder::Pieces(pieces) => pieces.encode(text, special, &mut ids),
        };
        encoded.map_err(|problem| Error::Encode { problem })?;
        if !special {
            return Ok(ids);
        }
        if let Some(bos) = self.bos.filter(|bos| self.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids.extend(self.eos.filter(|eos| self.add_eos && ids.last() != Some(eos)));
        Ok(ids)
    }

    /// Exact bytes of a token; often not a whole character. With `control` a control, unknown or unused token gives its
    /// text, without it nothing.
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn token_bytes(&self, id: u32, control: bool) -> Result<Vec<u8>> {
        self.vocabulary.bytes(id, control)
    }

    /// Text of a sequence that begins with these ids, control tokens left out; bytes that are no UTF-8 become U+FFFD.
    /// The one space that encoding puts in front of text is taken away, so this undoes [`Self::encode`]. In the middle
    /// of a text a token's own bytes are right: see [`Self::token_bytes`].
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend(self.token_bytes(id, false)?);
        }
        let bytes = match bytes.as_slice() {
            [b' ', rest @ ..] if self.space_prefix => rest,
            all => all,
        };
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// The token as it is written in the vocabulary.
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn token_text(&self, id: u32) -> Result<&str> {
        self.vocabulary.text(id)
    }

    /// What kind of token it is.
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn token_kind(&self, id: u32) -> Result<TokenKind> {
        self.vocabulary.kind(id)
    }

    /// Tokens in the list, padding included. The model may have more rows than this: they have no token.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Leading tokens that are real: those from here on are padding.
    pub fn real_vocab_size(&self) -> usize {
        self.vocabulary.real_len()
    }

    /// Ids that end an answer, ascending: those that the model's files name (eos, eot, eom, and the list in
    /// `generation_config.json`) and the known end-of-turn texts.
    pub fn end_ids(&self) -> &[u32] {
        &self.ends
    }

    /// Begin-of-sequence token, when there is one.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos
    }

    /// True when [`Self::encode`] with special tokens puts BOS first.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }
}

impl AsRef<Vocabulary> for Tokenizer {
    fn as_ref(&self) -> &Vocabulary {
        &self.vocabulary
    }
}

impl AsRef<Vocabulary> for Vocabulary {
    fn as_ref(&self) -> &Vocabulary {
        self
    }
}

impl Vocabulary {
    /// Reads the tokens that the metadata lists, without what it takes to split text into them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for other kinds of tokenizer than [`Tokenizer::from_metadata`] reads, and the errors about keys.
    pub fn from_metadata(metadata: Metadata<'_>) -> Result<Self> {
        metadata::vocabulary(metadata)
    }

    /// Reads the tokens of a `tokenizer.json`, likewise; `file` stands for it in messages.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`].
    pub fn from_json(text: &[u8], file: &str) -> Result<Self> {
        published::vocabulary_of(text, file)
    }
}

/// The ids in `named` and those of known end-of-turn texts, ascending.
fn end_ids(vocabulary: &Vocabulary, mut named: Vec<u32>) -> Vec<u32> {
    let known = |text: &str, kind| {
        END_TEXTS.contains(&text) || (kind == TokenKind::Control && CONTROL_END_TEXTS.contains(&text))
    };
    let has = |wanted: &str| vocabulary.iter().any(|(_, text, _)| text == wanted);
    // Where a turn is returned or calls something, `<|end|>` only closes one of its messages.
    let messages = has("<|return|>") && has("<|call|>");
    let ends = vocabulary.iter().filter(|&(_, text, kind)| known(text, kind) && !(messages && text == "<|end|>"));
    named.extend(ends.map(|(id, ..)| id));
    named.sort_unstable();
    named.dedup();
    named
}
