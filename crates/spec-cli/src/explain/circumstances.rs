//! Diagnoses of the machine, the request and its neighbours.

use super::diagnosis::{FITTING, Seen, Weight};
use super::figures::{Figures, median};
use super::text::{count, millis, percent};
use crate::memory::Size;

/// A share of the time from which on it is the largest part.
const MOST_OF_IT: f64 = 0.5;
/// Tokens of an answer that is too short to learn from.
const SHORT: usize = 24;

pub(super) fn slow_kernels(figures: &Figures<'_>) -> Option<Seen> {
    /// What the portable kernels take, of the others' time: the share that is saved.
    const SAVED: f64 = 0.9;
    figures.run.device.contains("portable").then(|| Seen {
        weight: Weight::Fault(SAVED * figures.of_all(figures.wall.pass + figures.wall.prefill)),
        evidence: format!("the device is {}, a plain pass takes {}", figures.run.device, millis(figures.plain_pass())),
        advice: "a processor with AVX2; if this one has it, leave SPEC_CPU_ISA out of the environment".to_owned(),
    })
}

pub(super) fn too_few_threads(figures: &Figures<'_>) -> Option<Seen> {
    let (threads, cores) = (figures.run.threads?, figures.run.cores);
    let idle = 1.0 - threads as f64 / cores as f64;
    (threads < cores).then(|| Seen {
        weight: Weight::Saves(idle * figures.of_all(figures.wall.pass + figures.wall.draft + figures.wall.prefill)),
        evidence: format!(
            "{} on {cores} cores; passes of the models take {} of the time",
            count(threads, "thread runs", "threads run"),
            percent(figures.of_all(figures.wall.pass + figures.wall.draft + figures.wall.prefill))
        ),
        advice: format!("leave `--threads` out, or set it to {cores}; where memory is read as fast as it comes already, it gains less"),
    })
}

pub(super) fn too_many_threads(figures: &Figures<'_>) -> Option<Seen> {
    let (threads, cores) = (figures.run.threads?, figures.run.cores);
    (threads > cores).then(|| Seen {
        weight: Weight::Saves(
            (1.0 - cores as f64 / threads as f64) * figures.of_all(figures.wall.pass + figures.wall.prefill),
        ),
        evidence: format!("{threads} threads run on {cores} cores, and a pass ends with the last of them"),
        advice: format!("leave `--threads` out, or set it to {cores}"),
    })
}

pub(super) fn busy_machine(figures: &Figures<'_>) -> Option<Seen> {
    let (slow, all, seconds) = figures.passes.outliers();
    (slow >= 2 && 20 * slow >= all).then(|| Seen {
        weight: Weight::Saves(figures.of_all(seconds)),
        evidence: format!(
            "{slow} of {all} passes took more than twice as long as others of their size, {} in all",
            millis(seconds)
        ),
        advice: "see what else runs, or what slows the device down: its load, its temperature, its clock; as many `--threads` as there \
                 are cores free"
            .to_owned(),
    })
}

pub(super) fn draft_loading(figures: &Figures<'_>) -> Option<Seen> {
    let seconds = figures.wall.preparation;
    let share = figures.of_all(seconds);
    (share >= 0.1).then(|| Seen {
        weight: Weight::Saves(share),
        evidence: format!("it took {} behind the first token, and decoding {}", millis(seconds), millis(figures.wall.decode())),
        advice: "load it once for many answers: `spec chat`, `spec serve`, `spec batch`; for single short ones `--draft auto` without a \
                 draft model"
            .to_owned(),
    })
}

pub(super) fn long_prompt(figures: &Figures<'_>) -> Option<Seen> {
    let share = figures.of_all(figures.wall.prefill);
    let tokens = figures.prompt_tokens();
    (share > MOST_OF_IT).then(|| Seen {
        weight: Weight::Saves(share),
        evidence: format!(
            "it took {} for {}, and the {} behind it {}",
            millis(figures.wall.prefill),
            count(tokens, "token", "tokens"),
            count(figures.emitted, "token", "tokens"),
            millis(figures.wall.decode())
        ),
        advice: "what begins alike is read once in `spec chat`, `spec serve` and `spec batch`: keep the part that stays in front; a \
                 shorter prompt; speculation makes answers faster and not prompts"
            .to_owned(),
    })
}

