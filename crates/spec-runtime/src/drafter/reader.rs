//! What a draft model with a vocabulary of its own reads in the place of the target's text.

use std::collections::HashMap;

use spec_core::Token;

use super::GenerationId;
use crate::VocabularyMap;

/// Texts under way, in the draft model's ids.
pub(super) struct Reader {
    pub(super) map: VocabularyMap,
    texts: HashMap<GenerationId, Reading>,
}

#[derive(Default)]
struct Reading {
    text: Vec<Token>,
    /// Length of `text` behind each token of the target's.
    ends: Vec<usize>,
    /// The next token cannot be read.
    is_stuck: bool,
}

impl Reader {
    pub(super) fn new(map: VocabularyMap) -> Self {
        Self { map, texts: HashMap::new() }
    }

    /// `tokens` as the draft model reads them, and where its last `seen` tokens begin in that. `None` from the first token on that
    /// cannot be read.
    pub(super) fn read(
        &mut self,
        generation: GenerationId,
        tokens: &[Token],
        seen: usize,
    ) -> Option<(Vec<Token>, usize)> {
        let Reading { text, ends, is_stuck } = self.texts.entry(generation).or_default();
        while !*is_stuck && ends.len() < tokens.len() {
            *is_stuck = !self.map.read(tokens[ends.len()], text);
            if !*is_stuck {
                ends.push(text.len());
            }
        }
        let start = tokens.len().saturating_sub(seen).checked_sub(1).and_then(|last| ends.get(last)).copied();
        (!*is_stuck).then(|| (text.clone(), start.unwrap_or(0)))
    }

    /// Goes back to the first `kept` tokens; gives how many of the draft model's they are, as far as they have been read.
    pub(super) fn resume(&mut self, generation: GenerationId, kept: usize) -> usize {
        let Some(Reading { text, ends, is_stuck }) = self.texts.get_mut(&generation) else { return 0 };
        ends.truncate(kept);
        text.truncate(ends.last().copied().unwrap_or(0));
        *is_stuck = false;
        text.len()
    }

    pub(super) fn forget(&mut self, generation: GenerationId) {
        self.texts.remove(&generation);
    }
}
