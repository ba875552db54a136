//! Streams order work on a device; events order streams.
//!
//! The engine submits the target's passes to one stream, a [`ModelDrafter`](crate::ModelDrafter) its model's to another. Between them it
//! puts an event in two places a round: drafting begins behind what the target's stream was given, the target's pass behind what the
//! drafter's was. Results are waited for anyway; what needs the events is what nobody waits for: tokens that a commit moves within
//! the KV cache, out of blocks that the next sequence may be given, on either stream. While the target's pass goes on, the
//! drafter drafts ahead, without a wait between them.

use std::any::Any;

use crate::RuntimeError;

/// A point in a stream's work. A stream tells its own events from those of other devices by their type ([`Any`]).
pub trait Event: Any + Send + Sync {
    /// Whether the work before it is done.
    ///
    /// # Errors
    /// What the device reports.
    fn is_done(&self) -> Result<bool, RuntimeError>;
}

/// An ordered queue of device work. Drafter and target have one each. A model tells its device's streams from others by their type
/// ([`Any`]).
pub trait Stream: Any + Send + Sync {
    /// Marks the work submitted so far.
    ///
    /// # Errors
    /// What the device reports.
    fn record(&self) -> Result<Box<dyn Event>, RuntimeError>;

    /// Lets later work of this stream start only after `event`. The host need not wait, unless the event is of a device that
    /// the stream's does not know ([`wait_on_host`]).
    ///
    /// # Errors
    /// What the device reports.
    fn wait(&self, event: &dyn Event) -> Result<(), RuntimeError>;

    /// Blocks until all submitted work is done.
    ///
    /// # Errors
    /// What the device reports.
    fn synchronize(&self) -> Result<(), RuntimeError>;
}

/// Keeps the host until `event` is over: order between devices that share no events.
///
/// # Errors
/// What the event's device reports.
pub fn wait_on_host(event: &dyn Event) -> Result<(), RuntimeError> {
    while !event.is_done()? {
        std::thread::yield_now();
    }
    Ok(())
}

/// The host's stream: work is done when `submit` returns, so order is the order of submission.
#[derive(Clone, Copy, Default, Debug)]
pub struct HostStream;

struct Done;

impl Event for Done {
    fn is_done(&self) -> Result<bool, RuntimeError> {
        Ok(true)
    }
}

impl Stream for HostStream {
    fn record(&self) -> Result<Box<dyn Event>, RuntimeError> {
        Ok(Box::new(Done))
    }

    fn wait(&self, event: &dyn Event) -> Result<(), RuntimeError> {
        wait_on_host(event)
    }

    fn synchronize(&self) -> Result<(), RuntimeError> {
        Ok(())
    }
}
