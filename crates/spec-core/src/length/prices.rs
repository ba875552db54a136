use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
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
    certainty: Certainty,
}

/// The mean probability of the target's likeliest tokens of late.
#[derive(Clone, Copy, Debug, Default)]
struct Certainty {
    seen: f64,
    sum: f64,
}

impl Certainty {
    /// What is assumed, and how many tokens it counts for.
    const PRIOR: (f64, f64) = (0.7, 4.0);
    /// What a token keeps of its weight at the next one.
    const MEMORY: f64 = 0.97;

    fn enter(&mut self, probability: f64) {
        self.age(1);
        self.seen += 1.0;
        self.sum += probability;
    }

    fn age(&mut self, tokens: usize) {
        let left = (0..tokens).fold(1.0, |left, _| left * Self::MEMORY);
        self.seen *= left;
        self.sum *= left;
    }

    fn get(&self) -> Option<f64> {
        let (prior, weight) = Self::PRIOR;
        (self.seen > 0.0).then(|| (self.sum + prior * weight) / (self.seen + weight))
    }
}

impl Prices {
    /// A token that a draft model catches up on, as a share of one it drafts: it goes through a pass of many rows.
    pub const CATCH_UP: f64 = 1.0 / 14.0;
    /// What a trial of a free drafter may cost, as a share of a pass of one row.
    pub const TRIAL: f64 = 0.3;

    /// What rows of drafts count for among others, of what they take. Drafts gain little there, and of many estimates those that are too
    /// high are acted upon.
    const MARGIN: f64 = 1.1;

    /// Share of what a drafter could bring at best from which on it is tried as soon as its turn comes.
    const HOPEFUL: f64 = 0.5;
    /// How many times as rare as those of a hopeful drafter trials become at most.
    const RELUCTANCE: f64 = 8.0;

    /// Nothing measured yet; passes of up to `rows` rows, and longer ones as they come.
    pub fn new(rows: usize) -> Self {
        Self { verify: Curve::new(rows + 1), company: Company::default(), certainty: Certainty::default() }
    }

    /// Learns from a round.
    pub fn enter(&mut self, round: &Round) {
        self.enter_pass(round.company + 1 + round.drafted, round.verify);
    }

    /// Learns what a pass of `rows` rows took.
    pub fn enter_pass(&mut self, rows: usize, time: Duration) {
        self.verify.enter(rows, time);
    }

    /// Learns the probability of the target's likeliest token in a round without drafts.
    pub fn enter_certainty(&mut self, probability: f64) {
        self.certainty.enter(probability);
    }

    /// Lets what was learnt of the text age by tokens of which nothing was.
    pub(crate) fn age_certainty(&mut self, tokens: usize) {
        self.certainty.age(tokens);
    }

    /// Another text begins.
    pub(crate) fn forget_certainty(&mut self) {
        self.certainty = Certainty::default();
    }

    /// How many times as long as usual a trial of a drafter is put off that takes `draft` seconds a token.
    ///
    /// Where the target itself hesitates, a guess seldom stands: the share of a draft model's tokens that is accepted was found to be about the
    /// mean probability of the target's likeliest tokens, on code as on prose. What that leaves above the price of a token is what the drafter
    /// could bring; a trial costs the same however little that is. Tokens whose probabilities are not known put nothing off.
    pub fn reluctance(&self, draft: f64) -> f64 {
        let Some(certainty) = self.certainty.get() else { return 1.0 };
        let price = self.delay(draft + self.row()).min(1.0);
        let hope = (certainty - price).max(0.0);
        // Half as much to hope for is also half as likely to be found.
        let times = Self::HOPEFUL * (1.0 - price) / hope;
        if times.is_nan() { Self::RELUCTANCE } else { (times * times).clamp(1.0, Self::RELUCTANCE) }
    }

    /// Names prices among others from now on.
    pub fn among(&mut self, company: Company) {
        self.company = company;
    }

    /// Whether nobody shares the pass.
    pub fn is_alone(&self) -> bool {
        self.company == Company::default()
    }

    /// Rows of others in the pass.
    pub(crate) fn others(&self) -> usize {
        self.company.rows
    }

    /// Seconds of a round whose target pass has `rows` rows beside those of others: the time that their prompts add is not in it, for
    /// that is spent whatever is drafted. More rows never cost less.
    pub fn pass(&self, rows: usize) -> f64 {
        self.beside_others(rows, |rows| self.target(rows))
    }

