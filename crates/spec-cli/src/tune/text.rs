//! Texts as a record shows them: for each position whether the drafter would have been right.

use crate::record::{RequestRecord, Round};

/// What the drafter has to say of a position behind the right text before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) enum Guess {
    /// The token that comes.
    Right,
    /// Another one.
    Wrong,
    /// Nothing, though it was asked.
    Nothing,
    /// Not known: it was not asked, or its draft ended before.
    Unknown,
}

impl Guess {
    pub(super) const KNOWN: [Self; 3] = [Self::Right, Self::Wrong, Self::Nothing];
}

/// The answer of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub(super) prompt_len: usize,
    /// Its tokens behind the first, which the prompt gives.
    pub(super) guesses: Vec<Guess>,
}

impl Text {
    /// What the rounds of a request say. `stops` tells whether its drafts ended for want of a guess: where they end because more would
    /// not pay, what is behind their ends is not known.
    ///
    /// Under a rule that keeps the target's own tokens, drafts behind the right text are the same whatever the round before was, so
    /// that each round tells of its positions; a draft that was kept whole says nothing of the token behind it.
    pub(super) fn of(request: &RequestRecord, stops: bool) -> Self {
        let first = request.rounds.first();
        let prompt_len = first.map_or(0, |round| round.length);
        let mut guesses = Vec::new();
        for round in request.rounds.iter().filter(|round| round.round > 0 && !round.forced) {
            guesses.extend(std::iter::repeat_n(Guess::Right, round.accepted));
            // A stop may have cut the round among its drafted tokens.
            if round.emitted > round.accepted {
                guesses.push(end(round, stops));
            }
        }
        Self { prompt_len, guesses }
    }
}

/// What a round says of the token that is the target's own.
fn end(round: &Round, stops: bool) -> Guess {
    if round.rejection.is_some() {
        Guess::Wrong
    } else if stops && round.drafted() < round.budget {
        Guess::Nothing
    } else {
        Guess::Unknown
    }
}

/// Drafts that came to a depth, and those of them that stood there.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Depth {
    /// Rounds that were right up to here and could go on: the rest is censored.
    pub(super) reached: usize,
    pub(super) kept: usize,
    /// Share of drafts that stand this far (Kaplan and Meier's estimate).
    pub(super) survival: f64,
}

/// How far drafts stand: by depth, the share of those that came so far. A draft that was not allowed to go on counts nowhere behind its
/// end, and neither does one that a stop cut.
pub(super) fn survival<'a>(requests: impl Iterator<Item = (&'a RequestRecord, bool)>) -> Vec<Depth> {
    let mut depths: Vec<Depth> = Vec::new();
    for (request, stops) in requests {
        for round in request.rounds.iter().filter(|round| round.round > 0 && !round.forced && round.budget > 0) {
            let ended = round.emitted > round.accepted && end(round, stops) != Guess::Unknown;
            let reached = round.accepted + usize::from(ended);
            if depths.len() < reached {
                depths.resize(reached, Depth::default());
            }
            depths[..reached].iter_mut().for_each(|depth| depth.reached += 1);
            depths[..round.accepted].iter_mut().for_each(|depth| depth.kept += 1);
        }
    }
    let mut survival = 1.0;
    for depth in &mut depths {
        survival *= depth.kept as f64 / depth.reached as f64;
        depth.survival = survival;
    }
    depths
}

/// Which guess follows which, for positions of which nothing is known.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// Counts of what follows a right guess, a wrong one, none, and of all.
    following: [[f64; 3]; 4],
}

impl Habits {
    pub(super) fn of<'a>(texts: impl Iterator<Item = &'a Text>) -> Self {
        let index = |guess: Guess| Guess::KNOWN.iter().position(|&known| known == guess);
        let mut following = [[0.0; 3]; 4];
        for text in texts {
            let mut before: Option<usize> = None;
            for &guess in &text.guesses {
                if let Some(now) = index(guess) {
                    following[3][now] += 1.0;
                    if let Some(before) = before {
                        following[before][now] += 1.0;
                    }
                }
                before = index(guess);
            }
        }
        Self { following }
    }

    /// A guess behind another, by a number between 0 and 1.
    pub(super) fn draw(&self, before: Guess, uniform: f64) -> Guess {
        // Few cases say little: those of all positions count as two more.
        let all: f64 = self.following[3].iter().sum();
        let Some(own) = Guess::KNOWN.iter().position(|&known| known == before).map(|index| self.following[index])
        else {
            return Self::pick(self.following[3], uniform);
        };
        let prior = self.following[3].map(|count| if all > 0.0 { 2.0 * count / all } else { 0.0 });
        Self::pick([own[0] + prior[0], own[1] + prior[1], own[2] + prior[2]], uniform)
    }

    fn pick(weights: [f64; 3], uniform: f64) -> Guess {
        let mut left = uniform * weights.iter().sum::<f64>();
        for (guess, weight) in Guess::KNOWN.into_iter().zip(weights) {
            left -= weight;
            if left < 0.0 {
                return guess;
            }
        }
        Guess::Nothing
    }

    /// The text with every guess known.
    pub(super) fn fill(&self, text: &Text, random: &mut impl FnMut() -> f64) -> Text {
        let mut before = Guess::Unknown;
        let guesses = text
            .guesses
            .iter()
            .map(|&guess| {
                before = if guess == Guess::Unknown { self.draw(before, random()) } else { guess };
                before
            })
            .collect();
        Text { guesses, ..*text }
    }
}
