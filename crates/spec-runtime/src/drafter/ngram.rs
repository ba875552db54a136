use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use spec_core::{DraftCost, DraftTree, NodeId, Origin, Token};

use super::copying::{continuation, copied};
use super::{Class, DraftContext, Drafter, GenerationId};
use crate::RuntimeError;

/// Longest and shortest context that is looked up.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// Prompt look-up: the tokens that followed the latest earlier occurrence of the last 4, 3 or 2 tokens.
///
/// Where the text departs from what it was copying, as an edited document does at a replaced word, the copying resumes behind the
/// replacement: at the next token of the original first, then wherever nearby the text agrees with it again.
///
/// One hash look-up per length and round, one insertion per length and token; memory grows with the
/// text, at most three entries a token.
#[derive(Debug, Default)]
pub struct NgramDrafter {
    states: HashMap<GenerationId, State>,
}

#[derive(Debug, Default)]
struct State {
    index: Index,
    copying: Option<Copying>,
    /// How the last proposal came about.
    source: Source,
}

/// Behind what a chain was proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// So many equal tokens.
    Match(usize),
    /// So many tokens since the text departed from what it was copying.
    Departure(usize),
}

impl Default for Source {
    fn default() -> Self {
        Self::Match(0)
    }
}

/// A stretch of the text that is being copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copying {
    /// The position whose token is expected next.
    source: usize,
    /// Length of the text that it was expected behind.
    at: usize,
    /// Tokens copied so far.
    run: usize,
    /// Tokens since the text departed from the original; 0 while they agree.
    lost: usize,
}

impl Copying {
    /// Tokens that must have been copied for a departure to be taken for an edit.
    const RUN: usize = 4;
    /// Departed tokens after which the copy is given up.
    const LOST: usize = 8;
    /// How far before and behind the expected position the text is looked for.
    const NEAR: (usize, usize) = (3, 12);

    /// Follows the text as it has grown; `None` once the original is lost.
    fn follow(mut self, tokens: &[Token]) -> Option<Self> {
        for &token in &tokens[self.at.min(tokens.len())..] {
            if tokens[self.source] == token {
                self.source += 1;
                self.run += 1;
                self.lost = 0;
            } else {
                if self.run < Self::RUN || self.lost == Self::LOST {
                    return None;
                }
                // One token in the place of another is the likeliest edit. When that was not it, look around.
                let from = self.source.saturating_sub(Self::NEAR.0);
                let near = (from..(self.source + Self::NEAR.1).min(self.at)).filter(|&place| tokens[place] == token);
                let nearest = near.min_by_key(|place| place.abs_diff(self.source));
                self.source = match nearest.filter(|_| self.lost > 0) {
                    Some(place) => place + 1,
                    None => self.source + 1,
                };
                self.lost += 1;
            }
            self.at += 1;
            if self.source >= self.at {
                return None;
            }
        }
        Some(self)
    }
}

impl NgramDrafter {
    /// A drafter that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Classes of tokens proposed behind a departure: the first one, and those behind it.
const RESUMED: u8 = 32;
const RESUMED_FURTHER: u8 = 48;

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

