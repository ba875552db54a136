//! `spec tune`: records replayed under every length policy, and what to set.

mod costs;
mod epsilon;
mod evaluate;
mod replay;
#[cfg(test)]
mod tests;
mod text;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use crate::args::{Search, TuneArgs};
use crate::record::{self, Record};
use evaluate::{Evaluation, evaluate};

pub(crate) fn run(args: &TuneArgs) -> Result<ExitCode> {
    if let Some(Search::Epsilon(args)) = &args.search {
        return epsilon::run(args);
    }
    let records = args.files.iter().map(|path| record::read(path)).collect::<Result<Vec<Record>>>()?;
    let evaluations = evaluate(&records);
    if evaluations.is_empty() {
        anyhow::bail!(
            "nothing was drafted in {}; record a run with drafts: spec demo --length-policy survey --record FILE",
            args.files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        );
    }
    let mut out = String::new();
    match args.json {
        true => writeln!(out, "{}", json!({ "drafters": evaluations.iter().map(object).collect::<Vec<_>>() }))?,
        false => evaluations.iter().try_for_each(|evaluation| table(&mut out, evaluation))?,
    }
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn object(evaluation: &Evaluation) -> Value {
    let Evaluation { run, texts, tokens, open, costs, survival, recorded, settings, notes } = evaluation;
    let points = |curve: &costs::Curve| -> Vec<Value> {
        let points = curve.points().iter();
        points.map(|p| json!({ "count": p.count, "seconds": p.seconds, "rounds": p.rounds })).collect()
    };
    let depths: Vec<Value> = survival
        .iter()
        .map(|depth| json!({ "reached": depth.reached, "kept": depth.kept, "survival": depth.survival }))
        .collect();
    json!({
        "target": run.target,
        "draft": run.draft,
        "drafter": run.drafter,
        "rule": run.rule,
        "device": run.device,
        "threads": run.threads,
        "texts": texts,
        "tokens": tokens,
        "unknown_positions": open,
        "passes": points(&costs.pass),
        "drafts": points(&costs.draft),
        "survival": depths,
        "recorded": recorded,
        "settings": settings,
        "recommended": evaluation.best(),
        "notes": notes,
    })
}

fn table(out: &mut String, evaluation: &Evaluation) -> std::fmt::Result {
    let Evaluation { run, texts, tokens, open, costs, survival, recorded, settings, notes } = evaluation;
    writeln!(out, "target {} ({}), {}", run.target.name, run.target.tensor_type, run.device)?;
    let rule = run.rule.as_deref().unwrap_or("each request its own");
    let open = 100.0 * open;
    writeln!(
        out,
        "drafter {}, rule {rule}: {texts} texts, {tokens} tokens, {open:.0} % of them never guessed at",
        run.drafter
    )?;
    for (what, curve) in [("pass by rows", &costs.pass), ("draft by tokens", &costs.draft)] {
        write!(out, "{what}, ms:")?;
        curve.points().iter().try_for_each(|p| write!(out, "  {} {:.2}", p.count, 1e3 * p.seconds))?;
        writeln!(out)?;
    }
    writeln!(out, "\n{:>5} {:>8} {:>8} {:>8} {:>9}", "depth", "reached", "kept", "rate", "survival")?;
    for (index, depth) in survival.iter().enumerate() {
        let rate = 100.0 * depth.kept as f64 / depth.reached.max(1) as f64;
        let survival = 100.0 * depth.survival;
        writeln!(out, "{:>5} {:>8} {:>8} {rate:>6.0} % {survival:>7.0} %", index + 1, depth.reached, depth.kept)?;
    }
    writeln!(out, "\n{:<22} {:>9} {:>9} {:>11} {:>8}", "setting", "tokens/s", "speed-up", "acceptance", "a round")?;
    for setting in settings {
        let guessed = if setting.is_known { "" } else { "  costs not recorded" };
        writeln!(
            out,
            "{:<22} {:>9.1} {:>9} {:>9.0} % {:>8.2}{guessed}",
            setting.name,
            setting.tokens_per_second,
            times(setting.speedup),
            100.0 * setting.acceptance_rate,
            setting.tokens_per_round,
        )?;
    }
    let replayed =
        recorded.replayed.map_or(String::new(), |replayed| format!("; its own policy replayed, {replayed:.1}"));
    writeln!(out, "\nrecorded: {:.1} tokens/s{replayed}", recorded.tokens_per_second)?;
    notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
    match evaluation.best() {
        Some(best) => {
            let gain = best.speedup.map_or(String::new(), |speedup| format!(", {speedup:.2} times plain decoding"));
            writeln!(out, "recommended: {}  ({:.1} tokens/s{gain})\n", best.flags, best.tokens_per_second)
        }
        None => writeln!(out, "recommended: nothing, for want of recorded costs\n"),
    }
}

fn times(speedup: Option<f64>) -> String {
    speedup.map_or_else(|| "-".to_owned(), |speedup| format!("{speedup:.2}x"))
}
