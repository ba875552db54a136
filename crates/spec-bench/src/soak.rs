//! `cargo xtask soak`: minutes of every kind of client at a server with small limits, and what has to hold afterwards.

mod traffic;
mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::arrivals::{Chance, poisson};
use crate::exposition::Samples;
use crate::launcher::Launcher;
use crate::options::write;
use crate::server::Server;
use traffic::{End, KINDS, LONG_ANSWER, Request};
use verdict::{Look, Verdict};

/// Small, so that they are met: requests at once, and waiting.
const MAX_BATCH: usize = 4;
const MAX_QUEUE: usize = 6;
/// Positions of a sequence: room for the longest prompt of a client that asks well.
const CONTEXT: usize = 512;
/// Tokens that the KV cache holds: one sequence to its end, and no two long ones. Who began later has to give way.
const KV_TOKENS: usize = CONTEXT + 64;
/// Mean time between bursts, and clients in one.
const BETWEEN_BURSTS: Duration = Duration::from_secs(12);
const BURST: usize = 3 * (MAX_BATCH + MAX_QUEUE);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// For what is under way when the last client has gone.
const IDLE_WITHIN: Duration = Duration::from_secs(30);
/// Answers that are asked for again, alone.
const REPEATED: usize = 24;
/// One tenant alone has a key, which is a client's; `wrong` is none.
const KEY: &str = "soak-key";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The binary `spec`
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,

    /// The model that is served: a GGUF file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// Where the results go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// How long clients keep coming
    #[arg(long, value_name = "N", default_value = "1")]
    minutes: f64,

    /// Clients a second between bursts
    #[arg(long, value_name = "X", default_value = "2.5")]
    rate: f64,

    /// Of the traffic: the same again, and other with another
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,

    /// More words for `spec serve`
    #[arg(last = true)]
    serve: Vec<String>,
}

/// What became of all clients.
#[derive(Default)]
struct Ledger {
    by_kind: BTreeMap<&'static str, Counts>,
    /// Refusals by status.
    statuses: BTreeMap<u16, usize>,
    /// Requests whose answers are whole.
    answers: Vec<(Request, String)>,
    faults: Vec<String>,
}

#[derive(Clone, Copy, Default, serde::Serialize)]
struct Counts {
    sent: usize,
    answered: usize,
    refused: usize,
    left: usize,
    faults: usize,
    drafted: usize,
    completion_tokens: usize,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.minutes > 0.0 && options.minutes.is_finite(), "--minutes takes a number above 0");
    ensure!(options.rate > 0.0 && options.rate.is_finite(), "--rate takes a number above 0");
    std::fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let mut server = start(options)?;
    let endpoint = server.endpoint.with_key(KEY);
    let span = Duration::from_secs_f64(options.minutes * 60.0);
    let visits = schedule(&mut Chance::new(options.seed), options.rate, span);
    eprintln!("{} clients in {:.0} s", visits.len(), span.as_secs_f64());

    let ledger = Mutex::new(Ledger::default());
    let begun = Instant::now();
    let mut looks = Vec::new();
    std::thread::scope(|scope| {
        let mut next_look = Duration::ZERO;
        for &(at, kind, seed) in &visits {
            while begun.elapsed() < at {
                if begun.elapsed() >= next_look {
                    looks.extend(look(&server, begun.elapsed()));
                    next_look += BETWEEN_LOOKS;
                }
                let until = at.min(next_look).saturating_sub(begun.elapsed());
                std::thread::sleep(until);
            }
            let (endpoint, ledger) = (&endpoint, &ledger);
            scope.spawn(move || {
                let kind = &KINDS[kind];
                let end = (kind.act)(endpoint, &mut Chance::new(seed));
                ledger.lock().unwrap_or_else(PoisonError::into_inner).record(kind.name, end);
            });
        }
        eprintln!("the last client has come; waiting for those that are being served");
    });
    let mut ledger = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
    let took = begun.elapsed();

    let idle = wait_until_idle(&server);
    looks.extend(look(&server, begun.elapsed()));
    let repeated = ledger.repeat(&endpoint);
    let healthy = endpoint.get("/health").is_ok_and(|answer| answer.status == 200);
    let running = server.is_running();
    let said = std::fs::read_to_string(&server.log).unwrap_or_default();
    let ended = server.stop();
    let verdict = Verdict::of(&ledger, &looks, idle, repeated, healthy && running, &said, ended);
    let text = verdict.markdown(&ledger, &looks, took);
    print!("{text}");
    write(&options.out.join("soak.md"), &text)?;
    write(&options.out.join("soak.json"), &serde_json::to_string_pretty(&verdict.json(&ledger, &looks))?)?;
    if let Some(first) = verdict.first_fault() {
        bail!("{first}");
    }
    Ok(())
}

