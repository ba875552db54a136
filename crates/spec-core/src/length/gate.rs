use core::mem;

use super::{DraftCost, Prices};

/// Decides when a drafter is asked: one that does not pay is left alone, and tried again now and then.
///
/// A free drafter is tried every [`FREE_GAP`](Self::FREE_GAP) tokens, a model after [`MODEL_GAP`](Self::MODEL_GAP) tokens, then half
/// as many again after each trial that fails, up to two fifths of the tokens generated so far, so that trials become exponentially
/// rare. A model on trial looks at a few dozen tokens of context only: the text it has missed is caught up on when trials say
/// that it is worth it, the more of them the longer that takes ([`ask_reader`](Self::ask_reader)).
///
/// While the target is unsure of its own tokens, so that little of a draft could stand, trials are put off ([`Prices::reluctance`]), the
/// first, where nobody else waits, by one gap at most.
///
/// Among others a trial delays them all. None is made where not even a token that is certain to be accepted would pay, and trials are
/// as much rarer as they cost more tokens than where nobody waits.
#[derive(Clone, Debug)]
pub struct Gate {
    cost: DraftCost,
    /// Tokens emitted so far.
    generated: usize,
    mode: Mode,
    trials: usize,
    /// Whether the last trial succeeded, and no draft was turned down since.
    promises: bool,
    /// Tokens accepted in trials since the drafter last rested.
    proven: usize,
    /// Rests since a trial last succeeded.
    failures: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    Trying,
    Resting { since: usize, gap: usize },
}

/// Tokens of a trial of a free drafter, at most.
const FREE_TOKENS: usize = 4;
/// The same where nobody else waits: whether the first one stands is what is asked, and each further row delays the answer. Among others
/// trials are rarer, and have to tell more.
const FREE_TOKENS_ALONE: usize = 2;

/// Whether a drafter is asked in the coming round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// It is left alone.
    No,
    /// It drafts a little, to see.
    Try {
        /// Tokens to draft at most.
        tokens: usize,
        /// Tokens of context to look at; `None` is all.
        context: Option<usize>,
    },
    /// It drafts what pays.
    Yes,
}

impl Gate {
    /// Tokens between trials of a free drafter.
    pub const FREE_GAP: usize = 16;
    /// Tokens between trials of a draft model, at least.
    pub const MODEL_GAP: usize = 29;
    /// Context of a draft model's trial that comes first and at once, and of later ones.
    const TRIAL_CONTEXT: [usize; 2] = [72, 16];

    /// What a draft model that pays may spare of an answer's time. Reading must not take more of what is left.
    const SPARED: f64 = 0.2;
    /// Passes of its model that a trial takes, what it reads included.
    const TRIAL_PASSES: f64 = 3.0;
    /// Tokens that reading may delay the answer by for each token that trials have got accepted.
    const DELAY_PER_PROOF: f64 = 4.0;

    /// A gate that asks for a trial once one token is out.
    pub fn new(cost: DraftCost) -> Self {
        Self {
            cost,
            generated: 0,
            mode: Mode::Resting { since: 0, gap: 1 },
            trials: 0,
            promises: false,
            proven: 0,
            failures: 0,
        }
    }

    /// Whether the drafter is asked now. A trial of a free drafter has as many tokens as its rows are cheap; `pass` are the seconds of
    /// a pass of its model.
    pub fn ask(&mut self, prices: &Prices, pass: f64) -> Ask {
        if self.mode != Mode::Open && !prices.sure_token_pays(pass) {
            return Ask::No;
        }
        if let Mode::Resting { since, gap } = self.mode
            && self.generated >= since + (gap as f64 * self.patience(prices) + self.put_off(prices, pass)) as usize
        {
            self.mode = Mode::Trying;
        }
        match (self.current(), self.cost) {
            (Ask::Try { tokens, context }, DraftCost::Free) => {
                let most = if prices.is_alone() { FREE_TOKENS_ALONE } else { tokens };
                Ask::Try { tokens: prices.trial_tokens(most), context }
            }
            (ask, _) => ask,
        }
    }

