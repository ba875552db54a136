//! Tokenizers from GGUF metadata.

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, AddedVocabulary, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::bpe::Bpe;
use super::pieces::Pieces;
use super::pre_tokenizer::{self, PreTokenizer};
use super::vocabulary::{Spelling, TokenKind, Vocabulary};
use super::{Encoder, Tokenizer, end_ids};
use crate::gguf::Metadata;
use crate::{Error, Result};

const MERGES: &str = "tokenizer.ggml.merges";

pub(super) fn load(metadata: Metadata<'_>, pre_tokenizer: Option<&str>) -> Result<Tokenizer> {
    match (spelling(metadata)?, pre_tokenizer) {
        (Spelling::ByteLevel, _) => byte_level_bpe(metadata, pre_tokenizer),
        (Spelling::Marked, None) => sentence_pieces(metadata),
        (Spelling::Marked, Some(name)) => {
            let what = format!("pre-tokenizer `{name}` for a SentencePiece vocabulary, which has none,");
            Err(Error::Unsupported { file: metadata.file().to_owned(), what })
        }
    }
}

/// The token list alone.
pub(super) fn vocabulary(metadata: Metadata<'_>) -> Result<Vocabulary> {
    Vocabulary::spelled(metadata, spelling(metadata)?)
}

/// How the kind of tokenizer that the metadata names spells bytes.
fn spelling(metadata: Metadata<'_>) -> Result<Spelling> {
    let unsupported = |what: String| Error::Unsupported { file: metadata.file().to_owned(), what };
    match metadata.str("tokenizer.ggml.model")? {
        "gpt2" => Ok(Spelling::ByteLevel),
        // Gemma's converters have written both names.
        "llama" | "gemma" => Ok(Spelling::Marked),
        "bert" => Err(unsupported("tokenizer model `bert` (it belongs to encoders, which generate no text)".into())),
        other => Err(unsupported(format!(
            "tokenizer model `{other}` (byte-level BPE, `gpt2`, and SentencePiece with scores, `llama`, are read)"
        ))),
    }
}

fn byte_level_bpe(metadata: Metadata<'_>, pre_tokenizer: Option<&str>) -> Result<Tokenizer> {
    let file = metadata.file();
    let fail = |problem: String| Error::Tokenizer { file: file.to_owned(), problem };
    let name = match pre_tokenizer {
        Some(name) => Some(name),
        None => metadata.optional_str("tokenizer.ggml.pre")?,
    };
    let rules = pre_tokenizer::find(file, name)?;
    let vocabulary = Vocabulary::spelled(metadata, Spelling::ByteLevel)?;
    let mut builder = BPE::builder().ignore_merges(rules.ignore_merges);
    builder = builder.vocab_and_merges(entries(&vocabulary).map_err(fail)?, merges(metadata)?);
    let model = builder.build().map_err(|error| fail(error.to_string()))?;
    let mut added = AddedVocabulary::new();
    let tokens: Vec<_> = vocabulary.iter().filter_map(|(_, text, kind)| added_token(text, kind)).collect();
    added.add_tokens(&tokens, &model, None::<&NormalizerWrapper>);
    let normalizer = rules.compose.then_some(NormalizerWrapper::NFC(NFC));
    let bpe = Bpe::new(model, normalizer, Some(splitter(rules)), added, Spelling::ByteLevel);
    finish(metadata, vocabulary, Encoder::Bpe(Box::new(bpe)), Defaults { add_bos: rules.adds_bos, ids: None })
}

/// Unused entries stay out: nothing can produce them.
fn entries(vocabulary: &Vocabulary) -> Result<Vocab, String> {
    let mut entries = Vocab::default();
    for (id, text, _) in vocabulary.iter().filter(|&(_, _, kind)| kind != TokenKind::Unused) {
        // Two tokens of one text: one of them could not be produced.
        if let Some(other) = entries.insert(text.to_owned(), id) {
            return Err(format!("tokens {other} and {id} have the same text {text:?}"));
        }
    }
    Ok(entries)
}

