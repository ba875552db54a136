//! Everything that is global: the configuration, the devices, and every handle.

use crate::config::{Config, Strict};
use crate::event::Event;
use crate::failure::{Failure, Outcome};
use crate::faults::Faults;
use crate::host;
use crate::memory::Memory;
use crate::order::Usage;
use crate::stream::{Stream, note_access};
use acl_sys::Status;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Kinds of handles; each is part of its handles' bits, so that one kind is never taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Context = 1,
    Stream = 2,
    Event = 3,
    Capture = 4,
    Operation = 5,
    AtbContext = 6,
}

/// A context of a device.
pub(crate) struct Context {
    pub(crate) handle: usize,
    pub(crate) device: u32,
    pub(crate) default_stream: Arc<Stream>,
}

#[derive(Default)]
struct Device {
    references: u64,
    primary: usize,
}

#[derive(Default)]
struct State {
    devices: BTreeMap<u32, Device>,
    contexts: BTreeMap<usize, Arc<Context>>,
    streams: BTreeMap<usize, Arc<Stream>>,
    events: BTreeMap<usize, Arc<Event>>,
}

/// The simulated machine and the process's hold on it.
pub(crate) struct World {
    config: RwLock<Arc<Config>>,
    pub(crate) faults: Faults,
    pub(crate) memory: Memory,
    state: Mutex<State>,
    violations: Mutex<Vec<String>>,
    /// Held while a device gets its primary context, so that two threads do not make two.
    setting_device: Mutex<()>,
    next_handle: AtomicUsize,
    next_stream: AtomicUsize,
    /// Seconds; 0 is none.
    op_wait_timeout: AtomicU32,
    op_execute_timeout: AtomicU32,
    pub(crate) initialised: Mutex<Option<(u64, String)>>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let world = World {
        config: RwLock::new(Arc::new(Config::default())),
        faults: Faults::default(),
        memory: Memory::default(),
        state: Mutex::default(),
        violations: Mutex::default(),
        setting_device: Mutex::default(),
        next_handle: AtomicUsize::new(1),
        next_stream: AtomicUsize::new(1),
        op_wait_timeout: AtomicU32::new(0),
        op_execute_timeout: AtomicU32::new(1091),
        initialised: Mutex::default(),
    };
    if let Ok(text) = std::env::var("ASCEND_SIM_CONFIG")
        && let Err(error) = world.configure(&text)
    {
        eprintln!("ascend-sim: ASCEND_SIM_CONFIG is ignored: {error}");
    }
    world
});

/// The one world of this process.
pub(crate) fn world() -> &'static World {
    &WORLD
}

fn gone(kind: Kind) -> Failure {
    Failure::new(Status::ACL_ERROR_RT_INVALID_HANDLE, format!("the handle of a {kind:?} is unknown or destroyed"))
}

impl World {
    pub(crate) fn configure(&self, text: &str) -> Result<(), String> {
        let config = Config::parse(text).map_err(|error| error.to_string())?;
        self.faults.configure(&config.faults, config.driver_old)?;
        *self.config.write() = Arc::new(config);
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.read().clone()
    }

    /// A handle that nobody can follow: no address of user space looks like it.
    pub(crate) fn handle(&self, kind: Kind) -> usize {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        0x0A5C_0000_0000_0000 | (kind as usize) << 44 | number << 4
    }

    /// Misuse that hardware would tolerate.
    pub(crate) fn violation(&self, text: String) -> Outcome {
        let strict = self.config().strict;
        if strict == Strict::Off {
            return Ok(());
        }
        let failure = Failure::new(Status::ACL_ERROR_RT_PARAM_INVALID, format!("strict mode: {text}"));
        let mut violations = self.violations.lock();
        if !violations.contains(&text) {
            violations.push(text);
        }
        if strict == Strict::Fail { Err(failure) } else { Ok(()) }
    }