    /// The same of a draft model that reads text for `reading` seconds before it drafts with all of it, in an answer that has at most
    /// `left` tokens to come.
    pub fn ask_reader(&mut self, prices: &Prices, pass: f64, reading: f64, left: usize) -> Ask {
        let is_worth = |seconds: f64| prices.delay(seconds) <= Self::SPARED * left as f64;
        match self.ask(prices, pass) {
            Ask::Try { .. } if !is_worth(Self::TRIAL_PASSES * pass) => Ask::No,
            Ask::Yes if !is_worth(reading) => Ask::No,
            Ask::Yes if self.proven as f64 * Self::DELAY_PER_PROOF <= prices.delay(reading) => self.trial(),
            ask => ask,
        }
    }

    /// Tokens that a trial waits beyond its time because a draft could bring little. Where nobody else waits the first one waits once: a drafter
    /// may know better.
    fn put_off(&self, prices: &Prices, pass: f64) -> f64 {
        let most = if self.trials == 0 && prices.is_alone() { 1.0 } else { f64::INFINITY };
        (prices.reluctance(pass) - 1.0).min(most) * self.usual_gap() as f64
    }

    /// Tokens between trials, at least.
    fn usual_gap(&self) -> usize {
        match self.cost {
            DraftCost::Free | DraftCost::Weighed => Self::FREE_GAP,
            DraftCost::Model => Self::MODEL_GAP,
        }
    }

    /// How many times as long as where nobody waits a trial is put off.
    fn patience(&self, prices: &Prices) -> f64 {
        if prices.is_alone() {
            return 1.0;
        }
        /// Drafts gain less among others, and trials may take less.
        const RARER: f64 = 2.0;
        let dearer = match self.cost {
            DraftCost::Model => prices.delay(prices.target(1)),
            DraftCost::Free | DraftCost::Weighed => {
                let rows = prices.trial_tokens(FREE_TOKENS);
                prices.delay(prices.rows(rows)) / Prices::TRIAL
            }
        };
        RARER * dearer.max(1.0)
    }

    /// What [`ask`](Self::ask) said last, before the price of a trial is looked at.
    pub fn current(&self) -> Ask {
        match self.mode {
            Mode::Open => Ask::Yes,
            Mode::Resting { .. } => Ask::No,
            Mode::Trying => self.trial(),
        }
    }

    fn trial(&self) -> Ask {
        match self.cost {
            DraftCost::Model => {
                let is_late = self.trials > 0 || self.generated > Self::TRIAL_CONTEXT[1];
                Ask::Try { tokens: 2, context: Some(Self::TRIAL_CONTEXT[usize::from(is_late)]) }
            }
            DraftCost::Free | DraftCost::Weighed => Ask::Try { tokens: FREE_TOKENS, context: None },
        }
    }

    /// Counts emitted tokens.
    pub fn advance(&mut self, emitted: usize) {
        self.generated += emitted;
    }

    /// Tells how many tokens of a trial were accepted; with one it succeeded.
    pub fn tried(&mut self, accepted: usize) {
        self.trials += 1;
        self.promises = accepted > 0;
        if accepted > 0 {
            self.proven += accepted;
            self.mode = Mode::Open;
            self.failures = 0;
        } else {
            self.rest();
        }
    }

    /// Leaves a drafter alone whose drafts are not worth their rows. Rows that cost little pay by what is assumed of a drafter; among
    /// others they are dear, and one that a trial has spoken for is tried until enough is known of it.
    pub fn turn_down(&mut self, prices: &Prices) {
        if mem::take(&mut self.promises) && !prices.is_alone() {
            self.mode = Mode::Trying;
        } else {
            self.rest();
        }
    }

    /// Leaves the drafter alone for a while.
    pub fn rest(&mut self) {
        let gap = match self.cost {
            DraftCost::Free | DraftCost::Weighed => self.usual_gap(),
            DraftCost::Model => {
                let grown = (0..self.failures).fold(Self::MODEL_GAP, |gap, _| (gap * 3 / 2).min(self.generated));
                Self::MODEL_GAP.max(grown.min(self.generated * 2 / 5))
            }
        };
        self.failures += 1;
        self.proven = 0;
        self.mode = Mode::Resting { since: self.generated, gap };
    }
}
