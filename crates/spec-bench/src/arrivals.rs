//! When requests arrive, and which: by chance, and the same chance every time.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to choose by.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// In `[0, 1)`.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below `count`, which is not 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.share() * count as f64) as usize
    }

    /// An index, as likely as its weight says.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u32 = weights.iter().sum();
        let mut left = self.share() * f64::from(total);
        for (at, &weight) in weights.iter().enumerate() {
            left -= f64::from(weight);
            if left < 0.0 {
                return at;
            }
        }
        weights.len() - 1
    }

    /// The time to the next of arrivals that do not know of each other: a Poisson process of `rate` a second.
    pub(crate) fn gap(&mut self, rate: f64) -> Duration {
        // 1 - share lies in (0, 1], so that the logarithm is finite.
        Duration::from_secs_f64(-(1.0 - self.share()).ln() / rate)
    }
}

/// The times of arrival of `rate` a second within `span`.
pub(crate) fn poisson(chance: &mut Chance, rate: f64, span: Duration) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut at = chance.gap(rate);
    while at < span {
        times.push(at);
        at += chance.gap(rate);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::{Chance, poisson};
    use std::time::Duration;

    #[test]
    fn counts_have_the_mean_and_the_variance_of_a_poisson_process() {
        let mut chance = Chance::new(1);
        let times = poisson(&mut chance, 5.0, Duration::from_secs(20_000));
        assert!(times.is_sorted());
        let mut counts = vec![0.0; 20_000];
        for time in &times {
            counts[time.as_secs() as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>() / counts.len() as f64;
        // Both are 5; their standard errors are 0.016 and 0.052.
        assert!((mean - 5.0).abs() < 0.08 && (variance - 5.0).abs() < 0.26, "{mean} {variance}");
    }

    #[test]
    fn a_seed_gives_the_same_traffic_and_another_gives_other() {
        let times = |seed| poisson(&mut Chance::new(seed), 10.0, Duration::from_secs(5));
        assert_eq!(times(3), times(3));
        assert_ne!(times(3), times(4));
    }

    #[test]
    fn kinds_come_as_often_as_their_weights_say() {
        let mut chance = Chance::new(9);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[chance.weighted(&[1, 0, 3])] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((counts[0] as f64 - 2500.0).abs() < 200.0, "{counts:?}");
        assert!((0..1000).all(|_| chance.below(7) < 7));
    }
}
