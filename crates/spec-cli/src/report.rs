//! What a generation is reported as, to people and to programs. The figures are those of `spec_runtime`.

use std::time::Duration;

use serde_json::{Value, json};
use spec_core::TokenLogProb;
use spec_runtime::{Completion, ForgivenStats, SpeculationStats};

/// What a reader of the answer may have waited for, and wants explained.
const NOTICEABLE: Duration = Duration::from_millis(50);

/// The line below an answer; `warning` is what the user should know of the device.
pub(crate) fn footer(completion: &Completion, drafter: &str, warning: Option<&str>) -> String {
    let stats = &completion.speculation;
    let mut line = format!(
        "[{} tokens, {:.1} tokens/s",
        completion.completion_tokens,
        completion.timings.tokens_per_second(completion.completion_tokens)
    );
    if stats.drafted > 0 {
        line += &format!(
            "; {drafter}: {:.0} % of {} draft tokens accepted, {:.2} a round",
            100.0 * stats.acceptance_rate(),
            stats.drafted,
            stats.mean_accepted_length()
        );
        if stats.ahead.drafted > 0 {
            line += &format!(", {} of {} made ahead were of use", stats.ahead.used, stats.ahead.drafted);
        }
    } else if drafter != "none" {
        line += &format!("; {drafter}: nothing to draft");
    }
    if stats.forgiven.count > 0 {
        let ForgivenStats { count, log_ratio } = stats.forgiven;
        line += &format!("; {}: {count} forgiven, {log_ratio:.2} nats", completion.rule);
    }
    let preparation = completion.timings.preparation;
    if preparation >= NOTICEABLE {
        line += &format!("; draft model loaded behind the first token in {:.0} ms", millis(preparation));
    }
    line += &format!("; {}; seed {}]", completion.finish.name(), completion.seed);
    if let Some(warning) = warning {
        line += &format!("\n[{warning}]");
    }
    line
}

/// The object that `--json` prints.
pub(crate) fn json(completion: &Completion, drafter: &str, load: Duration) -> Value {
    let mut timings = timings(completion);
    timings["load_ms"] = millis(load).into();
    let mut object = json!({
        "tokens": completion.tokens,
        "text": completion.text,
        "finish_reason": completion.finish.name(),
        "prompt_tokens": completion.prompt_tokens,
        "cached_tokens": completion.cached_tokens,
        "completion_tokens": completion.completion_tokens,
        "seed": completion.seed,
        "timings": timings,
        "speculation": speculation(&completion.speculation, drafter, completion.rule),
    });
    if let Some(peak) = spec_runtime::peak_resident_memory() {
        object["peak_resident_bytes"] = peak.into();
    }
    if let Some(logprobs) = &completion.logprobs {
        object["logprobs"] = logprobs.iter().map(logprob).collect();
    }
    object
}

/// Where the time of an answer went.
pub(crate) fn timings(completion: &Completion) -> Value {
    let timings = &completion.timings;
    json!({
        "prefill_ms": millis(timings.prefill),
        "draft_load_ms": millis(timings.preparation),
        "decode_ms": millis(timings.decode),
        "draft_ms": millis(timings.draft),
        "ahead_ms": millis(timings.ahead),
        "verify_ms": millis(timings.verify),
        "sample_ms": millis(timings.sample),
        "rollback_ms": millis(timings.rollback),
        "decode_tokens_per_second": timings.tokens_per_second(completion.completion_tokens),
    })
}

/// What speculation did in an answer.
pub(crate) fn speculation(stats: &SpeculationStats, drafter: &str, rule: &str) -> Value {
    let positions: Vec<Value> =
        stats.by_position.iter().map(|p| json!({ "drafted": p.drafted, "accepted": p.accepted })).collect();
    json!({
        "drafter": drafter,
        "rule": rule,
        "rounds": stats.rounds,
        "drafted_rounds": stats.drafted_rounds,
        "drafted": stats.drafted,
        "forced": stats.forced,
        "accepted": stats.accepted,
        "acceptance_rate": stats.acceptance_rate(),
        "mean_accepted_length": stats.mean_accepted_length(),
        "tokens_per_round": stats.tokens_per_round(),
        "ahead": { "drafted": stats.ahead.drafted, "used": stats.ahead.used, "dropped": stats.ahead.dropped() },
        "accepted_by_position": positions,
        "forgiven": { "count": stats.forgiven.count, "log_ratio": stats.forgiven.log_ratio },
    })
}

fn logprob(token: &TokenLogProb) -> Value {
    json!({ "id": token.id, "logprob": token.logprob, "top": token.top })
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
