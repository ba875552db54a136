//! Which tokens a draft model scores: those that text is mostly made of, and those that the present text uses.

use spec_core::Token;

use crate::{Model, RuntimeError, Want};

/// A draft model's shortlist, learnt from the prompts and from what the target emits.
///
/// Byte-pair vocabularies number tokens by how early they were merged, so low ids are frequent ones.
#[derive(Debug)]
pub(super) struct Shortlist {
    listed: Vec<bool>,
    /// Share of emitted tokens of late that were not listed when they came.
    missed: f64,
}

impl Shortlist {
    /// The share of the vocabulary that is listed from the start: one part of so many.
    pub(super) const SHARE: usize = 10;
    /// Weight of the latest token in the share of missed ones.
    const WEIGHT: f64 = 1.0 / 32.0;
    /// Missed tokens beyond which scoring every token costs less.
    const TOO_MANY: f64 = 0.1;

    /// The list for `model`, if it can make use of one.
    pub(super) fn new(model: &dyn Model) -> Result<Option<Self>, RuntimeError> {
        let vocab = model.config().vocab;
        let frequent: Vec<Token> = (0..(vocab / Self::SHARE) as Token).collect();
        if !model.shortlist(&frequent)? {
            return Ok(None);
        }
        let listed = (0..vocab).map(|token| token < frequent.len()).collect();
        Ok(Some(Self { listed, missed: 0.0 }))
    }

    /// Lists the tokens of a prompt.
    pub(super) fn read(&mut self, model: &dyn Model, prompt: &[Token]) -> Result<(), RuntimeError> {
        self.add(model, prompt, |_| ())
    }

    /// Lists what was emitted, and counts what had been missing.
    pub(super) fn follow(&mut self, model: &dyn Model, emitted: &[Token]) -> Result<(), RuntimeError> {
        let mut missed = self.missed;
        self.add(model, emitted, |was_listed| missed += Self::WEIGHT * (f64::from(u8::from(!was_listed)) - missed))?;
        self.missed = missed;
        Ok(())
    }

    fn add(&mut self, model: &dyn Model, tokens: &[Token], mut each: impl FnMut(bool)) -> Result<(), RuntimeError> {
        let mut fresh = Vec::new();
        for &token in tokens {
            let Some(listed) = self.listed.get_mut(token as usize) else { continue };
            each(*listed);
            if !*listed {
                *listed = true;
                fresh.push(token);
            }
        }
        if !fresh.is_empty() {
            model.shortlist(&fresh)?;
        }
        Ok(())
    }

    /// What to ask of a pass.
    pub(super) fn want(&self) -> Want {
        if self.missed > Self::TOO_MANY { Want::Logits } else { Want::Shortlist }
    }
}
