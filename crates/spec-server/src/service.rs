//! One engine for many requests: a thread that runs them in turn, a round each.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use spec_core::TokenLogProb;
use spec_runtime::{CancelToken, Completion, Emitted, Engine, Generation, Request, RuntimeError};

use crate::ServerError;

/// Failures of the device in a row, of any requests, behind which it is taken for lost.
const FAILURES_OF_A_LOST_DEVICE: usize = 3;

/// How many requests are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceOptions {
    /// Requests that run at once; at least 1.
    pub max_running: usize,
    /// Requests that may wait beside.
    pub max_queue: usize,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self { max_running: 16, max_queue: 64 }
    }
}

/// A request, and who hears of it.
pub struct Job {
    /// What is to be generated.
    pub request: Request,
    /// Called on the service's thread; must not block.
    pub events: Box<dyn FnMut(JobEvent<'_>) + Send>,
}

/// What becomes of a job. [`Done`](Self::Done), [`Failed`](Self::Failed) or [`Panicked`](Self::Panicked) comes last.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an event is read where it is made and kept nowhere")]
pub enum JobEvent<'a> {
    /// It waits no more.
    Started {
        /// How long it has waited.
        queued: Duration,
    },
    /// A token left the engine.
    Emitted {
        /// The token.
        emitted: &'a Emitted,
        /// Its log-probability, where the request asked for it and the token is shown.
        logprob: Option<&'a TokenLogProb>,
    },
    /// It ended.
    Done(Completion),
    /// It could not be ended.
    Failed(RuntimeError),
    /// What ran it panicked; standard error says where.
    Panicked,
}

/// Why a job is not taken.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Too many wait already.
    #[error("{waiting} requests are waiting, of {max} that may; try again later")]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
        /// Those that may.
        max: usize,
    },
    /// The service is being shut down.
    #[error("the server is shutting down")]
    Stopping,
    /// The device has failed too often.
    #[error("the device is lost: {reason}; restart the server")]
    DeviceLost {
        /// Its last words.
        reason: String,
    },
}

/// What the service is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Requests that run.
    pub running: usize,
    /// Requests that wait.
    pub queued: usize,
    /// Why the device is taken for lost.
    pub device_lost: Option<String>,
}

/// An engine on a thread of its own. Dropping it cancels what runs and waits for the thread.
pub struct Service {
    shared: Arc<Shared>,
    options: ServiceOptions,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Waiting>,
    /// Of those that run, to end them.
    running: Vec<CancelToken>,
    stopping: bool,
    device_lost: Option<String>,
}

struct Waiting {
    job: Job,
    since: Instant,
}

impl Service {
    /// Takes an engine into service.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(engine: Engine, options: ServiceOptions) -> Result<Self, ServerError> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let worker = Worker {
            engine,
            shared: Arc::clone(&shared),
            max_running: options.max_running.max(1),
            running: Vec::new(),
            failures: 0,
        };
        let thread = std::thread::Builder::new()
            .name("spec-engine".into())
            .spawn(move || worker.work())
            .map_err(|source| ServerError::System { what: "starting the engine's thread", source })?;
        Ok(Self { shared, options, thread: Some(thread) })
    }

    /// Puts a job into the queue.
    ///
    /// # Errors
    /// When there is no place for it. What is wrong with the request itself is an event of the job.
    pub fn submit(&self, job: Job) -> Result<(), Refused> {
        let mut state = self.shared.state.lock();
        if state.stopping {
            return Err(Refused::Stopping);
        }
        if let Some(reason) = &state.device_lost {
            return Err(Refused::DeviceLost { reason: reason.clone() });
        }
        // What starts at once does not wait.
        let places = self.options.max_running.max(1).saturating_sub(state.running.len()) + self.options.max_queue;
        if state.queue.len() >= places {
            return Err(Refused::QueueFull { waiting: state.queue.len(), max: self.options.max_queue });
        }
        state.queue.push_back(Waiting { job, since: Instant::now() });
        self.shared.changed.notify_all();
        Ok(())
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        let state = self.shared.state.lock();
        Status { running: state.running.len(), queued: state.queue.len(), device_lost: state.device_lost.clone() }
    }

    /// Takes no more jobs; those that are there go on.
    pub fn drain(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            state.running.iter().for_each(CancelToken::cancel);
            state.queue.iter().for_each(|waiting| waiting.job.request.cancel.cancel());
        }
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It catches panics of what it runs.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Worker {
    engine: Engine,
    shared: Arc<Shared>,
    max_running: usize,
    running: Vec<Running>,
    /// Of the device, in a row.
    failures: usize,
}

