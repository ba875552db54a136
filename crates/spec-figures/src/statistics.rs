//! Medians, spreads and geometric means: every figure that is reported comes from here.

use serde::Serialize;

/// Several measurements of one thing.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// How many there were.
    pub count: usize,
}

impl Spread {
    /// `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { median, least, most, count: sorted.len() })
    }
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// What most of many measurements stay below: times of a service are told by these.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Percentiles {
    /// Half of them are no greater.
    pub p50: f64,
    /// 95 of a hundred are no greater.
    pub p95: f64,
    /// 99 of a hundred are no greater.
    pub p99: f64,
    /// How many there were.
    pub count: usize,
}

impl Percentiles {
    /// By the nearest rank: each is a value that was measured. `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let rank = |percent: usize| sorted.get((count * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Self { p50: rank(50)?, p95: rank(95)?, p99: rank(99)?, count })
    }
}

/// Of ratios, each taken inside one pair: a slow hour of the machine slows both sides of a pair and leaves their ratio.
pub fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter().zip(under).map(|(over, under)| over / under).collect()
}

/// The mean that suits ratios; `None` of nothing or when one is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| value.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater)) {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::{Percentiles, Spread, geometric_mean, ratios};

    #[test]
    fn a_median_is_the_middle_of_an_odd_and_the_mean_of_the_two_middle_of_an_even_number() {
        let odd = Spread::of(&[3.0, 1.0, 10.0]).unwrap();
        assert_eq!((odd.median, odd.least, odd.most, odd.count), (3.0, 1.0, 10.0, 3));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn percentiles_are_measured_values_at_their_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let of = Percentiles::of(&hundred).unwrap();
        assert_eq!((of.p50, of.p95, of.p99, of.count), (50.0, 95.0, 99.0, 100));
        let one = Percentiles::of(&[7.0]).unwrap();
        assert_eq!((one.p50, one.p95, one.p99), (7.0, 7.0, 7.0));
        assert_eq!(Percentiles::of(&[1.0, 2.0, 3.0]).unwrap().p50, 2.0);
        assert_eq!(Percentiles::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_pairs_so_that_a_slow_round_cancels() {
        // The second round ran at half speed on both sides.
        assert_eq!(ratios(&[30.0, 15.0], &[20.0, 10.0]), [1.5, 1.5]);
    }

    #[test]
    fn a_gain_and_its_inverse_have_the_geometric_mean_one() {
        assert!((geometric_mean(&[2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[1.0, f64::NAN]), None);
    }
}