fn start(options: &Options) -> Result<Server> {
    let keys = options.out.join("soak.keys");
    write(&keys, &format!("{KEY} soak\n"))?;
    let mut command = Launcher::default().command(&options.spec);
    command.arg("serve").arg("--model").arg(&options.model).args(["--port", "0", "--api-keys"]).arg(&keys);
    command.args(["--max-batch", &MAX_BATCH.to_string(), "--max-queue", &MAX_QUEUE.to_string()]);
    command.args(["--context", &CONTEXT.to_string(), "--kv-tokens", &KV_TOKENS.to_string()]);
    command.args(&options.serve);
    Server::start(&mut command, &options.out.join("soak.log"), "/ready")
}

/// Times, kinds and seeds of all visits: a Poisson stream, and bursts into it. There is one burst at least, and each begins with as many long
/// answers as run at once: a fast machine, too, has its cache full at times.
fn schedule(chance: &mut Chance, rate: f64, span: Duration) -> Vec<(Duration, usize, u64)> {
    let weights: Vec<u32> = KINDS.iter().map(|kind| kind.weight).collect();
    let mut times = poisson(chance, rate, span);
    let mut bursts = poisson(chance, 1.0 / BETWEEN_BURSTS.as_secs_f64(), span);
    if bursts.is_empty() {
        bursts.push(span / 2);
    }
    let long = bursts.iter().flat_map(|&at| std::iter::repeat_n(at, MAX_BATCH));
    let mut visits: Vec<_> = long.map(|at| (at, LONG_ANSWER, chance.next())).collect();
    times.extend(bursts.iter().flat_map(|&at| std::iter::repeat_n(at, BURST - MAX_BATCH)));
    visits.extend(times.into_iter().map(|at| (at, chance.weighted(&weights), chance.next())));
    // A short soak may miss the rare kinds by chance: each comes once at least, in the first half.
    for kind in 0..KINDS.len() {
        if !visits.iter().any(|&(_, known, _)| known == kind) {
            visits.push((span.mul_f64(chance.share() / 2.0), kind, chance.next()));
        }
    }
    visits.sort_by_key(|&(at, ..)| at);
    visits
}

fn look(server: &Server, at: Duration) -> Option<Look> {
    let samples = Samples::read(&server.endpoint.with_key(KEY)).ok();
    Some(Look { at, resident: server.resident()?, load: samples.and_then(|samples| verdict::Load::of(&samples).ok()) })
}

