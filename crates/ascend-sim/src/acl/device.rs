//! Devices, contexts, last errors, time limits.

use super::{Handle, timeout};
use crate::exports::{Out, exports};
use crate::failure::{Failure, argument, invalid, last_status, require};
use crate::host;
use crate::world::world;
use acl_sys::{ACL_HOST, Status, aclrtLastErrLevel, aclrtRunMode};
use std::time::Instant;

/// Ids of `ASCEND_RT_VISIBLE_DEVICES`, up to the first that is none: parsing stops there.
fn visible(devices: u32) -> u32 {
    let Ok(list) = std::env::var("ASCEND_RT_VISIBLE_DEVICES") else { return devices };
    let ids = list.split(',').map_while(|id| id.parse::<u32>().ok().filter(|id| *id < devices));
    u32::try_from(ids.count()).unwrap_or(devices)
}

exports! {
    /// Makes a device's primary context current.
    fn aclrtSetDevice(device: i32) {
        world().set_device(world().check_device(device)?)
    }

    /// Takes one `aclrtSetDevice` back.
    fn aclrtResetDevice(device: i32) {
        world().reset_device(world().check_device(device)?, false)
    }

    /// Releases a device.
    fn aclrtResetDeviceForce(device: i32) {
        world().reset_device(world().check_device(device)?, true)
    }

    /// The current device.
    fn aclrtGetDevice(device: Out<i32>) {
        device.required()?;
        device.set(i32::try_from(world().current()?.device).unwrap_or(i32::MAX))
    }

    /// Number of devices.
    fn aclrtGetDeviceCount(count: Out<u32>) {
        count.set(visible(world().config().devices))
    }

    /// The host, always.
    fn aclrtGetRunMode(mode: Out<aclrtRunMode>) {
        mode.set(ACL_HOST)
    }

    /// Waits for every stream of the current device.
    fn aclrtSynchronizeDevice() {
        let mut outcome = Ok(());
        for stream in world().streams_of(world().current()?.device) {
            outcome = outcome.and(stream.synchronize(None));
        }
        outcome
    }

    /// Waits for every stream of the current device, not for ever.
    fn aclrtSynchronizeDeviceWithTimeout(milliseconds: i32) {
        let deadline = timeout(milliseconds)?.map(|timeout| Instant::now() + timeout);
        let mut outcome = Ok(());
        for stream in world().streams_of(world().current()?.device) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            outcome = outcome.and(stream.synchronize(left));
        }
        outcome
    }

    /// Makes a context, and makes it current.
    fn aclrtCreateContext(context: Out<Handle>, device: i32) {
        context.required()?;
        let handle = world().create_context(world().check_device(device)?)?;
        host::set_context(handle);
        context.set(handle)
    }

    /// Destroys a context of `aclrtCreateContext`.
    fn aclrtDestroyContext(context: Handle) {
        require(context != 0, || argument("the context is null"))?;
        world().context(context)?;
        require(!world().is_primary(context), || invalid("a primary context goes with aclrtResetDevice"))?;
        world().drop_context(context, false);
        Ok(())
    }

    /// Makes a context current.
    fn aclrtSetCurrentContext(context: Handle) {
        require(context != 0, || argument("the context is null"))?;
        world().context(context)?;
        host::set_context(context);
        Ok(())
    }

    /// The current context.
    fn aclrtGetCurrentContext(context: Out<Handle>) {
        context.required()?;
        context.set(world().current()?.handle)
    }

    /// The thread's last failure, which it forgets.
    fn aclrtGetLastError(level: aclrtLastErrLevel) -> Status, else Status::ACL_ERROR_RT_PARAM_INVALID, {
        require(level.0 == 0, || invalid("the level is not ACL_RT_THREAD_LEVEL"))?;
        Ok(last_status(true))
    }

    /// The thread's last failure.
    fn aclrtPeekAtLastError(level: aclrtLastErrLevel) -> Status, else Status::ACL_ERROR_RT_PARAM_INVALID, {
        require(level.0 == 0, || invalid("the level is not ACL_RT_THREAD_LEVEL"))?;
        Ok(last_status(false))
    }

    /// Seconds that a stream waits for an event.
    fn aclrtSetOpWaitTimeout(seconds: u32) {
        world().current()?;
        world().set_op_wait_timeout(seconds);
        Ok(())
    }

    /// Seconds that a kernel may take.
    fn aclrtSetOpExecuteTimeOut(seconds: u32) {
        world().current()?;
        require(seconds > 0, || Failure::new(Status::ACL_ERROR_RT_PARAM_INVALID, "a time limit of 0 s"))?;
        world().set_op_execute_timeout(seconds);
        Ok(())
    }
}
