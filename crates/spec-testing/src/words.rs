//! A vocabulary of letters for models that have none.

use std::borrow::Cow;

use spec_core::Token;
use spec_runtime::TokenText;

/// Token `i` is the letter `a + i % 26`, and a digit group behind it from the 27th on.
#[derive(Clone, Copy, Debug)]
pub struct Letters(pub usize);

impl TokenText for Letters {
    fn vocab(&self) -> usize {
        self.0
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        Cow::Owned(self.label(token).into_owned().into_bytes())
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        let letter = char::from(b'a' + (token % 26) as u8);
        Cow::Owned(if token < 26 { letter.to_string() } else { format!("{letter}{}", token / 26) })
    }
}
