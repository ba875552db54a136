//! A processed distribution over token ids.

use alloc::vec::Vec;
use core::cell::OnceCell;

use crate::math::{exp_negative, ln};
use crate::scan::Race;
use crate::select::{Peak, key_logit, key_token, top_k};
use crate::summary::RowSummary;
use crate::{RowKernels, SharedNoise, SmallTokens, Token};

/// What a row of logits means after penalties, bias, mask, temperature and filters.
///
/// It borrows the row where nothing had to change. Probabilities are formed only when asked for.
#[doc(alias = "softmax")]
pub struct Law<'a> {
    kernels: &'a dyn RowKernels,
    /// By token id, or by index into `ids`; before the temperature; `-inf` is masked.
    logits: &'a [f32],
    /// The kept tokens, most probable first; `None`: all of them.
    ids: Option<&'a [Token]>,
    peak: Peak,
    /// `None`: one-hot at the peak.
    inverse_temperature: Option<f64>,
    vocab: usize,
    /// Sum of the weights, at temperature 1 when the law is one-hot.
    total: OnceCell<f64>,
    /// The row before top-k, top-p and min-p.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) unfiltered: &'a [f32],
}

impl<'a> Law<'a> {
    pub(crate) fn new(
        kernels: &'a dyn RowKernels,
        logits: &'a [f32],
        ids: Option<&'a [Token]>,
        peak: Peak,
        inverse_temperature: Option<f64>,
        vocab: usize,
    ) -> Self {
        Self {
            kernels,
            logits,
            ids,
            peak,
            inverse_temperature,
            vocab,
            total: OnceCell::new(),
            #[cfg(any(test, feature = "mutants"))]
            unfiltered: logits,
        }
    }

    /// A law whose total is known from the pass that found the peak.
    pub(crate) fn summarized(
        kernels: &'a dyn RowKernels,
        logits: &'a [f32],
        summary: &RowSummary,
        inverse_temperature: f64,
        vocab: usize,
    ) -> Self {
        let law = Self::new(kernels, logits, None, summary.peak(), Some(inverse_temperature), vocab);
        // The cell is new, so it is empty.
        let _ = law.total.set(summary.total);
        law
    }

    /// The most probable token; the lowest id among equals.
    pub fn argmax(&self) -> Token {
        self.peak.token
    }

    /// The tokens that top-k, top-p and min-p kept, most probable first; `None` when no such filter was on.
    pub fn kept(&self) -> Option<&[Token]> {
        self.ids
    }

    /// The token at `position` under the given noise: a sample of this law over the seeds. At temperature 0 the argmax.
    ///
    /// `position` is the absolute position of the sampled token.
    pub fn sample(&self, noise: &SharedNoise<'_>, position: usize) -> Token {
        let Some(inverse_temperature) = self.inverse_temperature else {
            return self.argmax();
        };
        let keys = noise.noise.keys(position);
        let mut race = Race::new(keys, inverse_temperature, self.peak.token, self.peak.logit);
        noise.scan.scan(self.logits, self.ids, &mut race);
        race.winner()
    }

    /// The `count` tokens that lead the race of [`sample`](Self::sample), first to last; fewer when fewer have a probability.
    /// At temperature 0 the [`top`](Self::top).
    pub fn sample_several(&self, noise: &SharedNoise<'_>, position: usize, count: usize) -> SmallTokens {
        let Some(inverse_temperature) = self.inverse_temperature else {
            return self.top(count);
        };
        let mut leaders = SmallTokens::new();
        while leaders.len() < count {
            let entrants =
                self.entries().filter(|&(token, logit)| logit > f32::NEG_INFINITY && !leaders.contains(&token));
            let Some((token, logit)) = entrants.reduce(|best, next| if next.1 > best.1 { next } else { best }) else {
                break;
            };
            let keys = noise.noise.keys(position);
            let mut race = Race::new(keys, inverse_temperature, token, logit).without(leaders.clone());
            noise.scan.scan(self.logits, self.ids, &mut race);
            leaders.push(race.winner());
        }
        leaders
    }

    /// The `count` most probable tokens, most probable first, the lowest id among equals; fewer when fewer have a probability.
    pub fn top(&self, count: usize) -> SmallTokens {
        match self.ids {
            _ if count == 0 => SmallTokens::new(),
            _ if count == 1 => SmallTokens::from_slice(&[self.peak.token]),
            Some(ids) => ids.iter().copied().take(count).collect(),
            None => {
                let mut keys = Vec::new();
                top_k(self.logits, count.min(self.logits.len()), &mut keys);
                keys.retain(|&key| key_logit(key) > f32::NEG_INFINITY);
                keys.into_iter().map(key_token).collect()
            }
        }
    }

