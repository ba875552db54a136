//! The token list: texts, kinds and the bytes each token stands for.

use super::byte_level;
use crate::gguf::Metadata;
use crate::{Error, Result};

/// Stands for a space in the vocabularies that SentencePiece made: U+2581.
pub(super) const SPACE_MARK: char = '\u{2581}';

/// How the texts of a vocabulary spell bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Each byte is a character of the byte-level alphabet.
    ByteLevel,
    /// Plain text with [`SPACE_MARK`] in the place of spaces.
    Marked,
}

/// What a token is, as `tokenizer.ggml.token_type` marks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenKind {
    /// Text, in the spelling of the vocabulary.
    Normal,
    /// Stands for what the vocabulary cannot express.
    Unknown,
    /// Steers the model, such as an end of turn; not text. The tags of tool calls are [`UserDefined`](Self::UserDefined) in any case.
    Control,
    /// Added by the model's authors, matched as a whole; its text is plain.
    UserDefined,
    /// A hole or padding: never produced by tokenization.
    Unused,
    /// One raw byte, written `<0xAB>`.
    Byte,
}

impl TokenKind {
    fn from_id(id: i32) -> Option<Self> {
        Some(match id {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    pub(super) fn id(self) -> i32 {
        match self {
            Self::Normal => 1,
            Self::Unknown => 2,
            Self::Control => 3,
            Self::UserDefined => 4,
            Self::Unused => 5,
            Self::Byte => 6,
        }
    }
}

/// A model's tokens: texts, in one allocation, and kinds. Much cheaper to have than the [`Tokenizer`](crate::Tokenizer) over them.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    text: String,
    /// End of each token's text.
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    spelling: Spelling,
}

/// The tags around calls of functions. Converters mark them as added text or as control, as the model's authors called them special or
/// not; what stands between is an answer's text, and whoever reads calls has to see where they begin.
const TAGS: [&str; 2] = ["<tool_call>", "</tool_call>"];

impl Vocabulary {
    /// A list without ids that have no entry; `None` when the texts are 4 GiB or more.
    pub(super) fn from_entries<'a>(
        entries: impl Iterator<Item = (&'a str, TokenKind)>,
        spelling: Spelling,
    ) -> Option<Self> {
        let mut list = Self { text: String::new(), ends: Vec::new(), kinds: Vec::new(), spelling };
        for (text, kind) in entries {
            list.text.push_str(text);
            list.ends.push(u32::try_from(list.text.len()).ok()?);
            list.kinds.push(kind);
        }
        Some(list.with_tags_as_text())
    }

    fn with_tags_as_text(mut self) -> Self {
        let is_tag = |text: &str, kind| kind == TokenKind::Control && TAGS.contains(&text);
        let tags: Vec<u32> = self.iter().filter(|&(_, text, kind)| is_tag(text, kind)).map(|(id, ..)| id).collect();
        for id in tags {
            self.kinds[id as usize] = TokenKind::UserDefined;
        }
        self
    }

    pub(super) fn spelled(metadata: Metadata<'_>, spelling: Spelling) -> Result<Self> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const KINDS: &str = "tokenizer.ggml.token_type";
        let tokens = metadata.strings(TOKENS)?;
        let count = tokens.len();
        if count == 0 {
            return Err(metadata.bad(TOKENS, "the list is empty"));
        }
        let mut text = String::new();
        let mut ends = Vec::with_capacity(count);
        for (id, token) in tokens.enumerate() {
            let token =
                std::str::from_utf8(token).map_err(|_| metadata.bad(TOKENS, format!("token {id} is not UTF-8")))?;
            text.push_str(token);
            let end = u32::try_from(text.len());
            ends.push(end.map_err(|_| metadata.bad(TOKENS, "the texts are 4 GiB or more"))?);
        }
        let kinds = metadata.i32s(KINDS)?;
        if kinds.len() != count {
            return Err(metadata.bad(KINDS, format!("{} kinds for {count} tokens", kinds.len())));
        }
        let kind = |(id, &kind)| {
            TokenKind::from_id(kind)
                .ok_or_else(|| metadata.bad(KINDS, format!("kind {kind} of token {id} is unknown (1 to 6 are)")))
        };
        let kinds = kinds.iter().enumerate().map(kind).collect::<Result<_>>()?;
        Ok(Self { text, ends, kinds, spelling }.with_tags_as_text())
    }

    /// Ids that the list has, padding included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the list has no id. No file's has none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Id as an index, or the error that names it.
    fn index(&self, id: u32) -> Result<usize> {
        let index = id as usize;
        if index < self.len() { Ok(index) } else { Err(Error::TokenId { id, size: self.len() }) }
    }

    /// The token as it is written in the vocabulary.
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn text(&self, id: u32) -> Result<&str> {
        let index = self.index(id)?;
        let start = index.checked_sub(1).map_or(0, |previous| self.ends[previous] as usize);
        Ok(&self.text[start..self.ends[index] as usize])
    }

    /// What kind of token it is.
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn kind(&self, id: u32) -> Result<TokenKind> {
        Ok(self.kinds[self.index(id)?])
    }

    /// Ids with their text and kind, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        let mut start = 0;
        self.ends.iter().zip(&self.kinds).enumerate().map(move |(id, (&end, &kind))| {
            let text = &self.text[start..end as usize];
            start = end as usize;
            (id as u32, text, kind)
        })
    }

    /// Number of ids up to the last one that is not [`TokenKind::Unused`]: those from here on are padding.
    pub fn real_len(&self) -> usize {
        self.kinds.iter().rposition(|&kind| kind != TokenKind::Unused).map_or(0, |last| last + 1)
    }

    /// Exact bytes of a token; often not a whole character. With `control` a control, unknown or unused token gives its
    /// text, without it nothing.
    ///
    /// # Errors
    /// [`Error::TokenId`].
    pub fn bytes(&self, id: u32, control: bool) -> Result<Vec<u8>> {
        let text = self.text(id)?;
        Ok(match self.kind(id)? {
            TokenKind::Normal | TokenKind::UserDefined if self.spelling == Spelling::Marked => {
                text.replace(SPACE_MARK, " ").into_bytes()
            }
            // An entry outside the alphabet can only be plain text that a converter forgot to mark.
            TokenKind::Normal => byte_level::decode(text).unwrap_or_else(|| text.into()),
            TokenKind::Byte => raw_byte(text).map_or_else(|| text.into(), |byte| vec![byte]),
            TokenKind::UserDefined => text.into(),
            TokenKind::Control | TokenKind::Unknown | TokenKind::Unused if control => text.into(),
            TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => Vec::new(),
        })
    }
}

/// The byte that `<0xAB>` stands for.
pub(super) fn raw_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    // `from_str_radix` alone would take a sign for a digit.
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}
