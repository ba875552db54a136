//! How far from the target's law, where it is not that.

use super::judge::Judged;

/// Pieces of \[0, 1), and one more for tokens without probability.
const PIECES: usize = 30;

/// A mean with its standard error.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
}

impl Estimate {
    /// The interval that holds the truth 95 times of 100.
    pub fn interval(&self) -> (f64, f64) {
        (self.mean - 1.96 * self.error, self.mean + 1.96 * self.error)
    }
}

/// The distance of emitted tokens from the target's laws, on average over the texts.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Distance {
    /// Total variation, as far as it shows in the order of probability: the true one is no less.
    pub total_variation: Estimate,
    /// How much more often a drafter's guess is emitted than its probability says; `None` without guesses. Its size, too, is no more than
    /// the total variation.
    pub guesses: Option<Estimate>,
    /// Log-probability per token, in nats, over that of plain sampling: above 0, texts are likelier than the target's own.
    pub log_probability: Estimate,
}

/// What a distance is estimated from.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// Tokens by piece, of every other token each: one half says where to look, the other how much there is.
    halves: [[u64; PIECES + 1]; 2],
    tokens: usize,
    guessed: u64,
    guesses: Sum,
    log_probability: Sum,
}

/// A sum of differences from what a law expects.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    total: f64,
    square: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        self.total += value;
        self.square += value * value;
    }

    fn estimate(&self, count: f64) -> Estimate {
        let mean = self.total / count;
        Estimate { mean, error: ((self.square / count - mean * mean).max(0.0) / count).sqrt() }
    }
}

impl Shares {
    pub(super) fn add(&mut self, judged: &Judged) {
        let piece = judged.uniform.map_or(PIECES, |uniform| (uniform * PIECES as f64) as usize);
        self.halves[self.tokens % 2][piece] += 1;
        self.tokens += 1;
        if let Some((hit, probability)) = judged.guess {
            self.guessed += 1;
            self.guesses.add(f64::from(u8::from(hit)) - probability);
        }
        self.log_probability.add(judged.excess);
    }

    pub(super) fn distance(&self) -> Distance {
        let [first, second] = &self.halves;
        let (one, other) = (shift(first, second), shift(second, first));
        let total_variation = Estimate {
            mean: (0.5 * (one.mean + other.mean)).max(0.0),
            error: 0.5 * (one.error * one.error + other.error * other.error).sqrt(),
        };
        let guesses = (self.guessed > 0).then(|| self.guesses.estimate(self.guessed as f64));
        Distance { total_variation, guesses, log_probability: self.log_probability.estimate(self.tokens.max(1) as f64) }
    }
}

/// The order is cut where another half of the tokens differs most from the law: by how much more often than the law says tokens are on
/// the side that has too many of that half.
fn shift(chosen_by: &[u64; PIECES + 1], counted: &[u64; PIECES + 1]) -> Estimate {
    let lawful = |cut: usize| cut as f64 / PIECES as f64;
    let below = |counts: &[u64; PIECES + 1], cut: usize| {
        counts[..cut].iter().sum::<u64>() as f64 / counts.iter().sum::<u64>().max(1) as f64
    };
    let over = |cut: usize| below(chosen_by, cut) - lawful(cut);
    let cut = (0..=PIECES).max_by(|&a, &b| over(a).abs().total_cmp(&over(b).abs())).unwrap_or(0);
    let share = below(counted, cut);
    let mean = if over(cut) > 0.0 { share - lawful(cut) } else { lawful(cut) - share };
    Estimate { mean, error: (share * (1.0 - share) / counted.iter().sum::<u64>().max(1) as f64).sqrt() }
}
