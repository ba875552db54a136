//! What a pass costs by its rows and the context before it, beside what the machine could do.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Serialize;
use spec_figures::{Spread, ratios};

use crate::engine::{Forward, Pass};

/// Row counts that are timed: those of drafts up to a full tile of eight, and of two tiles.
pub(crate) const ROWS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// Of the register-only int8 rate, what a kernel that also loads its operands may be asked for.
const USABLE_PEAK: f64 = 0.75;

/// Every run of `spec bench forward`, each the medians of its own rounds.
#[derive(Default)]
pub(crate) struct PassRuns {
    /// By context.
    pub(crate) target: BTreeMap<usize, Vec<Forward>>,
    /// The draft model's, behind the same context as `draft_context`.
    pub(crate) draft: Vec<Forward>,
    pub(crate) draft_context: usize,
}

/// The figures of one row count.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowFigures {
    pub(crate) rows: usize,
    pub(crate) ms: Spread,
    /// Over the time of one row in the same run.
    pub(crate) of_one_row: Spread,
    pub(crate) bytes_per_second: f64,
    pub(crate) macs_per_second: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ContextFigures {
    pub(crate) context: usize,
    pub(crate) rows: Vec<RowFigures>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PassFigures {
    pub(crate) model: String,
    pub(crate) device: String,
    pub(crate) bandwidth: Spread,
    pub(crate) peak_int8_macs: Spread,
    pub(crate) contexts: Vec<ContextFigures>,
    /// A draft token's cost in passes of one row of the target.
    pub(crate) draft_cost: Option<Spread>,
    /// Milliseconds in which the bytes of a pass can be read at the measured bandwidth.
    pub(crate) reading_ms: f64,
    /// Milliseconds in which a row's multiply-adds can be done at the measured peak.
    pub(crate) computing_row_ms: f64,
}

impl PassRuns {
    /// # Errors
    /// Nothing was measured, or a run lacks a row count.
    pub(crate) fn figures(&self) -> Result<PassFigures> {
        let all: Vec<&Forward> = self.target.values().flatten().collect();
        ensure!(!all.is_empty(), "no pass was timed");
        let spread = |value: fn(&Forward) -> f64| {
            let values: Vec<f64> = all.iter().map(|forward| value(forward)).collect();
            // There is a value for each run, and there are runs.
            Spread::of(&values).expect("runs were counted above")
        };
        let (bandwidth, peak) = (spread(|forward| forward.bandwidth), spread(|forward| forward.peak_int8_macs));
        let first = all[0];
        let one = first.pass(1)?;
        Ok(PassFigures {
            model: first.model.clone(),
            device: first.device.clone(),
            bandwidth,
            peak_int8_macs: peak,
            contexts: self
                .target
                .iter()
                .map(|(&context, runs)| Ok(ContextFigures { context, rows: rows(runs)? }))
                .collect::<Result<_>>()?,
            draft_cost: self.draft_cost()?,
            reading_ms: one.bytes() / bandwidth.median * 1e3,
            computing_row_ms: one.macs() / peak.median * 1e3,
        })
    }

    /// The share of the read bandwidth at which one row reads the file's bytes, run by run.
    pub(crate) fn share_of_bandwidth(&self, context: usize) -> Result<Option<Spread>> {
        self.by_run(context, |forward| Ok(forward.pass(1)?.bytes_per_second / forward.bandwidth))
    }

    /// T(n) over the larger of T(1) and the time that n rows' multiply-adds take at the usable peak, run by run.
    pub(crate) fn rows_over_floor(&self, context: usize, rows: usize) -> Result<Option<Spread>> {
        self.by_run(context, |forward| {
            let pass = forward.pass(rows)?;
            Ok(pass.ms / forward.pass(1)?.ms.max(floor_ms(forward, &pass)))
        })
    }

    /// The times and the floor that `rows_over_floor` compares, of the middle of all runs.
    pub(crate) fn arithmetic(&self, context: usize, rows: usize) -> Result<String> {
        let Some(runs) = self.target.get(&context) else { return Ok(String::new()) };
        let median = |value: &dyn Fn(&Forward) -> Result<f64>| {
            let values: Vec<f64> = runs.iter().map(value).collect::<Result<_>>()?;
            Ok::<_, anyhow::Error>(Spread::of(&values).map_or(0.0, |spread| spread.median))
        };
        Ok(format!(
            "T({rows}) {:.1} ms, T(1) {:.1} ms, floor({rows}) {:.1} ms",
            median(&|forward: &Forward| Ok(forward.pass(rows)?.ms))?,
            median(&|forward: &Forward| Ok(forward.pass(1)?.ms))?,
            median(&|forward: &Forward| Ok(floor_ms(forward, &forward.pass(rows)?)))?,
        ))
    }

    fn draft_cost(&self) -> Result<Option<Spread>> {
        let Some(target) = self.target.get(&self.draft_context) else { return Ok(None) };
        let one = |runs: &[Forward]| runs.iter().map(|run| Ok(run.pass(1)?.ms)).collect::<Result<Vec<f64>>>();
        Ok(Spread::of(&ratios(&one(&self.draft)?, &one(target)?)))
    }

    fn by_run(&self, context: usize, value: impl Fn(&Forward) -> Result<f64>) -> Result<Option<Spread>> {
        let Some(runs) = self.target.get(&context) else { return Ok(None) };
        Ok(Spread::of(&runs.iter().map(value).collect::<Result<Vec<f64>>>()?))
    }
}

fn floor_ms(forward: &Forward, pass: &Pass) -> f64 {
    pass.macs() / (USABLE_PEAK * forward.peak_int8_macs) * 1e3
}

fn rows(runs: &[Forward]) -> Result<Vec<RowFigures>> {
    let Some(first) = runs.first() else { return Ok(Vec::new()) };
    first
        .rows
        .iter()
        .map(|&Pass { rows, .. }| {
            let passes: Vec<Pass> = runs.iter().map(|run| run.pass(rows)).collect::<Result<_>>()?;
            let of = |value: fn(&Pass) -> f64| passes.iter().map(value).collect::<Vec<f64>>();
            let ones: Vec<f64> = runs.iter().map(|run| Ok(run.pass(1)?.ms)).collect::<Result<_>>()?;
            let ms = of(|pass| pass.ms);
            // Both lists have an entry for each run, and there is a first one.
            let spread = |values: &[f64]| Spread::of(values).expect("there is a first run");
            Ok(RowFigures {
                rows,
                of_one_row: spread(&ratios(&ms, &ones)),
                ms: spread(&ms),
                bytes_per_second: spread(&of(|pass| pass.bytes_per_second)).median,
                macs_per_second: spread(&of(|pass| pass.macs_per_second)).median,
            })
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::PassRuns;
    use crate::engine::{Forward, Pass};

    /// Passes of a machine that reads a gigabyte in `one_row_ms` and is at `compute` of its peak from then on.
    fn pass(rows: usize, ms: f64) -> Pass {
        Pass {
            rows,
            ms,
            tokens_per_second: rows as f64 / ms * 1e3,
            bytes_per_second: 1e9 / ms * 1e3,
            macs_per_second: rows as f64 * 1.5e9 / ms * 1e3,
        }
    }

    fn forward(times: &[(usize, f64)]) -> Forward {
        Forward {
            model: "m".into(),
            device: "cpu".into(),
            context_length: 4096,
            rows: times.iter().map(|&(rows, ms)| pass(rows, ms)).collect(),
            bandwidth: 50e9,
            peak_int8_macs: 800e9,
        }
    }

    pub(crate) fn runs() -> PassRuns {
        let mut runs = PassRuns { draft: vec![forward(&[(1, 10.0)]), forward(&[(1, 12.0)])], ..PassRuns::default() };
        // The second run met a machine at half its speed.
        runs.target.insert(0, vec![forward(&[(1, 25.0), (8, 30.0)]), forward(&[(1, 50.0), (8, 60.0)])]);
        runs.target.insert(512, vec![forward(&[(1, 26.0), (8, 40.0)])]);
        runs
    }

    #[test]
    fn shares_and_costs_are_taken_run_by_run() {
        let runs = runs();
        let share = runs.share_of_bandwidth(0).unwrap().unwrap();
        assert!((share.most - 0.8).abs() < 1e-9 && (share.least - 0.4).abs() < 1e-9, "{share:?}");
        let figures = runs.figures().unwrap();
        let cost = figures.draft_cost.unwrap();
        assert!((cost.most - 0.4).abs() < 1e-9 && (cost.least - 0.24).abs() < 1e-9, "{cost:?}");
        let eight = &figures.contexts[0].rows[1];
        assert_eq!((eight.rows, eight.ms.median), (8, 45.0));
        assert!((eight.of_one_row.least - 1.2).abs() < 1e-9 && (eight.of_one_row.most - 1.2).abs() < 1e-9);
        assert!((figures.reading_ms - 20.0).abs() < 1e-9 && (figures.computing_row_ms - 1.875).abs() < 1e-9);
    }

    #[test]
    fn the_floor_is_the_time_of_one_row_or_of_the_multiply_adds_whichever_is_longer() {
        let runs = runs();
        // Eight rows are 12 GMAC: 20 ms at three quarters of the peak, less than one row's 25.
        let over = runs.rows_over_floor(0, 8).unwrap().unwrap();
        assert!((over.most - 1.2).abs() < 1e-9, "{over:?}");
        assert_eq!(runs.arithmetic(512, 8).unwrap(), "T(8) 40.0 ms, T(1) 26.0 ms, floor(8) 20.0 ms");
        let mut wide = PassRuns::default();
        wide.target.insert(0, vec![forward(&[(1, 25.0), (16, 60.0)])]);
        // Sixteen rows are 24 GMAC: 40 ms.
        assert!((wide.rows_over_floor(0, 16).unwrap().unwrap().median - 1.5).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_measured_is_absent_and_what_should_have_been_is_an_error() {
        let runs = runs();
        assert_eq!(runs.share_of_bandwidth(3000).unwrap(), None);
        assert!(runs.rows_over_floor(0, 16).is_err());
        assert!(PassRuns::default().figures().is_err());
    }
}
