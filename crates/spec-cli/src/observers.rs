//! Who is told what the rounds of a command do: the one place where flags and environment become observers.

use std::path::Path;

use anyhow::Result;
use spec_runtime::RoundObserver;

use crate::args::RecordArgs;
use crate::memory::Size;
use crate::record::{Recorder, Run, Training};

/// What observes the generations of a command. Clones share their files.
#[derive(Clone)]
pub(crate) struct Observers {
    recorder: Option<Recorder>,
    training: Option<Training>,
    drafter: String,
}

impl Observers {
    /// Opens what the flags name, before a model is loaded for nothing; `vocab` are the target's tokens.
    pub(crate) fn open(args: &RecordArgs, vocab: usize) -> Result<Self> {
        let recorder = args.record.as_deref().map(|path| Recorder::create("--record", path, u64::MAX)).transpose()?;
        let Size(limit) = args.record_limit;
        let training = |path: &Path| Training::create(path, limit as u64, vocab);
        let training = args.record_training.as_deref().map(training).transpose()?;
        Ok(Self { recorder, training, drafter: "none".to_owned() })
    }

    /// Says what runs: before the first generation, and again where it changes.
    pub(crate) fn begin(&mut self, run: &Run) {
        self.drafter.clone_from(&run.drafter);
        if let Some(recorder) = &self.recorder {
            recorder.run(run);
        }
        if let Some(training) = &self.training {
            training.begin(&run.target.name, &run.drafter);
        }
    }

    /// The observers of a generation.
    pub(crate) fn for_request(&self) -> Vec<Box<dyn RoundObserver>> {
        let recorder = self.recorder.iter().map(|recorder| recorder.observer(&self.drafter));
        let training = self.training.iter().map(Training::observer);
        recorder.chain(training).collect()
    }
}
