//! A token under the law that it should come from.

use spec_core::{Law, Token};

/// What is known of a token's place in its round before the token is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Place {
    /// Within a round, or nothing is known: that a round got so far may depend on the token.
    #[default]
    Within,
    /// It begins a round, and the one before ended with a rejection.
    BehindRejection,
    /// It begins a round, and nothing was rejected in the one before.
    BehindAcceptance,
}

/// An emitted token under the law of plain decoding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Judged {
    /// Uniform in \[0, 1) if the token came from the law; `None` when the law gives it no probability.
    pub uniform: Option<f64>,
    /// Probability of the law's most probable token.
    pub certainty: f64,
    /// Log-probability of the token less that expected of the law, in nats. 0 for a token without probability.
    pub excess: f64,
    /// Variance of that under the law.
    pub variance: f64,
    /// Whether the token is the one that a drafter guesses from the text before it, and the law's probability of that guess.
    pub guess: Option<(bool, f64)>,
    /// Uniform as `uniform` is, by the order of how much more a draft model thinks of each token than the target does; `None` without one.
    pub against_draft: Option<f64>,
    /// What is known of its place.
    pub place: Place,
}

/// A law that is surer than this of a token leaves little to be told by its place in the order.
const SURE: f64 = 0.95;

impl Judged {
    /// Whether the target was unsure enough for the token to tell anything. Known without the token.
    pub fn is_open(&self) -> bool {
        self.certainty < SURE
    }
}

/// Judges tokens, with randomness of its own: the tie within a token's piece must not be broken by what the token was drawn with.
#[derive(Clone, Debug)]
pub struct Judge {
    counter: u64,
    probabilities: Vec<f64>,
}

/// What is guessed of a token by those who do not know it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beliefs<'a> {
    /// The one that a drafter would propose.
    pub guess: Option<Token>,
    /// A draft model's probability of every token id; empty without one.
    pub draft: &'a [f64],
}

impl Judge {
    /// A judge; two of one seed judge alike.
    pub fn new(seed: u64) -> Self {
        // Apart from the engine's keys of the same seed.
        Self { counter: seed ^ 0xA5D1_7C3E_9B24_F086, probabilities: Vec::new() }
    }

    /// Judges a token by its law. Beliefs must be formed without the token.
    pub fn judge(&mut self, law: &Law<'_>, token: Token, beliefs: Beliefs<'_>) -> Judged {
        law.probabilities(&mut self.probabilities);
        let of = |token: Token| self.probabilities.get(token as usize).copied().unwrap_or(0.0);
        let own = of(token);
        let certainty = of(law.argmax());
        let (mut before, mut mean, mut square) = (0.0, 0.0, 0.0);
        for (other, &probability) in (0..).zip(&self.probabilities) {
            if probability <= 0.0 {
                continue;
            }
            if probability > own || (probability == own && other < token) {
                before += probability;
            }
            let log = probability.ln();
            mean += probability * log;
            square += probability * log * log;
        }
        let guess = beliefs.guess.map(|guess| (guess == token, of(guess)));
        let uniform = (own > 0.0).then(|| (before + self.draw() * own).clamp(0.0, 1.0 - f64::EPSILON));
        let against_draft = (own > 0.0 && !beliefs.draft.is_empty()).then(|| {
            let before = favoured_before(&self.probabilities, beliefs.draft, token);
            (before + self.draw() * own).clamp(0.0, 1.0 - f64::EPSILON)
        });
        let excess = if own > 0.0 { own.ln() - mean } else { 0.0 };
        let variance = (square - mean * mean).max(0.0);
        Judged { uniform, certainty, excess, variance, guess, against_draft, place: Place::Within }
    }

    /// A number in \[0, 1): a counter through a mixer of 64 bits (SplitMix64, Steele et al., OOPSLA 2014).
    fn draw(&mut self) -> f64 {
        self.counter = self.counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = self.counter;
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Probability of the tokens of which a draft thinks more, in proportion to the target, than of `token`. What rules get wrong is what they
/// owe to the difference of both laws, and lies at the ends of this order.
fn favoured_before(target: &[f64], draft: &[f64], token: Token) -> f64 {
    let believed = |index: usize| draft.get(index).copied().unwrap_or(0.0);
    let own = token as usize;
    let (p, q) = (target[own], believed(own));
    let before = |&(index, &other): &(usize, &f64)| {
        let (ahead, behind) = (believed(index) * p, q * other);
        other > 0.0 && (ahead > behind || (ahead == behind && index < own))
    };
    target.iter().enumerate().filter(before).map(|(_, other)| other).sum()
}

/// How many orthonormal polynomials a law is compared by.
pub(super) const ORDER: usize = 4;

/// The first Legendre polynomials on \[0, 1), each of mean 0 and variance 1 there (Neyman's smooth test, 1937).
pub(super) fn polynomials(uniform: f64) -> [f64; ORDER] {
    let x = 2.0 * uniform - 1.0;
    let square = x * x;
    [
        3f64.sqrt() * x,
        5f64.sqrt() * (1.5 * square - 0.5),
        7f64.sqrt() * x * (2.5 * square - 1.5),
        3.0 * (square * (4.375 * square - 3.75) + 0.375),
    ]
}
