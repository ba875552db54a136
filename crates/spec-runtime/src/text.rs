//! What the engine must know of a vocabulary, and incremental decoding of its bytes.

use std::borrow::Cow;

use spec_core::Token;

use crate::RuntimeError;

/// The text of tokens. Implemented above, by whoever owns the tokenizer.
pub trait TokenText: Send + Sync {
    /// Number of real tokens; ids at or above it are padding and never emitted.
    fn vocab(&self) -> usize;

    /// The bytes a token adds to the text: empty for control tokens. Ids below [`vocab`](Self::vocab) only.
    fn bytes(&self, token: Token) -> Cow<'_, [u8]>;

    /// The token as people write it, control tokens included; what two vocabularies are compared by.
    fn label(&self, token: Token) -> Cow<'_, str>;
}

/// Checks that a drafter speaks the target's language: the same real tokens under the same ids.
/// Padding may differ, it is masked on both sides.
///
/// # Errors
/// [`RuntimeError::VocabularyDiffers`] with the first id whose token differs or is missing.
pub fn check_vocabularies(target: &dyn TokenText, draft: &dyn TokenText) -> Result<(), RuntimeError> {
    let shared = target.vocab().min(draft.vocab());
    let differs = |id: usize| {
        let side = |text: &dyn TokenText| {
            if id < text.vocab() { format!("{:?}", text.label(id as Token)) } else { "no such token".to_owned() }
        };
        RuntimeError::VocabularyDiffers { id: id as Token, target: side(target), draft: side(draft) }
    };
    match (0..shared).find(|&id| target.label(id as Token) != draft.label(id as Token)) {
        Some(id) => Err(differs(id)),
        None if target.vocab() != draft.vocab() => Err(differs(shared)),
        None => Ok(()),
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
