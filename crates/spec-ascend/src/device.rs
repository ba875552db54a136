//! A device of this process, and whether it still answers.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use atb_rs::{Chip, Context, Device, Range, Runtime, Status};

use crate::AscendError;

/// Hardware faults in a row, without one pass between them that worked, after which a device counts as lost.
const FAULTS_IN_A_ROW: u32 = 3;

/// What a device says of work that it has ended by a time limit.
const KERNEL_TIMEOUTS: [Status; 5] = [
    Status::ACL_ERROR_RT_TASK_TIMEOUT,
    Status::ACL_ERROR_RT_AICORE_TIMEOUT,
    Status::ACL_ERROR_RT_AICPU_TIMEOUT,
    Status::ACL_ERROR_RT_VECTOR_CORE_TIMEOUT,
    Status::ACL_ERROR_RT_FFTS_PLUS_TIMEOUT,
];

/// Choices for [`AscendDevice::open`].
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// What the device is called in messages; `None` is `ascend:N`.
    pub name: Option<String>,
    /// How long a kernel may run before the device ends it, in whole seconds. CANN's own limit is some 18 minutes on A2.
    pub kernel_timeout: Duration,
    /// How long the host waits for a pass.
    pub pass_timeout: Duration,
    /// Whether passes are named ranges in the timeline of `msprof --msproftx=on`.
    pub ranges: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            name: None,
            kernel_timeout: Duration::from_secs(60),
            pass_timeout: Duration::from_secs(180),
            ranges: false,
        }
    }
}

/// An open device with a context of its own. Clones share it.
#[derive(Clone, Debug)]
pub struct AscendDevice(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    name: String,
    chip: Chip,
    pass_timeout: Duration,
    ranges: bool,
    faults: AtomicU32,
    lost: OnceLock<String>,
}

impl AscendDevice {
    /// Opens device `id`, counted from 0 after `ASCEND_RT_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// What opening the device and making a context report: see `spec doctor`.
    pub fn open(runtime: &Runtime, id: i32, options: DeviceOptions) -> Result<Self, AscendError> {
        let context = Context::new(&Device::open(runtime, id)?)?;
        match context.set_op_timeout(options.kernel_timeout) {
            // A chip or a release without the limit keeps its own.
            Err(error) if error.status() == Some(Status::ACL_ERROR_RT_FEATURE_NOT_SUPPORT) => {}
            other => other?,
        }
        tracing::debug!(id, chip = ?runtime.chip(), "device opened");
        Ok(Self(Arc::new(Inner {
            context,
            name: options.name.unwrap_or_else(|| format!("ascend:{id}")),
            chip: runtime.chip(),
            pass_timeout: options.pass_timeout,
            ranges: options.ranges,
            faults: AtomicU32::new(0),
            lost: OnceLock::new(),
        })))
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The kind of its chip.
    #[must_use]
    pub fn chip(&self) -> Chip {
        self.0.chip
    }

    /// The context that everything on it is made in.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Whether it has been found to be lost: no work is given to it any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.lost.get().is_some()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A range of the profiler's, where they are asked for.
    pub(crate) fn range(&self, name: impl FnOnce() -> String) -> Option<Range<'_>> {
        self.0.ranges.then(|| self.context().range(&name()))
    }

    pub(crate) fn pass_timeout(&self) -> Duration {
        self.0.pass_timeout
    }

    /// Fails when the device is known to be lost.
    pub(crate) fn require(&self) -> Result<(), AscendError> {
        self.0.lost.get().map_or(Ok(()), |cause| Err(AscendError::Lost { cause: cause.clone() }))
    }

    /// A pass worked.
    pub(crate) fn worked(&self) {
        self.0.faults.store(0, Ordering::Relaxed);
    }

    /// What a failed call means for the device.
    pub(crate) fn judge(&self, error: atb_rs::Error) -> AscendError {
        let Some(status) = error.status() else { return error.into() };
        let is_gone = [
            Status::ACL_ERROR_RT_LOST_HEARTBEAT,
            Status::ACL_ERROR_RT_DEVICE_MEM_ERROR,
            Status::ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR,
            Status::ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR,
        ]
        .contains(&status);
        // 507xxx is the runtime's range for faults of the device, some of which it never comes back from.
        let is_timeout =
            [Status::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, Status::ACL_ERROR_RT_EVENT_SYNC_TIMEOUT].contains(&status);
        if is_timeout || KERNEL_TIMEOUTS.contains(&status) {
            tracing::warn!(device = self.name(), %status, "kernel timeout");
        }
        if is_timeout {
            return AscendError::Hung { seconds: self.0.pass_timeout.as_secs() };
        }
        let is_fault = (507_000..508_000).contains(&status.0);
        let in_a_row = if is_fault { self.0.faults.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        if !is_gone && in_a_row < FAULTS_IN_A_ROW {
            return error.into();
        }
        // Whoever asked for the work is told by the error.
        tracing::info!(device = self.name(), %status, "the device is lost");
        let cause = if is_gone { error.to_string() } else { format!("{in_a_row} faults in a row, the last: {error}") };
        AscendError::Lost { cause: self.0.lost.get_or_init(|| cause).clone() }
    }
}
