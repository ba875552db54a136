//! What the engine must know of a vocabulary, and incremental decoding of its bytes.

use std::borrow::Cow;

use spec_core::Token;

/// How a token comes to be in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenRole {
    /// A piece of text that the tokenizer cuts or merges.
    Text,
    /// Found in a text as a whole, or put between texts: control tokens, and those that a model's authors added.
    Marker,
    /// In no text: a hole, or padding.
    Unused,
}

/// The text of tokens. Implemented above, by whoever owns the tokenizer.
pub trait TokenText: Send + Sync {
    /// Number of real tokens; ids at or above it are padding and never emitted.
    fn vocab(&self) -> usize;

    /// The bytes a token adds to the text: empty for control tokens. Ids below [`vocab`](Self::vocab) only.
    fn bytes(&self, token: Token) -> Cow<'_, [u8]>;

    /// The token as its vocabulary writes it, control tokens included. Ids below [`vocab`](Self::vocab) only.
    fn label(&self, token: Token) -> Cow<'_, str>;

    /// How it comes to be in a text. Ids below [`vocab`](Self::vocab) only.
    fn role(&self, token: Token) -> TokenRole {
        if self.bytes(token).is_empty() { TokenRole::Marker } else { TokenRole::Text }
    }
}

/// Bytes to whole characters: an incomplete character is held until its last byte arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8Tail {
    held: Vec<u8>,
}

impl Utf8Tail {
    /// Appends the characters that `bytes` completes to `out`. Bytes that can never become a
    /// character turn into U+FFFD.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.held.extend_from_slice(bytes);
        loop {
            match std::str::from_utf8(&self.held) {
                Ok(text) => {
                    out.push_str(text);
                    self.held.clear();
                    return;
                }
                Err(error) => {
                    let (valid, rest) = self.held.split_at(error.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(valid));
                    match error.error_len() {
                        Some(bad) => {
                            out.push(char::REPLACEMENT_CHARACTER);
                            self.held = rest[bad..].to_vec();
                        }
                        None => {
                            self.held = rest.to_vec();
                            return;
                        }
                    }
                }
            }
        }
    }
}
