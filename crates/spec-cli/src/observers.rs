//! Who is told what the rounds of a command do: the one place where flags and environment become observers.

use std::sync::Arc;

use anyhow::Result;
use spec_runtime::{DecisionDetail, DecisionLog, RoundObserver, TokenText};

use crate::args::ModelArgs;
use crate::logs;
use crate::profile::Trace;
use crate::session::Opened;

/// What observes the generations of a command. Clones share their files.
#[derive(Clone)]
pub(crate) struct Observers {
    decisions: Option<DecisionDetail>,
    text: Arc<dyn TokenText>,
    trace: Option<Arc<Trace>>,
}

impl Observers {
    /// What the environment asks to be told of decisions, and the trace of `spec profile`.
    pub(crate) fn open(model: &ModelArgs, opened: &Opened) -> Result<Self> {
        let trace = model.trace.clone();
        if let Some(trace) = &trace {
            trace.describe(&opened.checkpoint);
        }
        Ok(Self { decisions: logs::decisions()?, text: Arc::clone(&opened.vocabulary) as _, trace })
    }

    /// Makes those of each generation of a service; `None` where nobody observes.
    pub(crate) fn shared(self) -> Option<spec_server::Observers> {
        let any = self.decisions.is_some() || self.trace.is_some();
        any.then(|| Arc::new(move || self.for_request()) as spec_server::Observers)
    }

    /// The observers of a generation.
    pub(crate) fn for_request(&self) -> Vec<Box<dyn RoundObserver>> {
        let log = |detail| Box::new(DecisionLog::new(detail, Arc::clone(&self.text))) as Box<dyn RoundObserver>;
        self.decisions.map(log).into_iter().chain(self.trace.iter().map(Trace::observer)).collect()
    }
}
