//! Scratch memory of operations, up to a ceiling.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::DeviceBuffer;

/// Scratch memory for the operations of one stream, one after the other. It grows to the largest need seen, never past
/// its ceiling. Memory that it has outgrown is freed once the stream is past it.
#[derive(Debug)]
pub struct Workspace {
    context: Context,
    ceiling: u64,
    buffer: Option<DeviceBuffer>,
}

impl Workspace {
    /// 2 GiB: the ceiling where neither the shim nor `SPEC_ATB_MAX_WS_SIZE` says another, see
    /// [`Runtime::workspace_ceiling`](crate::Runtime::workspace_ceiling).
    pub const DEFAULT_CEILING: u64 = 2 << 30;

    /// Takes no memory yet, and up to [`Runtime::workspace_ceiling`](crate::Runtime::workspace_ceiling) later.
    ///
    /// # Errors
    /// [`Error::CeilingUnreadable`].
    pub fn with_default_ceiling(context: &Context) -> Result<Self> {
        Ok(Self::new(context, context.device().runtime().workspace_ceiling()?))
    }

    /// Takes no memory yet.
    pub fn new(context: &Context, ceiling: u64) -> Self {
        Self { context: context.clone(), ceiling, buffer: None }
    }

    /// The most bytes it may take.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Changes the most bytes it may take, from the next growth on.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling;
    }

    /// The bytes it has.
    pub fn len(&self) -> usize {
        self.buffer.as_ref().map_or(0, DeviceBuffer::len)
    }

    /// Whether it has none yet.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_none()
    }

    /// Memory for an operation; `None` when it needs none.
    pub(crate) fn reserve(&mut self, operation: &'static str, needed: u64) -> Result<Option<DeviceBuffer>> {
        if needed == 0 {
            return Ok(None);
        }
        if needed > self.ceiling {
            return Err(Error::WorkspaceCeiling { operation, needed, ceiling: self.ceiling });
        }
        match &self.buffer {
            Some(buffer) if buffer.len() as u64 >= needed => Ok(Some(buffer.clone())),
            _ => {
                // The old one goes first: both may not fit.
                self.buffer = None;
                let buffer = DeviceBuffer::new(&self.context, usize::try_from(needed).unwrap_or(usize::MAX))?;
                self.buffer = Some(buffer.clone());
                Ok(Some(buffer))
            }
        }
    }
}
