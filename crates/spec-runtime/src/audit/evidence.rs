//! What judged tokens add up to.

use super::chances::{chi_square_tail, holm, seen_effect};
use super::distance::{Distance, Shares};
use super::judge::{Judged, ORDER, Place, polynomials};

/// Pieces of \[0, 1) that are counted: enough to show a lump, few enough to be full.
const PIECES: usize = 25;
/// Tokens for which the limit laws of the statistics hold well enough, at a level of some per cent.
const ENOUGH: u64 = 250;
/// Expected hits and misses of guesses, the same.
const ENOUGH_VARIANCE: f64 = 20.0;
/// The power that a resolution is stated for.
const POWER: f64 = 0.95;

/// Sums of polynomials.
#[derive(Clone, Debug, Default)]
struct Moments {
    count: u64,
    sums: [f64; ORDER],
}

impl Moments {
    fn add(&mut self, values: [f64; ORDER]) {
        self.count += 1;
        self.sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }

    fn question(&self, name: &'static str) -> Option<Question> {
        let statistic = self.sums.iter().map(|sum| sum * sum).sum::<f64>() / self.count as f64;
        (self.count >= ENOUGH).then(|| Question::new(name, self.count, statistic, ORDER as u32))
    }
}

/// A question put to the tokens, and the answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Question {
    /// What is compared, in a few words.
    pub name: &'static str,
    /// Tokens that say something about it.
    pub tokens: u64,
    /// Chi-square.
    pub statistic: f64,
    /// Its degrees of freedom.
    pub freedom: u32,
    /// How often chance alone does that, or more.
    pub p: f64,
    /// The same, corrected for the number of questions.
    pub adjusted: f64,
}

impl Question {
    fn new(name: &'static str, tokens: u64, statistic: f64, freedom: u32) -> Self {
        Self { name, tokens, statistic, freedom, p: chi_square_tail(statistic, freedom), adjusted: 1.0 }
    }
}

/// Whether tokens come from the target's law.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// Tokens judged.
    pub tokens: u64,
    /// Those of them where the target was not sure of one token: only these can show much.
    pub open: u64,
    /// Tokens that the target's law does not allow at all.
    pub impossible: u64,
    /// Texts compared token by token with plain decoding, and those that differ.
    pub compared: u64,
    /// See `compared`.
    pub unequal: u64,
    /// The questions that there were tokens enough for.
    pub questions: Vec<Question>,
    /// The level below which a p-value counts: the chance of an alarm without reason.
    pub alpha: f64,
    /// How often chance alone makes any of the answers so unlikely; 0 where a token is impossible or a text differs. `None`: too few
    /// tokens for any question.
    pub p: Option<f64>,
    /// The smallest share of the probability of open tokens, moved from the likelier half of the order to the other, that would have
    /// been seen 95 times of 100.
    pub resolution: Option<f64>,
    /// How far from the law, whatever the rule.
    pub distance: Distance,
}

impl Verdict {
    /// Whether something that the target's law does not do was seen.
    pub fn differs(&self) -> bool {
        self.impossible > 0 || self.unequal > 0 || self.p.is_some_and(|p| p < self.alpha)
    }

    /// Whether there was enough to say anything.
    pub fn is_conclusive(&self) -> bool {
        self.differs() || self.p.is_some() || self.compared > 0
    }
}

/// Judged tokens, counted.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    tokens: u64,
    impossible: u64,
    compared: u64,
    unequal: u64,
    pieces: [u64; PIECES],
    open: Moments,
    unsure: Moments,
    pairs: Moments,
    against_draft: Moments,
    behind_rejection: Moments,
    behind_acceptance: Moments,
    /// Guesses that the law gives less than a half, and the others: hits over what was expected, and its variance.
    guesses: [(u64, f64, f64); 2],
    shares: Shares,
    /// The open token before, within the same text.
    before: Option<f64>,
}

