//! `cargo xtask bench serve`: `spec serve` with many clients, with speculation and without, in one process and one run.

mod ceiling;
mod client;
mod dialogues;
mod intents;
mod peak;
mod peer;
mod plots;
mod report;
mod throughput;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::contention::{Contention, Ticks};
use crate::engine::{Models, Passes};
use crate::options::{Common, write};
use crate::peers::build;
use crate::progress::Progress;
use crate::server::Server;
use ceiling::Curve;
use client::Mode;
use peak::Terms;
use peer::Peer;
use throughput::Subject;

/// Four kinds: new code, code that copies, a talk, and a text to be looked through.
const PROMPTS: [&str; 4] = ["chat", "code-edit", "code-write", "extract"];
/// Clients at once where llama.cpp's server is compared.
const BESIDE_PEER: usize = 8;
/// Positions of a sequence, as llama.cpp's server gets for each client: room for the longest dialogue.
const POSITIONS: usize = peer::CONTEXT;
/// Row counts of the curve that the ceiling is reckoned from, and the text before the passes.
const ROWS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const CONTEXT: usize = 256;
const PASS_ROUNDS: usize = 7;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// What is measured, beside the peak; `peer` is llama.cpp's server
    #[arg(long, value_name = "PART,PART", value_delimiter = ',', default_value = "throughput,peer,dialogues,intents")]
    parts: Vec<Part>,

    /// Clients at once
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2,4,8,16")]
    clients: Vec<usize>,

    /// Raise the rate of arrivals until clients wait too long
    #[arg(long)]
    find_peak: bool,

    /// Seconds that 95 % of clients may wait for the first text
    #[arg(long, value_name = "S", default_value = "4")]
    limit_first: f64,

    /// Seconds that 95 % of clients may wait for all of it
    #[arg(long, value_name = "S", default_value = "20")]
    limit_whole: f64,

    /// Seconds that a rate is tried for; with --quick 5
    #[arg(long, value_name = "S", default_value = "60")]
    trial: f64,

    /// The first rate that is tried, in requests a second
    #[arg(long, value_name = "X", default_value = "0.25")]
    start_rate: f64,

    /// Where llama.cpp is built and kept
    #[arg(long, value_name = "DIR")]
    cache: PathBuf,

    /// A folder with llama.cpp's server to use instead of building it
    #[arg(long, value_name = "DIR")]
    llama_programs: Option<PathBuf>,

    /// More words for `spec serve`
    #[arg(last = true)]
    serve: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    Throughput,
    Peer,
    Dialogues,
    Intents,
}

/// All that was measured.
#[derive(Default)]
struct Measured {
    throughput: Vec<throughput::Figures>,
    peer: Vec<peer::Figures>,
    peer_failures: Vec<(&'static str, String)>,
    dialogues: Option<dialogues::Figures>,
    intents: Option<intents::Figures>,
    peak: Option<peak::Figures>,
    contention: Option<Contention>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let models = common.models()?;
    let out = common.out()?;
    let terms = options.terms()?;
    ensure!(options.clients.iter().all(|&clients| clients > 0), "--clients takes numbers above 0");
    let mut prompts = common.prompts()?;
    if common.prompts.is_empty() {
        prompts.retain(|prompt| PROMPTS.contains(&prompt.name.as_str()));
    }
    let mut subjects = prompts
        .iter()
        .map(|prompt| {
            let text = std::fs::read_to_string(&prompt.file).with_context(|| prompt.file.display().to_string())?;
            Ok(Subject::new(prompt.name.clone(), throughput::said(&text).to_owned(), &options.clients))
        })
        .collect::<Result<Vec<_>>>()?;
    let programs = match &options.llama_programs {
        _ if !options.has(Part::Peer) => None,
        Some(folder) => Some(folder.clone()),
        None => Some(build::programs(&options.cache, &[peer::PROGRAM])?),
    };
    let mut peer = match &programs {
        Some(programs) => {
            let start =
                peer::Start { programs, launcher: common.launcher(), threads: common.threads(), models: &models, out };
            Some(Peer::new(start, BESIDE_PEER, subjects.len())?)
        }
        None => None,
    };
    let rounds = common.repeats();
    let said = dialogues::read()?;
    let queries = intents::read()?;

    let begun = Ticks::now();
    let mut measured = Measured::default();
    // Before the server takes its memory and its threads.
    let curve = if options.has(Part::Throughput) { Some(curve(common, &models)?) } else { None };
    let server = start(options, &models, out)?;
    let mut progress =
        Progress::new(options.runs(&subjects, peer.is_some(), models.draft.is_some(), said.dialogues.len()));
    for round in 0..rounds {
        if options.has(Part::Throughput) {
            for subject in &mut subjects {
                subject.round(&server.endpoint, round, common.max_tokens(), &mut progress)?;
            }
        }
        if let Some(peer) = &mut peer {
            peer.round(&server.endpoint, &subjects, round, common.max_tokens(), &mut progress)?;
        }
    }
    measured.throughput = subjects.iter().flat_map(|subject| subject.figures(curve.as_ref())).collect();
    if let Some(peer) = &peer {
        measured.peer = peer.figures(&subjects);
        measured.peer_failures = peer.failures().to_vec();
    }
    if options.has(Part::Dialogues) {
        measured.dialogues = Some(dialogues::measure(&server.endpoint, &said, common.max_tokens(), &mut progress)?);
    }
    if options.has(Part::Intents) {
        let most = if common.quick { 16 } else { usize::MAX };
        measured.intents = Some(intents::measure(&server.endpoint, &queries, most, &mut progress)?);
    }
    if options.find_peak {
        measured.peak = Some(peak::find(&server.endpoint, &said, &terms, &mut progress)?);
    }
    server.stop()?;
    measured.contention = Contention::since(begun);
    report::write(&measured, common, &models, &terms, out)?;
    judge(&measured)
}

/// What no machine excuses.
fn judge(measured: &Measured) -> Result<()> {
    if let Some(figures) = &measured.intents {
        ensure!(figures.agreed == figures.queries, "{} labels changed with drafts", figures.queries - figures.agreed);
    }
    if let Some(figures) = &measured.dialogues {
        ensure!(figures.without_reuse == 0, "{} turns did not reuse what was said before", figures.without_reuse);
    }
    Ok(())
}

impl Options {
    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    fn terms(&self) -> Result<Terms> {
        for (name, value) in [
            ("--limit-first", self.limit_first),
            ("--limit-whole", self.limit_whole),
            ("--trial", self.trial),
            ("--start-rate", self.start_rate),
        ] {
            ensure!(value.is_finite() && value > 0.0, "{name} takes a number above 0");
        }
        let trial = if self.common.quick { self.trial.min(5.0) } else { self.trial };
        Ok(Terms {
            first: self.limit_first,
            whole: self.limit_whole,
            trial: Duration::from_secs_f64(trial),
            start: self.start_rate,
            max_tokens: self.common.max_tokens(),
        })
    }

