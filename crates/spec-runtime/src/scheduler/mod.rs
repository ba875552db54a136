//! Many requests on one engine: who runs, who waits, who gives way.
//!
//! A round is one pass of the target over all jobs that have a place ([`Engine::step_all`]). Between rounds jobs come and go: one
//! gets a place when the KV cache has room for its text and a margin, the order being that of priority and waiting; when the cache is full
//! all the same, the last in that order gives its place up, waits in front, and reads its text anew. What a job emits depends on
//! none of this.

mod intake;
mod job;
mod service;
mod status;

pub use job::{Job, JobEvent, JobId, Refused};
pub use service::Service;
pub use status::{Finished, Status, Totals};

use std::sync::Arc;
use std::time::Duration;

use intake::{Intake, Queue, Ticket};

use crate::{Emitted, Engine, FinishReason, KvUsage, RowShare, RuntimeError, Turn};

/// How a [`Scheduler`] divides an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedulerOptions {
    /// Jobs that run at once.
    pub max_running: usize,
    /// Jobs that wait, beside those for which there is a place and those that gave theirs up.
    pub max_queue: usize,
    /// Rows of a pass; `None` is what the model carries.
    pub max_rows: Option<usize>,
    /// Rows that prompts have in a pass beside jobs that are past theirs.
    pub prefill_chunk: usize,
    /// Tokens behind its text that a job needs room for before it gets a place.
    pub margin: usize,
    /// Waiting that a level of priority counts for.
    pub ageing: Duration,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            max_running: 16,
            max_queue: 64,
            max_rows: None,
            prefill_chunk: 32,
            margin: 64,
            ageing: Duration::from_secs(10),
        }
    }
}

/// Continuous batching of speculative generations.
///
/// ```
/// # fn serve(engine: spec_runtime::Engine, request: spec_runtime::Request) -> Result<(), spec_runtime::Refused> {
/// use spec_runtime::{Job, JobEvent, Scheduler, SchedulerOptions};
///
/// let mut scheduler = Scheduler::new(engine, SchedulerOptions::default());
/// scheduler.submit(Job::new(request, |event| {
///     if let JobEvent::Emitted(emitted) = event {
///         print!("{}", emitted.text);
///     }
/// }))?;
/// while scheduler.step() {}
/// # Ok(())
/// # }
/// ```
pub struct Scheduler {
    engine: Engine,
    options: SchedulerOptions,
    intake: Arc<Intake>,
    /// In the order of their rank.
    running: Vec<Ticket>,
    /// Those that gave their place up, by rank.
    preempted: Vec<Ticket>,
    totals: Totals,
    /// Rounds in succession in which the device failed for all.
    failures: usize,
    device_lost: Option<String>,
}

/// Rounds in succession that a device may fail in before it is taken for lost.
const FAILURES: usize = 3;

impl Scheduler {
    /// A scheduler over `engine`.
    pub fn new(engine: Engine, options: SchedulerOptions) -> Self {
        let capacity = engine.target().kv_usage().map(|kv| kv.total * kv.block_tokens);
        let rows = engine.target().config().max_rows;
        let max_running = options.max_running.min(options.max_rows.unwrap_or(rows).min(rows)).max(1);
        let intake = Intake {
            terms: engine.terms(),
            clock: engine.clock(),
            max_running,
            max_queue: options.max_queue,
            ageing: options.ageing,
            capacity,
            queue: Default::default(),
            changed: Default::default(),
        };
        Self {
            engine,
            options,
            intake: Arc::new(intake),
            running: Vec::new(),
            preempted: Vec::new(),
            totals: Totals::default(),
            failures: 0,
            device_lost: None,
        }
    }

    /// Puts a job into the queue.
    ///
    /// # Errors
    /// Why it is not taken; nothing is told to it then.
    pub fn submit(&mut self, job: Job) -> Result<JobId, Refused> {
        self.intake.submit(job)
    }