impl Evidence {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a token: those of a text one after another.
    pub fn add(&mut self, judged: &Judged) {
        self.tokens += 1;
        self.shares.add(judged);
        if let Some((hit, probability)) = judged.guess {
            let (count, over, variance) = &mut self.guesses[usize::from(probability >= 0.5)];
            *count += 1;
            *over += f64::from(u8::from(hit)) - probability;
            *variance += probability * (1.0 - probability);
        }
        let before = self.before.take();
        let Some(uniform) = judged.uniform else {
            self.impossible += 1;
            return;
        };
        // Where there is no choice, the number is the judge's own alone.
        if judged.certainty < 1.0 {
            self.pieces[(uniform * PIECES as f64) as usize] += 1;
        }
        if !judged.is_open() {
            return;
        }
        let values = polynomials(uniform);
        self.open.add(values);
        if let Some(uniform) = judged.against_draft {
            self.against_draft.add(polynomials(uniform));
        }
        if judged.certainty < 0.5 {
            self.unsure.add(values);
        }
        match judged.place {
            Place::Within => {}
            Place::BehindRejection => self.behind_rejection.add(values),
            Place::BehindAcceptance => self.behind_acceptance.add(values),
        }
        if let Some(before) = before {
            let earlier = polynomials(before);
            self.pairs.add([
                earlier[0] * values[0],
                earlier[0] * values[1],
                earlier[1] * values[0],
                earlier[1] * values[1],
            ]);
        }
        self.before = Some(uniform);
    }

    /// A text has ended; `equal` says whether it was what plain decoding gives, where that was compared.
    pub fn end_text(&mut self, equal: Option<bool>) {
        self.before = None;
        self.compared += u64::from(equal.is_some());
        self.unequal += u64::from(equal == Some(false));
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Answers all questions that there are tokens enough for, at the level `alpha` for all of them together.
    pub fn verdict(&self, alpha: f64) -> Verdict {
        let asked = [
            self.open.question("order of probability"),
            self.against_draft.question("order of what a draft favours"),
            self.unsure.question("order, where the target is unsure"),
            self.lumps(),
            self.pairs.question("independence of neighbours"),
            self.hits(),
            self.behind_rejection.question("order, behind a rejection"),
            self.behind_acceptance.question("order, behind a whole draft"),
        ];
        let mut questions: Vec<Question> = asked.into_iter().flatten().collect();
        let adjusted = holm(&questions.iter().map(|question| question.p).collect::<Vec<_>>());
        questions.iter_mut().zip(adjusted).for_each(|(question, adjusted)| question.adjusted = adjusted);
        let p = match self.impossible + self.unequal {
            0 => questions.iter().map(|question| question.adjusted).reduce(f64::min),
            _ => Some(0.0),
        };
        let resolution = (self.open.count >= ENOUGH).then(|| {
            // Half of the order gains a share s, the other loses it: squared means of 3 s^2 and 7/16 s^2 in the odd polynomials.
            let effect = seen_effect(alpha / questions.len().max(1) as f64, ORDER as u32, POWER);
            (effect / (self.open.count as f64 * (3.0 + 7.0 / 16.0))).sqrt()
        });
        Verdict {
            tokens: self.tokens,
            open: self.open.count,
            impossible: self.impossible,
            compared: self.compared,
            unequal: self.unequal,
            questions,
            alpha,
            p,
            resolution: resolution.filter(|&share| share <= 0.5),
            distance: self.shares.distance(),
        }
    }

    /// Whether any piece has too many tokens, or too few.
    fn lumps(&self) -> Option<Question> {
        let all: u64 = self.pieces.iter().sum();
        let expected = all as f64 / PIECES as f64;
        let statistic = self.pieces.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
        (all >= ENOUGH).then(|| Question::new("pieces of the order", all, statistic, PIECES as u32 - 1))
    }

    /// Whether a drafter's guesses are emitted as often as they should be.
    fn hits(&self) -> Option<Question> {
        let enough = |&&(_, _, variance): &&(u64, f64, f64)| variance >= ENOUGH_VARIANCE;
        let told: Vec<_> = self.guesses.iter().filter(enough).collect();
        let tokens = told.iter().map(|(count, ..)| count).sum();
        let statistic = told.iter().map(|(_, over, variance)| over * over / variance).sum();
        (!told.is_empty()).then(|| Question::new("tokens a drafter guesses", tokens, statistic, told.len() as u32))
    }
}