    /// The same as it was measured, where times may contradict each other. Passes that hide drafting look shorter than they are: what they take
    /// says nothing of shorter ones.
    pub(crate) fn measured_pass(&self, rows: usize) -> f64 {
        self.beside_others(rows, |rows| self.verify.measured(rows))
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
        self.verify.at(rows)
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

    /// Whether a pass without drafts was measured, or a shorter one: what the rows of drafts add to it is no guess then.
    pub fn knows_plain(&self) -> bool {
        self.verify.entered.iter().any(|&rows| rows <= 1 + self.company.rows)
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

/// Seconds of a target pass by its rows, which never fall.
#[derive(Clone, Debug)]
struct Curve {
    times: Vec<Average>,
    /// Row counts with a time, the latest entered last.
    entered: Vec<usize>,
    /// Seconds by rows, from all times: asked far more often than anything is entered.
    rising: Vec<f64>,
}

impl Curve {
    /// What a row adds to a pass, as a share of a pass of one row, where nothing is measured.
    const ROW: f64 = 0.03;

    fn new(len: usize) -> Self {
        let mut curve = Self { times: vec![Average::default(); len], entered: Vec::new(), rising: Vec::new() };
        curve.sum_up();
        curve
    }

    fn enter(&mut self, rows: usize, time: Duration) {
        if rows >= self.times.len() {
            self.times.resize(rows + 1, Average::default());
        }
        self.times[rows].enter(time.as_secs_f64());
        self.entered.retain(|&entered| entered != rows);
        self.entered.push(rows);
        self.sum_up();
    }

    /// Of two times that contradict each other, since the longer pass took less, the later one counts: the earlier was disturbed, or is out
    /// of date.
    fn sum_up(&mut self) {
        let mut known = BTreeMap::new();
        for &rows in &self.entered {
            let time = self.times[rows].value;
            // They rise already, so that those which contradict it are its neighbours.
            let shorter = known.range_mut(..rows).rev().map(|(_, shorter)| shorter);
            shorter.take_while(|shorter| **shorter > time).for_each(|shorter| *shorter = time);
            let longer = known.range_mut(rows..).map(|(_, longer)| longer);
            longer.take_while(|longer| **longer < time).for_each(|longer| *longer = time);
            known.insert(rows, time);
        }
        let (mut below, mut above) = (None, known.into_iter().peekable());
        self.rising.clear();
        self.rising.extend((0..self.times.len()).map(|rows| match above.next_if(|&(next, _)| next == rows) {
            Some(here) => {
                below = Some(here);
                here.1
            }
            None => between(rows, below, above.peek().copied()),
        }));
    }

    /// The longest pass that was measured.
    fn most_rows(&self) -> usize {
        self.entered.iter().copied().max().unwrap_or(0)
    }

    /// As [`at`](Self::at), of the times as they were entered.
    fn measured(&self, rows: usize) -> f64 {
        let known = |rows: &usize| self.times[*rows].known;
        let entry = |rows: usize| (rows, self.times[rows].value);
        match rows < self.times.len() && self.times[rows].known {
            true => self.times[rows].value,
            false => {
                let below = (0..rows.min(self.times.len())).rev().find(known);
                let above = (rows + 1..self.times.len()).find(known);
                between(rows, below.map(entry), above.map(entry))
            }
        }
    }

    /// As measured, or between the nearest measured neighbours on a line, or beyond them by [`ROW`](Self::ROW).
    fn at(&self, rows: usize) -> f64 {
        match self.rising.get(rows) {
            Some(&time) => time,
            None => {
                let most = self.most_rows();
                between(rows, (most > 0).then(|| (most, self.rising[most])), None)
            }
        }
    }
}

/// Seconds of a pass of `rows` rows, from the nearest ones that are known, by rows and seconds.
fn between(rows: usize, below: Option<(usize, f64)>, above: Option<(usize, f64)>) -> f64 {
    let shape = |rows: usize| 1.0 + Curve::ROW * (rows as f64 - 1.0);
    match (below, above) {
        (Some((low, less)), Some((high, more))) => {
            let share = (rows - low) as f64 / (high - low) as f64;
            less * (1.0 - share) + more * share
        }
        (Some((near, time)), None) | (None, Some((near, time))) => time * shape(rows) / shape(near),
        (None, None) => shape(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_times_hold_and_move_those_that_contradict_them() {
        let (mut curve, mut state) = (Curve::new(9), 7_u64);
        for _ in 0..3000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (rows, time) = (1 + (state >> 33) as usize % 40, 1 + (state >> 43) % 90);
            curve.enter(rows, Duration::from_millis(time));
            // One after the other, in the order of their coming, each moves what it contradicts.
            let mut expected = vec![None; curve.times.len()];
            for &rows in &curve.entered {
                let time = curve.times[rows].value;
                expected[rows] = Some(time);
                expected[..rows].iter_mut().flatten().for_each(|shorter| *shorter = time.min(*shorter));
                expected[rows..].iter_mut().flatten().for_each(|longer| *longer = time.max(*longer));
            }
            let found: Vec<Option<f64>> =
                expected.iter().enumerate().map(|(rows, time)| time.map(|_| curve.at(rows))).collect();
            assert_eq!(found, expected);
            assert!(found.iter().flatten().is_sorted(), "{found:?}");
        }
    }
}