/// The load when nothing runs, waits or holds memory any more.
///
/// # Errors
/// What was still held after a while.
fn wait_until_idle(server: &Server) -> Result<verdict::Load> {
    let begun = Instant::now();
    loop {
        let load = verdict::Load::of(&Samples::read(&server.endpoint.with_key(KEY))?)?;
        if load.is_idle() {
            return Ok(load);
        }
        if begun.elapsed() > IDLE_WITHIN {
            bail!("{} s after the last client: {}", IDLE_WITHIN.as_secs(), load.describe());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

impl Ledger {
    fn record(&mut self, kind: &'static str, end: Result<End>) {
        let counts = self.by_kind.entry(kind).or_default();
        counts.sent += 1;
        match end {
            Ok(End::Answered(request, answered)) => {
                counts.answered += 1;
                counts.drafted += answered.speculation.drafted;
                counts.completion_tokens += answered.completion_tokens;
                self.answers.push((request, answered.text));
            }
            Ok(End::Refused(refusal)) => {
                counts.refused += 1;
                *self.statuses.entry(refusal.status).or_default() += 1;
            }
            Ok(End::Left) => counts.left += 1,
            Err(error) => {
                counts.faults += 1;
                self.faults.push(format!("{kind}: {error:#}"));
            }
        }
    }

    fn totals(&self) -> Counts {
        self.by_kind.values().fold(Counts::default(), |sum, counts| Counts {
            sent: sum.sent + counts.sent,
            answered: sum.answered + counts.answered,
            refused: sum.refused + counts.refused,
            left: sum.left + counts.left,
            faults: sum.faults + counts.faults,
            drafted: sum.drafted + counts.drafted,
            completion_tokens: sum.completion_tokens + counts.completion_tokens,
        })
    }

    /// Asks for some of the answers again, one by one and without drafts; how many. Another text is a fault.
    fn repeat(&mut self, endpoint: &crate::http::Endpoint) -> usize {
        let step = self.answers.len().div_ceil(REPEATED).max(1);
        let sample: Vec<(Request, String)> = self.answers.iter().step_by(step).cloned().collect();
        for (request, before) in &sample {
            let mut body = request.body.clone();
            body["speculation"] = serde_json::json!({ "enabled": false });
            let again = crate::asking::ask(endpoint, request.path, &body).and_then(crate::asking::Ending::answered);
            match again {
                Ok(again) if again.text == *before => {}
                Ok(again) => {
                    self.faults.push(format!("{before:?} was answered, and alone {:?}, to {body}", again.text))
                }
                Err(error) => self.faults.push(format!("asked again alone: {error:#}")),
            }
        }
        sample.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, Ledger, MAX_BATCH, schedule};
    use crate::arrivals::Chance;
    use crate::asking::{Answered, Refusal};
    use crate::http::tests::{scripted, streamed};
    use crate::soak::traffic::{End, KINDS, request};
    use std::time::Duration;

    #[test]
    fn every_kind_comes_bursts_come_and_a_seed_repeats_all_of_it() {
        let span = Duration::from_secs(60);
        let visits = schedule(&mut Chance::new(1), 2.5, span);
        assert_eq!(visits, schedule(&mut Chance::new(1), 2.5, span));
        assert!(visits.is_sorted_by_key(|&(at, ..)| at) && visits.iter().all(|&(at, ..)| at < span));
        for (at, kind) in KINDS.iter().enumerate() {
            assert!(visits.iter().any(|&(_, known, _)| known == at), "{} never comes", kind.name);
        }
        let together = visits.chunk_by(|(one, ..), (other, ..)| one == other).map(<[_]>::len).max();
        assert!(together >= Some(BURST), "{together:?}");
        for burst in visits.chunk_by(|(one, ..), (other, ..)| one == other).filter(|visits| visits.len() >= BURST) {
            assert!(burst[..MAX_BATCH].iter().all(|&(_, kind, _)| KINDS[kind].name == "asks for a long answer"));
        }
    }

    #[test]
    fn an_answer_that_is_another_one_alone_is_a_fault() {
        let mut ledger = Ledger::default();
        let answered = || Box::new(Answered { text: "one two".into(), ..Answered::default() });
        for seed in 0..3 {
            ledger.record("x", Ok(End::Answered(request(&mut Chance::new(seed)), answered())));
        }
        assert_eq!(ledger.repeat(&scripted(|_| streamed("one two", 0))), 3);
        assert!(ledger.faults.is_empty(), "{:?}", ledger.faults);
        assert_eq!(ledger.repeat(&scripted(|_| streamed("one too", 0))), 3);
        assert_eq!(ledger.faults.len(), 3);
    }

    #[test]
    fn ends_are_counted_by_kind_and_a_fault_keeps_its_words() {
        let mut ledger = Ledger::default();
        let answered = Answered { text: "a".into(), completion_tokens: 3, ..Answered::default() };
        ledger.record("x", Ok(End::Answered(request(&mut Chance::new(1)), Box::new(answered))));
        ledger.record("x", Ok(End::Refused(Refusal { status: 429, reason: "full".into(), retry_after: Some(1) })));
        ledger.record("y", Ok(End::Left));
        ledger.record("y", Err(anyhow::anyhow!("silence")));
        let totals = ledger.totals();
        assert_eq!((totals.sent, totals.answered, totals.refused, totals.left, totals.faults), (4, 1, 1, 1, 1));
        assert_eq!((totals.completion_tokens, ledger.faults.as_slice()), (3, &["y: silence".to_owned()][..]));
        assert_eq!(ledger.statuses.get(&429), Some(&1));
    }
}
