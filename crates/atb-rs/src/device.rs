//! Devices, and what is known of their chips.

use crate::call::Side;
use crate::error::Result;
use crate::runtime::Runtime;
use acl_sys::Api;
use std::ffi::CStr;
use std::sync::Arc;

/// The chips whose limits differ for ATB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Chip {
    /// Atlas 800I A2 and A3 (`Ascend910B1` .. `Ascend910B4`, `Ascend910_93..`): everything.
    A2,
    /// Atlas 300I Duo (`Ascend310P`): no bf16, caches and masks in NZ layout.
    I310P,
    /// Atlas 200I / 500 A2 (`Ascend310B`).
    I310B,
    /// The first generation for training (`Ascend910A` and its kin).
    A910,
    /// None of these, or a simulator that names none; ATB itself decides what works.
    Other,
}

impl Chip {
    /// By the rules of ATB itself: `Ascend910B` alone, without a digit, is one of the first generation.
    pub fn from_name(name: &str) -> Self {
        if (name.contains("Ascend910B") && name.len() > "Ascend910B".len()) || name.contains("Ascend910_93") {
            Self::A2
        } else if name.contains("Ascend310P") {
            Self::I310P
        } else if name.contains("Ascend310B") {
            Self::I310B
        } else if name.starts_with("Ascend910") {
            Self::A910
        } else {
            Self::Other
        }
    }

    pub(crate) fn of(api: &Api) -> Self {
        // SAFETY: takes nothing.
        match unsafe { api.aclrtGetSocName() } {
            // SAFETY: not null, so that it is a C string, which the library keeps.
            Ok(name) if !name.is_null() => Self::from_name(&unsafe { CStr::from_ptr(name) }.to_string_lossy()),
            _ => Self::Other,
        }
    }

    /// Whether bf16 works.
    pub fn has_bf16(self) -> bool {
        !matches!(self, Self::I310P | Self::I310B | Self::A910)
    }
}

/// A device that this process has opened. Clones share it; the last one gives it back.
#[derive(Clone, Debug)]
pub struct Device(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Runtime,
    id: i32,
}

impl Device {
    /// Opens a device by its number, counted from 0 after `ASCEND_RT_VISIBLE_DEVICES`. The first time takes seconds.
    ///
    /// # Errors
    /// The failure of `aclrtSetDevice`: 107001 for a number that is out of range, or without a driver.
    pub fn open(runtime: &Runtime, id: i32) -> Result<Self> {
        let attempt = || format!("opening device {id}");
        // SAFETY: any number may be asked for.
        runtime.library().acl("aclrtSetDevice", attempt, |api| unsafe { api.aclrtSetDevice(id) })?;
        Ok(Self(Arc::new(Inner { runtime: runtime.clone(), id })))
    }

    /// Its number.
    pub fn id(&self) -> i32 {
        self.0.id
    }

    /// The runtime that it belongs to.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let id = self.id;
        let attempt = || format!("giving device {id} back");
        // SAFETY: the device was set once by us, and nothing of it is left.
        self.runtime
            .library()
            .release(Side::AscendCl, "aclrtResetDevice", attempt, |api| unsafe { api.aclrtResetDevice(id) });
    }
}
