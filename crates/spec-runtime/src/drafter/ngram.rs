use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use spec_core::{DraftCost, DraftTree, NodeId, Origin, Token};

use super::copying::{copied, token_at};
use super::edited::{Copying, Edits};
use super::{Class, DraftContext, Drafter, GenerationId};
use crate::RuntimeError;

/// Longest and shortest context that is looked up.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// Prompt look-up: the tokens that followed the latest earlier occurrence of the last 4, 3 or 2 tokens, or those that follow in a copy
/// that is under way.
///
/// Where the text departs from what it was copying, as an edited document does at a replaced word, the copying resumes behind the
/// replacement: at the next token of the original first, then wherever nearby the text agrees with it again. From then on the same tokens are
/// expected to be replaced alike, so that a word is renamed everywhere once it was in one place.
///
/// One hash look-up per length and round, one insertion per length and token, and one look-up per token that is copied or drafted; memory grows
/// with the text, at most three entries a token, and four edits for each token that one began with.
#[derive(Debug, Default)]
pub struct NgramDrafter {
    states: HashMap<GenerationId, State>,
}

#[derive(Debug, Default)]
struct State {
    index: Index,
    copying: Option<Copying>,
    edits: Edits,
    /// Of the last proposal, by token.
    classes: Vec<Class>,
}

impl NgramDrafter {
    /// A drafter that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is known of a text. Of one that was edited nothing is: what was indexed is not what stands there now.
    fn state(&mut self, generation: GenerationId, tokens: &[Token]) -> &mut State {
        let state = self.states.entry(generation).or_default();
        if state.index.indexed > tokens.len().saturating_sub(1) {
            *state = State::default();
        }
        state
    }
}

/// Classes of tokens proposed behind a departure: the first one, and those behind it.
const RESUMED: u8 = 32;
const RESUMED_FURTHER: u8 = 48;
/// Classes of the first token of an edit that was made before: behind the same token, and behind others. And that of its further tokens.
const EDITED_HERE: Class = Class { index: 58, prior: 0.97 };
const EDITED_ELSEWHERE: Class = Class { index: 59, prior: 0.7 };
const EDITED_FURTHER: Class = Class { index: 60, prior: 0.97 };

/// Behind what a chain is proposed.
#[derive(Clone, Copy, Debug)]
enum Behind {
    /// So many tokens on which the text and what it copies agree, expected edits among them.
    Match(usize),
    /// So many tokens since the text departed from what it was copying.
    Departure(usize),
}

impl Behind {
    /// The class of a copied token, so deep in the chain.
    fn class(self, depth: usize) -> Class {
        match self {
            Self::Match(length) => copied(length + depth),
            // The first token tells whether the copy goes on here; those behind it then mostly agree.
            Self::Departure(lost) if depth == 0 => {
                Class { index: RESUMED + lost as u8, prior: 0.5 / (0.5 + lost as f64) }
            }
            Self::Departure(_) => Class { index: RESUMED_FURTHER + depth.min(8) as u8, prior: 0.85 },
        }
    }
}

