//! Emission: the one path by which a token leaves the engine.
//!
//! An accepted block is walked token by token. Each token is counted, checked against the end ids,
//! turned into text, searched for stop texts, and only then released; the first stop ends the block,
//! so that a block can neither overshoot a limit nor leak what lies behind a stop.

#[cfg(test)]
mod tests;

use spec_core::{DraftTree, NodeId, Token, TokenLogProb};

use crate::text::Utf8Tail;

/// Why a generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinishReason {
    /// An end id or a stop text.
    Stop,
    /// `max_tokens` or the end of the context.
    Length,
    /// The caller cancelled it.
    Cancelled,
    /// Its deadline passed.
    Deadline,
}

impl FinishReason {
    /// The name in machine-readable output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
        }
    }
}

/// What ends a generation.
#[derive(Clone, Debug, Default)]
pub struct StopRules {
    /// Token ids that end the text; they are counted, not shown.
    pub end_ids: Vec<Token>,
    /// Texts that end the text; they and what follows are not shown.
    pub texts: Vec<String>,
    /// Tokens that may be generated, the end token included.
    pub max_tokens: usize,
}

/// What a token is to the draft of its round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TokenSource {
    /// The target's own: nothing was drafted.
    #[default]
    Target,
    /// Drafted and accepted.
    Accepted,
    /// The target's own, in the place of a draft token that was rejected.
    Corrected,
    /// The target's own, behind a draft that was accepted to its end.
    #[doc(alias = "bonus token")]
    Bonus,
}

impl TokenSource {
    /// What the target's own token is, behind the accepted part of a draft: `last` is the accepted path's last node. Then, if it is
    /// a correction, what it corrects: the first of the rejected branches, which the target has not looked behind.
    pub(crate) fn behind(tree: &DraftTree, last: Option<NodeId>) -> (Self, Vec<Token>) {
        let mut rejected = Vec::new();
        let mut next = tree.children(last).next();
        while let Some(node) = next {
            rejected.push(tree.node(node).token);
            next = tree.children(Some(node)).next();
        }
        match (tree.is_empty(), rejected.is_empty()) {
            (true, _) => (Self::Target, rejected),
            (false, true) => (Self::Bonus, rejected),
            (false, false) => (Self::Corrected, rejected),
        }
    }
}

/// What became of one token.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Emitted {
    /// The token.
    pub token: Token,
    /// Text that can be shown now: whole characters that cannot become part of a stop text.
    pub text: String,
    /// Whether the token belongs to the output; end tokens do not.
    pub shown: bool,
    /// Set on the last token.
    pub finish: Option<FinishReason>,
    /// What it is to the draft of its round.
    pub source: TokenSource,
    /// Draft tokens that it came in the place of, first the one at its own place. Only corrections have such.
    pub rejected: Vec<Token>,
    /// Its log-probability, where the request asks for it and the token is shown.
    pub logprob: Option<TokenLogProb>,
}

/// The state of one generation's output.
#[derive(Clone, Debug)]
pub(crate) struct Emission {
    rules: StopRules,
    count: usize,
    tail: Utf8Tail,
    /// Text that may be the beginning of a stop text.
    held: String,
}

impl Emission {
    pub(crate) fn new(rules: StopRules) -> Self {
        Self { rules, count: 0, tail: Utf8Tail::default(), held: String::new() }
    }

    /// Tokens that may still be emitted.
    pub(crate) fn remaining(&self) -> usize {
        self.rules.max_tokens.saturating_sub(self.count)
    }

    /// Lowers the number of tokens that may be emitted.
    pub(crate) fn limit(&mut self, max_tokens: usize) {
        self.rules.max_tokens = self.rules.max_tokens.min(max_tokens);
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn end_ids(&self) -> &[Token] {
        &self.rules.end_ids
    }

    pub(crate) fn push(&mut self, token: Token, bytes: &[u8]) -> Emitted {
        self.count += 1;
        if self.rules.end_ids.contains(&token) {
            let text = std::mem::take(&mut self.held);
            return Emitted { token, text, shown: false, finish: Some(FinishReason::Stop), ..Emitted::default() };
        }
        self.tail.push(bytes, &mut self.held);
        if let Some(at) = self.rules.texts.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            let text = std::mem::take(&mut self.held);
            return Emitted { token, text, shown: true, finish: Some(FinishReason::Stop), ..Emitted::default() };
        }
        if self.count >= self.rules.max_tokens {
            let text = std::mem::take(&mut self.held);
            return Emitted { token, text, shown: true, finish: Some(FinishReason::Length), ..Emitted::default() };
        }
        let safe = self.held.len() - self.longest_stop_prefix();
        let rest = self.held.split_off(safe);
        let text = std::mem::replace(&mut self.held, rest);
        Emitted { token, text, shown: true, finish: None, ..Emitted::default() }
    }

    /// Text held back when the generation ends for a reason that no token brings.
    pub(crate) fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Length of the longest suffix of the held text that a stop text begins with.
    fn longest_stop_prefix(&self) -> usize {
        let prefix = |stop: &String| {
            stop.char_indices()
                .map(|(at, _)| at)
                .skip(1)
                .take_while(|&len| len <= self.held.len())
                .filter(|&len| self.held.ends_with(&stop[..len]))
                .max()
                .unwrap_or(0)
        };
        self.rules.texts.iter().map(prefix).max().unwrap_or(0)
    }
}
