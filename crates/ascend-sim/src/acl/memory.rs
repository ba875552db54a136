//! Allocating, freeing, and asking about memory.

use crate::exports::{In, Out, exports};
use crate::failure::{Failure, Outcome, argument, invalid, require};
use crate::host;
use crate::memory::Place;
use crate::order::Usage;
use crate::world::world;
use acl_sys::{
    ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_LOCATION_TYPE_HOST, ACL_MEM_LOCATION_TYPE_UNREGISTERED, Status,
    aclrtMallocConfig, aclrtMemAttr, aclrtMemLocation, aclrtMemMallocPolicy, aclrtPtrAttributes,
};

type Address = usize;

fn allocate(pointer: Out<Address>, size: usize, policy: aclrtMemMallocPolicy, spare: u64) -> Outcome {
    pointer.required()?;
    require(size > 0, || argument("an allocation of 0 bytes"))?;
    // Kinds of pages, the kinds of memory, and the access flag may be combined.
    let (pages, kinds) = (policy.0 & 0xFF, policy.0 & !0xFF);
    require(pages <= 7 && kinds & !(0x100 | 0x1000 | 0x10_0000) == 0, || {
        argument(format!("policy {:#x} is unknown", policy.0))
    })?;
    let context = world().current()?;
    host::forbid_in_callback("allocating")?;
    let config = world().config();
    let address = world().memory.allocate(context.device, size, spare, config.memory, config.poison)?;
    pointer.set(address)
}

fn free(address: Address) -> Outcome {
    require(address != 0, || argument("the pointer is null"))?;
    host::forbid_in_callback("freeing")?;
    if let Ok(view) = world().memory.view(address, 1) {
        let allocation = view.allocation;
        let pending = world()
            .streams_of(allocation.device)
            .iter()
            .find_map(|stream| Some((stream.id, stream.pending(allocation.address, allocation.size)?)));
        if let Some((stream, task)) = pending {
            world().violation(format!(
                "{} bytes at {address:#x} are freed while {task} on stream {stream} still needs them",
                allocation.size
            ))?;
        }
        world().host_access(allocation.address, allocation.size, Usage::Write, "aclrtFree")?;
    }
    world().memory.free(address).map(|_| ())
}

fn allocate_host(pointer: Out<Address>, size: usize) -> Outcome {
    pointer.required()?;
    require(size > 0, || argument("an allocation of 0 bytes"))?;
    world().current()?;
    host::forbid_in_callback("allocating")?;
    pointer.set(world().memory.allocate_host(size, world().config().poison)?)
}

exports! {
    /// Allocates on the current device; 32 bytes more are reserved.
    fn aclrtMalloc(pointer: Out<Address>, size: usize, policy: aclrtMemMallocPolicy) {
        allocate(pointer, size, policy, 32)
    }

    /// Allocates without the spare bytes.
    fn aclrtMallocAlign32(pointer: Out<Address>, size: usize, policy: aclrtMemMallocPolicy) {
        allocate(pointer, size, policy, 0)
    }

    /// Allocates in cached memory, which is like any other here.
    fn aclrtMallocCached(pointer: Out<Address>, size: usize, policy: aclrtMemMallocPolicy) {
        allocate(pointer, size, policy, 32)
    }

    /// Allocates; wishes are not looked at.
    fn aclrtMallocWithCfg(pointer: Out<Address>, size: usize, policy: aclrtMemMallocPolicy, config: In<aclrtMallocConfig>) {
        let _ = config.get_optional();
        allocate(pointer, size, policy, 32)
    }

    /// Frees at once.
    fn aclrtFree(pointer: Address) {
        free(pointer)
    }

    /// Waits for the device, then frees.
    fn aclrtFreeWithDevSync(pointer: Address) {
        require(pointer != 0, || argument("the pointer is null"))?;
        for stream in world().streams_of(world().current()?.device) {
            stream.synchronize(None)?;
        }
        free(pointer)
    }

    /// Allocates pinned memory.
    fn aclrtMallocHost(pointer: Out<Address>, size: usize) {
        allocate_host(pointer, size)
    }

    /// Allocates pinned memory; wishes are not looked at.
    fn aclrtMallocHostWithCfg(pointer: Out<Address>, size: u64, config: In<aclrtMallocConfig>) {
        let _ = config.get_optional();
        allocate_host(pointer, usize::try_from(size).map_err(|_| argument("more bytes than there are addresses"))?)
    }

    /// Frees pinned memory. Asynchronous copies that still need it are a violation.
    fn aclrtFreeHost(pointer: Address) {
        require(pointer != 0, || argument("the pointer is null"))?;
        super::copy::forbid_free(pointer)?;
        world().memory.free_host(pointer)
    }

    /// Free and total bytes. There is high-bandwidth memory only; what is asked of another kind is answered for it, and
    /// kinds of pages that are not in use have none.
    fn aclrtGetMemInfo(attribute: aclrtMemAttr, free: Out<usize>, total: Out<usize>) {
        free.required()?;
        total.required()?;
        let device = world().current()?.device;
        let (capacity, used) = (world().config().memory, world().memory.used(device));
        let to_size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match attribute.0 {
            0..=5 | 12 | 13 => {
                total.set(to_size(capacity))?;
                free.set(to_size(capacity.saturating_sub(used)))
            }
            6..=11 | 14..=17 => {
                total.set(0)?;
                free.set(0)
            }
            other => {
                let text = format!("memory attribute {other} is unknown");
                Err(Failure::new(Status::ACL_ERROR_RT_INVALID_MEMORY_TYPE, text))
            }
        }
    }

    /// What is known about a pointer.
    fn aclrtPointerGetAttributes(pointer: Address, attributes: Out<aclrtPtrAttributes>) {
        require(pointer != 0, || argument("the pointer is null"))?;
        let (id, type_, page) = match world().memory.place(pointer) {
            Place::Device(device) => (device, ACL_MEM_LOCATION_TYPE_DEVICE, 2 << 20),
            Place::Pinned => (0, ACL_MEM_LOCATION_TYPE_HOST, 4096),
            Place::Pageable => (0, ACL_MEM_LOCATION_TYPE_UNREGISTERED, 0),
            Place::Nothing => return Err(invalid("the pointer is in no allocation of a device")),
        };
        attributes.set(aclrtPtrAttributes { location: aclrtMemLocation { id, type_ }, pageSize: page, rsv: [0; 4] })
    }
}
