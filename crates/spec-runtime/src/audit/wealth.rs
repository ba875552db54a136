//! A statistic that may be looked at after every token.

use super::judge::{ORDER, polynomials};

/// Stakes, as shares of what a bet has. The greatest leaves something whatever comes, for no polynomial exceeds 3 in size.
const STAKES: [f64; 6] = [0.03, 0.1, 0.3, -0.03, -0.1, -0.3];
const BETS: usize = ORDER * STAKES.len();

/// What fair bets against the target's law have come to.
///
/// Each bet multiplies its share by `1 + stake * polynomial(uniform)`, which the law leaves alone on average. By Ville's inequality the
/// mean of all such bets ever exceeds `1 / x` with a probability of at most x, so that the p-value may be read at any time and any number
/// of times, as a service has to.
#[derive(Clone, Debug)]
pub struct Wealth {
    logs: [f64; BETS],
    /// Logarithm of the most that there ever was.
    highest: f64,
}

impl Default for Wealth {
    fn default() -> Self {
        Self { logs: [0.0; BETS], highest: 0.0 }
    }
}

impl Wealth {
    /// Takes the uniform of a token; `None` is a token that the law does not allow, which settles it.
    pub fn add(&mut self, uniform: Option<f64>) {
        let Some(uniform) = uniform else {
            self.highest = f64::INFINITY;
            return;
        };
        let values = polynomials(uniform);
        for (index, log) in self.logs.iter_mut().enumerate() {
            *log += (STAKES[index / ORDER] * values[index % ORDER]).ln_1p();
        }
        let most = self.logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.logs.iter().map(|log| (log - most).exp()).sum();
        self.highest = self.highest.max(most + (sum / BETS as f64).ln());
    }

    /// The p-value so far, which only falls.
    pub fn p_value(&self) -> f64 {
        (-self.highest).exp()
    }
}
