//! Where jobs come in: on any thread, while the scheduler is in the middle of a round.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Job, JobEvent, JobId, Refused, Status};
use crate::engine::Terms;
use crate::{Clock, Generation};

/// The queue's door, shared by the scheduler and those who submit.
pub(super) struct Intake {
    pub(super) terms: Terms,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) max_running: usize,
    pub(super) max_queue: usize,
    pub(super) ageing: Duration,
    /// Tokens that the KV cache holds, where the model tells.
    pub(super) capacity: Option<usize>,
    pub(super) queue: Mutex<Queue>,
    /// Told of what the scheduler may be waiting for.
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: Vec<Ticket>,
    /// Nothing new is taken.
    pub(super) drains: bool,
    /// What is there ends as it is.
    pub(super) stops: bool,
    submitted: u64,
    refused: usize,
    /// As it was behind the last round, but for those that were given a place since.
    pub(super) status: Status,
}

/// A job and where it stands.
pub(super) struct Ticket {
    pub(super) id: JobId,
    pub(super) generation: Box<Generation>,
    pub(super) events: Events,
    /// Of two, the lower one comes first.
    pub(super) rank: (i128, JobId),
    pub(super) submitted: Duration,
    /// Time allowed from the submission on.
    pub(super) deadline: Option<Duration>,
    pub(super) started: bool,
}

impl Ticket {
    pub(super) fn is_late(&self, now: Duration) -> bool {
        self.deadline.is_some_and(|deadline| now >= self.submitted + deadline)
    }
}

type Receiver = Box<dyn FnMut(JobEvent<'_>) + Send>;

/// Whom a job tells what happens to it. After a panic nobody.
pub(super) struct Events(pub(super) Option<Receiver>);

impl Events {
    /// Tells it behind a barrier: a receiver that panics hears no more.
    pub(super) fn tell(&mut self, event: JobEvent<'_>) {
        if let Some(events) = &mut self.0 {
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| events(event)));
            if told.is_err() {
                self.0 = None;
            }
        }
    }
}

impl Intake {
    pub(super) fn submit(&self, job: Job) -> Result<JobId, Refused> {
        let ticket = self.ticket(job);
        let mut queue = self.queue.lock();
        let is_idle = queue.waiting.is_empty() && queue.status.running == 0;
        // Those for whom there is a place wait for the round to end, and for nobody.
        let places = self.max_running.saturating_sub(queue.status.running + queue.status.queued);
        let waiting = queue.waiting.len().saturating_sub(places);
        let refusal = match (ticket, &queue.status.device_lost) {
            (Err(refused), _) => Err(refused),
            (Ok(_), _) if queue.drains => Err(Refused::Stopping),
            (Ok(_), Some(reason)) if !is_idle => Err(Refused::DeviceLost { reason: reason.clone() }),
            (Ok(_), _) if queue.waiting.len() >= places + self.max_queue => {
                Err(Refused::QueueFull { waiting, max: self.max_queue })
            }
            (Ok(ticket), _) => Ok(ticket),
        };
        match refusal {
            Ok((mut ticket, priority)) => {
                queue.submitted += 1;
                ticket.id = JobId(queue.submitted);
                // A level of priority counts for so much waiting: the order of two jobs never changes.
                let ahead = i128::from(priority) * self.ageing.as_nanos() as i128;
                ticket.rank = (ticket.submitted.as_nanos() as i128 - ahead, ticket.id);
                let id = ticket.id;
                queue.waiting.push(ticket);
                self.changed.notify_all();
                Ok(id)
            }
            Err(refused) => {
                queue.refused += 1;
                tracing::debug!(reason = %refused, "a request is refused");
                Err(refused)
            }
        }
    }

    fn ticket(&self, job: Job) -> Result<(Ticket, i32), Refused> {
        let Job { request, priority, deadline, events } = job;
        let tokens = request.prompt.len();
        let mut generation = Box::new(self.terms.generation(request).map_err(Refused::BadRequest)?);
        if let Some(capacity) = self.capacity {
            if tokens >= capacity {
                return Err(Refused::TooLarge { tokens, capacity });
            }
            // The last token is emitted and not fed.
            generation.limit(capacity + 1 - tokens);
        }
        let submitted = self.clock.now();
        let (id, events) = (JobId(0), Events(Some(events)));
        Ok((Ticket { id, generation, events, rank: (0, id), submitted, deadline, started: false }, priority))
    }

    pub(super) fn status(&self) -> Status {
        let queue = self.queue.lock();
        let mut status = queue.status.clone();
        status.queued += queue.waiting.len();
        status.totals.finished.refused = queue.refused;
        status
    }
}
