//! Which token of a draft model is which of the target's.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use spec_core::Token;

use crate::{RuntimeError, TokenRole, TokenText};

/// Stands where the draft model has no such token.
const NONE: Token = Token::MAX;

/// The tokens of a draft model, by those of the target.
///
/// Tokens are the same when they are written alike, or stand for the same bytes of text; their ids may differ. Padding and holes
/// are no tokens: they are in no text, and their logits mean nothing. What only the draft model has is never drafted, whatever it
/// thinks of it; what only the target has is spelled with other tokens when the draft model reads it. Where that cannot be done
/// either, nothing is drafted. Nothing ever stands in for a token that it is not.
pub struct VocabularyMap {
    target: Arc<dyn TokenText>,
    /// By target id.
    draft_ids: Vec<Token>,
    /// Every token has its own id, and the rows of the draft model are those of the target.
    is_identity: bool,
    /// The draft model's pieces of text, to spell what it has no token for.
    pieces: HashMap<Box<[u8]>, Token>,
    longest_piece: usize,
    notes: Vec<String>,
}

impl VocabularyMap {
    /// The map between two models of one tokenizer: either has every piece of text that the other has. Ids, padding, holes,
    /// kinds and markers may differ, which [`notes`](Self::notes) then mentions.
    ///
    /// # Errors
    /// [`RuntimeError::VocabularyDiffers`] with the first id whose text the other side lacks.
    pub fn new(target: Arc<dyn TokenText>, draft: &dyn TokenText) -> Result<Self, RuntimeError> {
        let (map, only) = Self::build(target, draft);
        match only.first_text(&*map.target, draft) {
            Some(id) => Err(map.differs(draft, id)),
            None => Ok(map),
        }
    }

    /// The map between the tokens that two different tokenizers share.
    ///
    /// # Errors
    /// [`RuntimeError::VocabularyDiffers`] when they share no text at all.
    pub fn intersection(target: Arc<dyn TokenText>, draft: &dyn TokenText) -> Result<Self, RuntimeError> {
        let (map, _) = Self::build(target, draft);
        let vocab = map.draft_ids.len() as Token;
        let shares_text = |id: Token| map.draft_id(id).is_some() && map.target.role(id) == TokenRole::Text;
        if (0..vocab).any(shares_text) { Ok(map) } else { Err(map.differs(draft, 0)) }
    }

    /// Whether every token has the same id on both sides.
    pub fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// Tokens of the target that the draft model has too, and can propose.
    pub fn shared(&self) -> usize {
        self.draft_ids.iter().filter(|&&id| id != NONE).count()
    }

    /// What differs between the vocabularies, a sentence each. Nothing of it changes the output.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The draft model's id of a target token.
    pub fn draft_id(&self, token: Token) -> Option<Token> {
        self.draft_ids.get(token as usize).copied().filter(|&id| id != NONE)
    }

    /// Appends what the draft model reads in the place of a target token: the same token, or others that spell it. `false`, with
    /// nothing appended, where it cannot.
    pub(crate) fn read(&self, token: Token, text: &mut Vec<Token>) -> bool {
        if let Some(id) = self.draft_id(token) {
            text.push(id);
            return true;
        }
        if token as usize >= self.target.vocab() {
            return false;
        }
        match self.target.role(token) {
            TokenRole::Text => self.spell(&self.target.bytes(token), text),
            // As a model without the marker would be given it.
            TokenRole::Marker => self.spell(self.target.label(token).as_bytes(), text),
            TokenRole::Unused => false,
        }
    }

    /// Longest pieces first.
    fn spell(&self, bytes: &[u8], text: &mut Vec<Token>) -> bool {
        let before = text.len();
        let mut rest = bytes;
        while !rest.is_empty() {
            let longest = rest.len().min(self.longest_piece);
            match (1..=longest).rev().find_map(|length| Some((length, *self.pieces.get(&rest[..length])?))) {
                Some((length, piece)) => {
                    text.push(piece);
                    rest = &rest[length..];
                }
                None => {
                    text.truncate(before);
                    return false;
                }
            }
        }
        !bytes.is_empty()
    }