    /// What was misused so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    pub(crate) fn clear_violations(&self) {
        self.violations.lock().clear();
    }

    pub(crate) fn op_wait_timeout(&self) -> Option<Duration> {
        let seconds = self.op_wait_timeout.load(Ordering::SeqCst);
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    pub(crate) fn set_op_wait_timeout(&self, seconds: u32) {
        self.op_wait_timeout.store(seconds, Ordering::SeqCst);
    }

    pub(crate) fn op_execute_timeout(&self) -> Duration {
        Duration::from_secs(self.op_execute_timeout.load(Ordering::SeqCst).into())
    }

    pub(crate) fn set_op_execute_timeout(&self, seconds: u32) {
        self.op_execute_timeout.store(seconds, Ordering::SeqCst);
    }

    // ---- devices and contexts ----

    pub(crate) fn check_device(&self, device: i32) -> Outcome<u32> {
        let count = self.config().devices;
        u32::try_from(device).ok().filter(|device| *device < count).ok_or_else(|| {
            let text = format!("device {device} of {count}");
            Failure::new(Status::ACL_ERROR_RT_INVALID_DEVICEID, text)
        })
    }

    /// Makes a device's primary context current, and counts.
    pub(crate) fn set_device(&self, device: u32) -> Outcome {
        let _alone = self.setting_device.lock();
        let primary = self.state.lock().devices.get(&device).map_or(0, |device| device.primary);
        let primary = if primary == 0 { self.create_context(device)? } else { primary };
        let mut state = self.state.lock();
        let entry = state.devices.entry(device).or_default();
        entry.references += 1;
        entry.primary = primary;
        host::set_context(primary);
        Ok(())
    }

    /// Takes a `set_device` back; at none, or by force, the device's resources go.
    pub(crate) fn reset_device(&self, device: u32, force: bool) -> Outcome {
        let mut state = self.state.lock();
        let Some(entry) = state.devices.get_mut(&device).filter(|entry| entry.references > 0) else {
            let text = format!("device {device} was reset more often than set");
            return Err(Failure::new(Status::ACL_ERROR_RT_CONTEXT_RELEASE_ERROR, text));
        };
        entry.references -= 1;
        if entry.references > 0 && !force {
            return Ok(());
        }
        state.devices.remove(&device);
        let contexts: Vec<usize> =
            state.contexts.values().filter(|context| context.device == device).map(|context| context.handle).collect();
        drop(state);
        for context in contexts {
            self.drop_context(context, true);
        }
        self.memory.release(device);
        Ok(())
    }

    pub(crate) fn create_context(&self, device: u32) -> Outcome<usize> {
        let handle = self.handle(Kind::Context);
        let default_stream = self.start_stream(handle, 0)?;
        let context = Context { handle, device, default_stream };
        self.state.lock().contexts.insert(handle, Arc::new(context));
        Ok(handle)
    }

    /// Removes a context with its streams.
    pub(crate) fn drop_context(&self, handle: usize, force: bool) {
        let mut state = self.state.lock();
        state.contexts.remove(&handle);
        let streams: Vec<_> = state.streams.values().filter(|stream| stream.context == handle).cloned().collect();
        state.streams.retain(|_, stream| stream.context != handle);
        drop(state);
        for stream in streams {
            stream.close(force);
        }
        if host::context() == handle {
            host::set_context(0);
        }
    }

    pub(crate) fn is_primary(&self, handle: usize) -> bool {
        self.state.lock().devices.values().any(|device| device.primary == handle)
    }

    pub(crate) fn context(&self, handle: usize) -> Outcome<Arc<Context>> {
        self.state.lock().contexts.get(&handle).cloned().ok_or_else(|| gone(Kind::Context))
    }

    /// The calling thread's context.
    pub(crate) fn current(&self) -> Outcome<Arc<Context>> {
        let text = "no context on this thread: call aclrtSetDevice or aclrtSetCurrentContext on it";
        let none = || Failure::new(Status::ACL_ERROR_RT_CONTEXT_NULL, text);
        match host::context() {
            0 => Err(none()),
            handle => self.context(handle).map_err(|_| none()),
        }
    }

    // ---- streams ----

    fn start_stream(&self, context: usize, flags: u32) -> Outcome<Arc<Stream>> {
        let limit = self.config().max_streams;
        let count = self.state.lock().streams.len();
        if count >= limit {
            let text = format!("all {limit} streams of the device are taken");
            return Err(Failure::new(Status::ACL_ERROR_RT_NO_STREAM_RESOURCE, text));
        }
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed) as i32;
        let stream = Stream::start(self.handle(Kind::Stream), id, context, flags)?;
        self.state.lock().streams.insert(stream.handle, stream.clone());
        Ok(stream)
    }

    pub(crate) fn create_stream(&self, flags: u32) -> Outcome<usize> {
        host::forbid_in_callback("making a stream")?;
        Ok(self.start_stream(self.current()?.handle, flags)?.handle)
    }

    /// A stream of any context; null is the current context's default stream.
    pub(crate) fn stream(&self, handle: usize) -> Outcome<Arc<Stream>> {
        if handle == 0 {
            return Ok(self.current()?.default_stream.clone());
        }
        self.state.lock().streams.get(&handle).cloned().ok_or_else(|| gone(Kind::Stream))
    }

    /// A stream of the calling thread's context.
    pub(crate) fn own_stream(&self, handle: usize) -> Outcome<Arc<Stream>> {
        let context = self.current()?;
        let stream = self.stream(handle)?;
        if stream.context == context.handle {
            return Ok(stream);
        }
        let text = format!("stream {} belongs to another context than the current one", stream.id);
        Err(Failure::new(Status::ACL_ERROR_RT_STREAM_CONTEXT, text))
    }

    pub(crate) fn destroy_stream(&self, handle: usize, force: bool) -> Outcome {
        let stream = self.own_stream(handle)?;
        stream.close(force);
        self.state.lock().streams.remove(&handle);
        Ok(())
    }

    /// The streams of a device.
    pub(crate) fn streams_of(&self, device: u32) -> Vec<Arc<Stream>> {
        let state = self.state.lock();
        let on_device =
            |stream: &&Arc<Stream>| state.contexts.get(&stream.context).is_some_and(|context| context.device == device);
        state.streams.values().filter(on_device).cloned().collect()
    }

    // ---- events ----

    pub(crate) fn create_event(&self, is_ex: bool, flags: u32) -> Outcome<usize> {
        self.current()?;
        let limit = self.config().max_events;
        let mut state = self.state.lock();
        if state.events.len() >= limit {
            let text = format!("all {limit} events are taken");
            return Err(Failure::new(Status::ACL_ERROR_RT_NO_EVENT_RESOURCE, text));
        }
        let handle = self.handle(Kind::Event);
        state.events.insert(handle, Arc::new(Event::new(is_ex, flags)));
        Ok(handle)
    }

    pub(crate) fn event(&self, handle: usize) -> Outcome<Arc<Event>> {
        self.state.lock().events.get(&handle).cloned().ok_or_else(|| gone(Kind::Event))
    }

    pub(crate) fn destroy_event(&self, handle: usize) -> Outcome {
        self.state.lock().events.remove(&handle).map(|_| ()).ok_or_else(|| gone(Kind::Event))
    }

    // ---- accounts ----

    /// Notes an access that the calling thread itself makes.
    pub(crate) fn host_access(&self, address: usize, len: usize, usage: Usage, name: &str) -> Outcome {
        let (at, moment) = host::step();
        note_access(crate::order::Access { address, len, usage }, at, &moment, name)
    }

    /// What is still alive, a line each.
    pub(crate) fn leaks(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for (device, address, size) in self.memory.leaks() {
            lines.push(format!("{size} bytes at {address:#x} on device {device}"));
        }
        for (address, size) in self.memory.pinned_leaks() {
            lines.push(format!("{size} bytes of pinned host memory at {address:#x}"));
        }
        let state = self.state.lock();
        let defaults: Vec<usize> = state.contexts.values().map(|context| context.default_stream.handle).collect();
        let primaries: Vec<usize> = state.devices.values().map(|device| device.primary).collect();
        lines.extend(
            state.streams.values().filter(|s| !defaults.contains(&s.handle)).map(|s| format!("stream {}", s.id)),
        );
        lines.extend(state.events.keys().map(|handle| format!("event {handle:#x}")));
        lines.extend(state.contexts.keys().filter(|c| !primaries.contains(c)).map(|c| format!("context {c:#x}")));
        drop(state);
        lines.extend(crate::atb::leaks());
        lines
    }

    /// Takes everything down, for tests: handles become invalid, memory is freed, counts start again.
    pub(crate) fn reset(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        for stream in state.streams.values() {
            stream.close(true);
        }
        for (device, _, _) in self.memory.leaks() {
            self.memory.release(device);
        }
        crate::atb::reset();
        self.clear_violations();
        *self.initialised.lock() = None;
        self.set_op_wait_timeout(0);
        self.set_op_execute_timeout(1091);
        host::reset();
    }
}
