//! A model that is loaded when it is first used.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use spec_core::Token;

use crate::{Batch, KvUsage, Model, ModelConfig, Pass, RuntimeError, SeqId, Stream};

type Load = Box<dyn FnOnce() -> Result<Arc<dyn Model>, RuntimeError> + Send>;

/// A model whose weights are loaded by [`Model::prepare`], or by whatever needs them first: a draft model that is only loaded once
/// the target's first token is out does not hold it up.
pub struct LazyModel {
    config: ModelConfig,
    load: Mutex<Option<Load>>,
    model: OnceLock<Arc<dyn Model>>,
}

impl LazyModel {
    /// A model that `load` will load; `config` tells what it will be, until it is there and tells itself.
    pub fn new(
        config: ModelConfig,
        load: impl FnOnce() -> Result<Arc<dyn Model>, RuntimeError> + Send + 'static,
    ) -> Self {
        Self { config, load: Mutex::new(Some(Box::new(load))), model: OnceLock::new() }
    }

    fn model(&self) -> Result<&Arc<dyn Model>, RuntimeError> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        // Held while loading, so that others wait for it.
        let mut load = self.load.lock();
        match (self.model.get(), load.take()) {
            (Some(model), _) => Ok(model),
            (None, Some(load)) => {
                let model = load()?;
                Ok(self.model.get_or_init(|| model))
            }
            (None, None) => Err(RuntimeError::Device {
                device: self.config.device.clone(),
                reason: format!("{} could not be loaded", self.config.name),
            }),
        }
    }
}

impl Model for LazyModel {
    fn config(&self) -> &ModelConfig {
        self.model.get().map_or(&self.config, |model| model.config())
    }

    fn prepare(&self) -> Result<(), RuntimeError> {
        self.model()?.prepare()
    }

    fn open(&self) -> Result<SeqId, RuntimeError> {
        self.model()?.open()
    }

    fn close(&self, seq: SeqId) {
        if let Some(model) = self.model.get() {
            model.close(seq);
        }
    }

    fn kv_len(&self, seq: SeqId) -> Result<usize, RuntimeError> {
        self.model()?.kv_len(seq)
    }

    fn reserve(&self, seq: SeqId, rows: usize) -> Result<(), RuntimeError> {
        self.model()?.reserve(seq, rows)
    }

    fn settle(&self, seq: SeqId, path: &[u32]) -> Result<(), RuntimeError> {
        self.model()?.settle(seq, path)
    }

    fn truncate(&self, seq: SeqId, length: usize) -> Result<bool, RuntimeError> {
        self.model()?.truncate(seq, length)
    }

    fn adopt(&self, seq: SeqId, scope: u64, tokens: &[Token]) -> Result<usize, RuntimeError> {
        self.model()?.adopt(seq, scope, tokens)
    }

    fn kv_usage(&self) -> Option<KvUsage> {
        self.model.get().and_then(|model| model.kv_usage())
    }

    fn gives_verdicts(&self) -> bool {
        self.model.get().is_some_and(|model| model.gives_verdicts())
    }

    fn shortlist(&self, tokens: &[Token]) -> Result<bool, RuntimeError> {
        self.model()?.shortlist(tokens)
    }

    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        self.model()?.submit(stream, batch)
    }
}