fn merges(metadata: Metadata<'_>) -> Result<Merges> {
    let split = |(i, merge)| {
        let bad = |what| metadata.bad(MERGES, format!("merge {i} {what}"));
        let merge = std::str::from_utf8(merge).map_err(|_| bad("is not UTF-8"))?;
        match merge.split_once(' ') {
            Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
                Ok((left.to_owned(), right.to_owned()))
            }
            _ => Err(bad("is not two tokens with a space between")),
        }
    };
    metadata.strings(MERGES)?.enumerate().map(split).collect()
}

/// The tokens that are matched as a whole in front of any splitting.
fn added_token(text: &str, kind: TokenKind) -> Option<AddedToken> {
    let special = match kind {
        TokenKind::Control => true,
        TokenKind::UserDefined => false,
        _ => return None,
    };
    (!text.is_empty()).then(|| AddedToken::from(text, special).normalized(false))
}

pub(super) fn splitter(rules: &PreTokenizer) -> PreTokenizerWrapper {
    let split = |pattern: &&str| {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        PreTokenizerWrapper::Split(split.expect("a test compiles every pattern of the table"))
    };
    let mut parts: Vec<_> = rules.patterns.iter().map(split).collect();
    parts.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
    PreTokenizerWrapper::Sequence(Sequence::new(parts))
}

fn sentence_pieces(metadata: Metadata<'_>) -> Result<Tokenizer> {
    let vocabulary = Vocabulary::spelled(metadata, Spelling::Marked)?;
    let pieces = Pieces::from_metadata(metadata, &vocabulary)?;
    // SentencePiece's own numbers, which old files leave out.
    let defaults = Defaults { add_bos: true, ids: Some((1, 2)) };
    finish(metadata, vocabulary, Encoder::Pieces(Box::new(pieces)), defaults)
}

/// What holds where the metadata has no key for it.
struct Defaults {
    add_bos: bool,
    /// BOS and EOS.
    ids: Option<(u32, u32)>,
}

fn finish(metadata: Metadata<'_>, vocabulary: Vocabulary, encoder: Encoder, defaults: Defaults) -> Result<Tokenizer> {
    let fail = |problem: &str| Error::Tokenizer { file: metadata.file().to_owned(), problem: problem.to_owned() };
    let id = |key: &str| match metadata.optional_u32(&format!("tokenizer.ggml.{key}"))? {
        Some(id) if id as usize >= vocabulary.len() => Err(metadata
            .bad(&format!("tokenizer.ggml.{key}"), format!("{id} is not below the {} tokens", vocabulary.len()))),
        id => Ok(id),
    };
    let default = |id: u32| Some(id).filter(|&id| matches!(vocabulary.kind(id), Ok(TokenKind::Control)));
    let bos = id("bos_token_id")?.or_else(|| default(defaults.ids?.0));
    let eos = id("eos_token_id")?.or_else(|| default(defaults.ids?.1));
    let add_bos = metadata.optional_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(defaults.add_bos);
    let add_eos = metadata.optional_bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
    if add_bos && bos.is_none() {
        return Err(fail("BOS is to be added, but `tokenizer.ggml.bos_token_id` is missing"));
    }
    if add_eos && eos.is_none() {
        return Err(fail("EOS is to be added, but `tokenizer.ggml.eos_token_id` is missing"));
    }
    let mut named: Vec<u32> = eos.into_iter().collect();
    for key in ["eot_token_id", "eom_token_id"] {
        named.extend(id(key)?);
    }
    let space_prefix = match &encoder {
        Encoder::Bpe(_) => false,
        Encoder::Pieces(pieces) => pieces.space_prefix(),
    };
    let ends = end_ids(&vocabulary, named);
    Ok(Tokenizer { vocabulary, encoder, bos, eos, add_bos, add_eos, space_prefix, ends })
}
