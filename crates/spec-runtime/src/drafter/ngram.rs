use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use spec_core::{DraftCost, DraftTree, Origin, Token};

use super::{DraftContext, Drafter, GenerationId};
use crate::RuntimeError;

/// Longest and shortest context that is looked up.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// Prompt look-up: the tokens that followed the latest earlier occurrence of the last 4, 3 or 2 tokens.
///
/// One hash look-up per length and round, one insertion per length and token; memory grows with the
/// text, at most three entries a token.
#[derive(Debug, Default)]
pub struct NgramDrafter {
    indices: HashMap<GenerationId, Index>,
}

impl NgramDrafter {
    /// A drafter that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Where each n-gram ended last. Keys are hashes; a hit is checked against the text.
#[derive(Debug, Default)]
struct Index {
    ends: HashMap<u64, u32, BuildHasherDefault<KeyIsHash>>,
    indexed: usize,
}

impl Index {
    /// Indexes every n-gram that ends before the last token, so that a look-up finds earlier ones only.
    fn extend(&mut self, tokens: &[Token]) {
        let end = tokens.len().saturating_sub(1);
        if self.indexed > end {
            // The history was edited: what was indexed is not what stands there now.
            *self = Self::default();
        }
        for last in self.indexed..end {
            for n in SHORTEST..=LONGEST.min(last + 1) {
                self.ends.insert(key(&tokens[last + 1 - n..=last]), last as u32);
            }
        }
        self.indexed = end;
    }

    /// Position behind the latest earlier occurrence of the longest matching context.
    fn look_up(&self, tokens: &[Token]) -> Option<usize> {
        (SHORTEST..=LONGEST.min(tokens.len())).rev().find_map(|n| {
            let context = &tokens[tokens.len() - n..];
            let last = *self.ends.get(&key(context))? as usize;
            (tokens.get((last + 1).checked_sub(n)?..=last)? == context).then_some(last + 1)
        })
    }
}

fn key(gram: &[Token]) -> u64 {
    gram.iter().fold(gram.len() as u64, |hash, &token| {
        (hash ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

/// Keys are mixed already.
#[derive(Default)]
struct KeyIsHash(u64);

impl Hasher for KeyIsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

impl Drafter for NgramDrafter {
    fn name(&self) -> &str {
        "ngram"
    }

    fn cost(&self) -> DraftCost {
        DraftCost::Free
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let index = self.indices.entry(context.generation).or_default();
        index.extend(context.tokens);
        let Some(start) = index.look_up(context.tokens) else { return Ok(DraftTree::new()) };
        let mut draft: Vec<Token> = Vec::with_capacity(context.budget);
        while draft.len() < context.budget {
            // A match near the end of the text goes on into the draft itself: the text repeats.
            let at = start + draft.len();
            let token = match context.tokens.get(at) {
                Some(&token) => token,
                None => draft[at - context.tokens.len()],
            };
            draft.push(token);
            if context.end_ids.contains(&token) {
                break;
            }
        }
        Ok(DraftTree::chain(&draft, Origin::Fixed))
    }

    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn forget(&mut self, generation: GenerationId) {
        self.indices.remove(&generation);
    }
}

#[cfg(test)]
mod tests {
    use spec_core::{Pipeline, Proposal, SamplingParams};

    use super::*;

    fn draft(drafter: &mut NgramDrafter, tokens: &[Token], budget: usize) -> Vec<Token> {
        let mut pipeline = Pipeline::new(SamplingParams::default(), 100).expect("legal parameters");
        let context = DraftContext {
            generation: GenerationId(1),
            tokens,
            end_ids: &[99],
            pipeline: &mut pipeline,
            proposal: Proposal::Argmax,
            choices: &mut spec_core::KeyedChoices::new(0, 0),
            context: None,
            budget,
        };
        drafter.draft(context).expect("it cannot fail").nodes().map(|(_, node)| node.token).collect()
    }

    #[test]
    fn the_latest_earlier_occurrence_of_the_longest_context_is_continued() {
        let mut drafter = NgramDrafter::new();
        let text = [1, 2, 3, 10, 5, 2, 3, 20, 1, 2, 3];
        assert_eq!(draft(&mut drafter, &text, 2), [10, 5], "three tokens match at the front, two in the middle");
        let text = [2, 3, 10, 5, 2, 3, 20, 7, 2, 3];
        assert_eq!(draft(&mut drafter, &text, 2), [20, 7], "of two matches the later one");
    }

    #[test]
    fn a_repetition_goes_on_past_the_end_of_the_text() {
        assert_eq!(draft(&mut NgramDrafter::new(), &[1, 2, 1, 2, 1, 2], 7), [1, 2, 1, 2, 1, 2, 1]);
        assert_eq!(draft(&mut NgramDrafter::new(), &[4, 4, 4], 3), [4, 4, 4]);
    }

    #[test]
    fn nothing_seen_before_is_nothing_drafted() {
        let mut drafter = NgramDrafter::new();
        for text in [&[][..], &[1], &[1, 2], &[1, 2, 3, 4, 5]] {
            assert!(draft(&mut drafter, text, 5).is_empty());
            drafter.forget(GenerationId(1));
        }
    }

    #[test]
    fn an_end_token_ends_the_draft() {
        assert_eq!(draft(&mut NgramDrafter::new(), &[1, 2, 99, 3, 1, 2], 5), [99]);
    }

    #[test]
    fn an_edited_history_is_indexed_anew() {
        let mut drafter = NgramDrafter::new();
        draft(&mut drafter, &[1, 2, 3, 4, 5, 6, 7, 8, 1, 2], 5);
        assert_eq!(draft(&mut drafter, &[9, 1, 2, 6, 1, 2], 1), [6], "the shorter text counts, not what stood there");
        assert!(draft(&mut drafter, &[5, 6, 7], 5).is_empty(), "a match that the text no longer has is none");
    }
}
