//! The largest epsilon that costs no more than it may.

use anyhow::Result;

/// Digits that an epsilon is rounded to, so that what is printed is what was tried.
const GRID: f64 = 1e4;
/// The bracket is halved until its ends are this close, as a ratio.
const CLOSE: f64 = 1.1;

/// What a search came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found<T> {
    /// The largest epsilon within the limit below the first that is not; `None` where not even the least that was tried is.
    pub(super) epsilon: Option<f64>,
    /// All that were tried, ascending.
    pub(super) tried: Vec<(f64, T)>,
}

/// Doubles `start` while the price stays within the limit, then halves what is left between the last that did and the first that did not. Where
/// `start` is too much, it goes down to 0 instead. `price` is asked once for each epsilon, and says whether that is within the limit.
///
/// A price that falls again further on is not found: the answer is below the first epsilon that costs too much.
pub(super) fn search<T>(start: f64, mut price: impl FnMut(f64) -> Result<(bool, T)>) -> Result<Found<T>> {
    let mut tried: Vec<(f64, T)> = Vec::new();
    let mut within = |epsilon: f64| -> Result<bool> {
        let (within, what) = price(epsilon)?;
        tried.push((epsilon, what));
        Ok(within)
    };
    let (mut good, mut bad) = (None, None);
    let mut next = rounded(start);
    while bad.is_none() && good != Some(1.0) {
        match within(next)? {
            true => good = Some(next),
            false => bad = Some(next),
        }
        next = rounded(2.0 * next).min(1.0);
    }
    if let (None, Some(_)) = (good, bad)
        && within(0.0)?
    {
        good = Some(0.0);
    }
    while let (Some(low), Some(high)) = (good, bad)
        && high > CLOSE * low
    {
        let middle = rounded((low + high) / 2.0);
        if middle <= low || middle >= high {
            break;
        }
        match within(middle)? {
            true => good = Some(middle),
            false => bad = Some(middle),
        }
    }
    tried.sort_by(|one, other| one.0.total_cmp(&other.0));
    Ok(Found { epsilon: good, tried })
}

fn rounded(epsilon: f64) -> f64 {
    (epsilon * GRID).round().max(1.0) / GRID
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches where the price is within up to a threshold.
    fn found(start: f64, threshold: f64) -> Found<()> {
        let mut asked = Vec::new();
        let found = search(start, |epsilon| {
            assert!(!asked.contains(&epsilon), "{epsilon} was asked for twice");
            asked.push(epsilon);
            Ok((epsilon <= threshold, ()))
        });
        found.expect("a search")
    }

    #[test]
    fn the_largest_epsilon_within_the_limit_is_found_to_a_tenth() {
        for start in [0.0001, 0.01, 0.3, 1.0] {
            for threshold in [0.0003, 0.004, 0.01, 0.0257, 0.3, 0.97] {
                let Found { epsilon, tried } = found(start, threshold);
                let epsilon = epsilon.expect("0 is within");
                assert!(epsilon <= threshold, "{start}, {threshold}: {epsilon}");
                let first_bad = tried.iter().find(|&&(tried, ())| tried > threshold).expect("one was too much").0;
                assert!(
                    first_bad <= 1.1 * epsilon || first_bad - epsilon <= 1.5e-4,
                    "{start}, {threshold}: {epsilon}, {first_bad}"
                );
                assert!(tried.len() < 24, "{tried:?}");
                assert!(tried.is_sorted_by_key(|&(epsilon, ())| epsilon));
            }
        }
        assert_eq!(found(0.01, 2.0).epsilon, Some(1.0), "there is nothing above 1");
    }

    #[test]
    fn where_nothing_is_within_the_limit_that_is_said() {
        assert_eq!(found(0.01, -1.0), Found { epsilon: None, tried: vec![(0.0, ()), (0.01, ())] });
        let failing = search(0.01, |_| -> Result<(bool, ())> { anyhow::bail!("no model") });
        assert_eq!(failing.expect_err("it fails").to_string(), "no model");
    }
}
