//! Filling and copying memory, now or in a stream's order.

use super::Handle;
use crate::exports::exports;
use crate::failure::{Failure, Outcome, argument, invalid, require};
use crate::memory::{Place, View};
use crate::order::{Access, Usage};
use crate::stream::{Stream, Task};
use crate::world::world;
use acl_sys::{Status, aclrtMemcpyKind};
use parking_lot::Mutex;
use std::sync::Arc;

type Address = usize;

/// Rows of bytes that lie some distance apart; one row for an ordinary copy.
#[derive(Clone, Copy)]
struct Block {
    address: Address,
    pitch: usize,
    width: usize,
    height: usize,
}

impl Block {
    /// From its first byte to behind its last.
    fn span(&self) -> usize {
        (self.height - 1).saturating_mul(self.pitch).saturating_add(self.width)
    }

    fn end(&self) -> usize {
        self.address.saturating_add(self.span())
    }
}

/// A side of a copy: memory of a device, or of the host.
enum Side {
    Device(View),
    Host,
}

impl Side {
    fn of(block: &Block) -> Outcome<Self> {
        match world().memory.place(block.address) {
            Place::Device(_) | Place::Nothing => {
                world().memory.view(block.address, block.span()).map(Side::Device).map_err(bad)
            }
            Place::Pinned | Place::Pageable => Ok(Side::Host),
        }
    }

    fn pointer(&self, block: &Block) -> *mut u8 {
        match self {
            Side::Device(view) => view.pointer(),
            Side::Host => block.address as *mut u8,
        }
    }
}

/// The copy engine met an address that leads nowhere.
fn bad(text: String) -> Failure {
    Failure::new(Status::ACL_ERROR_RT_SYS_DMA, text)
}

/// Copies rows. Sides may be the same memory.
fn copy(to: &Block, from: &Block) -> Outcome {
    let (target, source) = (Side::of(to)?, Side::of(from)?);
    for row in 0..to.height {
        // SAFETY: device sides were checked to lie in allocations that the views keep alive. Host sides are the caller's
        // promise, and for queued copies pinned memory, whose freeing is checked against the copies under way.
        unsafe {
            let from = source.pointer(from).add(row * from.pitch);
            std::ptr::copy(from, target.pointer(to).add(row * to.pitch), to.width);
        }
    }
    Ok(())
}

fn fill(address: Address, byte: u8, count: usize) -> Outcome {
    match Side::of(&Block { address, pitch: 0, width: count, height: 1 })? {
        Side::Device(view) => view.fill(byte),
        Side::Host => {
            // SAFETY: the callers checked that the bytes are pinned memory, which has this many.
            unsafe { (address as *mut u8).write_bytes(byte, count) }
        }
    }
    Ok(())
}

/// Bytes of pinned memory that copies under way use.
static UNDER_WAY: Mutex<Vec<(Address, usize)>> = Mutex::new(Vec::new());

/// Host memory that a copy needs for as long as its task may run.
struct Needed(Vec<(Address, usize)>);

impl Needed {
    fn new(bytes: Vec<(Address, usize)>) -> Self {
        UNDER_WAY.lock().extend(&bytes);
        Self(bytes)
    }
}

impl Drop for Needed {
    fn drop(&mut self) {
        let mut under_way = UNDER_WAY.lock();
        for bytes in &self.0 {
            if let Some(at) = under_way.iter().position(|other| other == bytes) {
                under_way.swap_remove(at);
            }
        }
    }
}

/// Notes a violation when a copy that is under way uses pinned memory that starts at an address.
pub(super) fn forbid_free(address: Address) -> Outcome {
    let size =
        world().memory.pinned_leaks().into_iter().find(|(start, _)| *start == address).map_or(0, |(_, size)| size);
    let used = UNDER_WAY.lock().iter().any(|(start, len)| *start < address + size && address < start + len);
    let text = || format!("pinned memory at {address:#x} is freed while an asynchronous copy still needs it");
    if used { world().violation(text()) } else { Ok(()) }
}

fn is_device(address: Address) -> bool {
    matches!(world().memory.place(address), Place::Device(_) | Place::Nothing)
}

fn check(to: &Block, from: &Block, room: usize, kind: aclrtMemcpyKind) -> Outcome<bool> {
    require(to.address != 0 && from.address != 0, || argument("a pointer is null"))?;
    require(kind.0 <= 7, || argument(format!("kind {} of copy is unknown", kind.0)))?;
    let newest = world().config().cann >= (9, 0, 0);
    if to.width == 0 || to.height == 0 {
        // Releases up to 8.5 refuse it.
        return if newest { Ok(false) } else { Err(invalid("a copy of 0 bytes")) };
    }
    require(to.width <= room, || invalid(format!("{} bytes do not fit in {room}", to.width)))?;
    Ok(to.address != from.address)
}

/// Bytes of a copy's sides that are on a device.
fn accesses(to: &Block, from: &Block) -> Vec<Access> {
    let access = |block: &Block, usage| Access { address: block.address, len: block.span(), usage };
    let both = [access(from, Usage::Read), access(to, Usage::Write)];
    both.into_iter().filter(|access| is_device(access.address)).collect()
}

