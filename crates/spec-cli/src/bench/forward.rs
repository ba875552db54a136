//! `spec bench forward`: what a pass costs by its number of rows, beside what the machine could do.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use spec_core::Token;
use spec_cpu::{CpuModel, probe};
use spec_model::ModelConfig;
use spec_runtime::{Batch, HostStream, KvGuard, Model, Sequence, Want};

use super::quantile;
use crate::args::{BenchForwardArgs, LogitsKind};
use crate::report::millis;
use crate::session::{CpuDevice, Opened};
use crate::usage;

pub(crate) fn forward(args: &BenchForwardArgs) -> Result<ExitCode> {
    let opened = Opened::open(&args.model, None)?;
    let trained = opened.checkpoint.config().context_length;
    let most = args.rows.iter().copied().max().unwrap_or(0);
    if args.rows.contains(&0) || most == 0 {
        return Err(usage("--rows: give numbers from 1 on"));
    }
    if args.rounds == 0 {
        return Err(usage("--rounds: at least 1; medians want 15"));
    }
    if args.context.saturating_add(most) > trained {
        return Err(usage(format!(
            "--context {} with {most} rows is past the model's {trained} positions",
            args.context
        )));
    }
    let device = CpuDevice::new(args.threads)?;
    let model = device.load(&opened.checkpoint, args.storage.into(), args.context + most)?;
    if most > model.config().max_rows {
        bail!("--rows {most}: a pass carries {} rows at most", model.config().max_rows);
    }
    let bench = Forward::new(&model, opened.tokenizer().real_vocab_size(), args)?;
    let mut times: Vec<Vec<Duration>> = vec![Vec::with_capacity(args.rounds); args.rows.len()];
    let (mut bandwidth, mut peak) = (Vec::new(), Vec::new());
    let reader = probe::Bandwidth::new(device.pool())?;
    for &rows in &args.rows {
        bench.pass(rows)?;
    }
    for _ in 0..args.rounds {
        for (rows, times) in args.rows.iter().zip(&mut times) {
            times.push(bench.pass(*rows)?);
        }
        bandwidth.push(reader.measure(device.isa(), device.pool()));
        peak.push(probe::peak_int8_macs(device.isa(), device.pool()));
    }
    let config = opened.checkpoint.config();
    let figures: Vec<Figures> = args
        .rows
        .iter()
        .zip(times)
        .map(|(&rows, times)| Figures::new(&model, config, rows, args.logits, times))
        .collect();
    let (bandwidth, peak) = (quantile(&mut bandwidth, 0.5), quantile(&mut peak, 0.5));
    if args.json {
        let rows: Vec<_> = figures.iter().map(Figures::json).collect();
        let object = json!({
            "model": model.config().name,
            "device": model.config().device,
            "context_length": trained,
            "rows": rows,
            "bandwidth": bandwidth,
            "peak_int8_macs": peak,
        });
        println!("{object}");
    } else {
        print_table(&model, args, &figures, bandwidth, peak);
    }
    Ok(ExitCode::SUCCESS)
}

struct Forward {
    sequence: Sequence,
    tokens: Vec<Token>,
    context: usize,
    logits: LogitsKind,
}

impl Forward {
    fn new(model: &Arc<CpuModel>, vocab: usize, args: &BenchForwardArgs) -> Result<Self> {
        let model = Arc::clone(model) as Arc<dyn Model>;
        let sequence = Sequence::open(&model)?;
        let most = args.rows.iter().copied().max().unwrap_or(1);
        // Tokens all over the vocabulary, the same in every run.
        let tokens: Vec<Token> = (0..(args.context + most) as u64)
            .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % vocab as u64) as Token)
            .collect();
        let mut done = 0;
        while done < args.context {
            let next = args.context.min(done + model.config().max_rows);
            let guard = KvGuard::reserve(&sequence, next - done)?;
            let batch = Batch::chain(sequence.id(), &tokens[done..next], done, None, Want::Nothing);
            model.submit(&HostStream, &batch)?.wait()?;
            guard.commit_chain(next - done)?;
            done = next;
        }
        Ok(Self { sequence, tokens, context: args.context, logits: args.logits })
    }

    /// One pass of `rows` rows behind the context, rolled back.
    fn pass(&self, rows: usize) -> Result<Duration> {
        let tokens = &self.tokens[self.context..self.context + rows];
        let mut batch = Batch::chain(self.sequence.id(), tokens, self.context, None, Want::Logits);
        if self.logits == LogitsKind::All {
            for row in &mut batch.rows {
                row.want = Want::Logits;
            }
        }
        let guard = KvGuard::reserve(&self.sequence, rows)?;
        let begun = Instant::now();
        let result = self.sequence.model().submit(&HostStream, &batch)?.wait()?;
        let time = begun.elapsed();
        drop(result);
        guard.rollback()?;
        Ok(time)
    }
}

struct Figures {
    rows: usize,
    seconds: f64,
    p95: f64,
    bytes: usize,
    macs: f64,
}

impl Figures {
    fn new(model: &CpuModel, config: &ModelConfig, rows: usize, logits: LogitsKind, times: Vec<Duration>) -> Self {
        let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
        let scored = if logits == LogitsKind::All { rows } else { 1 };
        let head = (config.vocab_size * config.hidden_size) as f64;
        let macs = rows as f64 * (model.row_macs() as f64 - head) + scored as f64 * head;
        let p95 = quantile(&mut seconds, 0.95);
        Self { rows, seconds: quantile(&mut seconds, 0.5), p95, bytes: model.pass_bytes(rows), macs }
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "rows": self.rows,
            "ms": self.seconds * 1e3,
            "p95_ms": self.p95 * 1e3,
            "tokens_per_second": self.rows as f64 / self.seconds,
            "bytes_per_second": self.bytes as f64 / self.seconds,
            "macs_per_second": self.macs / self.seconds,
        })
    }
}

fn print_table(model: &CpuModel, args: &BenchForwardArgs, figures: &[Figures], bandwidth: f64, peak: f64) {
    println!(
        "{}, {}, context {}, {} rounds, medians",
        model.config().name,
        model.config().device,
        args.context,
        args.rounds
    );
    println!("ceilings: read bandwidth {:.1} GB/s, int8 {:.0} GMAC/s\n", bandwidth / 1e9, peak / 1e9);
    println!(
        "{:>5} {:>9} {:>9} {:>8} {:>10} {:>8} {:>6} {:>9} {:>6}",
        "rows", "ms", "p95 ms", "x first", "tokens/s", "GB/s", "of it", "GMAC/s", "of it"
    );
    for row in figures {
        let (bytes, macs) = (row.bytes as f64 / row.seconds, row.macs / row.seconds);
        println!(
            "{:>5} {:>9.2} {:>9.2} {:>8.2} {:>10.1} {:>8.1} {:>5.0}% {:>9.0} {:>5.0}%",
            row.rows,
            millis(Duration::from_secs_f64(row.seconds)),
            row.p95 * 1e3,
            row.seconds / figures[0].seconds,
            row.rows as f64 / row.seconds,
            bytes / 1e9,
            100.0 * bytes / bandwidth,
            macs / 1e9,
            100.0 * macs / peak
        );
    }
}
