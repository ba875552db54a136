//! Who is told what the rounds of a command do: the one place where flags and environment become observers.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Result;
use spec_runtime::RoundObserver;

use crate::acceptance_watch::AcceptanceWatch;
use crate::args::{LastRunArgs, RecordArgs};
use crate::last_run;
use crate::memory::Size;
use crate::record::{Recorder, Run, Training};

/// What observes the generations of a command. Clones share their files.
#[derive(Clone)]
pub(crate) struct Observers {
    recorder: Option<Recorder>,
    training: Option<Training>,
    /// Whether the last run is kept, and its record once there is a run.
    keeps: bool,
    last_run: Arc<OnceLock<Option<Recorder>>>,
    watch: Arc<Mutex<Option<AcceptanceWatch>>>,
    drafter: String,
}

impl Observers {
    /// Opens what the flags name, before a model is loaded for nothing; `vocab` are the target's tokens.
    pub(crate) fn open(args: &RecordArgs, vocab: usize) -> Result<Self> {
        let recorder = args.record.as_deref().map(|path| Recorder::create("--record", path, u64::MAX)).transpose()?;
        let Size(limit) = args.record_limit;
        let training = |path: &Path| Training::create(path, limit as u64, vocab);
        let training = args.record_training.as_deref().map(training).transpose()?;
        Ok(Self {
            recorder,
            training,
            keeps: false,
            last_run: Arc::default(),
            watch: Arc::default(),
            drafter: "none".to_owned(),
        })
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
    pub(crate) fn begin(&mut self, run: &Run) {
        self.drafter.clone_from(&run.drafter);
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

    /// The observers of a generation.
    pub(crate) fn for_request(&self) -> Vec<Box<dyn RoundObserver>> {
        let recorders = self.recorders().map(|recorder| recorder.observer(&self.drafter));
        let training = self.training.iter().map(Training::observer);
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = watch.iter().map(AcceptanceWatch::observer);
        recorders.chain(training).chain(watch).collect()
    }

    fn recorders(&self) -> impl Iterator<Item = &Recorder> {
        self.recorder.iter().chain(self.last_run.get().into_iter().flatten())
    }
}
