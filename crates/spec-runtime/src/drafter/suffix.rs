use std::collections::HashMap;

use smallvec::SmallVec;
use spec_core::{DraftCost, DraftTree, NodeId, Origin, Token};

use super::copying::{continuation, copied};
use super::{Class, DraftContext, Drafter, GenerationId};
use crate::RuntimeError;

/// Continues the text as it went on after the longest earlier occurrence of its end: a suffix automaton over prompt and output.
///
/// A token costs amortised constant time and at most two states; beyond [`LIMIT`](Self::LIMIT) tokens the older half is forgotten,
/// so memory is bounded. Where the longest match and shorter ones go on differently, each gives a branch.
#[derive(Debug, Default)]
pub struct SuffixDrafter {
    states: HashMap<GenerationId, Text>,
}

impl SuffixDrafter {
    /// Tokens that are remembered at most.
    pub const LIMIT: usize = 1 << 16;
    /// Branches below the committed text.
    const BRANCHES: usize = 3;

    /// A drafter that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

#[derive(Debug, Default)]
struct Text {
    automaton: Automaton,
    /// The text's tokens before this one are not in the automaton, those up to `indexed` are.
    start: usize,
    indexed: usize,
    /// Length of the match behind each node proposed last, the nodes above it included.
    matched: Vec<usize>,
}

impl Text {
    fn extend(&mut self, tokens: &[Token]) {
        if self.indexed > tokens.len() {
            *self = Self::default();
        }
        if tokens.len() - self.start > SuffixDrafter::LIMIT {
            let start = tokens.len() - SuffixDrafter::LIMIT / 2;
            *self = Self { start, indexed: start, ..Self::default() };
        }
        for &token in &tokens[self.indexed..] {
            self.automaton.append(token);
        }
        self.indexed = tokens.len();
    }
}

/// A suffix automaton (Blumer et al., 1985), built token by token: every state is a set of substrings that end at the same places.
#[derive(Debug)]
struct Automaton {
    states: Vec<State>,
    last: u32,
    tokens: u32,
    /// Longest ends of the text that occurred before, longest first: length, and where the latest of their occurrences ended.
    matches: SmallVec<[(u32, u32); 4]>,
}

#[derive(Debug, Clone)]
struct State {
    /// Length of the longest substring.
    length: u32,
    /// The state of the longest suffix that ends at more places.
    link: u32,
    /// Number of tokens read when the latest known occurrence ended.
    end: u32,
    next: Edges,
}

/// Most states have one edge, few have hundreds.
#[derive(Debug, Clone)]
enum Edges {
    Few(SmallVec<[(Token, u32); 2]>),
    Many(HashMap<Token, u32>),
}

const NONE: u32 = u32::MAX;

impl Edges {
    const FEW: usize = 12;

    fn get(&self, token: Token) -> Option<u32> {
        match self {
            Self::Few(edges) => edges.iter().find(|edge| edge.0 == token).map(|edge| edge.1),
            Self::Many(edges) => edges.get(&token).copied(),
        }
    }

    fn set(&mut self, token: Token, state: u32) {
        match self {
            Self::Few(edges) => {
                if let Some(edge) = edges.iter_mut().find(|edge| edge.0 == token) {
                    edge.1 = state;
                } else if edges.len() < Self::FEW {
                    edges.push((token, state));
                } else {
                    let mut many: HashMap<Token, u32> = edges.iter().copied().collect();
                    many.insert(token, state);
                    *self = Self::Many(many);
                }
            }
            Self::Many(edges) => {
                edges.insert(token, state);
            }
        }
    }
}

impl Default for Automaton {
    fn default() -> Self {
        let root = State { length: 0, link: NONE, end: 0, next: Edges::Few(SmallVec::new()) };
        Self { states: vec![root], last: 0, tokens: 0, matches: SmallVec::new() }
    }
}

impl Automaton {
    /// Suffix links that a token follows to note where its suffixes occurred: bounds the time of a step.
    const NOTED: usize = 16;

    fn append(&mut self, token: Token) {
        self.tokens += 1;
        let length = self.states[self.last as usize].length + 1;
        let current = self.push(State { length, link: 0, end: self.tokens, next: Edges::Few(SmallVec::new()) });
        let mut at = self.last;
        while at != NONE && self.states[at as usize].next.get(token).is_none() {
            self.states[at as usize].next.set(token, current);
            at = self.states[at as usize].link;
        }
        if at != NONE {
            let target = self.states[at as usize].next.get(token).expect("the loop ended at a state that has the edge");
            let link = if self.states[target as usize].length == self.states[at as usize].length + 1 {
                target
            } else {
                let clone =
                    State { length: self.states[at as usize].length + 1, ..self.states[target as usize].clone() };
                let clone = self.push(clone);
                while at != NONE && self.states[at as usize].next.get(token) == Some(target) {
                    self.states[at as usize].next.set(token, clone);
                    at = self.states[at as usize].link;
                }
                self.states[target as usize].link = clone;
                clone
            };
            self.states[current as usize].link = link;
        }
        self.last = current;
        self.note();
    }

