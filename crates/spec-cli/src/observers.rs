//! Who is told what the rounds of a command do: the one place where flags and environment become observers.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Result;
use spec_runtime::{DecisionDetail, DecisionLog, RoundObserver, TokenText};

use crate::acceptance_watch::AcceptanceWatch;
use crate::args::{LastRunArgs, ModelArgs, RecordArgs};
use crate::memory::Size;
use crate::profile::Trace;
use crate::record::{Recorder, Run, Training};
use crate::session::Opened;
use crate::{last_run, logs};

/// What observes the generations of a command. Clones share their files.
#[derive(Clone)]
pub(crate) struct Observers {
    decisions: Option<DecisionDetail>,
    text: Arc<dyn TokenText>,
    trace: Option<Arc<Trace>>,
    recorder: Option<Recorder>,
    training: Option<Training>,
    /// Whether the last run is kept, and its record once there is a run.
    keeps: bool,
    last_run: Arc<OnceLock<Option<Recorder>>>,
    watch: Arc<Mutex<Option<AcceptanceWatch>>>,
    /// The engine's, for what is said of each answer.
    drafter: Arc<Mutex<String>>,
}

impl Observers {
    /// What the environment asks to be told of decisions, and the trace of `spec profile`.
    pub(crate) fn watching(model: &ModelArgs, opened: &Opened) -> Result<Self> {
        if let Some(trace) = &model.trace {
            trace.describe(&opened.checkpoint);
        }
        Ok(Self {
            decisions: logs::decisions()?,
            text: Arc::clone(&opened.vocabulary) as _,
            trace: model.trace.clone(),
            recorder: None,
            training: None,
            keeps: false,
            last_run: Arc::default(),
            watch: Arc::default(),
            drafter: Arc::default(),
        })
    }

    /// The same, and what the flags name is opened, before a model is loaded for nothing.
    pub(crate) fn open(args: &RecordArgs, model: &ModelArgs, opened: &Opened) -> Result<Self> {
        let recorder = args.record.as_deref().map(|path| Recorder::create("--record", path, u64::MAX)).transpose()?;
        let (Size(limit), vocab) = (args.record_limit, opened.tokenizer().real_vocab_size());
        let training = |path: &Path| Training::create(path, limit as u64, vocab);
        let training = args.record_training.as_deref().map(training).transpose()?;
        Ok(Self { recorder, training, ..Self::watching(model, opened)? })
    }

    /// Keeps the record of this run for `spec explain`, unless the flags say not to.
    #[must_use]
    pub(crate) fn keeping(self, args: LastRunArgs) -> Self {
        Self { keeps: !args.no_last_run, ..self }
    }

    /// Watches whether anything stands that a draft model proposes; that nothing does is left to `say`.
    pub(crate) fn watch(&self, run: &Run, say: impl Fn(String) + Send + Sync + 'static) {
        let watch = run.draft.as_ref().map(|draft| AcceptanceWatch::new(&draft.name, say));
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
    }

    /// Says what runs: before the first generation, and again where it changes.
    pub(crate) fn begin(&self, run: &Run) {
        self.drafter.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&run.drafter);
        if self.keeps {
            self.last_run.get_or_init(last_run::recorder);
        }
        for recorder in self.recorders() {
            recorder.run(run);
        }
        if let Some(training) = &self.training {
            training.begin(&run.target.name, &run.drafter);
        }
    }

    /// Makes those of each generation of a service. What runs, and whether that needs watching, is known once it is loaded.
    pub(crate) fn shared(&self) -> spec_server::Observers {
        let observers = self.clone();
        Arc::new(move || observers.for_request())
    }

    /// The observers of a generation.
    pub(crate) fn for_request(&self) -> Vec<Box<dyn RoundObserver>> {
        let log = |detail| Box::new(DecisionLog::new(detail, Arc::clone(&self.text))) as Box<dyn RoundObserver>;
        let drafter = self.drafter.lock().unwrap_or_else(PoisonError::into_inner);
        let recorders = self.recorders().map(|recorder| recorder.observer(&drafter));
        let training = self.training.iter().map(Training::observer);
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = watch.iter().map(AcceptanceWatch::observer);
        let trace = self.trace.iter().map(Trace::observer);
        self.decisions.map(log).into_iter().chain(recorders).chain(training).chain(watch).chain(trace).collect()
    }

    fn recorders(&self) -> impl Iterator<Item = &Recorder> {
        self.recorder.iter().chain(self.last_run.get().into_iter().flatten())
    }
}