    /// Position behind the latest earlier occurrence of the longest matching context, and that context's length.
    fn look_up(&self, tokens: &[Token]) -> Option<(usize, usize)> {
        (SHORTEST..=LONGEST.min(tokens.len())).rev().find_map(|n| {
            let context = &tokens[tokens.len() - n..];
            let last = *self.ends.get(&key(context))? as usize;
            (tokens.get((last + 1).checked_sub(n)?..=last)? == context).then_some((last + 1, n))
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

    fn class(&self, generation: GenerationId, node: NodeId) -> Class {
        let depth = node.index();
        match self.states.get(&generation).map(|state| state.source).unwrap_or_default() {
            Source::Match(length) => copied(length + depth),
            // The first token tells whether the copy goes on here; those behind it then mostly agree.
            Source::Departure(lost) if depth == 0 => {
                Class { index: RESUMED + lost as u8, prior: 0.5 / (0.5 + lost as f64) }
            }
            Source::Departure(_) => Class { index: RESUMED_FURTHER + depth.min(8) as u8, prior: 0.85 },
        }
    }

    fn read(&mut self, generation: GenerationId, prompt: &[Token]) {
        self.states.entry(generation).or_default().index.extend(prompt);
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let State { index, copying, source } = self.states.entry(context.generation).or_default();
        index.extend(context.tokens);
        let followed = copying.take().filter(|copy| copy.at <= context.tokens.len());
        *copying = followed.and_then(|copy| copy.follow(context.tokens));
        let resumed = copying.filter(|copy| copy.lost > 0);
        let start = match (index.look_up(context.tokens), resumed) {
            // A long match outweighs a departed copy, a short one does not.
            (Some((start, n)), None) | (Some((start, n @ LONGEST)), Some(_)) => {
                let run = copying.filter(|copy| copy.source == start).map_or(n, |copy| copy.run.max(n));
                *copying = Some(Copying { source: start, at: context.tokens.len(), run, lost: 0 });
                *source = Source::Match(run);
                start
            }
            (_, Some(copy)) => {
                *source = Source::Departure(copy.lost);
                copy.source
            }
            (None, None) => return Ok(DraftTree::new()),
        };
        let draft = continuation(context.tokens, start, context.budget, context.end_ids);
        Ok(DraftTree::chain(&draft, Origin::Fixed))
    }

    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn resume(&mut self, generation: GenerationId, kept: usize) -> Result<(), RuntimeError> {
        if self.states.get(&generation).is_some_and(|state| state.index.indexed >= kept) {
            self.forget(generation);
        }
        Ok(())
    }

    fn forget(&mut self, generation: GenerationId) {
        self.states.remove(&generation);
    }
}

#[cfg(test)]
mod tests {
    use spec_core::{Pipeline, SamplingParams};

    use super::*;

    fn draft(drafter: &mut NgramDrafter, tokens: &[Token], budget: usize) -> Vec<Token> {
        let mut pipeline = Pipeline::new(SamplingParams::default(), 100).expect("legal parameters");
        let mut choices = spec_core::KeyedChoices::new(0, 0);
        let context = DraftContext {
            end_ids: &[99],
            ..DraftContext::new(GenerationId(1), tokens, &mut pipeline, &mut choices, budget)
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
    fn copying_resumes_behind_an_edit() {
        let original: Vec<Token> = (10..40).collect();
        let with = |edited: &[Token]| [&original[..], edited].concat();
        let mut drafter = NgramDrafter::new();
        let mut text = with(&[10, 11, 12, 13, 14, 15]);
        assert_eq!(draft(&mut drafter, &text, 3), [16, 17, 18]);
        // One word in the place of another.
        text.push(77);
        assert_eq!(draft(&mut drafter, &text, 3), [17, 18, 19], "the copy goes on behind the replaced word");
        text.extend([17, 18]);
        assert_eq!(draft(&mut drafter, &text, 2), [19, 20]);
        // Three words in the place of one: it is found again where the text agrees.
        text.extend([19, 20, 88, 89]);
        draft(&mut drafter, &text, 3);
        text.extend([90, 22]);
        assert_eq!(draft(&mut drafter, &text, 2), [23, 24]);
        // A text of its own is not forced back.
        text.extend(200..220);
        assert!(draft(&mut drafter, &text, 2).is_empty());
    }

    #[test]
    fn a_token_more_costs_three_entries_whatever_the_length_of_the_text() {
        let text: Vec<Token> = (0..30_000u32).map(|i| if i % 7 == 0 { i } else { i % 100 }).collect();
        let mut index = Index::default();
        for end in [10, 1_000, 29_000] {
            index.extend(&text[..end]);
            let before = (index.ends.len(), index.indexed);
            index.extend(&text[..=end]);
            assert!(index.ends.len() - before.0 <= LONGEST - SHORTEST + 1, "{end}");
            assert_eq!(index.indexed - before.1, 1, "{end}: what is indexed is not looked at again");
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
