//! Bytes that arrive token by token to text in whole characters.

/// Incremental UTF-8 decoder. The concatenation of what [`push`](Self::push) and [`flush`](Self::flush) return equals
/// `String::from_utf8_lossy` of all bytes, wherever they were cut.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The start of a character, valid so far; at most three bytes.
    tail: Vec<u8>,
}

impl Utf8Stream {
    /// A decoder that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes and returns every character that is complete; each maximal invalid part becomes U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.tail.extend(bytes);
        let mut text = String::new();
        let mut rest = self.tail.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, invalid) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = invalid;
                    let Some(length) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[length..];
                }
            }
        }
        self.tail = rest.to_vec();
        text
    }

    /// Bytes held back as the start of a character.
    pub fn pending(&self) -> &[u8] {
        &self.tail
    }

    /// Ends the stream: a character that never completed becomes one U+FFFD.
    pub fn flush(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.tail).into_owned();
        self.tail.clear();
        text
    }
}
