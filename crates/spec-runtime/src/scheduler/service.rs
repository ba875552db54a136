//! A scheduler on a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::intake::Intake;
use super::{Job, JobId, Refused, Scheduler, Status};

/// Runs a [`Scheduler`] on a thread that sleeps while there is nothing to do. Dropped, it stops.
pub struct Service {
    intake: Arc<Intake>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(mut scheduler: Scheduler) -> std::io::Result<Self> {
        let intake = Arc::clone(&scheduler.intake);
        let thread = std::thread::Builder::new().name("scheduler".into()).spawn(move || work(&mut scheduler))?;
        Ok(Self { intake, thread: Some(thread) })
    }

    /// Puts a job into the queue. Never waits for a round.
    ///
    /// # Errors
    /// Why it is not taken; nothing is told to it then.
    pub fn submit(&self, job: Job) -> Result<JobId, Refused> {
        self.intake.submit(job)
    }

    /// Where things stand, as of the last round.
    pub fn status(&self) -> Status {
        self.intake.status()
    }

    /// Takes nothing new. What was taken is brought to its end: [`status`](Self::status) tells when nothing is left.
    pub fn drain(&self) {
        self.intake.queue.lock().drains = true;
        self.intake.changed.notify_all();
    }

    /// Cancels what runs and waits, and ends the thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        {
            let mut queue = self.intake.queue.lock();
            (queue.drains, queue.stops) = (true, true);
        }
        self.intake.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panics are caught; there is nothing to be told of it.
            let _ = thread.join();
        }
    }
}

fn work(scheduler: &mut Scheduler) {
    loop {
        let stepped = catch_unwind(AssertUnwindSafe(|| scheduler.step()));
        let goes_on = match stepped {
            Ok(goes_on) => goes_on,
            Err(panic) => {
                if catch_unwind(AssertUnwindSafe(|| scheduler.fail_running(&*panic))).is_err() {
                    tracing::error!("another panic, while those that it concerned were told of the first");
                }
                true
            }
        };
        let intake = &*scheduler.intake;
        let mut queue = intake.queue.lock();
        while !goes_on && queue.waiting.is_empty() && !queue.stops {
            intake.changed.wait(&mut queue);
        }
        if queue.stops && queue.waiting.is_empty() && !goes_on {
            return;
        }
    }
}
