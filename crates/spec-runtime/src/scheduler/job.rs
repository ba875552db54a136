//! What is submitted, and what becomes of it.

use std::fmt;
use std::time::Duration;

use crate::{Completion, Emitted, Request, RuntimeError};

/// A request for a [`Scheduler`](crate::Scheduler).
pub struct Job {
    /// What is to be generated.
    pub request: Request,
    /// Higher ones come first. A level counts for as much as [`SchedulerOptions::ageing`](crate::SchedulerOptions::ageing) of waiting,
    /// so that none waits for ever.
    pub priority: i32,
    /// Time from the submission on. A job that waits for longer fails; one that runs ends with what it has.
    pub deadline: Option<Duration>,
    /// Told what happens, on the scheduler's thread: it must not block.
    pub events: Box<dyn FnMut(JobEvent<'_>) + Send>,
}

impl Job {
    /// A job of priority 0 without a deadline.
    pub fn new(request: Request, events: impl FnMut(JobEvent<'_>) + Send + 'static) -> Self {
        Self { request, priority: 0, deadline: None, events: Box::new(events) }
    }
}

/// Identity of a job, in the order of submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What happens to a job. The last is always one of `Done` and `Failed`.
#[non_exhaustive]
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a job has one such event, and it is passed on at once")]
pub enum JobEvent<'a> {
    /// It has a place among those that run.
    Started {
        /// How long it waited for that.
        queued: Duration,
    },
    /// It has a token more.
    Emitted(&'a Emitted),
    /// It has ended.
    Done(Completion),
    /// It came to nothing, or to nothing more than was emitted.
    Failed(RuntimeError),
}

/// Why a job is not taken.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// As many wait as may.
    #[error("{waiting} requests wait already, of {max} that may; try again later")]
    QueueFull {
        /// Jobs that wait.
        waiting: usize,
        /// Jobs that may wait.
        max: usize,
    },
    /// Nothing new is taken any more.
    #[error("the service is stopping and takes no more requests")]
    Stopping,
    /// The device has failed again and again. One job at a time is taken, to see whether it still does.
    #[error("the device is lost: {reason}")]
    DeviceLost {
        /// What it said last.
        reason: String,
    },
    /// The request cannot be served as it is.
    #[error(transparent)]
    BadRequest(RuntimeError),
    /// The prompt does not fit the KV cache, whoever else is there.
    #[error(
        "the prompt has {tokens} tokens and the KV cache holds {capacity}, one more than the prompt being the least; shorten the \
         prompt or give the cache more memory"
    )]
    TooLarge {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that the cache holds.
        capacity: usize,
    },
}
