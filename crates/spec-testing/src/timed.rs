//! Time that nothing but passes of models takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spec_runtime::{Batch, Clock, Model, ModelConfig, Pass, RuntimeError, Stream};

use crate::HashModel;

/// A clock that passes of [`TimedModel`]s move.
#[derive(Debug, Default)]
pub struct VirtualClock {
    nanoseconds: AtomicU64,
}

impl VirtualClock {
    /// Lets a pass of so many milliseconds go by.
    pub fn pass(&self, milliseconds: f64) {
        self.nanoseconds.fetch_add((milliseconds * 1e6) as u64, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}

/// A model whose passes take time by their rows.
pub struct TimedModel<F> {
    inner: Arc<HashModel>,
    clock: Arc<VirtualClock>,
    milliseconds: F,
}

impl<F: Fn(usize) -> f64 + Send + Sync> TimedModel<F> {
    /// `inner`, with passes that take `milliseconds` of `clock` by their rows.
    pub fn new(inner: Arc<HashModel>, clock: &Arc<VirtualClock>, milliseconds: F) -> Arc<Self> {
        Arc::new(Self { inner, clock: Arc::clone(clock), milliseconds })
    }
}

impl<F: Fn(usize) -> f64 + Send + Sync> Model for TimedModel<F> {
    fn config(&self) -> &ModelConfig {
        self.inner.config()
    }
    crate::sequences_of!(inner);
    crate::prefixes_of!(inner);
    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        self.clock.pass((self.milliseconds)(batch.rows.len()));
        self.inner.submit(stream, batch)
    }
}
