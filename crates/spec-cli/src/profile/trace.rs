//! The trace while it is written: events in the format of Chrome's tracing, which Perfetto reads too. Times are microseconds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spec_model::Checkpoint;
use spec_runtime::{RoundObserver, RoundReport, RoundTimes};

use crate::device::DeviceName;

/// How often the counter of memory is read, and the file written to: each takes longer than a line.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A lane of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    Host = 1,
    Draft,
    Target,
}

const LANES: [(Lane, &str); 3] = [(Lane::Host, "host"), (Lane::Draft, "draft stream"), (Lane::Target, "target stream")];

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: BufWriter<File>,
    /// What writing failed by first; nothing is written behind it.
    failed: Option<std::io::Error>,
    /// The pass that was written last. Several generations tell of one that they shared.
    pass: Option<(Duration, Duration)>,
    looked: Option<Instant>,
    about: Value,
}

impl Trace {
    /// Begins a trace in a file.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let state = State { file: BufWriter::new(file), failed: None, pass: None, looked: None, about: json!({}) };
        let trace = Self { path, begun: Instant::now(), state: Mutex::new(state) };
        let mut state = trace.state();
        let process = json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": "spec" } });
        state.text(&format!("{{\"traceEvents\":[\n{process}"));
        for (lane, name) in LANES {
            let (tid, args) = (lane as u8, json!({ "name": name }));
            state.event(&json!({ "ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": args }));
            let args = json!({ "sort_index": tid });
            state.event(&json!({ "ph": "M", "pid": 1, "tid": tid, "name": "thread_sort_index", "args": args }));
        }
        drop(state);
        Ok(trace)
    }

    /// Says what runs: kept with the events.
    pub(crate) fn describe(&self, target: &Checkpoint) {
        self.state().about = json!({
            "target": target.config().name,
            "pass_bytes": pass_bytes(target),
            "version": env!("CARGO_PKG_VERSION"),
        });
    }

    /// Takes the rounds of a generation.
    pub(crate) fn observer(self: &Arc<Self>) -> Box<dyn RoundObserver> {
        Box::new(Rounds { trace: Arc::clone(self), began: None })
    }

    /// Ends the file, and gives its path. `bandwidth` is what the device's memory gives, in bytes per second.
    ///
    /// # Errors
    /// What writing failed by.
    pub(crate) fn finish(&self, device: DeviceName, bandwidth: Option<f64>) -> Result<&Path> {
        let mut state = self.state();
        let mut about = state.about.take();
        about["device"] = json!(device.to_string());
        about["bandwidth"] = json!(bandwidth);
        state.text(&format!("\n],\"displayTimeUnit\":\"ms\",\"otherData\":{about}}}\n"));
        let flushed = state.file.flush();
        match state.failed.take().map_or(flushed, Err) {
            Ok(()) => Ok(&self.path),
            Err(error) => Err(error).with_context(|| self.path.display().to_string()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn text(&mut self, text: &str) {
        if self.failed.is_none()
            && let Err(error) = self.file.write_all(text.as_bytes())
        {
            self.failed = Some(error);
        }
    }

    fn event(&mut self, event: &Value) {
        self.text(&format!(",\n{event}"));
    }

    /// A span from one moment to another.
    fn span(&mut self, lane: Lane, name: &str, (from, to): (Duration, Duration), args: Value) {
        let (ts, dur) = (micros(from), micros(to.saturating_sub(from)));
        self.event(
            &json!({ "ph": "X", "pid": 1, "tid": lane as u8, "name": name, "ts": ts, "dur": dur, "args": args }),
        );
    }

    fn counter(&mut self, name: &str, at: Duration, args: Value) {
        self.event(&json!({ "ph": "C", "pid": 1, "name": name, "ts": micros(at), "args": args }));
    }

    /// The memory of the process, every so often; and the file's buffer is emptied.
    fn look(&mut self, at: Duration) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        if let Some(bytes) = spec_runtime::resident_memory() {
            self.counter("memory", at, json!({ "resident MiB": bytes as f64 / f64::from(1 << 20) }));
        }
        if let Err(error) = self.file.flush() {
            self.failed.get_or_insert(error);
        }
    }
}

/// The rounds of one generation.
struct Rounds {
    trace: Arc<Trace>,
    /// When the engine's clock began, on the trace's. Engines have one each.
    began: Option<Duration>,
}

impl RoundObserver for Rounds {
    fn round(&mut self, report: &RoundReport<'_>) {
        let times = &report.times;
        let now = self.trace.begun.elapsed();
        // An engine that is older than the trace has no moment to begin at.
        let began = *self.began.get_or_insert(now.saturating_sub(times.settled));
        let at = |time: Duration| began + time;
        let (request, round, drafted) = (report.generation.0, report.round, report.tree.len());
        let mut state = self.trace.state();
        draft_spans(&mut state, times, &at, &json!({ "request": request, "round": round, "tokens": drafted }));

        let rows = report.read + drafted + report.company;
        let pass = (times.submitted, times.passed);
        if state.pass.replace(pass) != Some(pass) {
            let args = json!({ "request": request, "round": round, "rows": rows });
            let name = match (round, rows) {
                (0, _) => "prefill",
                (_, 1) => "decode",
                _ => "verify",
            };
            // A prompt that was read alone was read in one go, by as many passes as it took.
            let from = if round == 0 && report.company == 0 { times.begun } else { times.submitted };
            state.span(Lane::Target, name, (at(from), at(times.passed)), args);
        }
        let args = json!({
            "request": request,
            "round": round,
            "accepted": report.accepted,
            "emitted": report.emitted.len(),
        });
        state.span(Lane::Host, "sample", (at(times.judged_from), at(times.sampled)), args);
        if round > 0 {
            let args = json!({
                "request": request,
                "round": round,
                "dropped": drafted - report.accepted,
                "moved": moved(report),
            });
            state.span(Lane::Host, "rollback", (at(times.sampled), at(times.settled)), args);
        }
        if drafted > 0 {
            let percent = 100.0 * report.accepted as f64 / drafted as f64;
            state.counter("acceptance", at(times.settled), json!({ "percent": percent }));
        }
        state.look(at(times.settled));
    }
}

/// Preparing the drafter, drafting, and drafting ahead for the next round.
fn draft_spans(state: &mut State, times: &RoundTimes, at: &impl Fn(Duration) -> Duration, args: &Value) {
    // Without a drafter nothing but the clock passes.
    const SHORTEST: Duration = Duration::from_micros(2);
    let prepared = times.begun + times.preparation;
    if times.preparation >= SHORTEST {
        state.span(Lane::Draft, "draft load", (at(times.begun), at(prepared)), args.clone());
    }
    let has_drafted = args["tokens"] != 0 || times.drafted.saturating_sub(prepared) >= SHORTEST;
    if args["round"] != 0 && has_drafted {
        state.span(Lane::Draft, "draft step", (at(prepared), at(times.drafted)), args.clone());
    }
    if !times.ahead.is_zero() {
        let ahead = (at(times.submitted), at(times.submitted + times.ahead));
        state.span(Lane::Draft, "draft ahead", ahead, json!({ "request": args["request"], "round": args["round"] }));
    }
}

/// Tokens whose keys and values lie elsewhere behind the round: those that were accepted from behind a branch.
fn moved(report: &RoundReport<'_>) -> usize {
    let kept = report.outcome.accepted.iter().take(report.emitted.len().saturating_sub(1));
    kept.enumerate().filter(|(index, node)| node.index() != *index).count()
}

/// Bytes of the file that a pass of one row reads: all but a table of embeddings that is no head, too.
fn pass_bytes(checkpoint: &Checkpoint) -> usize {
    let weights = checkpoint.weights();
    let all: usize = checkpoint.tensors().map(|tensor| tensor.stored_bytes()).sum();
    all - if weights.output.is_some() { weights.embedding.stored_bytes() } else { 0 }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
