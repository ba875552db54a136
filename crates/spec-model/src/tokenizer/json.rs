//! Metadata to the text of a `tokenizer.json`: the one form that is loaded, whatever the checkpoint's own.

use super::pre_tokenizer::PreTokenizer;
use super::vocabulary::{TokenKind, Vocabulary};
use crate::Result;
use crate::gguf::Metadata;

/// Named as the unknown token although no vocabulary has it, so that a character without a token is an error of the
/// loaded tokenizer instead of being dropped.
const NO_SUCH_TOKEN: &str = "\u{fffe}no token";

/// Kinds that are matched as a whole in front of any splitting.
pub(super) fn is_added(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::Control | TokenKind::UserDefined)
}

pub(super) fn build(metadata: Metadata<'_>, vocabulary: &Vocabulary, rules: &PreTokenizer) -> Result<Vec<u8>> {
    const MERGES: &str = "tokenizer.ggml.merges";
    let merges = metadata.strings(MERGES)?;
    let mut out = Vec::with_capacity(24 * (vocabulary.len() + merges.len()));
    out.extend(br#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":["#);
    let added = vocabulary.iter().filter(|&(_, text, kind)| is_added(kind) && !text.is_empty());
    separated(&mut out, added, |out, (id, text, kind)| {
        out.extend(format!(r#"{{"id":{id},"content":"#).bytes());
        put_string(out, text);
        let special = kind == TokenKind::Control;
        out.extend(
            format!(r#","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":{special}}}"#)
                .bytes(),
        );
        Ok(())
    })?;
    out.extend(br#"],"normalizer":"#);
    out.extend(if rules.compose { br#"{"type":"NFC"}"#.as_slice() } else { b"null" });
    out.extend(br#","pre_tokenizer":{"type":"Sequence","pretokenizers":["#);
    for pattern in rules.patterns {
        out.extend(br#"{"type":"Split","pattern":{"Regex":"#);
        put_string(&mut out, pattern);
        out.extend(br#"},"behavior":"Isolated","invert":false},"#);
    }
    out.extend(br#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]}"#);
    out.extend(br#","post_processor":null,"decoder":null,"model":{"type":"BPE","dropout":null,"unk_token":"#);
    put_string(&mut out, NO_SUCH_TOKEN);
    out.extend(br#","continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"#);
    out.extend(format!(r#""byte_fallback":false,"ignore_merges":{},"vocab":{{"#, rules.ignore_merges).bytes());
    // Unused entries stay out: nothing can produce them, and the loader is faster without.
    let used = vocabulary.iter().filter(|&(_, _, kind)| kind != TokenKind::Unused);
    separated(&mut out, used, |out, (id, text, _)| {
        put_string(out, text);
        out.push(b':');
        out.extend(id.to_string().bytes());
        Ok(())
    })?;
    out.extend(br#"},"merges":["#);
    separated(&mut out, merges.enumerate(), |out, (i, merge)| {
        let bad = |what| metadata.bad(MERGES, format!("merge {i} {what}"));
        let merge = std::str::from_utf8(merge).map_err(|_| bad("is not UTF-8"))?;
        // A single string per merge loads in less time than a pair of strings.
        match merge.split_once(' ') {
            Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {}
            _ => return Err(bad("is not two tokens with a space between")),
        }
        if merge.starts_with("#version") {
            return Err(bad("starts with `#version`, which the loader takes for a comment"));
        }
        put_string(out, merge);
        Ok(())
    })?;
    out.extend(b"]}}");
    Ok(out)
}

fn separated<T>(
    out: &mut Vec<u8>,
    items: impl Iterator<Item = T>,
    mut put: impl FnMut(&mut Vec<u8>, T) -> Result<()>,
) -> Result<()> {
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        put(out, item)?;
    }
    Ok(())
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing a string to memory cannot fail");
}
