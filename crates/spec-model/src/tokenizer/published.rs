//! Tokenizers from `tokenizer.json`, the form in which models are published.
//!
//! The file is taken apart here and every part checked before it reaches the `tokenizers` crate, which trusts its files:
//! a merge shorter than the prefix it declares, or an added token that normalises to nothing, would end the process.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::{AddedToken, AddedVocabulary, NormalizedString, Normalizer, NormalizerWrapper, PreTokenizerWrapper};

use super::bpe::Bpe;
use super::vocabulary::{Spelling, TokenKind, Vocabulary, raw_byte};
use super::{Encoder, Tokenizer, end_ids};
use crate::{Error, Result};

/// Longest description of a component, in bytes; published ones have a few thousand.
const MAX_COMPONENT: usize = 1 << 16;
/// Sequences within sequences; published files have one.
const MAX_NESTING: usize = 4;
/// Ids without an entry, beyond as many as there are entries: published files have a handful.
const MAX_HOLES: usize = 1 << 16;

/// Components that published BPE tokenizers use. Others are refused: they belong to other kinds of model.
const NORMALIZERS: [&str; 9] = ["Sequence", "NFC", "NFD", "NFKC", "NFKD", "Replace", "Prepend", "Strip", "Lowercase"];
const PRE_TOKENIZERS: [&str; 7] =
    ["Sequence", "Split", "ByteLevel", "Digits", "Punctuation", "Metaspace", "WhitespaceSplit"];

/// The token list alone.
pub(super) fn vocabulary_of(text: &[u8], file: &str) -> Result<Vocabulary> {
    Ok(Parts::read(text, file)?.vocabulary)
}

pub(super) fn load(text: &[u8], config: Option<&[u8]>, generation: Option<&[u8]>, file: &str) -> Result<Tokenizer> {
    let fail = |problem: String| Error::Tokenizer { file: file.to_owned(), problem };
    let Parts { model, added_tokens, normalizer, pre_tokenizer, decoder, post_processor, spelling, vocabulary } =
        Parts::read(text, file)?;
    let config: Config = optional(config, "tokenizer_config.json").map_err(fail)?;
    let generation: Generation = optional(generation, "generation_config.json").map_err(fail)?;
    let space_prefix = spelling == Spelling::Marked && takes_first_space(decoder.as_ref());
    let encoder = encoder(model, added_tokens, normalizer, pre_tokenizer, spelling).map_err(fail)?;

    let named = |token: &Option<Special>| token.as_ref().and_then(|token| encoder.id(token.text()));
    let (first, last) = template_ids(post_processor.as_ref(), &encoder);
    let (bos, eos) = (named(&config.bos_token).or(first), named(&config.eos_token).or(last));
    let add_bos = config.add_bos_token.unwrap_or(first.is_some());
    let add_eos = config.add_eos_token.unwrap_or(last.is_some());
    for (name, added, id) in [("BOS", add_bos, bos), ("EOS", add_eos, eos)] {
        if added && id.is_none() {
            return Err(fail(format!("{name} is to be added, but no file names a token of the vocabulary for it")));
        }
    }
    let mut ends: Vec<u32> = eos.into_iter().collect();
    for id in generation.eos_token_id.map_or(Vec::new(), Ids::list) {
        if id as usize >= vocabulary.len() {
            let size = vocabulary.len();
            return Err(fail(format!("generation_config.json: eos_token_id {id} is not below the {size} tokens")));
        }
        ends.push(id);
    }
    let ends = end_ids(&vocabulary, ends);
    let encoder = Encoder::Bpe(Box::new(encoder));
    Ok(Tokenizer { vocabulary, encoder, bos, eos, add_bos, add_eos, space_prefix, ends })
}

/// What the file holds, parsed and checked, before anything is built of it.
pub(super) struct Parts {
    pub(super) model: Model,
    pub(super) added_tokens: Vec<Added>,
    pub(super) normalizer: Option<Value>,
    pub(super) pre_tokenizer: Option<Value>,
    decoder: Option<Value>,
    post_processor: Option<Value>,
    pub(super) spelling: Spelling,
    pub(super) vocabulary: Vocabulary,
}

