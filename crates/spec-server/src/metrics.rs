//! Figures of all requests, as Prometheus reads them.

use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use spec_runtime::audit::ShadowStatus;
use spec_runtime::{
    Completion, PositionStats, SpeculationStats, Status, Timings, peak_resident_memory, resident_memory,
};

/// Seconds.
const WAITS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
/// Shares.
const SHARES: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
const FINISHES: [&str; 5] = ["stop", "length", "cancelled", "deadline", FAILED];
const FAILED: &str = "failed";

/// What is counted since the start.
#[derive(Debug)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    finished: [u64; FINISHES.len()],
    refused: u64,
    prompt: usize,
    cached: usize,
    generated: usize,
    speculation: SpeculationStats,
    timings: Timings,
    acceptance: Histogram,
    queue: Histogram,
    first_token: Histogram,
    between_tokens: Histogram,
}

impl Counts {
    fn end(&mut self, how: &str) {
        for (count, _) in self.finished.iter_mut().zip(FINISHES).filter(|(_, finish)| *finish == how) {
            *count += 1;
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self(Mutex::new(Counts {
            finished: [0; FINISHES.len()],
            refused: 0,
            prompt: 0,
            cached: 0,
            generated: 0,
            speculation: SpeculationStats::default(),
            timings: Timings::default(),
            acceptance: Histogram::new(SHARES),
            queue: Histogram::new(WAITS),
            first_token: Histogram::new(WAITS),
            between_tokens: Histogram::new(WAITS),
        }))
    }
}

impl Metrics {
    /// A request began, having waited so long.
    pub(crate) fn started(&self, queued: Duration) {
        self.0.lock().queue.observe(queued.as_secs_f64());
    }

    /// A request's first token came so long after the request.
    pub(crate) fn first_token(&self, after: Duration) {
        self.0.lock().first_token.observe(after.as_secs_f64());
    }

    /// A token came so long after the one before it. Tokens of one block come together.
    pub(crate) fn next_token(&self, after: Duration) {
        self.0.lock().between_tokens.observe(after.as_secs_f64());
    }

    /// A request was not taken.
    pub(crate) fn refused(&self) {
        self.0.lock().refused += 1;
    }

    /// A request failed.
    pub(crate) fn failed(&self) {
        self.0.lock().end(FAILED);
    }

    /// A request ended.
    pub(crate) fn done(&self, completion: &Completion) {
        let mut counts = self.0.lock();
        counts.end(completion.finish.name());
        counts.prompt += completion.prompt_tokens;
        counts.cached += completion.cached_tokens;
        counts.generated += completion.completion_tokens;
        let stats = &completion.speculation;
        counts.speculation += stats;
        counts.timings += completion.timings;
        if stats.drafted > 0 {
            counts.acceptance.observe(stats.acceptance_rate());
        }
    }

