//! Texts of an engine, judged.

use std::sync::Arc;

use parking_lot::Mutex;
use spec_core::Token;

use super::{Beliefs, Evidence, Guesses, Judge, Judged, Place, PlainLaws, Verdict};
use crate::{Engine, Request, RoundObserver, RoundReport, RuntimeError, SpeculationStats};

/// Runs texts of an engine and judges their tokens.
pub struct Audit<'a> {
    engine: &'a mut Engine,
    laws: PlainLaws,
    guesses: Option<Guesses>,
    draft: Option<PlainLaws>,
    plain: Option<Engine>,
    places: bool,
    judge: Judge,
    evidence: Evidence,
    speculation: SpeculationStats,
}

impl<'a> Audit<'a> {
    /// An audit of `engine` by laws of the same target. Randomness of its own comes from `seed`.
    pub fn new(engine: &'a mut Engine, laws: PlainLaws, seed: u64) -> Self {
        Self {
            engine,
            laws,
            guesses: None,
            draft: None,
            plain: None,
            places: false,
            judge: Judge::new(seed),
            evidence: Evidence::new(),
            speculation: SpeculationStats::default(),
        }
    }

    /// Asks also whether what a drafter guesses comes as often as it should: where faults of speculation show first.
    #[must_use]
    pub fn with_guesses(mut self, guesses: Guesses) -> Self {
        self.guesses = Some(guesses);
        self
    }

    /// Orders tokens also by what the draft model of these laws, which are over the same tokens, thinks more of than the target: the
    /// sharpest question to rules that weigh one against the other.
    #[must_use]
    pub fn against_draft(mut self, draft: PlainLaws) -> Self {
        self.draft = Some(draft);
        self
    }

    /// Compares every text with what this engine, which has no drafter, writes: for rules whose output is equal, not only of equal law.
    #[must_use]
    pub fn equal_to(mut self, plain: Engine) -> Self {
        self.plain = Some(plain);
        self
    }

    /// Asks also whether rounds begin as they should. Only for rules that draw afresh in every round: under shared noise, the length of
    /// a round can depend on noise that later tokens are drawn with.
    #[must_use]
    pub fn with_places(mut self) -> Self {
        self.places = true;
        self
    }

    /// Runs a text, given as what makes its request, and judges its first `most` tokens; gives how many those are.
    ///
    /// # Errors
    /// What the engine, the drafter or the target's device report.
    pub fn text(&mut self, request: &dyn Fn() -> Request, most: usize) -> Result<usize, RuntimeError> {
        let written = Written::default();
        let mut asked = request();
        let (prompt, sampling) = (asked.prompt.clone(), asked.sampling.clone());
        asked.observers.push(Box::new(written.clone()));
        let completion = self.engine.generate(asked, &mut |_| {})?;
        self.speculation += &completion.speculation;
        let equal = match &mut self.plain {
            Some(plain) => {
                let expected = plain.generate(request(), &mut |_| {})?;
                Some(expected.tokens == completion.tokens && expected.finish == completion.finish)
            }
            None => None,
        };
        let (mut tokens, mut places): (Vec<Token>, Vec<Place>) = written.0.lock().tokens.drain(..).unzip();
        tokens.truncate(most);
        if !self.places {
            places.fill(Place::Within);
        }
        let guesses = match &mut self.guesses {
            Some(guesses) => guesses.read(&prompt, &tokens, &sampling, self.laws.vocab())?,
            None => vec![None; tokens.len()],
        };
        self.laws.begin(&prompt, &sampling)?;
        if let Some(draft) = &mut self.draft {
            draft.begin(&prompt, &sampling)?;
        }
        let mut believed = Vec::new();
        for ((&token, place), guess) in tokens.iter().zip(places).zip(guesses) {
            if let Some(draft) = &mut self.draft {
                draft.law()?.probabilities(&mut believed);
                draft.push(token);
            }
            let judged = self.judge.judge(&self.laws.law()?, token, Beliefs { guess, draft: &believed });
            self.evidence.add(&Judged { place, ..judged });
            self.laws.push(token);
        }
        self.evidence.end_text(equal);
        Ok(tokens.len())
    }

    /// What has been counted so far.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// What speculation did: without drafts an audit says nothing of it.
    pub fn speculation(&self) -> &SpeculationStats {
        &self.speculation
    }

    /// What the texts so far come to.
    pub fn verdict(&self, alpha: f64) -> Verdict {
        self.evidence.verdict(alpha)
    }
}

/// The tokens of a text with their places, an end token included.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    tokens: Vec<(Token, Place)>,
    /// Whether the round before ended with a rejection.
    rejected: bool,
}

impl RoundObserver for Written {
    fn round(&mut self, report: &RoundReport<'_>) {
        let mut pages = self.0.lock();
        let first = match (report.round, pages.rejected) {
            // What a prompt is followed by is no round's.
            (0, _) => Place::Within,
            (_, true) => Place::BehindRejection,
            (_, false) => Place::BehindAcceptance,
        };
        let places = std::iter::once(first).chain(std::iter::repeat(Place::Within));
        pages.tokens.extend(report.emitted.iter().copied().zip(places));
        pages.rejected = report.outcome.rejection.is_some();
    }
}
