//! The figures shown to users. Each is defined here, once.

use std::ops::AddAssign;
use std::time::Duration;

/// Nodes of one depth below the committed text, over all rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PositionStats {
    /// Nodes proposed.
    pub drafted: usize,
    /// Nodes accepted and emitted.
    pub accepted: usize,
}

/// Nodes drafted while the target verified the round before; zeros where the target's passes do not go on by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AheadStats {
    /// Nodes drafted ahead.
    pub drafted: usize,
    /// Of those, the ones that the next round proposed, because the text had become what was assumed.
    pub used: usize,
}

impl AheadStats {
    /// Nodes whose text did not come to be, or that the next round had no use for.
    pub fn dropped(&self) -> usize {
        self.drafted.saturating_sub(self.used)
    }
}

/// What a lossy rule forgave: [`spec_core::Forgiven`], over the tokens emitted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ForgivenStats {
    /// Tokens that the exact rule would have refused, or kept less often.
    pub count: usize,
    /// Sum of their log ratios, in nats.
    pub log_ratio: f64,
}

impl ForgivenStats {
    pub(crate) fn record(&mut self, log_ratio: f64) {
        self.count += 1;
        self.log_ratio += log_ratio;
    }
}

/// What speculation did in one generation. Tokens behind a stop count nowhere.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SpeculationStats {
    /// Target passes after prefill.
    pub rounds: usize,
    /// Rounds in which at least one token was drafted.
    pub drafted_rounds: usize,
    /// Draft tokens proposed.
    pub drafted: usize,
    /// Of those drafted, the ones that a constraint foresaw: they spell what had to come, and no drafter was asked.
    pub forced: usize,
    /// Draft tokens accepted and emitted.
    pub accepted: usize,
    /// Tokens emitted in rounds, corrected and bonus tokens included.
    pub emitted: usize,
    /// By depth below the committed text, first draft position first.
    pub by_position: Vec<PositionStats>,
    /// What was drafted ahead.
    pub ahead: AheadStats,
    /// What a lossy rule forgave.
    pub forgiven: ForgivenStats,
}

impl SpeculationStats {
    /// `accepted / drafted`; 0 when nothing was drafted.
    #[doc(alias = "accept_rate")]
    pub fn acceptance_rate(&self) -> f64 {
        ratio(self.accepted, self.drafted)
    }

    /// `accepted / rounds`: the mean accepted length without the bonus token.
    pub fn mean_accepted_length(&self) -> f64 {
        ratio(self.accepted, self.rounds)
    }

    /// `emitted / rounds`: the mean accepted length with the corrected or bonus token.
    pub fn tokens_per_round(&self) -> f64 {
        ratio(self.emitted, self.rounds)
    }

    pub(crate) fn record(&mut self, drafted_by_depth: &[usize], accepted: usize, emitted: usize) {
        let drafted: usize = drafted_by_depth.iter().sum();
        self.rounds += 1;
        self.drafted_rounds += usize::from(drafted > 0);
        self.drafted += drafted;
        self.accepted += accepted;
        self.emitted += emitted;
        if self.by_position.len() < drafted_by_depth.len() {
            self.by_position.resize(drafted_by_depth.len(), PositionStats::default());
        }
        for (position, &drafted) in self.by_position.iter_mut().zip(drafted_by_depth) {
            position.drafted += drafted;
        }
        for position in &mut self.by_position[..accepted] {
            position.accepted += 1;
        }
    }
}

/// Sums over several generations.
impl AddAssign<&Self> for SpeculationStats {
    fn add_assign(&mut self, other: &Self) {
        let Self { rounds, drafted_rounds, drafted, forced, accepted, emitted, by_position, ahead, forgiven } = other;
        self.rounds += rounds;
        self.drafted_rounds += drafted_rounds;
        self.drafted += drafted;
        self.forced += forced;
        self.accepted += accepted;
        self.emitted += emitted;
        if self.by_position.len() < by_position.len() {
            self.by_position.resize(by_position.len(), PositionStats::default());
        }
        for (sum, position) in self.by_position.iter_mut().zip(by_position) {
            sum.drafted += position.drafted;
            sum.accepted += position.accepted;
        }
        self.ahead.drafted += ahead.drafted;
        self.ahead.used += ahead.used;
        self.forgiven.count += forgiven.count;
        self.forgiven.log_ratio += forgiven.log_ratio;
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Where the time of one generation went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timings {
    /// The target's passes over the prompt.
    pub prefill: Duration,
    /// Preparing the drafter behind the first token, such as loading its model. Like all loading it is no part of `decode`.
    pub preparation: Duration,
    /// From the first emitted token to the last: drafting, sampling and any prefill of the drafter included.
    pub decode: Duration,
    /// Within `decode`: drafting that the target waited for.
    pub draft: Duration,
    /// Within `verify`: drafting that went on meanwhile.
    pub ahead: Duration,
    /// Within `decode`: the target's passes.
    pub verify: Duration,
    /// Within `decode`: acceptance rule, log-probabilities, emission.
    pub sample: Duration,
    /// Within `decode`: settling the KV caches.
    pub rollback: Duration,
}

impl Timings {
    /// `(completion_tokens - 1) / decode`; 0 for fewer than two tokens.
    pub fn tokens_per_second(&self, completion_tokens: usize) -> f64 {
        if completion_tokens < 2 || self.decode.is_zero() {
            return 0.0;
        }
        (completion_tokens - 1) as f64 / self.decode.as_secs_f64()
    }
}

/// Sums over several generations.
impl AddAssign for Timings {
    fn add_assign(&mut self, other: Self) {
        let Self { prefill, preparation, decode, draft, ahead, verify, sample, rollback } = other;
        self.prefill += prefill;
        self.preparation += preparation;
        self.decode += decode;
        self.draft += draft;
        self.ahead += ahead;
        self.verify += verify;
        self.sample += sample;
        self.rollback += rollback;
    }
}
