//! Streams order work on a device; events order streams.

use std::any::Any;

use crate::RuntimeError;

/// A point in a stream's work. Devices know their own kind by [`Any`].
pub trait Event: Any + Send + Sync {
    /// Whether the work before it is done.
    ///
    /// # Errors
    /// What the device reports.
    fn is_done(&self) -> Result<bool, RuntimeError>;
}

/// An ordered queue of device work. Drafter and target have one each.
pub trait Stream: Any + Send + Sync {
    /// Marks the work submitted so far.
    ///
    /// # Errors
    /// What the device reports.
    fn record(&self) -> Result<Box<dyn Event>, RuntimeError>;

    /// Lets later work of this stream start only after `event`.
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
        // A foreign event may still be pending; the host can only wait for it by asking.
        while !event.is_done()? {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), RuntimeError> {
        Ok(())
    }
}
