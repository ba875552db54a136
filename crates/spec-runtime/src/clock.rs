//! Where the engine's timings come from.

use std::time::{Duration, Instant};

/// A clock that never goes back. Tests bring one that moves by a script.
pub trait Clock: Send + Sync {
    /// Time since some fixed moment.
    fn now(&self) -> Duration;
}

/// The machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock(Instant);

impl MachineClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
