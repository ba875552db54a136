//! Writing a record while something runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use spec_core::{DraftTree, RejectionReason};
use spec_runtime::{Completion, RoundObserver, RoundReport};

use super::{End, FORBIDDEN, Line, Lines, Rejection, Round, Run, Seconds};
use crate::report;

/// A record under way.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Writing>);

#[derive(Debug)]
struct Writing {
    lines: Lines,
    requests: AtomicUsize,
}

/// What the first line of a record begins with.
const OPENING: &str = r#"{"kind":"run","#;

impl Recorder {
    /// Begins the record that `flag` names, in the place of an older one, and of so many bytes at most.
    pub(crate) fn create(flag: &'static str, path: &Path, limit: u64) -> Result<Self> {
        Ok(Self::of(Lines::create(flag, path, OPENING, limit)?))
    }

    /// The same for one that nobody has asked for: nothing is said of it.
    pub(crate) fn quiet(path: &Path, limit: u64) -> Result<Self> {
        Ok(Self::of(Lines::create("a record", path, OPENING, limit)?.quiet()))
    }

    fn of(lines: Lines) -> Self {
        Self(Arc::new(Writing { lines, requests: AtomicUsize::new(0) }))
    }

    /// Says what runs from now on; before the first request, and again where it changes.
    pub(crate) fn run(&self, run: &Run) {
        self.0.lines.write(&Line::Run(run.clone()));
    }

    /// Records one request.
    pub(crate) fn observer(&self, drafter: &str) -> Box<dyn RoundObserver> {
        let request = self.0.requests.fetch_add(1, Ordering::Relaxed) + 1;
        Box::new(Observer { recorder: self.clone(), request, drafter: drafter.to_owned() })
    }
}

struct Observer {
    recorder: Recorder,
    request: usize,
    drafter: String,
}

impl RoundObserver for Observer {
    fn round(&mut self, report: &RoundReport<'_>) {
        self.recorder.0.lines.write(&Line::Round(round(self.request, report)));
    }

    fn ended(&mut self, completion: &Completion) {
        self.recorder.0.lines.write(&Line::End(End {
            request: self.request,
            finish: completion.finish.name().to_owned(),
            completion_tokens: completion.completion_tokens,
            speculation: report::speculation(&completion.speculation, &self.drafter, completion.rule),
            timings: report::timings(completion),
            preempted: completion.preempted,
            peak_resident_bytes: spec_runtime::peak_resident_memory().map(|bytes| bytes as u64),
        }));
    }
}

/// The line of a round.
pub(crate) fn round(request: usize, report: &RoundReport<'_>) -> Round {
    let (tree, times, length) = (report.tree, report.times, report.text.len());
    let confidences: Vec<Option<f64>> = tree.nodes().map(|(_, node)| node.confidence).collect();
    Round {
        request,
        round: report.round,
        length,
        read: report.read,
        by_depth: by_depth(tree),
        accepted: report.accepted,
        emitted: report.emitted.len(),
        forced: report.forced,
        budget: report.budget,
        company: report.company,
        ahead: report.ahead,
        confidences: confidences.iter().any(Option::is_some).then_some(confidences),
        rejection: report.outcome.rejection.map(|rejection| Rejection {
            reason: if report.forbidden { FORBIDDEN } else { reason(rejection.reason) }.to_owned(),
            p: rejection.p,
            q: rejection.q,
            depth: (rejection.position + 1).saturating_sub(length),
        }),
        seconds: Seconds {
            draft: between(times.begun + times.preparation, times.drafted),
            preparation: times.preparation.as_secs_f64(),
            submit_to_passed: between(times.submitted, times.passed),
            ahead: times.ahead.as_secs_f64(),
            late: times.late.as_secs_f64(),
            sample: between(times.judged_from, times.sampled),
            rollback: between(times.sampled, times.settled),
        },
    }
}

fn by_depth(tree: &DraftTree) -> Vec<usize> {
    let mut nodes = vec![0; tree.height()];
    tree.nodes().for_each(|(id, _)| nodes[tree.depth(id) - 1] += 1);
    nodes
}

fn between(from: Duration, to: Duration) -> f64 {
    to.saturating_sub(from).as_secs_f64()
}

fn reason(reason: RejectionReason) -> &'static str {
    match reason {
        RejectionReason::TargetDiffers => "target-differs",
        RejectionReason::Chance => "chance",
        RejectionReason::BelowThreshold => "below-threshold",
        _ => "other",
    }
}