impl Parts {
    pub(super) fn read(text: &[u8], file: &str) -> Result<Self> {
        let fail = |problem: String| Error::Tokenizer { file: file.to_owned(), problem };
        let parsed: File<'_> = serde_json::from_slice(text).map_err(|error| fail(error.to_string()))?;
        let unsupported = |what: String| Error::Unsupported { file: file.to_owned(), what };

        let kind: ModelKind<'_> =
            serde_json::from_str(parsed.model.get()).map_err(|error| fail(format!("model: {error}")))?;
        match kind.name {
            // Files from before the field was written have BPE alone.
            Some("BPE") | None => {}
            Some(other) => return Err(unsupported(format!("tokenizer model `{other}` (BPE is read)"))),
        }
        let model: Model = serde_json::from_str(parsed.model.get()).map_err(|error| fail(format!("model: {error}")))?;
        if !model.continuing_subword_prefix.as_deref().unwrap_or_default().is_empty()
            || !model.end_of_word_suffix.as_deref().unwrap_or_default().is_empty()
        {
            return Err(unsupported(
                "a BPE model that marks the parts of words (neither bytes nor SentencePiece)".into(),
            ));
        }
        if model.dropout.is_some_and(|dropout| dropout != 0.0) {
            return Err(unsupported("BPE dropout, which makes tokens random,".into()));
        }
        let normalizer = component(parsed.normalizer, "normalizer", &NORMALIZERS, file)?;
        let pre_tokenizer = component(parsed.pre_tokenizer, "pre_tokenizer", &PRE_TOKENIZERS, file)?;
        let decoder = component(parsed.decoder, "decoder", &[], file)?;
        let post_processor = component(parsed.post_processor, "post_processor", &[], file)?;

        let spelling = match has(pre_tokenizer.as_ref(), "ByteLevel") || has(decoder.as_ref(), "ByteLevel") {
            true => Spelling::ByteLevel,
            false => Spelling::Marked,
        };
        let vocabulary = vocabulary(&model, &parsed.added_tokens, spelling).map_err(fail)?;
        let added_tokens = parsed.added_tokens;
        Ok(Self { model, added_tokens, normalizer, pre_tokenizer, decoder, post_processor, spelling, vocabulary })
    }
}

fn optional<'a, T: Deserialize<'a> + Default>(text: Option<&'a [u8]>, name: &str) -> Result<T, String> {
    match text {
        Some(text) => serde_json::from_slice(text).map_err(|error| format!("{name}: {error}")),
        None => Ok(T::default()),
    }
}

/// The parts of the file; a part that is used is parsed when its size is known.
#[derive(serde::Deserialize)]
struct File<'a> {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(borrow)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow)]
    post_processor: Option<&'a RawValue>,
    #[serde(borrow)]
    decoder: Option<&'a RawValue>,
    #[serde(borrow)]
    model: &'a RawValue,
}

#[derive(serde::Deserialize)]
pub(super) struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

#[derive(serde::Deserialize)]
struct ModelKind<'a> {
    #[serde(rename = "type", borrow)]
    name: Option<&'a str>,
}

#[derive(serde::Deserialize)]
pub(super) struct Model {
    dropout: Option<f64>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    vocab: Entries,
    #[serde(deserialize_with = "merges")]
    pub(super) merges: Vec<Merge>,
}

/// Text and id, in the file's order.
struct Entries(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of token texts and ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

/// The list, with its name before what is wrong with it.
fn merges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Merge>, D::Error> {
    Vec::deserialize(deserializer).map_err(|error| D::Error::custom(format!("merges: {error}")))
}

/// Two tokens that are merged, written as a pair or with a space between.
pub(super) struct Merge(pub(super) String, pub(super) String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "a merge is neither two tokens with a space between nor a list of two")]
        enum Written {
            Pair(String, String),
            Joined(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Pair(left, right) => Ok(Self(left, right)),
            Written::Joined(merge) => match merge.split_once(' ') {
                Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
                    Ok(Self(left.to_owned(), right.to_owned()))
                }
                _ => Err(D::Error::custom(format!("merge {merge:?} is not two tokens with a space between"))),
            },
        }
    }
}