pub(super) fn speculation_off(figures: &Figures<'_>) -> Option<Seen> {
    let rounds = figures.rounds.len();
    let asked = figures.rounds.iter().any(|round| round.budget > 0 || round.drafted() > 0);
    let never = figures.run.length_policy == "fixed:0" || !figures.has_drafter();
    if asked || !never || rounds == 0 {
        return None;
    }
    let reason = match figures.has_drafter() {
        true => "the draft length is 0".to_owned(),
        false => "there is no drafter".to_owned(),
    };
    // A model of a fifth of the target's cost; rows as they cost where nothing is measured.
    let reached = figures.best(0.2 * figures.plain_pass(), |_| FITTING).1;
    Some(Seen {
        weight: Weight::Could(figures.saved_by_rate(reached)),
        evidence: format!("{reason}; {rounds} passes for {}", count(figures.emitted, "token", "tokens")),
        advice: "leave `--draft` and `--draft-len` at `auto`, which copies from the text where that pays, and give `--draft-model \
                 SMALLER.gguf` where there is one"
            .to_owned(),
    })
}

pub(super) fn short_answer(figures: &Figures<'_>) -> Option<Seen> {
    let emitted =
        |request: &&crate::record::RequestRecord| request.rounds.iter().map(|round| round.emitted).sum::<usize>();
    let usual = median(figures.requests.iter().map(|request| emitted(request) as f64).collect())?;
    (figures.has_drafter() && usual < SHORT as f64 && figures.drafting.rounds < 8).then(|| Seen {
        // What may be gained cannot be told from so little.
        weight: Weight::Saves(super::diagnosis::NOTICEABLE),
        evidence: format!(
            "answers have {usual:.0} tokens, and {} were made; what drafts are worth shows after some thirty tokens",
            count(figures.drafting.rounds, "draft", "drafts")
        ),
        advice: "look at longer answers, with `-n`; `--draft-len 4` drafts from the start, without measuring what it is worth".to_owned(),
    })
}

pub(super) fn shared_passes(figures: &Figures<'_>) -> Option<Seen> {
    let rounds = figures.rounds.len();
    let shared = figures.rounds.iter().filter(|round| round.company > 0);
    let (together, plain) = (shared.clone().count(), shared.clone().filter(|round| round.drafted() == 0).count());
    if !figures.has_drafter() || 2 * together < rounds || 2 * plain < together {
        return None;
    }
    let company = shared.map(|round| round.company).sum::<usize>() as f64 / together.max(1) as f64;
    let alone = figures.best(figures.drafting.per_token.unwrap_or(0.0), |_| FITTING).1;
    Some(Seen {
        weight: Weight::Could(figures.saved_by_rate(alone)),
        evidence: format!(
            "{together} of {rounds} rounds shared their pass, with {company:.0} rows of others in the mean, and {plain} of those drafted nothing"
        ),
        advice: "nothing, where throughput counts: rows of others bring more than drafts. Where single answers have to come sooner, a \
                 lower `--max-batch`"
            .to_owned(),
    })
}

pub(super) fn preempted(figures: &Figures<'_>) -> Option<Seen> {
    let times: usize = figures.ends().map(|end| end.preempted).sum();
    // A text that is read again costs what prompts cost, by the token.
    let prompts: usize = figures.prompt_tokens();
    let token = if prompts > 0 { figures.wall.prefill / prompts as f64 } else { 0.0 };
    let texts: Vec<usize> =
        figures.requests.iter().filter_map(|request| request.rounds.last()).map(|round| round.length).collect();
    let length = texts.iter().sum::<usize>() as f64 / texts.len().max(1) as f64;
    (times > 0).then(|| Seen {
        weight: Weight::Saves(figures.of_all(times as f64 * length * token)),
        evidence: format!(
            "{}, and each time up to {length:.0} tokens were read again, at {} a token",
            count(times, "answer gave way", "answers gave way"),
            millis(token)
        ),
        advice: "room for all texts under way: a larger `--kv-tokens`, `--kv q8`, or a lower `--max-batch`".to_owned(),
    })
}

pub(super) fn memory_nearly_full(figures: &Figures<'_>) -> Option<Seen> {
    let limit = figures.run.memory_limit.filter(|&limit| limit > 0).or(figures.run.machine_memory)?;
    let peak = figures.ends().filter_map(|end| end.peak_resident_bytes).max()?;
    let share = peak as f64 / limit as f64;
    (share >= 0.9).then(|| Seen {
        weight: Weight::Price,
        evidence: format!("{} of {} were resident at most, {}", Size(peak as usize), Size(limit as usize), percent(share)),
        advice: "a smaller `--context` or `--kv q8`; shorter drafts, whose rows need less; `spec inspect` says what a model takes, and \
                 `--mem-limit` refuses what does not fit before it is loaded"
            .to_owned(),
    })
}
