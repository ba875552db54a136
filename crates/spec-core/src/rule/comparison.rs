//! What a rule compared when it rejected a proposal.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use crate::Token;

/// The comparison that rejected a proposal, with the very numbers that were compared.
///
/// Its text is the inequality that held. Numbers are written with as few decimals as leave it true of what is written:
///
/// ```
/// use spec_core::Comparison;
///
/// let published = Comparison::EpsilonPublished { p: 0.1512, q: 0.1196, epsilon: 0.01 };
/// assert_eq!(published.to_string(), "draft prob 0.12 < target prob 0.15 - epsilon 0.01");
/// let close = Comparison::Threshold { p: 0.0899, threshold: 0.0899 };
/// assert_eq!(close.to_string(), "target prob 0.09 <= threshold 0.09");
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison {
    /// [`Greedy`](crate::Greedy): the target's most probable token is another.
    Argmax {
        /// The target's token.
        target: Token,
        /// The proposed one.
        draft: Token,
    },
    /// [`Coupled`](crate::Coupled): the target's own sample is another.
    Sample {
        /// The target's token.
        target: Token,
        /// The proposed one.
        draft: Token,
    },
    /// [`RejectionRule`](crate::RejectionRule) and [`Entropy`](crate::Entropy): `u >= p / (leniency q)`.
    Ratio {
        /// The number drawn from [0, 1); `None` from a source of choices that draws none.
        u: Option<f64>,
        /// The target's probability.
        p: f64,
        /// The drafter's probability; 1 of a proposal without a law.
        q: f64,
        /// 1 for the exact rule.
        leniency: f64,
    },
    /// [`Block`](crate::Block): `u >= h`, where the block up to the proposal stands with probability h. 0 is not drawn for.
    Prefix {
        /// The number drawn from [0, 1); `None` when none was.
        u: Option<f64>,
        /// The probability h.
        probability: f64,
    },
    /// [`Typical`](crate::Typical): `p <= threshold`.
    Threshold {
        /// The target's probability.
        p: f64,
        /// The smaller of epsilon and the bound that the target's entropy gives.
        threshold: f64,
    },
    /// [`Epsilon`](crate::Epsilon): `p < q - epsilon`.
    Epsilon {
        /// The target's probability.
        p: f64,
        /// The drafter's probability; 1 of a proposal without a law.
        q: f64,
        /// The tolerance.
        epsilon: f64,
    },
    /// [`EpsilonPublished`](crate::EpsilonPublished): `q < p - epsilon`.
    EpsilonPublished {
        /// The target's probability.
        p: f64,
        /// The drafter's probability.
        q: f64,
        /// The tolerance.
        epsilon: f64,
    },
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Argmax { target, draft } => write!(f, "target argmax {target} != draft {draft}"),
            Self::Sample { target, draft } => write!(f, "target sample {target} != draft {draft}"),
            Self::Ratio { u: Some(u), p, q, leniency: 1.0 } => {
                let [u, p, q] = rounded([u, p, q], |[u, p, q]| u >= p / q);
                write!(f, "u {u} >= target prob {p} / draft prob {q}")
            }
            Self::Ratio { u: Some(u), p, q, leniency } => {
                let [u, p, t, q] = rounded([u, p, leniency, q], |[u, p, t, q]| u >= p / (t * q));
                write!(f, "u {u} >= target prob {p} / ({t} * draft prob {q})")
            }
            Self::Ratio { u: None, p, q, leniency } => {
                write!(f, "a choice of probability {} fell against it", shortest(p / (leniency * q)))
            }
            Self::Prefix { u: Some(u), probability } => {
                let [u, h] = rounded([u, probability], |[u, h]| u >= h);
                write!(f, "u {u} >= block prob {h}")
            }
            Self::Prefix { u: None, probability } if probability > 0.0 => {
                write!(f, "a choice of probability {} fell against it", shortest(probability))
            }
            Self::Prefix { .. } => f.write_str("block prob 0 <= 0"),
            Self::Threshold { p, threshold } => {
                let [p, threshold] = rounded([p, threshold], |[p, threshold]| p <= threshold);
                write!(f, "target prob {p} <= threshold {threshold}")
            }
            Self::Epsilon { p, q, epsilon } => {
                let [p, q, epsilon] = rounded([p, q, epsilon], |[p, q, epsilon]| p < q - epsilon);
                write!(f, "target prob {p} < draft prob {q} - epsilon {epsilon}")
            }
            Self::EpsilonPublished { p, q, epsilon } => {
                let [q, p, epsilon] = rounded([q, p, epsilon], |[q, p, epsilon]| q < p - epsilon);
                write!(f, "draft prob {q} < target prob {p} - epsilon {epsilon}")
            }
        }
    }
}

/// Numbers with as few decimals as leave `holds` true of what is written, two at least.
fn rounded<const N: usize>(numbers: [f64; N], holds: impl Fn([f64; N]) -> bool) -> [String; N] {
    let mut written = (2..=12).map(|decimals| numbers.map(|number| format!("{number:.decimals$}")));
    let is_true = |texts: &[String; N]| holds(texts.each_ref().map(|text| text.parse().unwrap_or(f64::NAN)));
    // Where rounding hides the difference, all digits show it.
    written.find(is_true).unwrap_or_else(|| numbers.map(shortest))
}

/// As many digits as name the number among all others.
fn shortest(number: f64) -> String {
    number.to_string()
}
