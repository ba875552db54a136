//! Text to token ids and back, from GGUF metadata.
//!
//! Metadata is turned into the text of a `tokenizer.json` and loaded by the `tokenizers` crate, so that there is one
//! path for both forms of checkpoint. Bytes of tokens come from the token list itself: decoding is exact, and
//! independent of any cleaning up that a decoder might do.

mod byte_level;
mod json;
mod pre_tokenizer;
#[cfg(test)]
mod tests;
mod vocabulary;

use tokenizers::models::bpe::BPE;
use tokenizers::{
    AddedVocabulary, DecoderWrapper, NormalizerWrapper, OffsetReferential, OffsetType, PostProcessorWrapper,
    PreTokenizerWrapper, TokenizerImpl,
};

pub use pre_tokenizer::known_pre_tokenizers;
pub use vocabulary::TokenKind;

use crate::gguf::Metadata;
use crate::{Error, Result};
use vocabulary::Vocabulary;

/// Texts that end a turn or a document in published models, besides the ids that metadata names.
const END_TEXTS: [&str; 6] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "</s>"];

/// The loaded form. Naming the model's type, where the crate's own `Tokenizer` finds out, halves the time to load: the
/// vocabulary then goes straight from the text into its table.
type Loaded = TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// A byte-level BPE tokenizer.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    /// Takes the text of control tokens for plain text.
    plain: Loaded,
    /// Finds control and user-defined tokens in text.
    added: AddedVocabulary,
    missing_bytes: Vec<u8>,
    bos: Option<u32>,
    add_bos: bool,
    ends: Vec<u32>,
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
    /// Builds the tokenizer that the metadata describes; `pre_tokenizer` overrides `tokenizer.ggml.pre` with one of
    /// [`known_pre_tokenizers`].
    ///
    /// # Errors
    /// [`Error::PreTokenizer`] for unknown splitting rules, [`Error::Tokenizer`] for tables that contradict each other,
    /// [`Error::Unsupported`] for other kinds of tokenizer, and the errors about keys.
    pub fn from_metadata(metadata: Metadata<'_>, pre_tokenizer: Option<&str>) -> Result<Self> {
        let file = metadata.file();
        let fail = |problem: String| Error::Tokenizer { file: file.to_owned(), problem };
        let model = metadata.str("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(Error::Unsupported {
                file: file.to_owned(),
                what: format!("tokenizer model `{model}` (only byte-level BPE, `gpt2`, is read)"),
            });
        }
        let name = match pre_tokenizer {
            Some(name) => name,
            None => metadata.str("tokenizer.ggml.pre")?,
        };
        let rules = pre_tokenizer::find(file, name)?;
        let vocabulary = Vocabulary::from_metadata(metadata)?;
        let text = json::build(metadata, &vocabulary, rules)?;
        let mut plain = Loaded::from_bytes(&text).map_err(|e| fail(e.to_string()))?;
        check_loaded(&plain, &vocabulary).map_err(fail)?;
        let added = plain.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);

        let id = |key: &str| match metadata.optional_u32(key)? {
            Some(id) if id as usize >= vocabulary.len() => {
                Err(metadata.bad(key, format!("{id} is not below the {} tokens", vocabulary.len())))
            }
            id => Ok(id),
        };
        let bos = id("tokenizer.ggml.bos_token_id")?;
        let add_bos = metadata.optional_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(rules.adds_bos);
        if add_bos && bos.is_none() {
            return Err(fail("BOS is to be added, but `tokenizer.ggml.bos_token_id` is missing".into()));
        }
        let mut ends = Vec::new();
        for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
            ends.extend(id(&format!("tokenizer.ggml.{key}"))?);
        }
        let ends_turn = |text: &str, kind| END_TEXTS.contains(&text) && (kind == TokenKind::Control || text != "</s>");
        ends.extend(vocabulary.iter().filter(|&(_, text, kind)| ends_turn(text, kind)).map(|(id, ..)| id));
        ends.sort_unstable();
        ends.dedup();
        let lacks_token =
            |&byte: &u8| plain.token_to_id(byte_level::character_of(byte).encode_utf8(&mut [0; 4])).is_none();
        let missing_bytes = (0..=u8::MAX).filter(lacks_token).collect();
        Ok(Self { vocabulary, plain, added, missing_bytes, bos, add_bos, ends })
    }

    /// Token ids of `text`. Without `special` the text of control tokens is plain text. With it control tokens are
    /// parsed to their ids, and BOS comes first when the metadata says so and the text does not begin with it already.
    ///
    /// # Errors
    /// [`Error::Encode`] when a byte of the text has no token in this vocabulary: nothing is substituted or dropped.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        if !special {
            self.encode_plain(text, &mut ids)?;
            return Ok(ids);
        }
        let pieces = self.added.extract_and_normalize(None::<&NormalizerWrapper>, text);
        for (piece, _, tokens) in pieces.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            match tokens {
                Some(tokens) => ids.extend(tokens.iter().map(|token| token.id)),
                None => self.encode_plain(piece, &mut ids)?,
            }
        }
        if let Some(bos) = self.bos.filter(|bos| self.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let encoding = self.plain.encode_fast(text, false).map_err(|error| {
            let missing = text.bytes().enumerate().find(|(_, byte)| self.missing_bytes.contains(byte));
            let problem = match missing {
                Some((at, byte)) => {
                    format!("byte 0x{byte:02x} at offset {at} has no token in this vocabulary; remove that character")
                }
                None => error.to_string(),
            };
            Error::Encode { problem }
        })?;
        ids.extend(encoding.get_ids());
        Ok(())
    }

    /// Exact bytes of a token; often not a whole character. With `control` a control, unknown or unused token gives its
    /// text, without it nothing.
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn token_bytes(&self, id: u32, control: bool) -> Result<Vec<u8>> {
        self.vocabulary.bytes(id, control)
    }

    /// Text of a sequence, control tokens left out; bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend(self.token_bytes(id, false)?);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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

    /// Ids that end a turn, ascending: those named by metadata (eos, eot, eom) and the known end-of-turn texts.
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

/// No two tokens may share a text, or one of them could not be produced: the loader keeps one and says nothing.
fn check_loaded(loaded: &Loaded, vocabulary: &Vocabulary) -> Result<(), String> {
    let used = || vocabulary.iter().filter(|&(_, _, kind)| kind != TokenKind::Unused);
    if loaded.get_vocab_size(true) == used().count() {
        return Ok(());
    }
    for (id, text, _) in used() {
        if let Some(other) = loaded.token_to_id(text).filter(|&other| other != id) {
            return Err(format!("tokens {id} and {other} have the same text {text:?}"));
        }
    }
    Err("the loaded vocabulary differs from the list in the file".into())
}