    /// One round. Gives whether anything is left to do.
    pub fn step(&mut self) -> bool {
        let now = self.engine.now();
        self.sweep(now);
        self.admit(now);
        if !self.running.is_empty() {
            self.round();
        }
        self.publish()
    }

    /// Where things stand.
    pub fn status(&self) -> Status {
        self.intake.status()
    }

    /// Ends jobs that were cancelled or whose time is over.
    fn sweep(&mut self, now: Duration) {
        let mut queue = self.intake.queue.lock();
        let stops = queue.stops;
        let gone =
            |ticket: &mut Ticket| stops || ticket.generation.cancel_token().is_cancelled() || ticket.is_late(now);
        let mut ended: Vec<Ticket> = queue.waiting.extract_if(.., gone).collect();
        drop(queue);
        ended.extend(self.preempted.extract_if(.., gone));
        ended.extend(self.running.extract_if(.., gone));
        for mut ticket in ended {
            let is_cancelled = stops || ticket.generation.cancel_token().is_cancelled();
            if !is_cancelled && !ticket.started {
                let deadline = ticket.deadline.unwrap_or_default();
                self.end(ticket, Some(RuntimeError::DeadlinePassed { deadline }));
                continue;
            }
            let reason = if is_cancelled { FinishReason::Cancelled } else { FinishReason::Deadline };
            let Ticket { generation, events, .. } = &mut ticket;
            generation.stop(reason, &mut |emitted| events.tell(JobEvent::Emitted(emitted)));
            self.end(ticket, None);
        }
    }

    /// Gives places to those who wait, in order. Nobody overtakes one that does not fit yet.
    fn admit(&mut self, now: Duration) {
        while self.running.len() < self.intake.max_running {
            let mut queue = self.intake.queue.lock();
            let first = |tickets: &[Ticket]| (0..tickets.len()).min_by_key(|&index| tickets[index].rank);
            let Queue { waiting, status, .. } = &mut *queue;
            // Those that had a place come first.
            let from = if self.preempted.is_empty() { waiting } else { &mut self.preempted };
            let Some(index) = first(from) else { return };
            if !fits(&self.engine, &self.options, &self.running, &from[index]) {
                return;
            }
            let mut ticket = from.remove(index);
            status.queued -= usize::from(ticket.started);
            status.running += 1;
            drop(queue);
            if !ticket.started {
                ticket.started = true;
                self.engine.admit(&mut ticket.generation);
                ticket.events.tell(JobEvent::Started { queued: now.saturating_sub(ticket.submitted) });
            }
            let place = self.running.partition_point(|other| other.rank < ticket.rank);
            self.running.insert(place, ticket);
        }
    }

    fn round(&mut self) {
        let most = self.options.max_rows.unwrap_or(usize::MAX);
        let share = RowShare { most, beside: self.options.prefill_chunk, catches: true };
        let mut sinks: Vec<_> = self
            .running
            .iter_mut()
            .map(|Ticket { generation, events, .. }| {
                // A receiver that panics ends its own job: the panic is caught where the token comes from.
                let sink = |emitted: &Emitted| {
                    if let Some(tell) = &mut events.0 {
                        tell(JobEvent::Emitted(emitted));
                    }
                };
                (generation, sink)
            })
            .collect();
        let mut turns: Vec<Turn<'_>> = sinks.iter_mut().map(|(generation, sink)| Turn { generation, sink }).collect();
        let results = self.engine.step_all(&mut turns, &share);
        drop(turns);
        drop(sinks);
        self.notice_failures(&results);
        let before = self.running.len();
        let mut full = None;
        let mut going = Vec::with_capacity(self.running.len());
        for (ticket, result) in std::mem::take(&mut self.running).into_iter().zip(results) {
            match result {
                Ok(true) => going.push(ticket),
                Ok(false) => self.end(ticket, None),
                Err(error @ RuntimeError::KvExhausted { .. }) => {
                    full = Some(error);
                    going.push(ticket);
                }
                Err(error) => self.end(ticket, Some(error)),
            }
        }
        self.running = going;
        // Whoever ended in this round has left room.
        if let Some(error) = full
            && self.running.len() == before
        {
            self.make_room(error);
        }
    }

