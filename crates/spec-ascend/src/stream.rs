//! Streams and events of the seam, over those of AscendCL.

use std::any::Any;
use std::sync::Arc;

use atb_rs::{Executor, Workspace};
use parking_lot::Mutex;
use spec_runtime::{Event, RuntimeError, Stream};

use crate::{AscendDevice, AscendError};

/// A queue of work on a device, with a context of ATB of its own: 96 MiB of the device's memory, and a workspace.
/// Clones share it.
#[derive(Clone, Debug)]
pub struct AscendStream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: AscendDevice,
    executor: Executor,
    ledger: Mutex<Ledger>,
    /// Held from asking whether something failed until the answer is noted.
    asking: Mutex<()>,
}

/// AscendCL reports a failed kernel once, at the next wait for its stream, and does not say whose it was: every pass
/// that was under way then has failed.
#[derive(Debug, Default)]
struct Ledger {
    /// Passes queued so far.
    passes: u64,
    /// The last pass that was under way when a failure was reported, and the failure.
    failed: Option<(u64, AscendError)>,
    /// Failures so far.
    failures: u64,
}

impl Ledger {
    fn note(&mut self, error: AscendError) {
        self.failed = Some((self.passes, error));
        self.failures += 1;
    }
}

impl AscendStream {
    /// Makes a stream. Its workspace grows up to
    /// [`Runtime::workspace_ceiling`](atb_rs::Runtime::workspace_ceiling).
    ///
    /// # Errors
    /// [`AscendError::Call`]: 26 (`ATB_ERROR_OUT_OF_DEVICE_MEMORY`) without 96 MiB to spare; what loading ATB reports.
    pub fn new(device: &AscendDevice) -> Result<Self, AscendError> {
        device.require()?;
        let judge = |error| device.judge(error);
        let context = device.context();
        let stream = atb_rs::Stream::new(context).map_err(judge)?;
        let workspace = Workspace::with_default_ceiling(context).map_err(judge)?;
        let executor = Executor::new(&stream, workspace).map_err(judge)?;
        Ok(Self(Arc::new(Inner {
            device: device.clone(),
            executor,
            ledger: Mutex::default(),
            asking: Mutex::default(),
        })))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &AscendDevice {
        &self.0.device
    }

    /// Bytes of its workspace so far.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        self.0.executor.workspace(|workspace| workspace.len())
    }

    pub(crate) fn executor(&self) -> &Executor {
        &self.0.executor
    }

    pub(crate) fn queue(&self) -> &atb_rs::Stream {
        self.0.executor.stream()
    }

    /// The stream behind a trait object; `None` for another device's, or the host's.
    pub(crate) fn of<'a>(stream: &'a dyn Stream, device: &AscendDevice) -> Option<&'a Self> {
        let any: &dyn Any = stream;
        let own = any.downcast_ref::<Self>()?;
        own.device().is_same(device).then_some(own)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Failures that it has told of so far.
    pub(crate) fn failures(&self) -> u64 {
        self.0.ledger.lock().failures
    }

    /// The number of a pass that is being queued.
    pub(crate) fn begin_pass(&self) -> u64 {
        let mut ledger = self.0.ledger.lock();
        ledger.passes += 1;
        ledger.passes
    }

    /// Whether pass `number`, whose event has come, did its work. Waits for the passes behind it too, if there are any:
    /// a failure is told by the stream alone.
    pub(crate) fn outcome(&self, number: u64) -> Result<(), AscendError> {
        let _asking = self.0.asking.lock();
        let failure = self.drain();
        let mut ledger = self.0.ledger.lock();
        if let Err(error) = failure {
            ledger.note(error);
        }
        match &ledger.failed {
            Some((last, error)) if number <= *last => Err(error.clone()),
            _ => {
                self.device().worked();
                Ok(())
            }
        }
    }

    fn drain(&self) -> Result<(), AscendError> {
        let (device, queue) = (self.device(), self.queue());
        queue.synchronize_for(device.pass_timeout()).map_err(|error| {
            // Once more, so that what is over is known to be: a failure is told once.
            let _ = queue.synchronize_for(device.pass_timeout());
            device.judge(error)
        })
    }

    fn report(&self, error: atb_rs::Error) -> RuntimeError {
        self.device().judge(error).at(self.device().name())
    }
}

impl Stream for AscendStream {
    fn record(&self) -> Result<Box<dyn Event>, RuntimeError> {
        let record = || {
            let mut event = atb_rs::Event::new(self.device().context())?;
            self.queue().record(&mut event)?;
            Ok(event)
        };
        let event = record().map_err(|error| self.report(error))?;
        Ok(Box::new(AscendEvent { event, device: self.device().clone() }))
    }

    fn wait(&self, event: &dyn Event) -> Result<(), RuntimeError> {
        let any: &dyn Any = event;
        if let Some(own) = any.downcast_ref::<AscendEvent>() {
            return self.queue().wait(&own.event).map_err(|error| self.report(error));
        }
        // Another device's work: only the host can wait for it.
        while !event.is_done()? {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), RuntimeError> {
        let _asking = self.0.asking.lock();
        self.drain().map_err(|error| {
            self.0.ledger.lock().note(error.clone());
            error.at(self.device().name())
        })
    }
}

/// A mark in an [`AscendStream`].
#[derive(Debug)]
pub struct AscendEvent {
    event: atb_rs::Event,
    device: AscendDevice,
}

impl Event for AscendEvent {
    fn is_done(&self) -> Result<bool, RuntimeError> {
        self.event.is_complete().map_err(|error| self.device.judge(error).at(self.device.name()))
    }
}
