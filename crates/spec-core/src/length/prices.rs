use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::Round;

/// What target passes cost by their rows, as measured so far: what drafts must be worth.
///
/// The text is what it is, and every stretch of it has to be generated: a round is best when its expected tokens per second are,
/// whatever earlier rounds brought.
#[derive(Clone, Debug)]
pub struct Prices {
    verify: Curve,
}

impl Prices {
    /// A token that a draft model catches up on, as a share of one it drafts: it goes through a pass of many rows.
    pub const CATCH_UP: f64 = 1.0 / 14.0;
    /// What a trial of a free drafter may cost, as a share of a pass of one row.
    pub const TRIAL: f64 = 0.3;

    /// Nothing measured yet; passes of up to `rows` rows.
    pub fn new(rows: usize) -> Self {
        Self { verify: Curve { times: vec![Average::default(); rows + 1] } }
    }

    /// Learns from a round.
    pub fn enter(&mut self, round: &Round) {
        self.verify.enter(round.company + 1 + round.drafted, round.verify);
    }

    /// Seconds of a target pass of `rows` rows. More rows never cost less.
    pub fn pass(&self, rows: usize) -> f64 {
        (1..=rows).fold(0.0, |most, fewer| self.verify.at(fewer).max(most))
    }

    /// Tokens, of `most` and at least one, that a free draft may have for the sake of trying: their rows add to a pass at most
    /// [`TRIAL`](Self::TRIAL) of one that drafts nothing. Rows of a model that the caches hold can cost a third of a pass each.
    pub fn trial_tokens(&self, most: usize) -> usize {
        let affordable = self.pass(1) * (1.0 + Self::TRIAL);
        (2..=most).rev().find(|&tokens| self.pass(1 + tokens) <= affordable).unwrap_or(1)
    }

    /// The greatest number of rows of which the cost is more than a guess: twice the longest pass seen.
    pub fn known_rows(&self) -> usize {
        2 * self.verify.most_rows().max(2)
    }

    pub(crate) fn curve(&self) -> &Curve {
        &self.verify
    }
}

/// An average in which recent values weigh more, and single outliers little.
#[derive(Clone, Copy, Debug, Default)]
pub struct Average {
    value: f64,
    known: bool,
}

impl Average {
    /// Takes in a value.
    pub fn enter(&mut self, value: f64) {
        if self.known {
            self.value += 0.25 * (value.min(2.0 * self.value) - self.value);
        } else {
            *self = Self { value, known: true };
        }
    }

    /// The average, if anything was taken in.
    pub fn get(&self) -> Option<f64> {
        self.known.then_some(self.value)
    }
}

/// Seconds of a target pass by its rows.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    times: Vec<Average>,
}

impl Curve {
    /// What a row adds to a pass, as a share of a pass of one row, where nothing is measured.
    const ROW: f64 = 0.03;

    fn enter(&mut self, rows: usize, time: Duration) {
        if rows >= self.times.len() {
            self.times.resize(rows + 1, Average::default());
        }
        self.times[rows].enter(time.as_secs_f64());
    }

    /// The longest pass that was measured.
    pub(crate) fn most_rows(&self) -> usize {
        self.times.iter().rposition(|average| average.known).unwrap_or(0)
    }

    /// Measured, or between the nearest measured neighbours on a line, or beyond them by [`ROW`](Self::ROW).
    pub(crate) fn at(&self, rows: usize) -> f64 {
        let known = |&index: &usize| self.times[index].known;
        let below = (0..=rows.min(self.times.len() - 1)).rev().find(known);
        let above = (rows..self.times.len()).find(known);
        let shape = |rows: usize| 1.0 + Self::ROW * (rows as f64 - 1.0);
        match (below, above) {
            (Some(low), Some(high)) if low < high => {
                let share = (rows - low) as f64 / (high - low) as f64;
                self.times[low].value * (1.0 - share) + self.times[high].value * share
            }
            (Some(near), _) | (None, Some(near)) => self.times[near].value * shape(rows) / shape(near),
            (None, None) => shape(rows),
        }
    }
}
