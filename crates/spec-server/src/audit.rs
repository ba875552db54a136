//! A share of the answers, held against the target's law while they are given.

use std::hash::{BuildHasher, RandomState};

use spec_runtime::audit::{ShadowAudit, ShadowStatus};
use spec_runtime::{Request, RequestRule, RuntimeError};

/// A p-value that a sound service comes to once in a million runs, however long each is.
const ALARM: f64 = 1e-6;

/// The shadow of a service.
pub(crate) struct SampledAudit {
    share: f64,
    shadow: ShadowAudit,
}

impl SampledAudit {
    /// Looks at this share of the generations, from 0 to 1.
    pub(crate) fn new(share: f64) -> Self {
        let shadow = ShadowAudit::new(RandomState::new().hash_one(std::process::id()), ALARM, |status| {
            let ShadowStatus { generations, tokens, impossible, p_value, .. } = status;
            tracing::error!(
                generations,
                tokens,
                impossible,
                p_value,
                "answers do not have the target's law: a fault of this build, please report it with the output of `spec audit`"
            );
        });
        Self { share, shadow }
    }

    /// Looks at a generation, if it is one of the share, its law is told by its sampling alone, and nothing says that its draws may come again:
    /// equal texts would count as evidence many times. A seed that the client gives (`is_seeded`) may, and prompts of one request share
    /// theirs, so that the first alone (`place` 0) counts.
    ///
    /// # Errors
    /// When a sampling parameter is out of range.
    pub(crate) fn attach(
        &self,
        request: &mut Request,
        vocab: usize,
        is_seeded: bool,
        place: usize,
    ) -> Result<(), RuntimeError> {
        if place > 0 || (is_seeded && !request.sampling.is_greedy()) {
            return Ok(());
        }
        let is_lossless = match &request.rule {
            None => true,
            Some(RequestRule::Named(name)) => name.entry().lossless,
            Some(RequestRule::Own(rule)) => rule.lossless(),
        };
        // Keys of the standard library: nothing that a request could choose its luck by.
        let drawn = (RandomState::new().hash_one(vocab) >> 11) as f64 / (1u64 << 53) as f64;
        if is_lossless && request.constraint.is_none() && drawn < self.share {
            request.observers.push(self.shadow.observer(&request.sampling, vocab)?);
        }
        Ok(())
    }

    pub(crate) fn status(&self) -> ShadowStatus {
        self.shadow.status()
    }
}
