//! An audit beside requests that are answered anyway.

use std::sync::Arc;

use parking_lot::Mutex;
use spec_core::{Law, Pipeline, SamplingError, SamplingParams, Scratch, Token};

use super::{Beliefs, Judge, Wealth};
use crate::{RoundObserver, RoundReport};

/// What a shadow audit has seen so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShadowStatus {
    /// Generations that were looked at.
    pub generations: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Tokens that the target's law does not allow.
    pub impossible: u64,
    /// How often chance alone would do that, or more, at any time since the start; 1 while nothing speaks against the law.
    pub p_value: f64,
    /// Whether the p-value has fallen below the limit of the alarm.
    pub alarmed: bool,
}

impl Default for ShadowStatus {
    fn default() -> Self {
        Self { generations: 0, tokens: 0, impossible: 0, p_value: 1.0, alarmed: false }
    }
}

/// Holds emitted tokens against the target's law, as the rows of their own verification give it: no pass more, and no change of output.
///
/// What it sees are rules and sampling. Rows that verification computes wrongly it takes for the target's; for these there is
/// [`Audit`](super::Audit).
#[derive(Clone)]
pub struct ShadowAudit(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The p-value at which `alarm` is called, once.
    limit: f64,
    alarm: Box<dyn Fn(ShadowStatus) + Send + Sync>,
}

struct State {
    judge: Judge,
    wealth: Wealth,
    status: ShadowStatus,
}

impl ShadowAudit {
    /// Nothing seen yet. `alarm` is called once, on the engine's thread, when the p-value falls below `limit`. `seed` should be nobody
    /// else's: it decides how ties within a token's probability are broken.
    pub fn new(seed: u64, limit: f64, alarm: impl Fn(ShadowStatus) + Send + Sync + 'static) -> Self {
        let state = State { judge: Judge::new(seed), wealth: Wealth::default(), status: ShadowStatus::default() };
        Self(Arc::new(Shared { state: Mutex::new(state), limit, alarm: Box::new(alarm) }))
    }

    /// Looks at a generation of these parameters, over the first `vocab` tokens of the target's rows. Only for a lossless rule, and for no
    /// constraint: the law that it compares with has none.
    ///
    /// # Errors
    /// When a parameter is out of range.
    pub fn observer(&self, sampling: &SamplingParams, vocab: usize) -> Result<Box<dyn RoundObserver>, SamplingError> {
        let pipeline = Pipeline::new(sampling.clone(), vocab)?;
        Ok(Box::new(Shadow { audit: self.clone(), pipeline, scratch: Scratch::default() }))
    }

    /// What has been seen.
    pub fn status(&self) -> ShadowStatus {
        self.0.state.lock().status
    }

    fn enter(&self, law: &Law<'_>, token: Token) {
        let mut state = self.0.state.lock();
        let judged = state.judge.judge(law, token, Beliefs::default());
        if judged.is_open() || judged.uniform.is_none() {
            state.wealth.add(judged.uniform);
        }
        state.status.tokens += 1;
        state.status.impossible += u64::from(judged.uniform.is_none());
        state.status.p_value = state.wealth.p_value();
        let calls = state.status.p_value < self.0.limit && !state.status.alarmed;
        state.status.alarmed |= calls;
        let status = state.status;
        drop(state);
        if calls {
            (self.0.alarm)(status);
        }
    }
}

struct Shadow {
    audit: ShadowAudit,
    pipeline: Pipeline,
    scratch: Scratch,
}

impl RoundObserver for Shadow {
    fn round(&mut self, report: &RoundReport<'_>) {
        if self.pipeline.is_empty() {
            self.audit.0.state.lock().status.generations += 1;
        }
        self.pipeline.extend(&report.text[self.pipeline.len()..]);
        let accepted = report.outcome.accepted.iter().map(|node| node.index() + 1);
        for (row, &token) in std::iter::once(0).chain(accepted).zip(report.emitted) {
            // The rule has formed the same law, so that an error has ended the generation already.
            let Ok(law) = self.pipeline.law(report.rows.row(row), None, &mut self.scratch) else { return };
            self.audit.enter(&law, token);
            self.pipeline.push(token);
        }
    }

    fn reads_rows(&self) -> bool {
        true
    }
}