/// The rest of an edit and then the text from position `source` on with the edits that it has seen: `budget` tokens, or up to the first
/// end token. And of each the class, where an edit made it.
fn with_edits(
    tokens: &[Token],
    rest: &[Token],
    mut source: usize,
    edits: &Edits,
    budget: usize,
    end_ids: &[Token],
) -> (Vec<Token>, Vec<Option<Class>>) {
    let (mut chain, mut classes) = (rest.to_vec(), vec![Some(EDITED_FURTHER); rest.len()]);
    let ends = |token: &Token| end_ids.contains(token);
    while chain.len() < budget && !chain.last().is_some_and(ends) {
        let before = chain.last().or(tokens.last());
        let known = before.and_then(|&before| edits.find(before, tokens.get(source..)?));
        if let Some((edit, here)) = known {
            let first = if here { EDITED_HERE } else { EDITED_ELSEWHERE };
            chain.extend_from_slice(&edit.new);
            classes.extend((0..edit.new.len()).map(|at| Some(if at == 0 { first } else { EDITED_FURTHER })));
            source += edit.old.len();
        } else {
            let Some(token) = token_at(tokens, &chain, source) else { break };
            chain.push(token);
            classes.push(None);
            source += 1;
        }
    }
    let end = chain.iter().position(ends).map_or(chain.len(), |end| end + 1);
    chain.truncate(end.min(budget));
    classes.truncate(chain.len());
    (chain, classes)
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
        let class = self.states.get(&generation).and_then(|state| state.classes.get(node.index())).copied();
        class.unwrap_or(copied(SHORTEST))
    }

    fn read(&mut self, generation: GenerationId, prompt: &[Token]) {
        self.state(generation, prompt).index.extend(prompt);
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let State { index, copying, edits, classes } = self.state(context.generation, context.tokens);
        let tokens = context.tokens;
        classes.clear();
        index.extend(tokens);
        *copying = copying.take().and_then(|copy| copy.follow(tokens, edits));
        let under_way = copying.and_then(|copy| copy.edit_under_way(tokens, edits));
        let mut rest: &[Token] = &[];
        let (start, behind) = match (*copying, index.look_up(tokens)) {
            (Some(copy), _) if copy.lost() == 0 && copy.agreed >= LONGEST => (copy.source, Behind::Match(copy.agreed)),
            (Some(_), _) if let Some((_, to_come, copy)) = under_way => {
                rest = to_come;
                (copy.source, Behind::Match(copy.agreed))
            }
            // A long match outweighs a departed copy, a short one does not.
            (Some(copy), None | Some((_, ..LONGEST))) if copy.lost() > 0 => {
                (copy.source, Behind::Departure(copy.lost()))
            }
            (Some(copy), None | Some((_, ..LONGEST))) if copy.is_found_again() => {
                (copy.source, Behind::Match(copy.agreed))
            }
            (_, Some((start, n))) => {
                *copying = Some(Copying::new(start, tokens.len(), n));
                (start, Behind::Match(n))
            }
            (_, None) => return Ok(DraftTree::new()),
        };
        let (draft, of_edits) = with_edits(tokens, rest, start, edits, context.budget, context.end_ids);
        classes.extend(of_edits.iter().enumerate().map(|(depth, class)| class.unwrap_or(behind.class(depth))));
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

    /// The draft behind `copied`, with the original before it, and the classes of its tokens.
    fn edited_draft(original: &[Token], copied: &[Token], budget: usize) -> (Vec<Token>, Vec<u8>) {
        let mut drafter = NgramDrafter::new();
        let mut tokens = Vec::new();
        // As rounds do, some tokens at a time.
        for end in (original.len()..original.len() + copied.len()).step_by(3).chain([original.len() + copied.len()]) {
            let text = [original, copied].concat();
            tokens = draft(&mut drafter, &text[..end], budget);
        }
        let classes = drafter.states[&GenerationId(1)].classes.iter().map(|class| class.index).collect();
        (tokens, classes)
    }

    const ORIGINAL: [Token; 18] = [10, 11, 12, 13, 50, 14, 15, 16, 50, 17, 13, 50, 18, 19, 20, 13, 50, 21];

    #[test]
    fn what_was_replaced_once_is_replaced_again() {
        let (draft, classes) = edited_draft(&ORIGINAL, &[10, 11, 12, 13, 77, 14], 11);
        assert_eq!(draft, [15, 16, 77, 17, 13, 77, 18, 19, 20, 13, 77]);
        assert_eq!(classes[2], EDITED_ELSEWHERE.index, "16 stood before it, and 13 does where it was seen");
        assert_eq!([classes[5], classes[10]], [EDITED_HERE.index; 2]);
        let (_, classes) = edited_draft(
            &[&ORIGINAL[..], &[16, 50]].concat(),
            &[10, 11, 12, 13, 77, 14, 15, 16, 77, 17, 13, 77, 18, 19, 20],
            6,
        );
        assert_eq!(classes[4], EDITED_HERE.index, "by now it was seen behind 16 too");
        assert!(classes[0] < RESUMED && classes[3] < RESUMED);
    }

    #[test]
    fn several_tokens_are_replaced_by_several_and_a_begun_edit_is_ended() {
        let original: Vec<Token> =
            ORIGINAL.iter().flat_map(|&token| if token == 50 { vec![50, 51] } else { vec![token] }).collect();
        let (draft, classes) =
            edited_draft(&original, &[10, 11, 12, 13, 77, 78, 79, 14, 15, 16, 77, 78, 79, 17, 13, 77], 5);
        assert_eq!(draft, [78, 79, 18, 19, 20]);
        assert_eq!(classes[..2], [EDITED_FURTHER.index; 2]);
        assert!(classes[2] < RESUMED);
    }

    #[test]
    fn what_was_deleted_is_deleted_again() {
        let (draft, _) = edited_draft(&ORIGINAL, &[10, 11, 12, 13, 14, 15, 16, 17, 13], 5);
        assert_eq!(draft, [18, 19, 20, 13, 21]);
    }

    #[test]
    fn where_an_edit_was_not_made_it_is_not_expected_again() {
        let (draft, _) = edited_draft(&ORIGINAL, &[10, 11, 12, 13, 77, 14, 15, 16, 77, 17, 13, 50, 18], 5);
        assert_eq!(draft, [19, 20, 13, 50, 21], "behind 13 it was made first, and then not");
    }

    #[test]
    fn an_edit_keeps_to_the_budget_and_to_the_end_of_the_text() {
        let mut original = ORIGINAL;
        original[13] = 99;
        let (draft, _) = edited_draft(&original, &[10, 11, 12, 13, 77, 14], 30);
        assert_eq!(draft, [15, 16, 77, 17, 13, 77, 18, 99]);
        let (draft, _) = edited_draft(&original, &[10, 11, 12, 13, 77, 78, 14, 15, 16], 1);
        assert_eq!(draft, [77]);
    }

    #[test]
    fn a_text_that_agrees_again_by_chance_is_not_taken_for_a_copy() {
        // Five tokens are quoted; then the text goes its own way and meets one of the original's.
        let (draft, classes) = edited_draft(&ORIGINAL, &[10, 11, 12, 13, 50, 61, 62, 16], 2);
        assert_eq!((draft, classes[0]), (vec![50, 17], copied(1).index));
    }

    #[test]
    fn a_history_that_was_edited_takes_its_edits_with_it() {
        let mut drafter = NgramDrafter::new();
        let text = [&ORIGINAL[..], &[10, 11, 12, 13, 77, 14]].concat();
        draft(&mut drafter, &text[..22], 3);
        assert_eq!(draft(&mut drafter, &text, 3), [15, 16, 77]);
        let text = [&ORIGINAL[..], &[10, 11, 12, 13]].concat();
        assert_eq!(draft(&mut drafter, &text, 3), [50, 14, 15]);
    }

    #[test]
    fn a_copy_under_way_is_gone_on_with_where_its_end_occurred_later_too() {
        // 13 14 15 16 occurs twice; the text copies the first, eight tokens long by now.
        let text = [10, 11, 12, 13, 14, 15, 16, 20, 21, 22, 13, 14, 15, 16, 30, 31, 10, 11, 12, 13, 14, 15, 16];
        let mut drafter = NgramDrafter::new();
        draft(&mut drafter, &text[..19], 2);
        assert_eq!(draft(&mut drafter, &text, 2), [20, 21]);
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
