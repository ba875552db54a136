//! SentencePiece vocabularies with scores: pairs are merged by the score of what they make.
//!
//! The rule is that of SentencePiece's BPE (Kudo and Richardson 2018) as llama.cpp applies it to
//! `tokenizer.ggml.model = llama`: the text is cut into characters, then, as long as two neighbours together are a
//! piece, the pair whose piece has the highest score becomes one, the leftmost on equal scores. Characters without a
//! piece fall back to their bytes. A list of merges, which the `tokenizers` crate wants, would be another thing: it
//! ranks pairs, and many pairs of the same vocabulary make the same piece.

use std::collections::{BinaryHeap, HashMap};

use aho_corasick::{AhoCorasick, MatchKind};

use super::vocabulary::{SPACE_MARK, TokenKind, Vocabulary, raw_byte};
use crate::gguf::Metadata;
use crate::{Error, Result};

/// Text to ids of one vocabulary.
pub(super) struct Pieces {
    /// Ids of the pieces that text may become.
    ids: HashMap<Box<str>, u32>,
    /// Of every id.
    scores: Vec<f32>,
    /// Id of each raw byte, where there is one.
    bytes: Vec<Option<u32>>,
    /// Bytes of the longest piece: no longer pair has to be looked up.
    longest: usize,
    /// Control tokens, unknown ones and those that users defined.
    all: Marks,
    /// The last of them, which are whole even where control tokens are plain text.
    user_defined: Marks,
    /// A space goes in front of text that begins, or that follows a token matched as a whole.
    space_prefix: bool,
}

/// Tokens that are found in text as a whole, the longest at the leftmost place first.
struct Marks {
    finder: AhoCorasick,
    ids: Vec<u32>,
}

impl Marks {
    fn new(tokens: &[(u32, &str)]) -> Result<Self, String> {
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, text)| text))
            .map_err(|error| format!("its special tokens cannot be searched for: {error}"))?;
        Ok(Self { finder, ids: tokens.iter().map(|&(id, _)| id).collect() })
    }
}

impl Pieces {
    /// Scores and flags are read from the metadata.
    pub(super) fn from_metadata(metadata: Metadata<'_>, vocabulary: &Vocabulary) -> Result<Self> {
        const SCORES: &str = "tokenizer.ggml.scores";
        let fail = |problem: String| Error::Tokenizer { file: metadata.file().to_owned(), problem };
        let scores = metadata.f32s(SCORES)?;
        if scores.len() != vocabulary.len() {
            return Err(metadata.bad(SCORES, format!("{} scores for {} tokens", scores.len(), vocabulary.len())));
        }
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(metadata.bad(SCORES, format!("the score of token {id} is not a number")));
        }
        let mut ids: HashMap<Box<str>, u32> = HashMap::with_capacity(vocabulary.len());
        let mut bytes = vec![None; 256];
        let (mut all, mut user_defined) = (Vec::new(), Vec::new());
        for (id, text, kind) in vocabulary.iter().filter(|(_, text, _)| !text.is_empty()) {
            match kind {
                TokenKind::Normal => {}
                TokenKind::UserDefined => {
                    all.push((id, text));
                    user_defined.push((id, text));
                }
                TokenKind::Control | TokenKind::Unknown => {
                    all.push((id, text));
                    continue;
                }
                TokenKind::Byte => {
                    let byte =
                        raw_byte(text).ok_or_else(|| fail(format!("byte token {id} is {text:?}, not <0x..>")))?;
                    bytes[usize::from(byte)].get_or_insert(id);
                    continue;
                }
                TokenKind::Unused => continue,
            }
            if let Some(other) = ids.insert(text.into(), id) {
                return Err(fail(format!("tokens {other} and {id} have the same text {text:?}")));
            }
        }
        Ok(Self {
            longest: ids.keys().map(|text| text.len()).max().unwrap_or(0),
            ids,
            scores,
            bytes,
            all: Marks::new(&all).map_err(fail)?,
            user_defined: Marks::new(&user_defined).map_err(fail)?,
            space_prefix: metadata.optional_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
        })
    }

    /// True when text gets a space in front, which decoding takes away again.
    pub(super) fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// Appends the ids of `text`; with `special`, control tokens in it are found as well.
    pub(super) fn encode(&self, text: &str, special: bool, out: &mut Vec<u32>) -> Result<(), String> {
        let marks = if special { &self.all } else { &self.user_defined };
        let mut start = 0;
        let mut behind_mark = true;
        let plain = |range: std::ops::Range<usize>, behind_mark: bool, out: &mut Vec<u32>| {
            let prefix = if self.space_prefix && behind_mark { " " } else { "" };
            let marked = [prefix, &text[range]].concat().replace(' ', SPACE_MARK.encode_utf8(&mut [0; 4]));
            self.merge(&marked, out)
        };
        for found in marks.finder.find_iter(text) {
            if start < found.start() {
                plain(start..found.start(), behind_mark, out)?;
            }
            out.push(marks.ids[found.pattern().as_usize()]);
            (start, behind_mark) = (found.end(), true);
        }
        if start < text.len() {
            plain(start..text.len(), behind_mark, out)?;
        }
        Ok(())
    }

    fn merge(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        for (start, character) in text.char_indices() {
            let index = symbols.len();
            let previous = index.checked_sub(1);
            symbols.push(Symbol { start, length: character.len_utf8(), previous, next: Some(index + 1) });
        }
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        let mut queue = BinaryHeap::new();
        for left in 1..symbols.len() {
            self.propose(text, &symbols, Some(left - 1), Some(left), &mut queue);
        }
        while let Some(pair) = queue.pop() {
            let (left, right) = (symbols[pair.left], symbols[pair.right]);
            // A symbol that has merged since, into this pair's or another, makes the proposal stale.
            if left.length == 0 || right.length == 0 || left.length + right.length != pair.length {
                continue;
            }
            symbols[pair.left].length = pair.length;
            symbols[pair.left].next = right.next;
            symbols[pair.right].length = 0;
            if let Some(next) = right.next {
                symbols[next].previous = Some(pair.left);
            }
            self.propose(text, &symbols, left.previous, Some(pair.left), &mut queue);
            self.propose(text, &symbols, Some(pair.left), right.next, &mut queue);
        }
        for symbol in symbols.iter().filter(|symbol| symbol.length > 0) {
            let piece = &text[symbol.start..symbol.start + symbol.length];
            match self.ids.get(piece) {
                Some(&id) => out.push(id),
                None => self.push_bytes(piece, out)?,
            }
        }
        Ok(())
    }

    fn push_bytes(&self, piece: &str, out: &mut Vec<u32>) -> Result<(), String> {
        for byte in piece.bytes() {
            let id = self.bytes[usize::from(byte)];
            out.push(id.ok_or_else(|| format!("{piece:?} has no token in this vocabulary; remove that character"))?);
        }
        Ok(())
    }

    fn propose(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: Option<usize>,
        right: Option<usize>,
        queue: &mut BinaryHeap<Pair>,
    ) {
        let (Some(left), Some(right)) = (left, right) else {
            return;
        };
        let start = symbols[left].start;
        let length = symbols[left].length + symbols[right].length;
        if length > self.longest {
            return;
        }
        if let Some(&id) = self.ids.get(&text[start..start + length]) {
            queue.push(Pair { score: self.scores[id as usize], left, right, length });
        }
    }
}

/// A stretch of the text that is one token so far; of length 0 once it has merged into its left neighbour.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    length: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours that would make a piece.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both when this was proposed.
    length: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Adding zero makes the two zeros one.
        (self.score + 0.0).total_cmp(&(other.score + 0.0)).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}
