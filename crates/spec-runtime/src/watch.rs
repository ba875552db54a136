//! What a process takes while it runs.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{KvUsage, Model, RuntimeError};

/// What is taken at a moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Bytes of the process in memory; `None` where the system does not tell.
    pub resident: Option<usize>,
    /// The most that they were at any look.
    pub peak: Option<usize>,
    /// The KV cache of each model that tells, by the model's name.
    pub kv: Vec<(String, KvUsage)>,
    /// The least blocks of each that were free at any look.
    pub least_free: Vec<usize>,
}

/// Looks, every so often, at what the process and the KV caches of its models take, and says once when a limit is passed. Dropping it
/// ends the looking.
#[derive(Debug)]
pub struct MemoryWatch {
    seen: Arc<Mutex<MemoryUse>>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Begins to look at `models` every `period`; `warn` is told, once, when more than `limit` bytes are resident.
    ///
    /// # Errors
    /// [`RuntimeError::Device`] when the system starts no thread.
    pub fn start(
        models: Vec<Arc<dyn Model>>,
        limit: Option<usize>,
        period: Duration,
        warn: impl FnOnce(&MemoryUse) + Send + 'static,
    ) -> Result<Self, RuntimeError> {
        Self::start_with(resident_memory, models, limit, period, warn)
    }

    fn start_with(
        resident: impl Fn() -> Option<usize> + Send + 'static,
        models: Vec<Arc<dyn Model>>,
        limit: Option<usize>,
        period: Duration,
        warn: impl FnOnce(&MemoryUse) + Send + 'static,
    ) -> Result<Self, RuntimeError> {
        let seen = Arc::new(Mutex::new(look(resident(), &models, &MemoryUse::default())));
        let (stop, stopped) = sync_channel(0);
        let watched = Arc::clone(&seen);
        let mut warn = Some(warn);
        let watch = move || loop {
            let now = look(resident(), &models, &watched.lock());
            *watched.lock() = now.clone();
            if let (Some(limit), Some(resident)) = (limit, now.resident)
                && resident > limit
                && let Some(warn) = warn.take()
            {
                warn(&now);
            }
            match stopped.recv_timeout(period) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        };
        let thread = std::thread::Builder::new().name("memory".into()).spawn(watch).map_err(|error| {
            let reason = format!("no thread can be started that watches the memory: {error}");
            RuntimeError::Device { device: "host".into(), reason }
        })?;
        Ok(Self { seen, stop: Some(stop), thread: Some(thread) })
    }

    /// What was seen last.
    pub fn last(&self) -> MemoryUse {
        self.seen.lock().clone()
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the caller's warning ends the looking and nothing else.
            let _ = thread.join();
        }
    }
}

fn look(resident: Option<usize>, models: &[Arc<dyn Model>], before: &MemoryUse) -> MemoryUse {
    let told = models.iter().filter_map(|model| Some((model.config().name.clone(), model.kv_usage()?)));
    let kv: Vec<(String, KvUsage)> = told.collect();
    let least = |at: usize, free: usize| before.least_free.get(at).map_or(free, |&least| least.min(free));
    let least_free = match before.kv.len() == kv.len() {
        true => kv.iter().enumerate().map(|(at, (_, usage))| least(at, usage.free)).collect(),
        // A model has been loaded since.
        false => kv.iter().map(|(_, usage)| usage.free).collect(),
    };
    MemoryUse { resident, peak: resident.max(before.peak), kv, least_free }
}

/// Bytes of this process that are in memory, file pages among them; `None` where the system does not tell.
pub fn resident_memory() -> Option<usize> {
    of_process("VmRSS:")
}

/// The most that they have been so far.
pub fn peak_resident_memory() -> Option<usize> {
    of_process("VmHWM:")
}

fn of_process(name: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: usize = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_limit_is_told_of_once_and_the_peak_stays() {
        let looks = Arc::new(AtomicUsize::new(0));
        let (told, heard) = channel();
        let resident = {
            let looks = Arc::clone(&looks);
            // Past the limit at every second look.
            move || Some([100, 300][looks.fetch_add(1, Ordering::Relaxed) % 2])
        };
        let period = Duration::from_millis(1);
        let warn = move |seen: &MemoryUse| told.send(seen.resident).expect("the test waits");
        let watch = MemoryWatch::start_with(resident, Vec::new(), Some(200), period, warn).expect("a thread");
        assert_eq!(heard.recv_timeout(Duration::from_secs(20)), Ok(Some(300)));
        let before = looks.load(Ordering::Relaxed);
        while looks.load(Ordering::Relaxed) < before + 6 {
            std::thread::yield_now();
        }
        assert_eq!(watch.last().peak, Some(300));
        drop(watch);
        // The sender went with the one warning.
        assert!(heard.try_recv().is_err());
        let after = looks.load(Ordering::Relaxed);
        std::thread::sleep(4 * period);
        assert_eq!(looks.load(Ordering::Relaxed), after, "nobody looks any more");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_tells_what_this_process_takes() {
        assert!(resident_memory().is_some_and(|bytes| bytes > 100_000 && bytes < 1 << 40));
    }
}