    /// Takes the place of the last in the order. The first is never taken its place, so that something always goes on.
    fn make_room(&mut self, error: RuntimeError) {
        let Some(mut ticket) = self.running.pop() else { return };
        if self.running.is_empty() {
            // Nobody is left to give way.
            return self.end(ticket, Some(error));
        }
        self.engine.suspend(&mut ticket.generation);
        ticket.generation.count_preemption();
        tracing::debug!(job = ticket.id.0, running = self.running.len(), "gives its place in the KV cache to others");
        self.preempted.push(ticket);
    }

    fn notice_failures(&mut self, results: &[Result<bool, RuntimeError>]) {
        let device = |result: &Result<bool, RuntimeError>| match result {
            Err(error @ RuntimeError::Device { .. }) => Some(error.to_string()),
            _ => None,
        };
        match results.iter().map(device).collect::<Option<Vec<_>>>() {
            Some(reasons) => {
                self.failures += 1;
                if self.failures >= FAILURES {
                    self.device_lost = reasons.into_iter().next();
                }
            }
            None if results.iter().any(Result::is_ok) => (self.failures, self.device_lost) = (0, None),
            None => {}
        }
    }

    /// Counts a job and tells it how it ended.
    fn end(&mut self, ticket: Ticket, error: Option<RuntimeError>) {
        let Ticket { generation, mut events, started, .. } = ticket;
        let completion = if started { self.engine.finish_for(*generation, true) } else { generation.into_completion() };
        if started {
            self.totals.add(&completion);
        }
        match error {
            Some(error) => {
                self.totals.finished.failed += 1;
                events.tell(JobEvent::Failed(error));
            }
            None => {
                self.totals.end(completion.finish);
                events.tell(JobEvent::Done(completion));
            }
        }
    }

    /// Ends what runs after a panic that nobody caught where it belongs.
    fn fail_running(&mut self, panic: &(dyn std::any::Any + Send)) {
        tracing::error!(requests = self.running.len(), "a round panicked: {}", crate::engine::panic_message(panic));
        for ticket in std::mem::take(&mut self.running) {
            let message = crate::engine::panic_message(panic);
            self.end(ticket, Some(RuntimeError::Panicked { during: "a round", message }));
        }
    }

    /// Shows how things stand; gives whether anything is left to do.
    fn publish(&mut self) -> bool {
        let mut totals = self.totals.clone();
        for ticket in self.running.iter().chain(&self.preempted) {
            totals.add(ticket.generation.completion());
        }
        let status = Status {
            running: self.running.len(),
            queued: self.preempted.len(),
            kv: self.engine.target().kv_usage(),
            draft_kv: self.engine.draft_kv(),
            draft_cache: self.engine.draft_cache(),
            totals,
            device_lost: self.device_lost.clone(),
        };
        let mut queue = self.intake.queue.lock();
        queue.status = status;
        !(self.running.is_empty() && self.preempted.is_empty() && queue.waiting.is_empty())
    }
}

/// Whether the KV cache has room for a job beside those that run: for its text, and a margin to go on in.
fn fits(engine: &Engine, options: &SchedulerOptions, running: &[Ticket], ticket: &Ticket) -> bool {
    let Some(KvUsage { block_tokens, free, .. }) = engine.target().kv_usage() else { return true };
    if running.is_empty() {
        return true;
    }
    let blocks = |ticket: &Ticket| {
        let generation = &ticket.generation;
        let ahead = options.margin.min(generation.remaining());
        (generation.tokens().len() + ahead).div_ceil(block_tokens)
    };
    // What those that run will still take.
    let promised: usize = running
        .iter()
        .map(|other| blocks(other).saturating_sub(other.generation.kv_len().div_ceil(block_tokens)))
        .sum();
    blocks(ticket) + promised <= free
}
