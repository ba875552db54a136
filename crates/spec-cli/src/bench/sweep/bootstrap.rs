//! How sure a figure is: the bootstrap over prompts.

use serde::Serialize;

use crate::bench::quantile;

/// Resamples of an interval.
pub(super) const RESAMPLES: usize = 1000;

/// What the resamples are drawn with, so that a study repeats.
pub(super) const SEED: u64 = 1;

/// A figure, and where 95 of 100 resamples of the prompts have it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Interval {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Interval {
    /// `statistic` of the units 0 to `units`, and of resamples of as many with replacement (the percentile bootstrap). One unit has no
    /// interval: the ends are the value.
    pub(super) fn of(units: usize, statistic: impl Fn(&[usize]) -> f64) -> Self {
        let all: Vec<usize> = (0..units).collect();
        let value = statistic(&all);
        let mut state = SEED;
        let mut drawn: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let resample: Vec<usize> = all.iter().map(|_| below(&mut state, units)).collect();
                statistic(&resample)
            })
            .collect();
        Self { value, low: quantile(&mut drawn, 0.025), high: quantile(&mut drawn, 0.975) }
    }

    /// The same of a figure that no resample changes.
    pub(super) fn certain(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// The same in other terms: `change` has to be linear and may turn the ends around.
    pub(super) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (change(self.low), change(self.high));
        Self { value: change(self.value), low: a.min(b), high: a.max(b) }
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// A number below `count`, by SplitMix64.
fn below(state: &mut u64, count: usize) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    // A bias of count / 2^64.
    ((u128::from(bits) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::Interval;

    fn mean(values: &[f64]) -> Interval {
        Interval::of(values.len(), |units| units.iter().map(|&unit| values[unit]).sum::<f64>() / units.len() as f64)
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_its_standard_error() {
        // 100 values of mean 49.5 and standard deviation 28.87: the error of the mean is 2.887, and 1.96 of it 5.66.
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let interval = mean(&values);
        assert_eq!(interval.value, 49.5);
        assert!((interval.low - 43.84).abs() < 0.6 && (interval.high - 55.16).abs() < 0.6, "{interval:?}");
        assert_eq!(interval, mean(&values), "it is seeded");
        assert!(interval.holds(50.0) && !interval.holds(60.0));
    }

    #[test]
    fn what_does_not_vary_is_certain_and_so_is_a_single_prompt() {
        assert_eq!(mean(&[3.0; 8]), Interval::certain(3.0));
        assert_eq!(mean(&[7.5]), Interval::certain(7.5));
    }

    #[test]
    fn a_drop_is_the_rest_and_keeps_its_ends_in_order() {
        let drop = Interval { value: 90.0, low: 80.0, high: 95.0 }.map(|bleu| 100.0 - bleu);
        assert_eq!(drop, Interval { value: 10.0, low: 5.0, high: 20.0 });
    }
}
