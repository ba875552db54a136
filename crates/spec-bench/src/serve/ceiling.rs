//! What speculation could bring at a number of requests, if drafts cost nothing: from what passes cost and how often drafts
//! are right.

use anyhow::{Result, ensure};

use crate::engine::Position;

/// Milliseconds of a pass by its rows, straight between those that were timed.
pub(super) struct Curve(Vec<(f64, f64)>);

/// The gain, and the draft length that brings it.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub(super) struct Ceiling {
    pub(super) ratio: f64,
    pub(super) draft_len: usize,
}

impl Curve {
    /// # Errors
    /// Nothing was timed, or not in the order of rows.
    pub(super) fn new(points: Vec<(f64, f64)>) -> Result<Self> {
        ensure!(points.len() >= 2, "a curve takes two points at least");
        ensure!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "row counts have to rise");
        Ok(Self(points))
    }

    pub(super) fn most_rows(&self) -> usize {
        self.0.last().map_or(0, |point| point.0 as usize)
    }

    fn ms(&self, rows: usize) -> f64 {
        let rows = rows as f64;
        let above = self.0.partition_point(|point| point.0 < rows).clamp(1, self.0.len() - 1);
        let ((left, low), (right, high)) = (self.0[above - 1], self.0[above]);
        low + (high - low) * (rows - left) / (right - left)
    }

    /// Every one of `requests` takes its best draft length: one token and the drafts that survive, in a pass of all their
    /// rows, over one token each in a pass of a row each.
    pub(super) fn ceiling(&self, requests: usize, survival: &[f64]) -> Ceiling {
        let mut best = Ceiling { ratio: 1.0, draft_len: 0 };
        let mut tokens = 1.0;
        for (at, share) in survival.iter().enumerate() {
            tokens += share;
            let rows = requests * (at + 2);
            if rows > self.most_rows() {
                break;
            }
            let ratio = tokens * self.ms(requests) / self.ms(rows);
            if ratio > best.ratio {
                best = Ceiling { ratio, draft_len: at + 1 };
            }
        }
        best
    }
}

/// The share of drafts that are accepted down to each position.
pub(super) fn survival(positions: &[Position]) -> Vec<f64> {
    let mut share = 1.0;
    positions
        .iter()
        .take_while(|position| position.drafted > 0)
        .map(|position| {
            share *= position.accepted as f64 / position.drafted as f64;
            share
        })
        .collect()
}

/// Adds the counts of one answer.
pub(super) fn add(total: &mut Vec<Position>, more: &[Position]) {
    total.resize(total.len().max(more.len()), Position::default());
    for (sum, position) in total.iter_mut().zip(more) {
        sum.drafted += position.drafted;
        sum.accepted += position.accepted;
    }
}

#[cfg(test)]
mod tests {
    use super::{Ceiling, Curve, add, survival};
    use crate::engine::Position;

    #[test]
    fn free_rows_pay_for_long_drafts_and_dear_rows_for_none() {
        let flat = Curve::new(vec![(1.0, 10.0), (16.0, 10.0)]).unwrap();
        assert_eq!(flat.ceiling(1, &[0.5, 0.25]), Ceiling { ratio: 1.75, draft_len: 2 });
        let steep = Curve::new(vec![(1.0, 1.0), (16.0, 16.0)]).unwrap();
        assert_eq!(steep.ceiling(4, &[0.9, 0.8]), Ceiling { ratio: 1.0, draft_len: 0 });
        // Rows that nobody timed are not guessed at.
        assert_eq!(flat.ceiling(8, &[0.9, 0.9]).draft_len, 1);
        assert_eq!(flat.ceiling(16, &[0.9]).draft_len, 0);
    }

    #[test]
    fn times_between_row_counts_are_on_the_line() {
        let curve = Curve::new(vec![(1.0, 10.0), (2.0, 12.0), (4.0, 20.0)]).unwrap();
        assert_eq!([1, 2, 3, 4].map(|rows| curve.ms(rows)), [10.0, 12.0, 16.0, 20.0]);
        assert!(Curve::new(vec![(1.0, 1.0)]).is_err());
        assert!(Curve::new(vec![(2.0, 1.0), (1.0, 1.0)]).is_err());
    }

    #[test]
    fn a_draft_survives_to_a_position_when_all_before_it_did() {
        let mut total = Vec::new();
        add(&mut total, &[Position { drafted: 6, accepted: 6 }]);
        add(
            &mut total,
            &[Position { drafted: 4, accepted: 2 }, Position { drafted: 4, accepted: 1 }, Position::default()],
        );
        assert_eq!(survival(&total), [0.8, 0.2]);
    }
}