    fn push(&mut self, state: State) -> u32 {
        self.states.push(state);
        self.states.len() as u32 - 1
    }

    /// Reads off where the text's end occurred before, then enters its present place.
    fn note(&mut self) {
        self.matches.clear();
        let mut at = self.states[self.last as usize].link;
        for _ in 0..Self::NOTED {
            if at == NONE || at == 0 {
                break;
            }
            let State { length, end, link, .. } = self.states[at as usize];
            self.matches.push((length, end));
            self.states[at as usize].end = self.tokens;
            at = link;
        }
    }
}

impl Drafter for SuffixDrafter {
    fn name(&self) -> &str {
        "suffix"
    }

    fn cost(&self) -> DraftCost {
        DraftCost::Free
    }

    fn class(&self, generation: GenerationId, node: NodeId) -> Class {
        let matched = self.states.get(&generation).and_then(|text| text.matched.get(node.index())).copied();
        copied(matched.unwrap_or(1))
    }

    fn read(&mut self, generation: GenerationId, prompt: &[Token]) {
        self.states.entry(generation).or_default().extend(prompt);
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let text = self.states.entry(context.generation).or_default();
        text.extend(context.tokens);
        text.matched.clear();
        let mut tree = DraftTree::new();
        let branches = if context.width == 1 { 1 } else { Self::BRANCHES };
        for &(length, end) in &text.automaton.matches {
            let source = text.start + end as usize;
            let chain = continuation(context.tokens, source, context.budget, context.end_ids);
            let taken = tree.children(None).count();
            if chain.is_empty() || taken == branches || tree.child_with(None, chain[0]).is_some() {
                continue;
            }
            let mut parent = None;
            for (depth, &token) in chain.iter().enumerate() {
                let node = tree.push(parent, token, Origin::Fixed);
                parent = Some(node.map_err(|source| RuntimeError::Draft { drafter: "suffix".to_owned(), source })?);
                text.matched.push(length as usize + depth);
            }
        }
        Ok(tree)
    }

    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn resume(&mut self, generation: GenerationId, kept: usize) -> Result<(), RuntimeError> {
        if self.states.get(&generation).is_some_and(|text| text.indexed > kept) {
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
    use super::*;

    fn matches(tokens: &[Token]) -> Vec<(usize, usize)> {
        let mut automaton = Automaton::default();
        tokens.iter().for_each(|&token| automaton.append(token));
        automaton.matches.iter().map(|&(length, end)| (length as usize, end as usize)).collect()
    }

    /// The longest end of the text that occurred before, by comparing everything with everything.
    fn longest(tokens: &[Token]) -> (usize, usize) {
        let common = |end: usize| {
            tokens[..end].iter().rev().zip(tokens.iter().rev()).take_while(|(a, b)| a == b).count().min(end)
        };
        (1..tokens.len()).map(|end| (common(end), end)).max().unwrap_or_default()
    }

    #[test]
    fn the_longest_earlier_occurrence_of_the_end_is_found_at_its_latest_place() {
        let mut state = 1u64;
        for alphabet in [2, 3, 7, 50] {
            let mut tokens = Vec::new();
            let mut automaton = Automaton::default();
            for _ in 0..600 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let token = (state >> 33) as Token % alphabet;
                tokens.push(token);
                automaton.append(token);
                let (length, end) = longest(&tokens);
                let found = automaton.matches.first().map_or((0, 0), |&(length, end)| (length as usize, end as usize));
                assert_eq!(found.0, length, "{tokens:?}");
                if length > 0 {
                    assert_eq!(&tokens[found.1 - length..found.1], &tokens[tokens.len() - length..]);
                    assert!(found.1 <= end && found.1 < tokens.len());
                }
            }
            assert!(automaton.states.len() <= 2 * tokens.len());
        }
        assert_eq!(matches(&[1, 2, 9, 1, 2, 8, 1, 2])[0], (2, 5), "of two occurrences the later one");
    }

    #[test]
    fn thirty_thousand_tokens_stay_within_bounds() {
        let mut automaton = Automaton::default();
        for index in 0..30_000u32 {
            automaton.append(if index % 7 == 0 { index } else { index % 100 });
            assert!(automaton.matches.len() <= Automaton::NOTED);
        }
        assert!(automaton.states.len() <= 60_000);
    }

    #[test]
    fn a_long_text_forgets_its_older_half_and_still_drafts() {
        let mut text = Text::default();
        let tokens: Vec<Token> = (0..SuffixDrafter::LIMIT as u32 + 10).map(|index| index % 1000).collect();
        text.extend(&tokens[..SuffixDrafter::LIMIT]);
        text.extend(&tokens);
        assert_eq!(text.start, tokens.len() - SuffixDrafter::LIMIT / 2);
        assert!(!text.automaton.matches.is_empty());
    }
}
