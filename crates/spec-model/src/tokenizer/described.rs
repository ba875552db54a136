//! A published tokenizer as GGUF's metadata has it.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::published::Parts;
use super::vocabulary::{Spelling, TokenKind};
use super::{Tokenizer, pre_tokenizer};
use crate::gguf::write::Value;
use crate::{Error, Result};

/// The keys that describe the tokenizer of a `tokenizer.json`, whose text is `text` and which `tokenizer` was built of, for a model with
/// `rows` rows of logits.
///
/// # Errors
/// [`Error::Unsupported`] for what the keys have no words for.
pub(crate) fn keys(text: &[u8], file: &str, tokenizer: &Tokenizer, rows: usize) -> Result<Vec<(String, Value)>> {
    let unsupported =
        |what: &str| Error::Unsupported { file: file.to_owned(), what: format!("writing {what} to GGUF") };
    let parts = Parts::read(text, file)?;
    if parts.spelling != Spelling::ByteLevel {
        // Its merges have an order, and GGUF wants scores.
        return Err(unsupported("a SentencePiece vocabulary, whose scores tokenizer.json leaves out,"));
    }
    if parts.added_tokens.iter().any(|token| token.single_word || token.lstrip || token.rstrip) {
        return Err(unsupported("added tokens that take the blanks around them"));
    }
    let mut patterns = Vec::new();
    let known = parts.pre_tokenizer.as_ref().and_then(|component| split(component, &mut patterns)).and_then(|()| {
        let compose = match &parts.normalizer {
            None => Some(false),
            Some(normalizer) => (normalizer["type"] == "NFC").then_some(true),
        };
        pre_tokenizer::name_of(&patterns, compose?, parts.model.ignore_merges)
    });
    let Some(rules) = known else {
        return Err(unsupported("rules of splitting that have no name there"));
    };
    let (tokens, kinds) = list(&parts, rows);
    let merges: Vec<String> = parts.model.merges.iter().map(|merge| format!("{} {}", merge.0, merge.1)).collect();
    let mut keys: Vec<(&str, Value)> = vec![
        ("model", "gpt2".into()),
        ("pre", rules.into()),
        ("tokens", tokens.into()),
        ("token_type", kinds.into()),
        ("merges", merges.into()),
        ("add_bos_token", tokenizer.add_bos.into()),
        ("add_eos_token", tokenizer.add_eos.into()),
    ];
    keys.extend(tokenizer.bos.map(|id| ("bos_token_id", id.into())));
    keys.extend(tokenizer.eos.map(|id| ("eos_token_id", id.into())));
    Ok(keys.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect())
}

/// Texts and kinds of all rows. Holes and padding get texts of their own, since no two may be equal.
fn list(parts: &Parts, rows: usize) -> (Vec<String>, Vec<i32>) {
    let taken: HashSet<&str> = parts.vocabulary.iter().map(|(_, text, _)| text).collect();
    let padding = |id: usize| {
        let mut text = format!("[PAD{id}]");
        while taken.contains(text.as_str()) {
            text.push('_');
        }
        text
    };
    let mut tokens = Vec::with_capacity(rows);
    let mut kinds = Vec::with_capacity(rows);
    for (id, text, kind) in parts.vocabulary.iter() {
        tokens.push(if kind == TokenKind::Unused { padding(id as usize) } else { text.to_owned() });
        kinds.push(kind.id());
    }
    for id in tokens.len()..rows {
        tokens.push(padding(id));
        kinds.push(TokenKind::Unused.id());
    }
    (tokens, kinds)
}

/// The patterns that a pre-tokenizer splits by, one after the other; `None` for anything else that it does.
fn split(component: &Json, patterns: &mut Vec<String>) -> Option<()> {
    match component["type"].as_str()? {
        "Sequence" => component["pretokenizers"].as_array()?.iter().try_for_each(|part| split(part, patterns)),
        "Split" if component["behavior"] == "Isolated" && component["invert"] != true => {
            patterns.push(component["pattern"]["Regex"].as_str()?.to_owned());
            Some(())
        }
        "Digits" if component["individual_digits"] == true => {
            patterns.push(r"\p{N}".to_owned());
            Some(())
        }
        "ByteLevel" if component["add_prefix_space"] != true => {
            if component["use_regex"] != false {
                patterns.push(pre_tokenizer::GPT2.to_owned());
            }
            Some(())
        }
        _ => None,
    }
}