    /// A row of the draft model's logits by target ids; `-inf` for what it has not.
    pub(crate) fn row<'a>(&self, logits: &'a [f32], buffer: &'a mut Vec<f32>) -> &'a [f32] {
        if self.is_identity {
            return logits;
        }
        buffer.clear();
        let logit = |&id: &Token| logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
        buffer.extend(self.draft_ids.iter().map(logit));
        buffer
    }

    fn differs(&self, draft: &dyn TokenText, id: Token) -> RuntimeError {
        let side = |text: &dyn TokenText| {
            if (id as usize) < text.vocab() && text.role(id) != TokenRole::Unused {
                format!("{:?}", text.label(id))
            } else {
                "no such token".to_owned()
            }
        };
        RuntimeError::VocabularyDiffers { id, target: side(&*self.target), draft: side(draft) }
    }

    fn build(target: Arc<dyn TokenText>, draft: &dyn TokenText) -> (Self, OnlyOnOneSide) {
        let (vocab, draft_vocab) = (target.vocab(), draft.vocab());
        let mut matching = Matching::new(&*target, draft);
        let mut draft_ids: Vec<Token> = (0..vocab as Token).map(|id| matching.at_its_own_id(id)).collect();
        let mut only = OnlyOnOneSide::default();
        if draft_ids.contains(&NONE) || draft_vocab != vocab {
            matching.index();
            for (token, id) in (0..).zip(&mut draft_ids) {
                if *id == NONE {
                    *id = matching.elsewhere(token);
                }
                if *id == NONE && target.role(token) != TokenRole::Unused {
                    only.target.push(token);
                }
            }
            let used: HashSet<Token> = draft_ids.iter().copied().collect();
            only.draft = (0..draft_vocab as Token)
                .filter(|id| !used.contains(id) && draft.role(*id) != TokenRole::Unused)
                .collect();
        }
        let (pieces, longest_piece, other_kinds) = matching.into_parts();
        let is_identity = (0..).zip(&draft_ids).all(|(token, &id)| id == token);
        let moved = (0..).zip(&draft_ids).filter(|&(token, &id)| id != NONE && id != token).count();
        let notes = [
            (moved, "with other ids in the draft model"),
            (other_kinds, "of other kinds in the draft model"),
            (only.target.len(), "unknown to the draft model and never drafted"),
            (only.draft.len(), "of the draft model's own"),
        ];
        let notes = notes.into_iter().filter(|&(count, _)| count > 0).map(|(count, what)| {
            let tokens = if count == 1 { "token" } else { "tokens" };
            format!("{count} {tokens} {what}")
        });
        let notes = notes.collect();
        // They spell what is missing.
        let (pieces, longest_piece) =
            if only.target.is_empty() { (HashMap::new(), 0) } else { (pieces, longest_piece) };
        (Self { target, draft_ids, is_identity, pieces, longest_piece, notes }, only)
    }
}

impl fmt::Debug for VocabularyMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VocabularyMap")
            .field("vocab", &self.draft_ids.len())
            .field("is_identity", &self.is_identity)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

/// Tokens that the other side has not, ascending.
#[derive(Default)]
struct OnlyOnOneSide {
    target: Vec<Token>,
    draft: Vec<Token>,
}

impl OnlyOnOneSide {
    /// The first that is text: vocabularies of one tokenizer differ in markers at most.
    fn first_text(&self, target: &dyn TokenText, draft: &dyn TokenText) -> Option<Token> {
        let first =
            |text: &dyn TokenText, ids: &[Token]| ids.iter().copied().find(|&id| text.role(id) == TokenRole::Text);
        [first(target, &self.target), first(draft, &self.draft)].into_iter().flatten().min()
    }
}

