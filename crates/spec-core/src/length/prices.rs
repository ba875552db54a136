use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::{Company, Round};

/// What target passes cost by their rows, as measured so far: what drafts must be worth.
///
/// The text is what it is, and every stretch of it has to be generated: a round is best when its expected tokens per second are,
/// whatever earlier rounds brought. Those of all generations that share its pass count, and so does the time that each of them waits.
#[derive(Clone, Debug)]
pub struct Prices {
    verify: Curve,
    company: Company,
}

impl Prices {
    /// A token that a draft model catches up on, as a share of one it drafts: it goes through a pass of many rows.
    pub const CATCH_UP: f64 = 1.0 / 14.0;
    /// What a trial of a free drafter may cost, as a share of a pass of one row.
    pub const TRIAL: f64 = 0.3;

    /// What rows of drafts count for among others, of what they take. Drafts gain little there, and of many estimates those that are too
    /// high are acted upon.
    const MARGIN: f64 = 1.1;

    /// Nothing measured yet; passes of up to `rows` rows, and longer ones as they come.
    pub fn new(rows: usize) -> Self {
        Self { verify: Curve::new(rows + 1), company: Company::default() }
    }

    /// Learns from a round.
    pub fn enter(&mut self, round: &Round) {
        self.enter_pass(round.company + 1 + round.drafted, round.verify);
    }

    /// Learns what a pass of `rows` rows took.
    pub fn enter_pass(&mut self, rows: usize, time: Duration) {
        self.verify.enter(rows, time);
    }

    /// Names prices among others from now on.
    pub fn among(&mut self, company: Company) {
        self.company = company;
    }

    /// Whether nobody shares the pass.
    pub fn is_alone(&self) -> bool {
        self.company == Company::default()
    }

    /// Seconds of a round whose target pass has `rows` rows beside those of others: the time that their prompts add is not in it, for
    /// that is spent whatever is drafted. More rows never cost less.
    pub fn pass(&self, rows: usize) -> f64 {
        self.beside_others(rows, |rows| self.target(rows))
    }

    /// The same without the certainty that more rows never cost less.
    pub(crate) fn measured_pass(&self, rows: usize) -> f64 {
        self.beside_others(rows, |rows| self.verify.at(rows))
    }

    fn beside_others(&self, rows: usize, target: impl Fn(usize) -> f64) -> f64 {
        if self.is_alone() {
            return target(rows);
        }
        let Company { rows: others, reading, .. } = self.company;
        let added = target(others + reading + rows) - target(others + reading + 1);
        target(others + 1) + Self::MARGIN * added
    }

    /// Seconds of a target pass of `rows` rows in all.
    pub fn target(&self, rows: usize) -> f64 {
        self.verify.longest(rows)
    }

    /// Tokens that a round brings which brings `own` to the generation that decides.
    pub fn tokens(&self, own: f64) -> f64 {
        self.company.tokens + own
    }

    /// Tokens that all generations of the pass together lose when it takes so many seconds longer.
    pub fn delay(&self, seconds: f64) -> f64 {
        self.tokens(1.0) * seconds / self.pass(1)
    }

    /// Whether a draft token that is certain to be accepted would be worth its row and `draft` seconds of drafting. Where nobody else
    /// waits it is worth a try.
    pub fn sure_token_pays(&self, draft: f64) -> bool {
        self.is_alone() || self.delay(draft + self.rows(1)) < 1.0
    }

    /// Seconds that a row adds to a pass, in the mean of the next seven.
    pub fn row(&self) -> f64 {
        (self.pass(8) - self.pass(1)) / 7.0
    }

    /// Seconds that some rows of a draft add: at least what a row does, for the times of two passes that differ by little are uncertain.
    pub(crate) fn rows(&self, rows: usize) -> f64 {
        (self.pass(1 + rows) - self.pass(1)).max(rows as f64 * self.row())
    }

    /// Tokens, of `most` and at least one, that a free draft may have for the sake of trying: their rows add to a pass at most
    /// [`TRIAL`](Self::TRIAL) of one that drafts nothing, and among others as much less as there are of them. Rows of a model that the
    /// caches hold can cost a third of a pass each.
    pub fn trial_tokens(&self, most: usize) -> usize {
        let affordable = self.pass(1) * (1.0 + Self::TRIAL / self.tokens(1.0));
        (2..=most).rev().find(|&tokens| self.pass(1 + tokens) <= affordable).unwrap_or(1)
    }

    /// The greatest number of rows, beside those of others, of which the cost is more than a guess: up to twice the longest pass seen.
    pub fn known_rows(&self) -> usize {
        self.rows_left(2 * self.verify.most_rows().max(2))
    }

    /// What others leave of a pass of `rows` rows; at least one.
    fn rows_left(&self, rows: usize) -> usize {
        rows.saturating_sub(self.company.rows + self.company.reading).max(1)
    }

    /// The longest draft of which the cost is more than a guess: lengths at most double.
    pub(crate) fn known_length(&self) -> usize {
        self.rows_left(2 * self.verify.most_rows().max(1))
    }

    /// Whether anything was measured.
    pub fn is_known(&self) -> bool {
        self.verify.most_rows() > 0
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
struct Curve {
    times: Vec<Average>,
    /// By rows, the longest that a pass of at most so many takes: asked far more often than anything is entered.
    longest: Vec<f64>,
}

impl Curve {
    /// What a row adds to a pass, as a share of a pass of one row, where nothing is measured.
    const ROW: f64 = 0.03;

    fn new(len: usize) -> Self {
        let mut curve = Self { times: vec![Average::default(); len], longest: Vec::new() };
        curve.sum_up();
        curve
    }

    fn enter(&mut self, rows: usize, time: Duration) {
        if rows >= self.times.len() {
            self.times.resize(rows + 1, Average::default());
        }
        self.times[rows].enter(time.as_secs_f64());
        self.sum_up();
    }

    fn sum_up(&mut self) {
        let mut longest = mem::take(&mut self.longest);
        longest.clear();
        let mut most = 0.0f64;
        // Between two measured lengths, the neighbours are known.
        let (mut below, mut above) = (None, self.next_known(0));
        for rows in 0..self.times.len() {
            if above == Some(rows) {
                (below, above) = (above, self.next_known(rows + 1));
            }
            if rows > 0 {
                most = most.max(self.between(rows, below, if below == Some(rows) { below } else { above }));
            }
            longest.push(most);
        }
        self.longest = longest;
    }

    fn next_known(&self, from: usize) -> Option<usize> {
        (from..self.times.len()).find(|&rows| self.times[rows].known)
    }

    /// The longest that a pass of at most so many rows takes.
    fn longest(&self, rows: usize) -> f64 {
        match self.longest.get(rows) {
            Some(&longest) => longest,
            // Beyond all that was measured it only rises.
            None => self.longest.last().map_or(0.0, |&longest| longest.max(self.at(rows))),
        }
    }

    /// The longest pass that was measured.
    fn most_rows(&self) -> usize {
        self.times.iter().rposition(|average| average.known).unwrap_or(0)
    }

    /// Measured, or between the nearest measured neighbours on a line, or beyond them by [`ROW`](Self::ROW).
    fn at(&self, rows: usize) -> f64 {
        let below = (0..=rows.min(self.times.len() - 1)).rev().find(|&index| self.times[index].known);
        self.between(rows, below, self.next_known(rows))
    }

    fn between(&self, rows: usize, below: Option<usize>, above: Option<usize>) -> f64 {
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
