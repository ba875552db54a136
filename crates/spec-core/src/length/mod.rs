//! How many tokens to draft in the next round.

mod gate;
mod goodput;
mod latency;
mod prices;
mod table;

pub use gate::{Ask, Gate};
pub use goodput::Goodput;
pub use latency::LatencyTolerance;
pub use prices::{Average, Prices};
pub use table::{LENGTH_POLICIES, LengthPolicyEntry, LengthPolicyName};

use alloc::collections::VecDeque;
use core::time::Duration;

/// What a drafter costs, roughly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DraftCost {
    /// Next to nothing: look-ups in the text.
    Free,
    /// Passes of a model, and catching up on text it has not seen.
    Model,
    /// Several drafters, of which it weighs itself what each is worth: the policy names limits and prices.
    Weighed,
}

/// What is known when a generation starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// Tokens of the prompt.
    pub prompt_len: usize,
    /// The drafter's cost.
    pub drafter: DraftCost,
}

/// What a round does for other generations than the one that decides, as far as it is settled. None of it: that one is alone.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Company {
    /// Rows of the target's pass: those of the last tokens and drafts of others.
    pub rows: usize,
    /// Rows beside, of prompts.
    pub reading: usize,
    /// Tokens that the others are expected to emit.
    pub tokens: f64,
}

/// How a round went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// Nodes drafted; the target's pass had one row more, and those of others.
    pub drafted: usize,
    /// Rows that the pass had for others.
    pub company: usize,
    /// Draft tokens accepted and emitted.
    pub accepted: usize,
    /// Tokens emitted, the corrected or bonus token included.
    pub emitted: usize,
    /// Time that the target waited for drafting, catching up included.
    pub draft: Duration,
    /// Time of drafting this round's nodes ahead, during the target's pass of the round before; zero when that came to nothing, `None`
    /// where nothing is drafted ahead.
    pub ahead: Option<Duration>,
    /// Time of the target's pass.
    pub verify: Duration,
}

/// Chooses the draft length, round by round.
///
/// Lossless under every lossless rule: the choice is made before a round's tokens are drawn. A policy that looks at the clock
/// makes the output of [`RejectionRule`](crate::RejectionRule) and [`Block`](crate::Block) depend on it, in the letters though not
/// in law; that of [`Greedy`](crate::Greedy) and [`Coupled`](crate::Coupled) stays the same.
#[doc(alias = "AdaptiveSpecDecode")]
pub trait LengthPolicy: Send {
    /// Begins a generation.
    fn start(&mut self, start: Start) {
        let _ = start;
    }

    /// Takes over what passes of the target were found to take, before [`start`](Self::start).
    fn learn(&mut self, prices: &Prices) {
        let _ = prices;
    }

    /// Hears whom it shares the coming round with, before [`next`](Self::next).
    fn among(&mut self, company: Company) {
        let _ = company;
    }

    /// Tokens to draft in the coming round; 0 means a plain step.
    fn next(&mut self) -> usize;

    /// How many of the last tokens the drafter need look at in the coming round; `None` is all. Asked after [`next`](Self::next).
    /// A drafter that is being tried need not catch up on a long text first.
    fn context(&self) -> Option<usize> {
        None
    }

    /// What drafts must be worth in the coming round; `None`: drafters propose as many tokens as [`next`](Self::next) says.
    fn prices(&self) -> Option<&Prices> {
        None
    }

    /// Whether it wants to [`hear`](Self::hear).
    fn listens(&self) -> bool {
        false
    }

    /// Hears the probability of the target's likeliest token, before penalties, temperature and filters, of every round without drafts in
    /// which it listens: that of the first token too. Not where a device judges rows and keeps their logits.
    fn hear(&mut self, probability: f64) {
        let _ = probability;
    }

    /// Learns how the last round went.
    fn observe(&mut self, round: &Round);
}

/// The same length in every round.
#[doc(alias = "max_spec_length")]
#[doc(alias = "max_speculative_length")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub usize);

impl LengthPolicy for Fixed {
    fn next(&mut self) -> usize {
        self.0
    }

    fn observe(&mut self, _: &Round) {}
}

/// One more after a window in which more than 80 % of the draft tokens were accepted, else one less: the adaptive rule of the
/// article that this engine started from. Never below 1, so it never stops drafting.
#[doc(alias = "AdjustStrategy")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Additive {
    length: usize,
    most: usize,
    /// Drafted and accepted of the last rounds that drafted.
    window: VecDeque<(usize, usize)>,
}

impl Additive {
    /// Rounds that the acceptance rate is taken over.
    pub const WINDOW: usize = 4;

    /// Begins with `first` tokens and goes to `most` at most; both at least 1.
    pub fn new(first: usize, most: usize) -> Self {
        let most = most.max(1);
        Self { length: first.clamp(1, most), most, window: VecDeque::with_capacity(Self::WINDOW) }
    }
}

impl Default for Additive {
    fn default() -> Self {
        Self::new(5, 8)
    }
}

impl LengthPolicy for Additive {
    fn next(&mut self) -> usize {
        self.length
    }

    fn observe(&mut self, round: &Round) {
        if round.drafted == 0 {
            return;
        }
        if self.window.len() == Self::WINDOW {
            self.window.pop_front();
        }
        self.window.push_back((round.drafted, round.accepted));
        let (drafted, accepted) = self.window.iter().fold((0, 0), |sum, round| (sum.0 + round.0, sum.1 + round.1));
        self.length =
            if accepted * 5 > drafted * 4 { (self.length + 1).min(self.most) } else { (self.length - 1).max(1) };
    }
}

/// A short length for short prompts and a longer one for long prompts, as the article has it: 3 and 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByPromptLength {
    /// Prompts of at least so many tokens are long.
    pub threshold: usize,
    /// Length for short prompts.
    pub short: usize,
    /// Length for long prompts.
    pub long: usize,
    is_long: bool,
}

impl ByPromptLength {
    /// With the lengths 3 and 5.
    pub fn new(threshold: usize) -> Self {
        Self { threshold, short: 3, long: 5, is_long: false }
    }
}

impl Default for ByPromptLength {
    fn default() -> Self {
        Self::new(256)
    }
}

impl LengthPolicy for ByPromptLength {
    fn start(&mut self, start: Start) {
        self.is_long = start.prompt_len >= self.threshold;
    }

    fn next(&mut self) -> usize {
        if self.is_long { self.long } else { self.short }
    }

    fn observe(&mut self, _: &Round) {}
}

/// Every length up to a greatest in turn, and the greatest in every other round: 0, 8, 1, 8, 2, 8 and so on. It gains nothing by itself;
/// what it brings to light is what passes and drafts of every length take, and how far drafts survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    most: usize,
    rounds: usize,
}

impl Survey {
    /// Drafts up to `most` tokens a round.
    pub fn new(most: usize) -> Self {
        Self { most, rounds: 0 }
    }
}

impl Default for Survey {
    fn default() -> Self {
        Self::new(8)
    }
}

impl LengthPolicy for Survey {
    fn next(&mut self) -> usize {
        match self.rounds % 2 {
            0 => self.rounds / 2 % (self.most + 1),
            _ => self.most,
        }
    }

    fn observe(&mut self, _: &Round) {
        self.rounds += 1;
    }
}
