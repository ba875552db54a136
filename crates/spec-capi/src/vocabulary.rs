//! A tokenizer as the engine sees it.

use std::borrow::Cow;

use spec_core::Token;
use spec_model::{TokenKind, Tokenizer};
use spec_runtime::{TokenRole, TokenText};

/// A tokenizer, or its tokens alone.
pub(crate) struct Vocabulary<T = Tokenizer>(pub(crate) T);

impl<T: AsRef<spec_model::Vocabulary> + Send + Sync> TokenText for Vocabulary<T> {
    fn vocab(&self) -> usize {
        self.0.as_ref().real_len()
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        Cow::Owned(self.0.as_ref().bytes(token, false).unwrap_or_default())
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        Cow::Borrowed(self.0.as_ref().text(token).unwrap_or_default())
    }

    fn role(&self, token: Token) -> TokenRole {
        match self.0.as_ref().kind(token) {
            Ok(TokenKind::Normal | TokenKind::Byte) => TokenRole::Text,
            Ok(TokenKind::Unused) | Err(_) => TokenRole::Unused,
            Ok(_) => TokenRole::Marker,
        }
    }
}
