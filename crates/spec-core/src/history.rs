//! The tokens that penalties look back on, and how often each occurs in the window.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{SamplingParams, Token};

#[derive(Clone, Debug)]
pub(crate) struct History {
    /// Empty when no penalty is on: then only the length matters.
    tokens: Vec<Token>,
    counts: BTreeMap<Token, u32>,
    /// 0: the whole history.
    window: usize,
    tracking: bool,
    len: usize,
}

impl History {
    pub(crate) fn new(params: &SamplingParams) -> Self {
        Self {
            tokens: Vec::new(),
            counts: BTreeMap::new(),
            window: params.penalty_window,
            tracking: params.has_penalties(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, token: Token) {
        self.len += 1;
        if !self.tracking {
            return;
        }
        self.tokens.push(token);
        self.count(token);
        if let Some(leaving) = self.leaving(self.len) {
            self.discount(leaving);
        }
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        if !self.tracking {
            self.len = self.len.min(len);
            return;
        }
        while self.len > len {
            if let Some(returning) = self.leaving(self.len) {
                self.count(returning);
            }
            if let Some(token) = self.tokens.pop() {
                self.discount(token);
            }
            self.len -= 1;
        }
    }

    /// The tokens seen in the window, with their number of occurrences.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Token, u32)> {
        self.counts.iter().map(|(&token, &count)| (token, count))
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.counts.is_empty()
    }

    /// The token that the push to `len` moved out of the window.
    fn leaving(&self, len: usize) -> Option<Token> {
        let index = len.checked_sub(self.window + 1).filter(|_| self.window > 0)?;
        self.tokens.get(index).copied()
    }

    fn count(&mut self, token: Token) {
        *self.counts.entry(token).or_insert(0) += 1;
    }

    fn discount(&mut self, token: Token) {
        if let Some(count) = self.counts.get_mut(&token) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&token);
            }
        }
    }
}
