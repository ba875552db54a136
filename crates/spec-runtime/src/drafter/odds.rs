//! How likely a draft token is to be accepted, learnt as the rounds go by.

/// Draft tokens of a drafter that are expected to fare alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Class {
    /// Number of the class, below [`Class::COUNT`].
    pub index: u8,
    /// Probability of acceptance to assume before anything is known of the class.
    pub prior: f64,
}

impl Class {
    /// Classes that a drafter can tell apart.
    pub const COUNT: usize = 64;
}

/// Acceptance of a drafter's tokens by [`Class`], given that the token before them was accepted.
#[derive(Clone, Debug)]
pub struct Odds {
    shares: [Share; Class::COUNT],
}

/// How often tokens were looked at, and kept; older ones count less.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    seen: f64,
    kept: f64,
}

impl Default for Odds {
    fn default() -> Self {
        Self { shares: [Share::default(); Class::COUNT] }
    }
}

impl Odds {
    /// Observations that the prior counts for.
    const PRIOR_WEIGHT: f64 = 4.0;
    /// What an observation keeps of its weight at the next one of its class.
    const MEMORY: f64 = 0.98;

    /// Probability that a token of this class is accepted once the tokens before it are.
    pub fn expect(&self, class: Class) -> f64 {
        let Share { seen, kept } = self.shares[usize::from(class.index) % Class::COUNT];
        (kept + Self::PRIOR_WEIGHT * class.prior) / (seen + Self::PRIOR_WEIGHT)
    }

    /// The same over several classes together, `prior` standing for the unknown.
    pub fn expect_any(&self, classes: core::ops::Range<usize>, prior: f64) -> f64 {
        let (seen, kept) = self.shares[classes].iter().fold((0.0, 0.0), |sum, s| (sum.0 + s.seen, sum.1 + s.kept));
        (kept + Self::PRIOR_WEIGHT * prior) / (seen + Self::PRIOR_WEIGHT)
    }

    /// Learns that a token of this class was judged.
    pub fn learn(&mut self, class: Class, accepted: bool) {
        let share = &mut self.shares[usize::from(class.index) % Class::COUNT];
        share.seen = share.seen * Self::MEMORY + 1.0;
        share.kept = share.kept * Self::MEMORY + f64::from(u8::from(accepted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectation_goes_from_the_prior_to_what_is_seen_and_follows_a_change() {
        let (mut odds, class) = (Odds::default(), Class { index: 3, prior: 0.5 });
        assert_eq!(odds.expect(class), 0.5);
        for _ in 0..40 {
            odds.learn(class, true);
        }
        assert!(odds.expect(class) > 0.9);
        assert_eq!(odds.expect(Class { index: 4, ..class }), 0.5, "other classes are not touched");
        for _ in 0..120 {
            odds.learn(class, false);
        }
        assert!(odds.expect(class) < 0.25);
        assert_eq!(odds.expect(class), odds.expect_any(3..4, 0.5));
    }
}