    /// The text at `/metrics`.
    pub(crate) fn text(&self, status: &Status, audit: Option<ShadowStatus>) -> String {
        let counts = self.0.lock();
        let (speculation, timings) = (&counts.speculation, &counts.timings);
        let mut page = Page::default();
        page.one("spec_requests_running", "gauge", "Generations that run.", status.running as f64);
        page.one("spec_requests_waiting", "gauge", "Generations that wait to run.", status.queued as f64);
        page.head("spec_requests_total", "counter", "Generations that ended, by how; each of n choices is one.");
        for (finish, count) in FINISHES.iter().zip(counts.finished) {
            page.line("spec_requests_total", &format!("finish=\"{finish}\""), count as f64);
        }
        page.one(
            "spec_requests_refused_total",
            "counter",
            "Generations not taken: queue full, prompt larger than the KV cache, device lost, or shutting down.",
            counts.refused as f64,
        );
        page.one("spec_prompt_tokens_total", "counter", "Tokens of prompts.", counts.prompt as f64);
        page.one(
            "spec_prefix_cache_hit_tokens_total",
            "counter",
            "Tokens of prompts whose keys and values were cached.",
            counts.cached as f64,
        );
        page.one(
            "spec_generation_tokens_total",
            "counter",
            "Tokens generated, end tokens included.",
            counts.generated as f64,
        );
        page.one(
            "spec_decode_num_rounds_total",
            "counter",
            "Passes of the target after prefill, a generation's part each.",
            speculation.rounds as f64,
        );
        page.one(
            "spec_decode_num_drafts_total",
            "counter",
            "Rounds in which something was drafted.",
            speculation.drafted_rounds as f64,
        );
        page.one("spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", speculation.drafted as f64);
        page.one(
            "spec_decode_num_accepted_tokens_total",
            "counter",
            "Drafted tokens accepted and emitted; those behind a stop count nowhere.",
            speculation.accepted as f64,
        );
        for (name, about, of) in [
            (
                "spec_decode_num_draft_tokens_per_pos_total",
                "Tokens drafted, by depth below the text.",
                (|p| p.drafted) as fn(&PositionStats) -> usize,
            ),
            (
                "spec_decode_num_accepted_tokens_per_pos_total",
                "Drafted tokens accepted, by depth below the text.",
                |p| p.accepted,
            ),
        ] {
            page.head(name, "counter", about);
            for (position, stats) in speculation.by_position.iter().enumerate() {
                page.line(name, &format!("position=\"{position}\""), of(stats) as f64);
            }
        }
        page.one(
            "spec_decode_mean_accepted_length",
            "gauge",
            "Accepted tokens a round, without the corrected or bonus token.",
            speculation.mean_accepted_length(),
        );
        page.one(
            "spec_decode_tokens_per_round",
            "gauge",
            "Tokens a round, with the corrected or bonus token.",
            speculation.tokens_per_round(),
        );
        page.histogram(
            "spec_request_acceptance_rate",
            "Accepted over drafted, of each generation that drafted.",
            &counts.acceptance,
        );
        page.histogram("spec_request_queue_seconds", "Time from a request to its start.", &counts.queue);
        page.histogram(
            "spec_time_to_first_token_seconds",
            "Time from a request to its first token.",
            &counts.first_token,
        );
        page.histogram(
            "spec_inter_token_latency_seconds",
            "Time between tokens of a generation; those of one block come together.",
            &counts.between_tokens,
        );
        let kv = status.kv.unwrap_or_default();
        for (name, about, blocks) in [
            ("spec_kv_blocks_total", "Blocks of the KV cache; 0 where the device does not tell.", kv.total),
            ("spec_kv_blocks_used", "Blocks that generations hold.", kv.total - kv.free.min(kv.total)),
            ("spec_kv_blocks_cached", "Free blocks that hold prefixes which may come again.", kv.cached),
            ("spec_kv_blocks_shared", "Blocks that several generations hold.", kv.shared),
        ] {
            page.one(name, "gauge", about, blocks as f64);
        }
        let draft_kv = status.draft_kv.unwrap_or_default();
        for (name, about, blocks) in [
            (
                "spec_draft_kv_blocks_total",
                "Blocks of the draft model's KV cache; 0 until it is loaded.",
                draft_kv.total,
            ),
            (
                "spec_draft_kv_blocks_used",
                "Blocks of it that generations hold.",
                draft_kv.total - draft_kv.free.min(draft_kv.total),
            ),
        ] {
            page.one(name, "gauge", about, blocks as f64);
        }
        let drafts = status.draft_cache.unwrap_or_default();
        page.one(
            "spec_draft_cache_hits_total",
            "counter",
            "Drafts of the draft model that were kept from before.",
            drafts.hits as f64,
        );
        page.one(
            "spec_draft_cache_misses_total",
            "counter",
            "Drafts that were asked for and not kept.",
            drafts.misses as f64,
        );
        page.one("spec_draft_cache_bytes", "gauge", "Bytes that kept drafts take.", drafts.bytes as f64);
        let preempted = status.totals.preempted as f64;
        page.one(
            "spec_preemptions_total",
            "counter",
            "Times that a generation gave its place in the KV cache up.",
            preempted,
        );
        page.head("spec_phase_seconds_total", "counter", "Where the time of generations went.");
        for (phase, spent) in [
            ("prefill", timings.prefill),
            ("draft", timings.draft),
            ("verify", timings.verify),
            ("sample", timings.sample),
            ("rollback", timings.rollback),
        ] {
            page.line("spec_phase_seconds_total", &format!("phase=\"{phase}\""), spent.as_secs_f64());
        }
        page.one(
            "spec_device_lost",
            "gauge",
            "1 when the device is taken for lost.",
            f64::from(status.device_lost.is_some()),
        );
        let audit = audit.unwrap_or_default();
        for (name, kind, about, value) in [
            (
                "spec_audit_tokens_total",
                "counter",
                "Tokens held against the target's law (--audit-share).",
                audit.tokens as f64,
            ),
            (
                "spec_audit_impossible_tokens_total",
                "counter",
                "Those of them that the law does not allow.",
                audit.impossible as f64,
            ),
            (
                "spec_audit_p_value",
                "gauge",
                "How often chance alone would speak so much against the law at any time since the start; 1 says nothing does.",
                audit.p_value,
            ),
            ("spec_audit_alarm", "gauge", "1 once that p-value was below 1e-6.", f64::from(audit.alarmed)),
        ] {
            page.one(name, kind, about, value);
        }
        for (name, about, bytes) in [
            ("spec_process_resident_memory_bytes", "Resident memory of the process.", resident_memory()),
            ("spec_process_peak_memory_bytes", "The most that it has been.", peak_resident_memory()),
        ] {
            bytes.into_iter().for_each(|bytes| page.one(name, "gauge", about, bytes as f64));
        }
        page.0
    }
}

#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|&bound| bound < value)] += 1;
        self.sum += value;
    }
}

#[derive(Default)]
struct Page(String);

// Writing to a String cannot fail.
impl Page {
    fn head(&mut self, name: &str, kind: &str, about: &str) {
        let _ = writeln!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, label: &str, value: f64) {
        let _ = writeln!(self.0, "{name}{{{label}}} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, about: &str, value: f64) {
        self.head(name, kind, about);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn histogram(&mut self, name: &str, about: &str, histogram: &Histogram) {
        self.head(name, "histogram", about);
        let mut below = 0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            below += count;
            self.line(&format!("{name}_bucket"), &format!("le=\"{bound}\""), below as f64);
        }
        let all: u64 = histogram.counts.iter().sum();
        self.line(&format!("{name}_bucket"), "le=\"+Inf\"", all as f64);
        let _ = writeln!(self.0, "{name}_sum {}\n{name}_count {all}", histogram.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_a_histogram_hold_what_is_not_above_their_bound() {
        let mut histogram = Histogram::new(&[0.0, 0.5, 1.0]);
        [0.0, 0.5, 0.6, 1.0, 2.0].into_iter().for_each(|value| histogram.observe(value));
        let mut page = Page::default();
        page.histogram("h", "About.", &histogram);
        for line in [
            "h_bucket{le=\"0\"} 1",
            "h_bucket{le=\"0.5\"} 2",
            "h_bucket{le=\"1\"} 4",
            "h_bucket{le=\"+Inf\"} 5",
            "h_sum 4.1",
            "h_count 5",
        ] {
            assert!(page.0.lines().any(|other| other == line), "{line} in {}", page.0);
        }
    }
}