fn copy_now(to: Block, from: Block, room: usize, kind: aclrtMemcpyKind, name: &str) -> Outcome {
    world().current()?;
    if !check(&to, &from, room, kind)? {
        return Ok(());
    }
    for access in accesses(&to, &from) {
        world().host_access(access.address, access.len, access.usage, name)?;
    }
    let within = is_device(to.address) && is_device(from.address);
    crate::host::clock(world().config().cost.copy(to.width * to.height, within));
    copy(&to, &from)
}

/// What happens at an asynchronous copy from or to memory that is not pinned: the call waits.
fn synchronously(stream: &Arc<Stream>, to: Block, from: Block, name: &str) -> Outcome {
    world().violation(format!("{name} with host memory that is not pinned: it waits for the stream"))?;
    stream.synchronize(None)?;
    stream.queue(task(to, from, name))?;
    stream.synchronize(None)
}

fn task(to: Block, from: Block, name: &str) -> Task {
    let within = is_device(to.address) && is_device(from.address);
    let cost = world().config().cost.copy(to.width * to.height, within);
    let host: Vec<_> = [to, from].iter().filter(|b| !is_device(b.address)).map(|b| (b.address, b.span())).collect();
    let needed = Needed::new(host);
    let action = move |_: &mut crate::stream::Progress<'_>| {
        let _ = &needed;
        copy(&to, &from)
    };
    Task { name: name.to_owned(), accesses: accesses(&to, &from), cost, action: Arc::new(action) }
}

fn copy_in_order(to: Block, from: Block, room: usize, kind: aclrtMemcpyKind, stream: Handle, name: &str) -> Outcome {
    let stream = world().own_stream(stream)?;
    if !check(&to, &from, room, kind)? {
        return Ok(());
    }
    let host: Vec<&Block> = [&to, &from].into_iter().filter(|block| !is_device(block.address)).collect();
    if host.len() == 2 {
        let text = "an asynchronous copy within host memory";
        return Err(Failure::new(Status::ACL_ERROR_RT_FEATURE_NOT_SUPPORT, text));
    }
    if host.iter().all(|block| world().memory.is_pinned(block.address, block.span())) {
        stream.queue(task(to, from, name))
    } else {
        synchronously(&stream, to, from, name)
    }
}

fn check_fill(address: Address, room: usize, count: usize) -> Outcome {
    require(address != 0, || argument("the pointer is null"))?;
    require(count <= room, || invalid(format!("{count} bytes do not fit in {room}")))?;
    require(is_device(address) || world().memory.is_pinned(address, count), || {
        invalid("host memory to be filled has to come from aclrtMallocHost")
    })
}

fn plain(address: Address, count: usize) -> Block {
    Block { address, pitch: count, width: count, height: 1 }
}

fn rows(address: Address, pitch: usize, width: usize, height: usize) -> Outcome<Block> {
    require(width <= pitch, || invalid(format!("rows of {width} bytes lie {pitch} bytes apart")))?;
    let block = Block { address, pitch, width, height };
    require(height == 0 || block.end() < usize::MAX, || invalid("rows beyond the address space"))?;
    Ok(block)
}

exports! {
    /// Fills now.
    fn aclrtMemset(pointer: Address, max_count: usize, value: i32, count: usize) {
        world().current()?;
        check_fill(pointer, max_count, count)?;
        if is_device(pointer) {
            world().host_access(pointer, count, Usage::Write, "aclrtMemset")?;
        }
        fill(pointer, value as u8, count)
    }

    /// Fills in a stream's order.
    fn aclrtMemsetAsync(pointer: Address, max_count: usize, value: i32, count: usize, stream: Handle) {
        let stream = world().own_stream(stream)?;
        check_fill(pointer, max_count, count)?;
        let access = Access { address: pointer, len: count, usage: Usage::Write };
        let cost = world().config().cost.kernel(count as f64, 0.0);
        let action = Arc::new(move |_: &mut crate::stream::Progress<'_>| fill(pointer, value as u8, count));
        let accesses = if is_device(pointer) { vec![access] } else { Vec::new() };
        stream.queue(Task { name: "aclrtMemsetAsync".to_owned(), accesses, cost, action })
    }

    /// Copies now, whatever is queued.
    fn aclrtMemcpy(to: Address, room: usize, from: Address, count: usize, kind: aclrtMemcpyKind) {
        copy_now(plain(to, count), plain(from, count), room, kind, "aclrtMemcpy")
    }

    /// Copies in a stream's order.
    fn aclrtMemcpyAsync(to: Address, room: usize, from: Address, count: usize, kind: aclrtMemcpyKind, stream: Handle) {
        copy_in_order(plain(to, count), plain(from, count), room, kind, stream, "aclrtMemcpyAsync")
    }

    /// Copies rows now.
    fn aclrtMemcpy2d(to: Address, to_pitch: usize, from: Address, from_pitch: usize, width: usize, height: usize, kind: aclrtMemcpyKind) {
        let (to, from) = (rows(to, to_pitch, width, height)?, rows(from, from_pitch, width, height)?);
        copy_now(to, from, to_pitch, kind, "aclrtMemcpy2d")
    }

    /// Copies rows in a stream's order.
    fn aclrtMemcpy2dAsync(to: Address, to_pitch: usize, from: Address, from_pitch: usize, width: usize, height: usize, kind: aclrtMemcpyKind, stream: Handle) {
        let (to, from) = (rows(to, to_pitch, width, height)?, rows(from, from_pitch, width, height)?);
        copy_in_order(to, from, to_pitch, kind, stream, "aclrtMemcpy2dAsync")
    }
}
