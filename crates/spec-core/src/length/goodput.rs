use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::prices::{Average, Prices};
use super::{Ask, Company, DraftCost, Gate, LengthPolicy, Round, Start};

/// Drafts what gives the most expected tokens per second, which may be nothing.
///
/// A round of k draft tokens emits `E(k) = 1 + a_1 + a_1 a_2 + ...` tokens in expectation, with `a_j` the share of drafts kept at
/// position j among those kept before it, and takes `T(k) = k d + V(k + 1)`, with d the drafter's time per token and `V(r)` the time
/// of a target pass of r rows. All of it is measured as rounds go by; the length is the k that maximises `E(k) / T(k)`.
///
/// Where drafts are made ahead, while the target verifies, a round whose forerunner stood up to its end, the token behind it included,
/// finds its draft made: it waits for what the k + 1 passes took longer than the target's, `max(0, (k + 1) d - V(k + 1))`, in the place of
/// `k d`. It does so with probability `a_1 ... a_(k+1)`.
///
/// Among other generations the tokens of all count, and the rows and the drafting of all: see [`Company`].
///
/// A drafter that does not pay is left alone and tried again, as [`Gate`] says. To a drafter that weighs its own drafts it leaves
/// the choice and names [`Prices`].
#[derive(Clone, Debug)]
pub struct Goodput {
    most: usize,
    drafter: DraftCost,
    gate: Gate,
    /// Committed tokens that the drafter has not seen.
    behind: usize,
    positions: Vec<Position>,
    prices: Prices,
    /// Rounds so far, and whether the last one told of the target's certainty.
    rounds: usize,
    heard: bool,
    /// Seconds per drafted token.
    draft: Average,
    /// Whether drafts are made ahead.
    overlaps: bool,
}

/// How often a draft position was reached, and kept; older rounds count less.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    reached: f64,
    kept: f64,
}

impl Goodput {
    /// What a round's counts keep of their weight a round later.
    const MEMORY: f64 = 0.92;
    /// The same for positions that the round did not reach: they are forgotten too, so that longer drafts are tried again.
    const DISTANT_MEMORY: f64 = 0.98;
    /// Weight of the pooled acceptance in the estimate of one position.
    const POOL: f64 = 2.0;

    /// Tokens that it drafts at most where nothing is said.
    pub const MOST: usize = 32;

    /// Drafts up to `most` tokens a round.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            drafter: DraftCost::Model,
            gate: Gate::new(DraftCost::Model),
            behind: 0,
            positions: vec![Position::default(); most],
            prices: Prices::new(most + 1),
            rounds: 0,
            heard: false,
            draft: Average::default(),
            overlaps: false,
        }
    }

    /// Whether it drafts by its estimate, rather than resting or trying.
    pub fn is_drafting(&self) -> bool {
        self.gate.current() == Ask::Yes
    }

    /// The k with the most expected tokens per second.
    fn best_length(&self) -> usize {
        let (kept, reached) = self.positions.iter().fold((1.0, 2.0), |sum, p| (sum.0 + p.kept, sum.1 + p.reached));
        let pooled = kept / reached;
        let stands = |index: usize| {
            let position = self.positions.get(index).copied().unwrap_or_default();
            (position.kept + Self::POOL * pooled) / (position.reached + Self::POOL)
        };
        let draft = self.draft.get().unwrap_or(0.0);
        let (mut best, mut best_rate) = (0, 0.0);
        let (mut tokens, mut survives) = (1.0, 1.0);
        let most = self.most.min(self.prices.known_length());
        for length in 0..=most {
            if let Some(last) = length.checked_sub(1) {
                survives *= stands(last);
                tokens += survives;
            }
            let rows = 1 + length;
            let verify = if self.overlaps { self.prices.measured_pass(rows) } else { self.prices.pass(rows) };
            let mut drafting = length as f64 * draft;
            if self.overlaps && length > 0 {
                let made_ahead = survives * stands(length);
                let late = ((length + 1) as f64 * draft - verify).max(0.0);
                drafting = (1.0 - made_ahead) * drafting + made_ahead * late;
            }
            let rate = self.prices.tokens(tokens) / (drafting + verify);
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
        Self::new(Self::MOST)
    }
}

