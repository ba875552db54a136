use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{DraftCost, LengthPolicy, Round, Start};

/// Drafts what gives the most expected tokens per second, which may be nothing.
///
/// A round of k draft tokens emits `E(k) = 1 + a_1 + a_1 a_2 + ...` tokens in expectation, with `a_j` the share of drafts kept at
/// position j among those kept before it, and takes `T(k) = k d + V(k + 1)`, with d the drafter's time per token and `V(r)` the time
/// of a target pass of r rows. All of it is measured as rounds go by; the length is the k that maximises `E(k) / T(k)`.
///
/// A drafter that does not pay is left alone and tried again: a free one every [`FREE_GAP`](Self::FREE_GAP) tokens, a model after
/// [`MODEL_GAP`](Self::MODEL_GAP) tokens, then half as many again after each trial that fails, up to two fifths of the tokens
/// generated so far, so that trials become exponentially rare. A trial drafts two to four tokens, and a model looks at a few dozen tokens of context only: the text it
/// has missed is caught up on when the trial says that it is worth it.
#[derive(Clone, Debug)]
pub struct Goodput {
    most: usize,
    drafter: DraftCost,
    /// Tokens emitted in rounds so far.
    generated: usize,
    /// Committed tokens that the drafter has not seen.
    behind: usize,
    mode: Mode,
    trials: usize,
    /// Rests since it last drafted by its estimate.
    failures: i32,
    positions: Vec<Position>,
    verify: Curve,
    /// Seconds per drafted token.
    draft: Average,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Drafts by the estimate.
    Drafting,
    /// Drafts a little, to see.
    Trying,
    /// Does not draft until so many tokens are generated.
    Resting { until: usize },
}

/// How often a draft position was reached, and kept; older rounds count less.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    reached: f64,
    kept: f64,
}

impl Goodput {
    /// Tokens between trials of a free drafter.
    pub const FREE_GAP: usize = 16;
    /// Tokens between trials of a draft model, at least.
    pub const MODEL_GAP: usize = 29;
    /// Draft tokens of a trial, by cost.
    const TRIAL: [usize; 2] = [4, 2];
    /// Context of a draft model's first trial, and of later ones.
    const TRIAL_CONTEXT: [usize; 2] = [48, 12];
    /// What a round's counts keep of their weight a round later.
    const MEMORY: f64 = 0.92;
    /// The same for positions that the round did not reach: they are forgotten too, so that longer drafts are tried again.
    const DISTANT_MEMORY: f64 = 0.98;
    /// Weight of the pooled acceptance in the estimate of one position.
    const POOL: f64 = 2.0;
    /// A caught-up token as a share of a drafted one: it goes through a pass of many rows.
    const CATCH_UP: f64 = 1.0 / 14.0;

    /// Drafts up to `most` tokens a round.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            drafter: DraftCost::Model,
            generated: 0,
            behind: 0,
            mode: Mode::Resting { until: 1 },
            trials: 0,
            failures: 0,
            positions: vec![Position::default(); most],
            verify: Curve { times: vec![Average::default(); most + 2] },
            draft: Average::default(),
        }
    }

    /// Whether it drafts by its estimate, rather than resting or trying.
    pub fn is_drafting(&self) -> bool {
        self.mode == Mode::Drafting
    }

    fn trial_length(&self) -> usize {
        Self::TRIAL[self.drafter as usize].min(self.most)
    }

    fn rest(&mut self) {
        let gap = match self.drafter {
            DraftCost::Free => Self::FREE_GAP,
            DraftCost::Model => {
                let grown = (0..self.failures).fold(Self::MODEL_GAP, |gap, _| (gap * 3 / 2).min(self.generated));
                Self::MODEL_GAP.max(grown.min(self.generated * 2 / 5))
            }
        };
        self.failures += 1;
        self.mode = Mode::Resting { until: self.generated + gap };
    }

    /// The k with the most expected tokens per second.
    fn best_length(&self) -> usize {
        let (kept, reached) = self.positions.iter().fold((1.0, 2.0), |sum, p| (sum.0 + p.kept, sum.1 + p.reached));
        let pooled = kept / reached;
        let (mut best, mut best_rate) = (0, 0.0);
        let (mut tokens, mut survives) = (1.0, 1.0);
        // The cost of far longer passes than any seen is a guess: lengths at most double.
        let most = self.most.min(2 * self.verify.most_rows().max(1));
        for length in 0..=most {
            if let Some(position) = length.checked_sub(1).map(|index| self.positions[index]) {
                survives *= (position.kept + Self::POOL * pooled) / (position.reached + Self::POOL);
                tokens += survives;
            }
            let time = length as f64 * self.draft.value + self.verify.at(1 + length);
            let rate = tokens / time;
            if rate > best_rate {
                (best, best_rate) = (length, rate);
            }
        }
        best
    }

    fn count(&mut self, round: &Round) {
        let reached = round.drafted.min(round.accepted + 1);
        for (index, position) in self.positions.iter_mut().enumerate() {
            let memory = if index < reached { Self::MEMORY } else { Self::DISTANT_MEMORY };
            position.reached = position.reached * memory + f64::from(u8::from(index < reached));
            position.kept = position.kept * memory + f64::from(u8::from(index < round.accepted));
        }
    }
}