struct Running {
    generation: Generation,
    cancel: CancelToken,
    events: Box<dyn FnMut(JobEvent<'_>) + Send>,
    /// Log-probabilities told so far.
    told: usize,
}

impl Worker {
    fn work(mut self) {
        while let Some(admitted) = self.next_jobs() {
            for waiting in admitted {
                self.begin(waiting);
            }
            for index in (0..self.running.len()).rev() {
                self.advance(index);
            }
            self.shared.state.lock().running = self.running.iter().map(|running| running.cancel.clone()).collect();
        }
    }

    /// Jobs that may start now; sleeps while there is nothing to do, and gives `None` when there never will be.
    fn next_jobs(&self) -> Option<Vec<Waiting>> {
        let mut state = self.shared.state.lock();
        while state.queue.is_empty() && self.running.is_empty() {
            if state.stopping {
                return None;
            }
            self.shared.changed.wait(&mut state);
        }
        let mut admitted = Vec::new();
        // Those whose callers have gone take no place.
        while let Some(waiting) = state.queue.pop_front() {
            if !waiting.job.request.cancel.is_cancelled() && self.running.len() + admitted.len() >= self.max_running {
                state.queue.push_front(waiting);
                break;
            }
            state.running.push(waiting.job.request.cancel.clone());
            admitted.push(waiting);
        }
        Some(admitted)
    }

    fn begin(&mut self, Waiting { job, since }: Waiting) {
        let Job { request, mut events } = job;
        let cancel = request.cancel.clone();
        match catch_unwind(AssertUnwindSafe(|| self.engine.start(request))) {
            Ok(Ok(generation)) => {
                tell(&mut events, JobEvent::Started { queued: since.elapsed() });
                self.running.push(Running { generation, cancel, events, told: 0 });
            }
            Ok(Err(error)) => tell(&mut events, JobEvent::Failed(error)),
            Err(_) => tell(&mut events, JobEvent::Panicked),
        }
    }

    /// A step of one generation.
    fn advance(&mut self, index: usize) {
        let Running { generation, events, told, .. } = &mut self.running[index];
        let mut emitted = Vec::new();
        let engine = &mut self.engine;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            engine.step(generation, &mut |token: &Emitted| emitted.push(token.clone()))
        }));
        let logprobs = generation.completion().logprobs.as_deref().unwrap_or_default();
        for emitted in &emitted {
            let logprob = if emitted.shown { logprobs.get(*told) } else { None };
            *told += usize::from(emitted.shown);
            tell(events, JobEvent::Emitted { emitted, logprob });
        }
        let failure = match outcome {
            Ok(Ok(goes_on)) => {
                self.failures = 0;
                if goes_on {
                    return;
                }
                None
            }
            Ok(Err(error)) => {
                if let RuntimeError::Device { .. } = &error {
                    self.failures += 1;
                    if self.failures >= FAILURES_OF_A_LOST_DEVICE {
                        self.shared.state.lock().device_lost = Some(error.to_string());
                    }
                }
                Some(Some(error))
            }
            Err(_) => Some(None),
        };
        let Running { generation, mut events, .. } = self.running.swap_remove(index);
        // A drafter that panics while it forgets has nothing left to be asked.
        let completion = catch_unwind(AssertUnwindSafe(|| self.engine.finish(generation)));
        match (failure, completion) {
            (None, Ok(completion)) => tell(&mut events, JobEvent::Done(completion)),
            (Some(Some(error)), _) => tell(&mut events, JobEvent::Failed(error)),
            (Some(None), _) | (None, Err(_)) => tell(&mut events, JobEvent::Panicked),
        }
    }
}

/// A listener that panics harms nobody but itself.
fn tell(events: &mut Box<dyn FnMut(JobEvent<'_>) + Send>, event: JobEvent<'_>) {
    let _ = catch_unwind(AssertUnwindSafe(|| events(event)));
}