/// What is used of `tokenizer_config.json`.
#[derive(Default, serde::Deserialize)]
struct Config {
    bos_token: Option<Special>,
    eos_token: Option<Special>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
}

/// A special token, by its text alone or as an object.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Special {
    Text(String),
    Object { content: String },
}

impl Special {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Object { content: text } => text,
        }
    }
}

/// What is used of `generation_config.json`.
#[derive(Default, serde::Deserialize)]
struct Generation {
    eos_token_id: Option<Ids>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Several(Vec<u32>),
}

impl Ids {
    fn list(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Several(ids) => ids,
        }
    }
}

/// Parses a component and refuses what is not in `known`, which may be empty when nothing is built of it.
fn component(raw: Option<&RawValue>, part: &str, known: &[&str], file: &str) -> Result<Option<Value>> {
    let fail = |problem: String| Error::Tokenizer { file: file.to_owned(), problem: format!("{part}: {problem}") };
    let Some(raw) = raw.map(RawValue::get) else {
        return Ok(None);
    };
    if raw.len() > MAX_COMPONENT {
        return Err(fail(format!("{} bytes long, at most {MAX_COMPONENT} are accepted", raw.len())));
    }
    let value: Value = serde_json::from_str(raw).map_err(|error| fail(error.to_string()))?;
    if value.is_null() {
        return Ok(None);
    }
    let mut level = vec![&value];
    for _ in 0..MAX_NESTING {
        for component in &level {
            let name = component["type"].as_str().ok_or_else(|| fail("a component has no `type`".into()))?;
            if !known.is_empty() && !known.contains(&name) {
                return Err(Error::Unsupported {
                    file: file.to_owned(),
                    what: format!("{part} `{name}` ({} are read)", known.join(", ")),
                });
            }
        }
        level = level.into_iter().flat_map(parts).collect();
        if level.is_empty() {
            return Ok(Some(value));
        }
    }
    Err(fail(format!("sequences are nested more than {MAX_NESTING} deep")))
}

/// The components of a sequence.
fn parts(component: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["normalizers", "pretokenizers", "decoders", "processors"];
    lists.into_iter().filter_map(|list| component[list].as_array()).flatten()
}

/// All components, those of sequences included.
fn all(component: &Value) -> Vec<&Value> {
    let mut found = vec![component];
    let mut next = 0;
    while let Some(&component) = found.get(next) {
        found.extend(parts(component));
        next += 1;
    }
    found
}

fn has(component: Option<&Value>, name: &str) -> bool {
    component.is_some_and(|component| all(component).into_iter().any(|part| part["type"] == name))
}

/// True when decoding strips one space at the start of a text: the one that encoding puts there.
fn takes_first_space(decoder: Option<&Value>) -> bool {
    decoder.is_some_and(|decoder| {
        all(decoder).into_iter().any(|part| match part["type"].as_str() {
            Some("Strip") => part["content"] == " " && part["start"].as_u64().is_some_and(|start| start > 0),
            Some("Metaspace") => part["prepend_scheme"] != "never" && part["add_prefix_space"] != false,
            _ => false,
        })
    })
}

/// The tokens by id. Holes are unused tokens.
fn vocabulary(model: &Model, added: &[Added], spelling: Spelling) -> Result<Vocabulary, String> {
    let entries = &model.vocab.0;
    let count = entries.len() + added.len();
    let last = entries.iter().map(|&(_, id)| id).chain(added.iter().map(|token| token.id)).max();
    let size = last.ok_or("the vocabulary is empty")? as usize + 1;
    if size > 2 * count + MAX_HOLES {
        return Err(format!("the highest token id is {}, but there are only {count} tokens", size - 1));
    }
    let mut list = vec![("", TokenKind::Unused); size];
    for (text, id) in entries {
        let kind = match model.unk_token.as_ref() {
            Some(unknown) if unknown == text => TokenKind::Unknown,
            _ if spelling == Spelling::Marked && model.byte_fallback && raw_byte(text).is_some() => TokenKind::Byte,
            _ => TokenKind::Normal,
        };
        let place = &mut list[*id as usize];
        if place.1 != TokenKind::Unused {
            return Err(format!("tokens {:?} and {text:?} have the same id {id}", place.0));
        }
        *place = (text, kind);
    }
    for token in added {
        let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
        let place = &mut list[token.id as usize];
        if place.1 != TokenKind::Unused && place.0 != token.content {
            return Err(format!("tokens {:?} and {:?} have the same id {}", place.0, token.content, token.id));
        }
        *place = (&token.content, kind);
    }
    Vocabulary::from_entries(list.into_iter(), spelling).ok_or_else(|| "the texts are 4 GiB or more".into())
}