impl Default for Goodput {
    fn default() -> Self {
        Self::new(16)
    }
}

impl LengthPolicy for Goodput {
    fn start(&mut self, start: Start) {
        // What passes cost is worth keeping from one generation to the next; what drafts were worth is not.
        let (verify, draft) = (core::mem::take(&mut self.verify.times), self.draft);
        let same = self.drafter == start.drafter;
        *self = Self::new(self.most);
        self.verify.times = verify;
        self.draft = if same { draft } else { Average::default() };
        self.drafter = start.drafter;
        self.behind = start.prompt_len;
    }

    fn next(&mut self) -> usize {
        if let Mode::Resting { until } = self.mode
            && self.generated >= until
            && self.most > 0
        {
            self.mode = Mode::Trying;
        }
        match self.mode {
            Mode::Resting { .. } => 0,
            Mode::Trying => self.trial_length(),
            Mode::Drafting => match self.best_length() {
                0 => {
                    self.rest();
                    0
                }
                length => length,
            },
        }
    }

    fn context(&self) -> Option<usize> {
        let trying = self.mode == Mode::Trying && self.drafter == DraftCost::Model;
        trying.then(|| Self::TRIAL_CONTEXT[usize::from(self.trials > 0)])
    }

    fn observe(&mut self, round: &Round) {
        self.generated += round.emitted;
        self.verify.enter(1 + round.drafted, round.verify);
        if round.drafted == 0 {
            self.behind += round.emitted;
            return;
        }
        let caught_up = match (self.drafter, self.context()) {
            (DraftCost::Free, _) => 0,
            (DraftCost::Model, Some(context)) => context.min(self.behind),
            (DraftCost::Model, None) => self.behind,
        };
        self.draft.enter(round.draft.as_secs_f64() / (round.drafted as f64 + caught_up as f64 * Self::CATCH_UP));
        match self.mode {
            Mode::Trying => {
                self.trials += 1;
                self.behind += round.emitted;
                if round.accepted > 0 {
                    // Earlier failures are no longer true.
                    self.positions.fill(Position::default());
                    self.mode = Mode::Drafting;
                    self.failures = 0;
                } else {
                    self.rest();
                }
            }
            _ => self.behind = 0,
        }
        self.count(round);
    }
}

/// An average in which recent values weigh more, and single outliers little.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    value: f64,
    known: bool,
}

impl Average {
    fn enter(&mut self, value: f64) {
        if self.known {
            self.value += 0.25 * (value.min(2.0 * self.value) - self.value);
        } else {
            *self = Self { value, known: true };
        }
    }
}

/// Seconds of a target pass by its rows.
#[derive(Clone, Debug)]
struct Curve {
    times: Vec<Average>,
}

impl Curve {
    /// What a row adds to a pass, as a share of a pass of one row, where nothing is measured.
    const ROW: f64 = 0.03;

    fn enter(&mut self, rows: usize, time: Duration) {
        if let Some(average) = self.times.get_mut(rows) {
            average.enter(time.as_secs_f64());
        }
    }

    /// The longest pass that was measured.
    fn most_rows(&self) -> usize {
        self.times.iter().rposition(|average| average.known).unwrap_or(0)
    }

    /// Measured, or between the nearest measured neighbours on a line, or beyond them by [`ROW`](Self::ROW).
    fn at(&self, rows: usize) -> f64 {
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