    /// Whether the temperature is 0: the argmax has probability 1.
    pub fn is_one_hot(&self) -> bool {
        self.inverse_temperature.is_none()
    }

    /// Probability of `token`; 0 for masked, filtered and unknown ids.
    pub fn probability(&self, token: Token) -> f64 {
        if self.is_one_hot() {
            return if token == self.peak.token { 1.0 } else { 0.0 };
        }
        self.soft_probability(token)
    }

    /// As [`probability`](Self::probability), but at temperature 1 where the temperature is 0: what lossy rules judge by.
    pub fn soft_probability(&self, token: Token) -> f64 {
        let index = match self.ids {
            Some(ids) => ids.iter().position(|&id| id == token),
            None => Some(token as usize),
        };
        let logit = index.and_then(|index| self.logits.get(index));
        logit.map_or(0.0, |&logit| self.weight(logit) / self.total())
    }

    /// Entropy in nats, at temperature 1 where the temperature is 0.
    pub fn entropy(&self) -> f64 {
        let (max, scale) = (f64::from(self.peak.logit), self.scale());
        let mut probabilities = alloc::vec![0.0; self.logits.len()];
        self.kernels.exp_each(self.logits, self.peak.logit, scale, self.total(), &mut probabilities);
        let term = |(&p, &logit): (&f64, &f32)| if p > 0.0 { p * ((f64::from(logit) - max) * scale) } else { 0.0 };
        ln(self.total()) - probabilities.iter().zip(self.logits).map(term).sum::<f64>()
    }

    /// Writes the probability of every token id of the vocabulary.
    pub fn probabilities(&self, out: &mut Vec<f64>) {
        out.clear();
        out.resize(self.vocab, 0.0);
        if self.is_one_hot() {
            out[self.peak.token as usize] = 1.0;
            return;
        }
        match self.ids {
            Some(ids) => {
                for (&token, probability) in ids.iter().zip(self.support_probabilities()) {
                    out[token as usize] = probability;
                }
            }
            None => self.kernels.exp_each(self.logits, self.peak.logit, self.scale(), self.total(), out),
        }
    }

    /// The tokens that [`support_probabilities`](Self::support_probabilities) speaks of; `None`: every id in turn.
    pub(crate) fn support(&self) -> Option<&[Token]> {
        if self.is_one_hot() { Some(core::slice::from_ref(&self.peak.token)) } else { self.ids }
    }

    /// The probabilities of the [`support`](Self::support), in its order.
    pub(crate) fn support_probabilities(&self) -> Vec<f64> {
        if self.is_one_hot() {
            return alloc::vec![1.0];
        }
        let mut probabilities = alloc::vec![0.0; self.logits.len()];
        self.kernels.exp_each(self.logits, self.peak.logit, self.scale(), self.total(), &mut probabilities);
        probabilities
    }

    fn entries(&self) -> impl Iterator<Item = (Token, f32)> {
        let token = |index: usize| self.ids.map_or(index as Token, |ids| ids[index]);
        self.logits.iter().enumerate().map(move |(index, &logit)| (token(index), logit))
    }

    pub(crate) fn kernels(&self) -> &'a dyn RowKernels {
        self.kernels
    }

    /// The logits of the kept tokens, or of all.
    pub(crate) fn logits(&self) -> &[f32] {
        self.logits
    }

    /// `1 / temperature`; 1 at temperature 0.
    pub(crate) fn scale(&self) -> f64 {
        self.inverse_temperature.unwrap_or(1.0)
    }

    fn weight(&self, logit: f32) -> f64 {
        exp_negative((f64::from(logit) - f64::from(self.peak.logit)) * self.scale())
    }

    pub(crate) fn total(&self) -> f64 {
        *self.total.get_or_init(|| RowSummary::total_of(self.kernels, self.logits, self.peak.logit, self.scale()))
    }
}

impl core::fmt::Debug for Law<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let kept = self.ids.map_or(self.logits.len(), <[Token]>::len);
        f.debug_struct("Law").field("argmax", &self.peak.token).field("kept", &kept).finish_non_exhaustive()
    }
}