fn encoder(
    model: Model,
    added: Vec<Added>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    spelling: Spelling,
) -> Result<Bpe, String> {
    let entries = model.vocab.0;
    let count = entries.len();
    let vocab: Vocab = entries.into_iter().collect();
    if vocab.len() < count {
        return Err("two tokens have the same text".into());
    }
    let merges: Merges = model.merges.into_iter().map(|Merge(left, right)| (left, right)).collect();
    let mut builder = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .fuse_unk(model.fuse_unk)
        .byte_fallback(model.byte_fallback)
        .ignore_merges(model.ignore_merges);
    if let Some(unknown) = model.unk_token {
        builder = builder.unk_token(unknown);
    }
    let bpe = builder.build().map_err(|error| error.to_string())?;
    let parse = |part: &str, error: serde_json::Error| format!("{part}: {error}");
    let normalizer: Option<NormalizerWrapper> =
        normalizer.map(serde_json::from_value).transpose().map_err(|error| parse("normalizer", error))?;
    let pre_tokenizer: Option<PreTokenizerWrapper> =
        pre_tokenizer.map(serde_json::from_value).transpose().map_err(|error| parse("pre_tokenizer", error))?;

    let ids: Vec<(u32, String)> = added.iter().map(|token| (token.id, token.content.clone())).collect();
    let mut tokens = Vec::with_capacity(added.len());
    for token in added {
        check_findable(&token, normalizer.as_ref())?;
        tokens.push(
            AddedToken::from(token.content, token.special)
                .single_word(token.single_word)
                .lstrip(token.lstrip)
                .rstrip(token.rstrip)
                .normalized(token.normalized),
        );
    }
    let mut vocabulary = AddedVocabulary::new();
    vocabulary.add_tokens(&tokens, &bpe, normalizer.as_ref());
    let encoder = Bpe::new(bpe, normalizer, pre_tokenizer, vocabulary, spelling);
    for (id, text) in ids {
        // The loader numbers them by their order, whatever the file says.
        if encoder.id(&text) != Some(id) {
            return Err(format!("added token {text:?} has id {id}, which does not follow from its place in the list"));
        }
    }
    Ok(encoder)
}

/// An added token is searched for by its text, normalised where it says so; nothing cannot be searched for.
fn check_findable(token: &Added, normalizer: Option<&NormalizerWrapper>) -> Result<(), String> {
    let mut text = NormalizedString::from(token.content.as_str());
    if let Some(normalizer) = normalizer.filter(|_| token.normalized) {
        normalizer.normalize(&mut text).map_err(|error| format!("added token {}: {error}", token.id))?;
    }
    if text.get().is_empty() { Err(format!("added token {} is empty", token.id)) } else { Ok(()) }
}

/// The special tokens that the post-processor puts before and behind a text.
fn template_ids(post_processor: Option<&Value>, encoder: &Bpe) -> (Option<u32>, Option<u32>) {
    let Some(template) = post_processor
        .and_then(|processor| all(processor).into_iter().find(|part| part["type"] == "TemplateProcessing"))
    else {
        return (None, None);
    };
    let pieces = template["single"].as_array().map_or(&[][..], Vec::as_slice);
    let id = |piece: Option<&Value>| encoder.id(piece?["SpecialToken"]["id"].as_str()?);
    (id(pieces.first()), id(pieces.last()))
}
