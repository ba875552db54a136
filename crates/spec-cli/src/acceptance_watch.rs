//! A word while it runs, where nothing that a draft model proposes stands: the answer is right, and nobody would notice.

use std::sync::{Arc, Mutex, PoisonError};

use spec_runtime::{RoundObserver, RoundReport};

use crate::explain::is_by_model;

/// Drafts in a row, from the first on, after which none having stood is no accident: it happens to one in thirty-five models of which a fifth
/// stand.
const DRAFTS: usize = 16;

/// Watches all generations of a command.
#[derive(Clone)]
pub(crate) struct AcceptanceWatch(Arc<Watch>);

struct Watch {
    draft: String,
    /// Drafts that failed, while none has stood; `None` once that is settled.
    failed: Mutex<Option<usize>>,
    say: Box<dyn Fn(String) + Send + Sync>,
}

impl AcceptanceWatch {
    /// Watches the drafts of the model named, and has at most one thing to `say`.
    pub(crate) fn new(draft: &str, say: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Watch { draft: draft.to_owned(), failed: Mutex::new(Some(0)), say: Box::new(say) }))
    }

    /// An observer of one generation.
    pub(crate) fn observer(&self) -> Box<dyn RoundObserver> {
        Box::new(self.clone())
    }
}

impl RoundObserver for AcceptanceWatch {
    fn round(&mut self, report: &RoundReport<'_>) {
        let watch = &*self.0;
        let passed = report.times.passed.saturating_sub(report.times.submitted);
        let drafted = report.times.drafted.saturating_sub(report.times.begun + report.times.preparation);
        // Look-ups take next to nothing; that they find nothing is no fault.
        let by_model = is_by_model(report.ahead, drafted.as_secs_f64(), passed.as_secs_f64());
        if report.tree.is_empty() || report.forced || !by_model {
            return;
        }
        let mut failed = watch.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = *failed else { return };
        *failed = (report.accepted == 0 && before + 1 < DRAFTS).then_some(before + 1);
        if report.accepted == 0 && failed.is_none() {
            (watch.say)(format!(
                "WARNING: none of {DRAFTS} drafts of {} had a first token that stood; the two models may not fit together, and drafting \
                 costs time: `spec explain` says more",
                watch.draft
            ));
        }
    }
}
