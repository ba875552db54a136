use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use super::{Company, LengthPolicy, Prices, Round, Start};
use crate::Tolerance;

/// A length policy that also turns the tolerance of a lossy rule: a step open while tokens take longer than they should, a step back
/// while they do not. The length is another policy's.
///
/// Latency is the time of drafting and of the target's passes over the tokens emitted, of the last [`WINDOW`](Self::WINDOW) rounds.
#[doc(alias = "AdjustStrategy")]
pub struct LatencyTolerance {
    lengths: Box<dyn LengthPolicy>,
    tolerance: Tolerance,
    /// Of a token.
    target: Duration,
    /// Time and tokens of the last rounds.
    window: VecDeque<(Duration, usize)>,
}

impl LatencyTolerance {
    /// Rounds that latency is taken over.
    pub const WINDOW: usize = 4;

    /// Turns `tolerance` so that tokens take no longer than `target`, where that is possible; `lengths` chooses draft lengths.
    pub fn new(lengths: Box<dyn LengthPolicy>, tolerance: Tolerance, target: Duration) -> Self {
        Self { lengths, tolerance, target, window: VecDeque::with_capacity(Self::WINDOW) }
    }
}

impl LengthPolicy for LatencyTolerance {
    fn start(&mut self, start: Start) {
        self.window.clear();
        self.tolerance.shut();
        self.lengths.start(start);
    }

    fn learn(&mut self, prices: &Prices) {
        self.lengths.learn(prices);
    }

    fn among(&mut self, company: Company) {
        self.lengths.among(company);
    }

    fn next(&mut self) -> usize {
        self.lengths.next()
    }

    fn context(&self) -> Option<usize> {
        self.lengths.context()
    }

    fn prices(&self) -> Option<&Prices> {
        self.lengths.prices()
    }

    fn listens(&self) -> bool {
        self.lengths.listens()
    }

    fn hear(&mut self, probability: f64) {
        self.lengths.hear(probability);
    }

    fn observe(&mut self, round: &Round) {
        self.lengths.observe(round);
        if self.window.len() == Self::WINDOW {
            self.window.pop_front();
        }
        self.window.push_back((round.draft + round.verify, round.emitted));
        let (time, tokens) =
            self.window.iter().fold((Duration::ZERO, 0), |sum, round| (sum.0 + round.0, sum.1 + round.1));
        let allowed = self.target.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX));
        if time > allowed { self.tolerance.open() } else { self.tolerance.close() }
    }
}
