//! A server that listens already, and the model that it waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use spec_runtime::Service;

use crate::compose::Composer;
use crate::routes::{App, Served};
use crate::{ApiError, Language, RequestLimits};

/// Seconds that a client is asked to wait: so many where nothing is known, and at most.
const RETRY_AFTER: u32 = 2;
const LONGEST_RETRY_AFTER: f64 = 30.0;

/// The promise of a model to a server that listens already, from [`Server::loading`](crate::Server::loading). Dropped unfulfilled, it
/// ends the server.
pub struct Loading {
    app: Arc<App>,
}

impl Loading {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    /// Tells how much is loaded of how much, in any unit: `/health` and `/ready` say the share, and refusals when to come again. A
    /// total of 0 stands for one that is not known.
    pub fn progress(&self, done: usize, total: usize) {
        *self.app.progress.share.lock() = (total > 0).then(|| (done as f64 / total as f64).min(1.0));
    }

    /// The model is there: requests are answered from now on.
    pub fn done(self, language: Arc<dyn Language>, service: Service, limits: RequestLimits) {
        let composer =
            Composer::new(language, limits, self.app.options.observers.clone()).audited(self.app.options.audit_share);
        let served = Served { composer, service };
        // Nobody else has set it: who does so is consumed.
        let _ = self.app.served.set(served);
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if self.app.served.get().is_none() {
            self.app.given_up.notify_one();
        }
    }
}

/// How far loading has come.
#[derive(Debug)]
pub(crate) struct Progress {
    begun: Instant,
    /// Of 1; `None` where it is not known.
    share: Mutex<Option<f64>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), share: Mutex::new(None) }
    }

    /// What `/health` and `/ready` say beside the rest.
    pub(crate) fn body(&self) -> Value {
        json!({ "status": "loading", "progress": *self.share.lock(), "ready": false, "running": 0, "queued": 0 })
    }

    /// When to come again: in the time that the rest takes if it takes as long as what is done.
    pub(crate) fn retry_after(&self) -> u32 {
        seconds_left(self.begun.elapsed(), *self.share.lock())
    }

    /// The refusal of what needs the model.
    pub(crate) fn refusal(&self) -> ApiError {
        let message = match *self.share.lock() {
            Some(share) => format!("the model is still being loaded: {:.0} % of it is there", 100.0 * share),
            None => "the model is still being loaded".to_owned(),
        };
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "loading", message).with_retry_after(self.retry_after())
    }
}

fn seconds_left(spent: Duration, share: Option<f64>) -> u32 {
    match share.filter(|&share| share > 0.0) {
        // Within the bounds of a u32, and rounded up.
        Some(share) => (spent.as_secs_f64() * (1.0 - share) / share).ceil().clamp(1.0, LONGEST_RETRY_AFTER) as u32,
        None => RETRY_AFTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_comes_again_when_the_rest_may_be_there() {
        let after = |spent: u64, share: Option<f64>| seconds_left(Duration::from_secs(spent), share);
        assert_eq!([after(10, None), after(10, Some(0.0))], [RETRY_AFTER; 2]);
        assert_eq!([after(6, Some(0.5)), after(9, Some(0.75)), after(9, Some(1.0))], [6, 3, 1]);
        assert_eq!(after(3600, Some(0.001)), 30);
    }
}