impl LengthPolicy for Goodput {
    fn start(&mut self, start: Start) {
        // What passes cost is worth keeping from one generation to the next; what drafts were worth is not.
        let (prices, draft) = (self.prices.clone(), self.draft);
        let same = self.drafter == start.drafter;
        *self = Self::new(self.most);
        self.prices = prices;
        self.prices.forget_certainty();
        self.gate = Gate::new(start.drafter);
        self.draft = if same { draft } else { Average::default() };
        self.drafter = start.drafter;
        self.behind = start.prompt_len;
    }

    fn learn(&mut self, prices: &Prices) {
        self.prices = prices.clone();
    }

    fn among(&mut self, company: Company) {
        self.prices.among(company);
    }

    fn next(&mut self) -> usize {
        if self.drafter == DraftCost::Weighed {
            return self.most.min(self.prices.known_rows());
        }
        match self.gate.ask(&self.prices, self.draft.get().unwrap_or(0.0)) {
            Ask::No => 0,
            Ask::Try { tokens, .. } => tokens.min(self.most),
            Ask::Yes => match self.best_length() {
                0 => {
                    self.gate.turn_down(&self.prices);
                    0
                }
                length => length,
            },
        }
    }

    fn context(&self) -> Option<usize> {
        match self.gate.current() {
            Ask::Try { context, .. } => context,
            Ask::No | Ask::Yes => None,
        }
    }

    fn prices(&self) -> Option<&Prices> {
        (self.drafter == DraftCost::Weighed).then_some(&self.prices)
    }

    /// For the sake of draft models. Of those who share a pass one asks at a time: it takes a sum over the vocabulary, which they all wait for.
    fn listens(&self) -> bool {
        self.drafter != DraftCost::Free && self.rounds.is_multiple_of(1 + self.prices.others())
    }

    fn hear(&mut self, probability: f64) {
        self.prices.enter_certainty(probability);
        self.heard = true;
    }

    fn observe(&mut self, round: &Round) {
        // What the drafter looked at, which changes as the text goes on.
        let looked_at = self.context();
        self.gate.advance(round.emitted);
        self.prices.enter(round);
        self.rounds += 1;
        let heard = mem::take(&mut self.heard);
        if round.drafted > 0 || !heard {
            self.prices.age_certainty(round.emitted);
        }
        self.overlaps = round.ahead.is_some();
        if self.drafter == DraftCost::Weighed {
            return;
        }
        if round.drafted == 0 {
            self.behind += round.emitted;
            return;
        }
        let caught_up = match (self.drafter, looked_at) {
            (DraftCost::Free | DraftCost::Weighed, _) => 0,
            (DraftCost::Model, Some(context)) => context.min(self.behind),
            (DraftCost::Model, None) => self.behind,
        };
        // A draft made ahead took a pass more, for the guess that it stands on.
        let ahead = round.ahead.unwrap_or_default();
        let guessed = !ahead.is_zero();
        let tokens = round.drafted as f64 + f64::from(u8::from(guessed)) + caught_up as f64 * Prices::CATCH_UP;
        self.draft.enter((round.draft + ahead).as_secs_f64() / tokens);
        if let Ask::Try { .. } = self.gate.current() {
            self.behind += round.emitted;
            if round.accepted > 0 && self.prices.is_alone() {
                // Earlier failures are no longer true. Where rows are dear, one success does not say so.
                self.positions.fill(Position::default());
            }
            self.gate.tried(round.accepted);
        } else {
            self.behind = 0;
        }
        self.count(round);
    }
}
