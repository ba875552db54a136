//! The generations of one request, on their way from the engine's thread to the client's task.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spec_core::{Token, TokenLogProb};
use spec_runtime::{CancelToken, Completion, Job, JobEvent, Request, RuntimeError, Service, TokenSource};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::ApiError;
use crate::metrics::Metrics;

/// Tokens of a request that may wait for its client; one that reads more slowly loses its answer.
const MOST_PENDING: usize = 4096;

/// A token on its way.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) token: Token,
    pub(crate) text: String,
    pub(crate) shown: bool,
    pub(crate) source: TokenSource,
    pub(crate) rejected: Vec<Token>,
    pub(crate) logprob: Option<TokenLogProb>,
}

/// What comes of a choice.
pub(crate) enum Event {
    Piece(Piece),
    /// Its end, and how long it had waited for its start.
    Done(Box<Completion>, Duration),
    Failed(ApiError),
}

/// Choices under way. Dropping them cancels those that have not ended.
pub(crate) struct Answers {
    events: UnboundedReceiver<(usize, Event)>,
    pending: Arc<AtomicUsize>,
    cancels: Vec<CancelToken>,
    first: Option<(usize, Event)>,
    /// Choices that have not ended.
    left: usize,
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.cancels.iter().for_each(CancelToken::cancel);
    }
}

impl Answers {
    /// Puts the requests into the queue and waits for the first that comes of them.
    ///
    /// # Errors
    /// When there is no place for one of them, or the first that comes is a failure; nothing goes on then.
    pub(crate) async fn begin(
        service: &Service,
        metrics: &Arc<Metrics>,
        requests: Vec<Request>,
    ) -> Result<Self, ApiError> {
        let (sender, events) = mpsc::unbounded_channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let cancels = requests.iter().map(|request| request.cancel.clone()).collect();
        let left = requests.len();
        let mut answers = Self { events, pending: Arc::clone(&pending), cancels, first: None, left };
        for (choice, request) in requests.into_iter().enumerate() {
            let mut teller = Teller {
                metrics: Arc::clone(metrics),
                pending: Arc::clone(&pending),
                cancel: request.cancel.clone(),
                since: Instant::now(),
                last: None,
                queued: Duration::ZERO,
            };
            let sender = sender.clone();
            let events = move |event: JobEvent<'_>| {
                if let Some(event) = teller.hear(event) {
                    // Without a receiver the request is cancelled already.
                    let _ = sender.send((choice, event));
                }
            };
            if let Err(refused) = service.submit(Job::new(request, events)) {
                metrics.refused();
                return Err(refused.into());
            }
        }
        drop(sender);
        match answers.next().await {
            Some((_, Event::Failed(error))) => Err(error),
            first => {
                answers.first = first;
                Ok(answers)
            }
        }
    }

    /// What comes next, with its choice; `None` when all have ended.
    pub(crate) async fn next(&mut self) -> Option<(usize, Event)> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.left == 0 {
            return None;
        }
        let failed = |message: &str| {
            Event::Failed(ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "generation_failed", message))
        };
        match self.events.recv().await {
            Some((choice, event)) => {
                match event {
                    Event::Piece(_) => _ = self.pending.fetch_sub(1, Ordering::Relaxed),
                    Event::Done(..) | Event::Failed(_) => self.left -= 1,
                }
                Some((choice, event))
            }
            None => {
                self.left = 0;
                Some((0, failed("the engine has ended")))
            }
        }
    }
}

/// Hears of a job on the engine's thread.
struct Teller {
    metrics: Arc<Metrics>,
    pending: Arc<AtomicUsize>,
    cancel: CancelToken,
    since: Instant,
    last: Option<Instant>,
    queued: Duration,
}

impl Teller {
    fn hear(&mut self, event: JobEvent<'_>) -> Option<Event> {
        match event {
            JobEvent::Started { queued } => {
                self.queued = queued;
                self.metrics.started(queued);
                None
            }
            JobEvent::Emitted(emitted) => {
                let now = Instant::now();
                match self.last.replace(now) {
                    None => self.metrics.first_token(now - self.since),
                    Some(last) => self.metrics.next_token(now - last),
                }
                // Behind a piece that was left out none is sent: the text would have a hole.
                if self.cancel.is_cancelled() {
                    return None;
                }
                if self.pending.fetch_add(1, Ordering::Relaxed) >= MOST_PENDING {
                    self.pending.fetch_sub(1, Ordering::Relaxed);
                    self.cancel.cancel();
                    return None;
                }
                Some(Event::Piece(Piece {
                    token: emitted.token,
                    text: emitted.text.clone(),
                    shown: emitted.shown,
                    source: emitted.source,
                    rejected: emitted.rejected.clone(),
                    logprob: emitted.logprob.clone(),
                }))
            }
            JobEvent::Done(completion) => {
                self.metrics.done(&completion);
                Some(Event::Done(Box::new(completion), self.queued))
            }
            JobEvent::Failed(error) => {
                self.metrics.failed();
                if !matches!(error, RuntimeError::BadRequest { .. }) {
                    tracing::warn!("a request failed: {error}");
                }
                Some(Event::Failed(error.into()))
            }
            // Of kinds to come, which do not end a job.
            _ => None,
        }
    }
}
