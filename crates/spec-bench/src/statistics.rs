//! Medians, spreads and geometric means: every figure that is reported comes from here.

use serde::Serialize;

/// Several measurements of one thing.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) count: usize,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { median, least, most, count: sorted.len() })
    }
}

/// Of ratios, each taken inside one pair: a slow hour of the machine slows both sides of a pair and leaves their ratio.
pub(crate) fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter().zip(under).map(|(over, under)| over / under).collect()
}

/// The mean that suits ratios; `None` of nothing or when one is not positive.
pub(crate) fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| value.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater)) {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::{Spread, geometric_mean, ratios};

    #[test]
    fn a_median_is_the_middle_of_an_odd_and_the_mean_of_the_two_middle_of_an_even_number() {
        let odd = Spread::of(&[3.0, 1.0, 10.0]).unwrap();
        assert_eq!((odd.median, odd.least, odd.most, odd.count), (3.0, 1.0, 10.0, 3));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of(&[]), None);
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
