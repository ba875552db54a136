//! `spec batch`: requests from a file, answered into a file.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use spec_server::batch::{Batch, Progress};
use spec_server::{Local, ServerOptions};

use crate::args::BatchArgs;
use crate::observers::Observers;
use crate::serve::{self, Ready};

/// Bytes of a request's body: those of a line, which the file's reader bounds.
const MOST_BYTES: usize = 32 << 20;
/// What a shell takes for a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

pub(crate) fn run(args: BatchArgs) -> Result<ExitCode> {
    // Told before a model is loaded for nothing.
    std::fs::File::open(&args.input).with_context(|| args.input.display().to_string())?;
    let (opened, context) = serve::open(&args.model, &args.answers)?;
    let at_once = args.answers.max_batch;
    // A request may ask for several answers, which wait for each other and are not refused.
    let observers = Observers::open(&args.records, &args.model, &opened)?;
    let room = (context, 64 * at_once);
    let Ready { language, service, limits, name, .. } =
        serve::load(args.model, &args.answers, &opened, room, ("batch", &observers), &|_, _| {})?;
    let options = ServerOptions {
        served_model_name: name,
        max_body_bytes: MOST_BYTES,
        body_timeout: std::time::Duration::MAX,
        observers: Some(observers.shared()),
        ..ServerOptions::default()
    };
    let local = Local::new(language, service, limits, options)?;

    let stop: Arc<AtomicBool> = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        // The second ends the program at once: the handlers run in this order.
        flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("taking over signals")?;
    }
    let batch = Batch { input: args.input, output: args.output, at_once };
    let bar = ProgressBar::new(0).with_style(style());
    let mut show = |progress: Progress| {
        bar.set_length(progress.lines as u64);
        bar.set_position((progress.before + progress.answered) as u64);
        bar.set_message(match progress.failed {
            0 => String::new(),
            failed => format!("{failed} failed"),
        });
    };
    let progress = batch.run(&|url, body| local.answer(url, body), &mut show, &stop);
    bar.finish_and_clear();
    let Progress { lines, before, answered, failed } = progress?;
    let left = lines.saturating_sub(before + answered);
    let again = if stop.load(Ordering::Relaxed) && left > 0 { "; the same command goes on" } else { "" };
    eprintln!("{lines} requests: {answered} answered now, {before} before, {failed} failed, {left} left{again}");
    Ok(if failed + left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {pos}/{len} {per_sec} {eta} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