    /// Lines of progress to come; the peak's are not known before.
    fn runs(&self, subjects: &[Subject], has_peer: bool, has_draft: bool, dialogues: usize) -> usize {
        let cells: usize = subjects.iter().map(|subject| subject.cells.len()).sum();
        let throughput = if self.has(Part::Throughput) { 2 * cells } else { 0 };
        let peer = if has_peer { Peer::runs(has_draft, subjects.len()) } else { 0 };
        self.common.repeats() * (throughput + peer)
            + if self.has(Part::Dialogues) { dialogues } else { 0 }
            + usize::from(self.has(Part::Intents))
    }
}

fn start(options: &Options, models: &Models, out: &Path) -> Result<Server> {
    let keys = out.join("serve.keys");
    write(&keys, &Mode::BOTH.map(|mode| format!("{} {}\n", mode.key(), mode.name())).concat())?;
    let spec = options.common.spec();
    let mut command = spec.launcher.command(&spec.program);
    command.arg("serve").arg("--model").arg(&models.target).args(["--port", "0", "--api-keys"]).arg(keys);
    if let Some(draft) = &models.draft {
        command.arg("--draft-model").arg(draft);
    }
    let most = options.clients.iter().copied().max().unwrap_or(1).max(BESIDE_PEER);
    command.args(["--threads", &spec.threads.to_string(), "--max-batch", &most.to_string(), "--max-queue", "256"]);
    command.args(["--context", &POSITIONS.to_string()]);
    // What was drafted for one request would be known for the next: no run may profit from another.
    command.args(["--draft-cache", "0"]).args(&options.serve);
    Server::start(&mut command, &out.join("serve.log"), "/ready")
}

fn curve(common: &Common, models: &Models) -> Result<Curve> {
    let rounds = if common.quick { 2 } else { PASS_ROUNDS };
    let passes = Passes { rows: ROWS.to_vec(), context: CONTEXT, all_logits: true, rounds };
    let forward = common.spec().forward(&models.target, &passes)?;
    Curve::new(forward.rows.iter().map(|pass| (pass.rows as f64, pass.ms)).collect())
}

#[cfg(test)]
mod tests {
    use super::{Measured, dialogues, intents, judge};

    #[test]
    fn a_label_that_changed_fails_the_run_whatever_its_speed() {
        assert!(judge(&Measured::default()).is_ok());
        let figures = |agreed| intents::Figures { queries: 9, agreed, right: 1, per_second: [1.0, 9.0] };
        assert!(judge(&Measured { intents: Some(figures(9)), ..Measured::default() }).is_ok());
        let error = judge(&Measured { intents: Some(figures(8)), ..Measured::default() }).unwrap_err();
        assert!(error.to_string().contains("1 labels"), "{error}");
        assert!(dialogues::read().is_ok() && intents::read().is_ok());
    }
}