/// Finds the draft model's token for one of the target's.
struct Matching<'a> {
    target: &'a dyn TokenText,
    draft: &'a dyn TokenText,
    /// Whether the vocabularies write bytes alike, so that what is written alike is alike.
    written_alike: bool,
    by_label: HashMap<Cow<'a, str>, Token>,
    pieces: HashMap<Box<[u8]>, Token>,
    longest: usize,
    other_kinds: usize,
}

impl<'a> Matching<'a> {
    fn new(target: &'a dyn TokenText, draft: &'a dyn TokenText) -> Self {
        let written_alike = written_alike(target, draft);
        let (by_label, pieces) = (HashMap::new(), HashMap::new());
        Self { target, draft, written_alike, by_label, pieces, longest: 0, other_kinds: 0 }
    }

    /// The same id, if it is the same token there, or none on both sides.
    fn at_its_own_id(&mut self, id: Token) -> Token {
        if id as usize >= self.draft.vocab() {
            return NONE;
        }
        let (role, draft_role) = (self.target.role(id), self.draft.role(id));
        let same = match (role, draft_role) {
            (TokenRole::Unused, TokenRole::Unused) => true,
            (TokenRole::Unused, _) | (_, TokenRole::Unused) => false,
            (TokenRole::Text, TokenRole::Text) if !self.written_alike => self.target.bytes(id) == self.draft.bytes(id),
            _ => self.target.label(id) == self.draft.label(id),
        };
        self.other_kinds += usize::from(same && role != draft_role);
        if same { id } else { NONE }
    }

    /// Prepares [`elsewhere`](Self::elsewhere).
    fn index(&mut self) {
        for id in 0..self.draft.vocab() as Token {
            let role = self.draft.role(id);
            if role == TokenRole::Unused {
                continue;
            }
            let label = self.draft.label(id);
            if role == TokenRole::Text {
                let bytes = self.draft.bytes(id);
                self.longest = self.longest.max(bytes.len());
                let piece = self.pieces.entry(bytes.into()).or_insert(id);
                // Of a letter and the token of its byte, the letter is what text is made of.
                if *piece != id && label.len() < self.draft.label(*piece).len() {
                    *piece = id;
                }
            }
            self.by_label.entry(label).or_insert(id);
        }
    }

    /// The same token under another id.
    fn elsewhere(&mut self, token: Token) -> Token {
        let role = self.target.role(token);
        if role == TokenRole::Unused {
            return NONE;
        }
        if let Some(&id) = self.by_label.get(&*self.target.label(token)) {
            let draft_role = self.draft.role(id);
            let text = (role, draft_role) == (TokenRole::Text, TokenRole::Text);
            if !text || self.target.bytes(token) == self.draft.bytes(id) {
                self.other_kinds += usize::from(draft_role != role);
                return id;
            }
        }
        match role {
            TokenRole::Text => self.pieces.get(&*self.target.bytes(token)).copied().unwrap_or(NONE),
            _ => NONE,
        }
    }

    /// Pieces of text by their bytes, the length of the longest, tokens that are of other kinds.
    fn into_parts(self) -> (HashMap<Box<[u8]>, Token>, usize, usize) {
        (self.pieces, self.longest, self.other_kinds)
    }
}

/// Whether tokens under one id that are written alike stand for the same bytes. A vocabulary writes all of its tokens in one way,
/// so that a part of them tells, which costs a tenth of comparing the bytes of all.
fn written_alike(target: &dyn TokenText, draft: &dyn TokenText) -> bool {
    const ALL_OF_THE_FIRST: usize = 4096;
    const THEN_ONE_IN: usize = 64;
    let is_text = |side: &dyn TokenText, id: Token| side.role(id) == TokenRole::Text;
    (0..target.vocab().min(draft.vocab()))
        .filter(|id| *id < ALL_OF_THE_FIRST || id.is_multiple_of(THEN_ONE_IN))
        .map(|id| id as Token)
        .filter(|&id| is_text(target, id) && is_text(draft, id))
        .all(|id| target.label(id) != draft.label(id) || target.bytes(id) == draft.bytes(id))
}
