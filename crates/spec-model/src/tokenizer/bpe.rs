//! Byte-pair encoding by the `tokenizers` crate, without its silent substitutions.

use tokenizers::models::bpe::BPE;
use tokenizers::{
    AddedVocabulary, Model, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizer, PreTokenizerWrapper,
};

use super::byte_level;
use super::vocabulary::Spelling;

/// Text to ids: whole tokens first, then normalising, splitting and merging of what is between them.
pub(super) struct Bpe {
    pub(super) model: BPE,
    pub(super) normalizer: Option<NormalizerWrapper>,
    pub(super) pre_tokenizer: Option<PreTokenizerWrapper>,
    /// Finds control and user-defined tokens in text.
    all: AddedVocabulary,
    /// Takes the text of control tokens for plain text.
    user_defined: AddedVocabulary,
    spelling: Spelling,
}

impl Bpe {
    pub(super) fn new(
        model: BPE,
        normalizer: Option<NormalizerWrapper>,
        pre_tokenizer: Option<PreTokenizerWrapper>,
        added: AddedVocabulary,
        spelling: Spelling,
    ) -> Self {
        let mut user_defined = added.clone();
        user_defined.set_encode_special_tokens(true);
        Self { model, normalizer, pre_tokenizer, all: added, user_defined, spelling }
    }

    /// Id of an entry or of an added token.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.all.token_to_id(text, &self.model)
    }

    /// Appends the ids of `text`; with `special`, control tokens in it are found as well.
    pub(super) fn encode(&self, text: &str, special: bool, out: &mut Vec<u32>) -> Result<(), String> {
        let added = if special { &self.all } else { &self.user_defined };
        let mut pieces = added.extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(|error| error.to_string())?;
        }
        let merged = pieces.tokenize(|piece| {
            let piece = piece.get();
            let tokens = self.model.tokenize(piece)?;
            // A character without a token, where the vocabulary has none for the unknown, is left out without a word.
            let covered: usize = tokens.iter().map(|token| token.offsets.1 - token.offsets.0).sum();
            if covered < piece.len() { Err(self.explain(text, piece).into()) } else { Ok(tokens) }
        });
        merged.map_err(|error| error.to_string())?;
        for (_, _, tokens) in pieces.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            out.extend(tokens.iter().flatten().map(|token| token.id));
        }
        Ok(())
    }

    /// What in `piece`, which stands for a part of `text`, has no token.
    fn explain(&self, text: &str, piece: &str) -> String {
        let missing = |character: &char| self.id(character.encode_utf8(&mut [0; 4])).is_none();
        let Some(character) = piece.chars().find(missing) else {
            return format!("{piece:?} has no tokens in this vocabulary; remove it");
        };
        let byte = match self.spelling {
            Spelling::ByteLevel => byte_level::byte_of(character),
            Spelling::Marked => None,
        };
        match byte {
            Some(byte) => {
                // Exact unless the text was normalised, and near then.
                let place = text.bytes().position(|b| b == byte).map_or(String::new(), |at| format!(" at offset {at}"));
                format!("byte 0x{byte:02x}{place} has no token in this vocabulary; remove that character")
            }
            None => format!("{character:?} has no token in this vocabulary; remove that character"),
        }
    }
}
