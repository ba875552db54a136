//! What `spec explain` prints.

use serde_json::{Value, json};

use super::diagnosis::{Finding, Weight};
use super::figures::Figures;
use super::text::{count, millis, percent, tenths, times};

/// For people.
pub(crate) fn text(figures: &Figures<'_>, findings: &[Finding], is_cut: bool) -> String {
    let run = figures.run;
    let mut text = format!("{} by {}", run.command, run.target.name);
    if let Some(draft) = &run.draft {
        text += &format!(", draft model {}", draft.name);
    }
    text += &format!("; drafts: {}, lengths: {}", run.drafter, run.length_policy);
    if let Some(rule) = &run.rule {
        text += &format!("; rule {rule}");
    }
    let accepted = match figures.drafting.tokens {
        0 => "nothing drafted".to_owned(),
        drafted => {
            format!("{} of {} accepted", percent(figures.acceptance()), count(drafted, "draft token", "draft tokens"))
        }
    };
    text += &format!(
        "\n{}, prompt {}, {} in {}: {} tokens/s; {} a round, {accepted}\n",
        count(figures.requests.len(), "answer", "answers"),
        millis(figures.wall.prefill),
        count(figures.emitted, "token", "tokens"),
        millis(figures.wall.decode()),
        tenths(figures.rate()),
        times(per_round(figures)),
    );
    text += &format!(
        "plain passes would make about {} tokens/s: this is {} times as fast\n",
        tenths(figures.plain_rate()),
        times(speed_up(figures))
    );
    if is_cut {
        text += "the record ends in the middle of a line: what it says is of its beginning\n";
    }
    for (number, finding) in (1..).zip(findings) {
        let saves = match finding.seen.weight {
            Weight::Fault(share) | Weight::Could(share) => {
                format!(": up to {} of the time, if drafts stood as they do of models that fit", percent(share))
            }
            Weight::Saves(share) => format!(": about {} of the time", percent(share)),
            Weight::Price | Weight::Bound => String::new(),
        };
        text += &format!(
            "\n{number}. {} ({}){saves}\n   evidence: {}\n   change: {}\n",
            finding.diagnosis.limit, finding.diagnosis.name, finding.seen.evidence, finding.seen.advice
        );
    }
    text
}

/// For programs.
pub(crate) fn json(figures: &Figures<'_>, findings: &[Finding]) -> Value {
    let wall = figures.wall;
    let positions: Vec<Value> =
        figures.positions.iter().map(|p| json!({ "reached": p.reached, "kept": p.kept })).collect();
    let passes: Vec<Value> = figures
        .passes
        .counts()
        .map(|(rows, passes)| json!({ "rows": rows, "passes": passes, "ms": 1e3 * figures.passes.at(rows) }))
        .collect();
    let limits: Vec<Value> = findings
        .iter()
        .map(|Finding { diagnosis, seen }| {
            json!({
                "diagnosis": diagnosis.name,
                "limit": diagnosis.limit,
                "saves": seen.weight.share(),
                "is_fault": matches!(seen.weight, Weight::Fault(_)),
                "if_drafts_fitted": matches!(seen.weight, Weight::Could(_) | Weight::Fault(_)),
                "evidence": seen.evidence,
                "advice": seen.advice,
            })
        })
        .collect();
    json!({
        "run": figures.run,
        "tokens_per_second": figures.rate(),
        "plain_tokens_per_second": figures.plain_rate(),
        "speedup": speed_up(figures),
        "tokens_per_round": per_round(figures),
        "acceptance_rate": figures.acceptance(),
        "drafted": figures.drafting.tokens,
        "draft_cost": figures.cost(),
        "draft_cost_that_pays": figures.cost_that_pays(),
        "positions": positions,
        "passes": passes,
        "seconds": {
            "prefill": wall.prefill,
            "draft_load": wall.preparation,
            "draft": wall.draft,
            "draft_catching_up": figures.drafting.catching_up,
            "pass": wall.pass,
            "sample": wall.sample,
            "rollback": wall.rollback,
        },
        "limits": limits,
    })
}

fn per_round(figures: &Figures<'_>) -> f64 {
    figures.emitted as f64 / figures.rounds.len().max(1) as f64
}

fn speed_up(figures: &Figures<'_>) -> f64 {
    if figures.plain_rate() > 0.0 { figures.rate() / figures.plain_rate() } else { 1.0 }
}
