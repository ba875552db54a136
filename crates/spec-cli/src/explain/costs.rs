//! Diagnoses of what drafting, passes and the rest of a round take.

use super::diagnosis::{Seen, Weight};
use super::figures::Figures;
use super::text::{count, millis, percent, tenths, times};
use crate::memory::Size;

/// A draft model of a usual size: what one of its tokens takes of a plain pass.
const USUAL_COST: f64 = 0.15;
/// What a row may add to a pass, as a share of a plain one, for passes to count as flat: eight rows for 1.4 times the price of one.
const FLAT_ROW: f64 = 0.06;
/// A draft token of a look-up that takes more of the time than this is slow.
const LOOK_UP: f64 = 0.1;
/// What lies between passes at most, in the ordinary course of things.
const BETWEEN: f64 = 0.1;

/// From which acceptance on a draft pays, at its cost in this run.
pub(super) fn break_even(figures: &Figures<'_>) -> String {
    let draft = figures.drafting.per_token.unwrap_or(0.0);
    let plain = figures.plain_rate();
    let pays = |acceptance: f64| figures.best(draft, |_| acceptance).1 > 1.001 * plain;
    match (1..100).map(|percent| f64::from(percent) / 100.0).find(|&acceptance| pays(acceptance)) {
        Some(acceptance) => format!("an acceptance of {}", percent(acceptance)),
        None => "no acceptance".to_owned(),
    }
}

pub(super) fn draft_too_large(figures: &Figures<'_>) -> Option<Seen> {
    if !figures.has_draft_model() || figures.drafting.rounds < 2 {
        return None;
    }
    let (draft, cost) = (figures.drafting.per_token?, figures.cost()?);
    let stands = |at: usize| figures.stands(at);
    let pays = figures.cost_that_pays();
    let usual = (USUAL_COST * figures.plain_pass()).min(draft);
    let (_, reached) = figures.best(usual, stands);
    // Where a cheaper one would bring nothing either, its size is not what is wrong.
    if cost <= pays.max(USUAL_COST) || reached < 1.05 * figures.plain_rate() {
        return None;
    }
    Some(Seen {
        weight: Weight::Saves(figures.saved_by_rate(reached)),
        evidence: format!(
            "a draft token takes {} of a pass of the target ({} of {}), and at the {} accepted it pays below {}; drafting took {} of the \
             time",
            times(cost),
            millis(draft),
            millis(figures.plain_pass()),
            percent(figures.acceptance()),
            times(pays),
            percent(figures.of_all(figures.wall.draft))
        ),
        advice: "a smaller draft model of the family, at a fifth of the target's size or less, or this one in fewer bits; fewer draft \
                 tokens make it lose less, and `--draft auto` without it nothing"
            .to_owned(),
    })
}

pub(super) fn verification_not_flat(figures: &Figures<'_>) -> Option<Seen> {
    let passes = &figures.passes;
    let plain = figures.plain_pass();
    let flat = |rows: usize| plain * (1.0 + FLAT_ROW * (rows as f64 - 1.0));
    // By the longest that is sure.
    let rows = passes.measured().rev().find(|&rows| (3..=32).contains(&rows))?;
    if passes.at(rows) < 1.25 * flat(rows) {
        return None;
    }
    let beyond: f64 = figures.rounds.iter().map(|round| (round.seconds.pass() - flat(round.rows())).max(0.0)).sum();
    let curve: Vec<String> = passes
        .measured()
        .filter(|&at| at <= rows)
        .map(|at| format!("{} {}", count(at, "row", "rows"), times(passes.at(at) / plain)))
        .collect();
    Some(Seen {
        weight: Weight::Saves(figures.of_all(beyond)),
        evidence: format!(
            "against a plain pass of {}: {} times; {} would be flat",
            millis(plain),
            curve.join(", "),
            times(flat(rows) / plain)
        ),
        advice: "fewer rows a pass: `--draft-width 1`, a shorter `--draft-len`; see with `spec bench forward` where the passes become \
                 steep, and keep drafts below it. Small models that the caches hold are steep everywhere"
            .to_owned(),
    })
}

pub(super) fn draft_catches_up(figures: &Figures<'_>) -> Option<Seen> {
    let seconds = figures.drafting.catching_up;
    let usual = figures.drafting.per_token?;
    figures.has_draft_model().then(|| Seen {
        weight: Weight::Saves(figures.of_all(seconds)),
        evidence: format!(
            "drafts that read on took {} longer than others, for which a draft token takes {}; the prompts have {} tokens",
            millis(seconds),
            millis(usual),
            figures.prompt_tokens()
        ),
        advice: "longer answers to the same text, as `spec chat` and `spec serve` give them, keep what was read; for short answers to \
                 long texts `--draft auto` without a draft model copies at once"
            .to_owned(),
    })
}

pub(super) fn slow_look_up(figures: &Figures<'_>) -> Option<Seen> {
    let share = figures.of_all(figures.wall.draft);
    let slowest = figures.rounds.iter().map(|round| round.seconds.draft).fold(0.0, f64::max);
    (!figures.has_draft_model() && figures.has_drafter() && share >= LOOK_UP).then(|| Seen {
        weight: Weight::Saves(share),
        evidence: format!(
            "drafting without a model took {} of the time, {} in the slowest round",
            percent(share),
            millis(slowest)
        ),
        advice:
            "`--draft ngram`, which looks up least; a pass so short that look-ups show may do best with `--draft none`"
                .to_owned(),
    })
}

pub(super) fn round_overhead(figures: &Figures<'_>) -> Option<Seen> {
    let wall = figures.wall;
    let share = figures.of_all(wall.sample + wall.rollback);
    (share >= BETWEEN).then(|| Seen {
        weight: Weight::Saves(share - BETWEEN / 5.0),
        evidence: format!(
            "judging and emitting took {}, keeping the caches {}, of {} in {} rounds",
            millis(wall.sample),
            millis(wall.rollback),
            millis(wall.all()),
            figures.rounds.len()
        ),
        advice: "leave out what is computed for every token and not needed: `--logprobs`, penalties over the whole text, a low `--top-k` \
                 in the place of the whole vocabulary; chains in the place of trees, `--draft-width 1`"
            .to_owned(),
    })
}

/// What remains where nothing can be put right.
pub(super) fn bound(figures: &Figures<'_>) -> Option<Seen> {
    let passes = &figures.passes;
    let plain = figures.plain_pass();
    let bytes = figures.run.target.file_bytes as f64 / plain;
    let rows = passes.measured().rev().find(|rows| (3..=16).contains(rows));
    let flat = rows.map(|rows| format!(", and {rows} rows take {} times as long", times(passes.at(rows) / plain)));
    let gain = if figures.plain_rate() > 0.0 { figures.rate() / figures.plain_rate() } else { 1.0 };
    Some(Seen {
        weight: Weight::Bound,
        evidence: format!(
            "{} of the time are passes of the target; a plain one takes {}, in which it reads {} of weights, {} GB/s{}; {} tokens a round \
             make it {} times as fast as plain decoding",
            percent(figures.of_all(figures.wall.pass)),
            millis(plain),
            Size(figures.run.target.file_bytes as usize),
            tenths(bytes / 1e9),
            flat.unwrap_or_default(),
            times(figures.emitted as f64 / figures.rounds.len().max(1) as f64),
            times(gain)
        ),
        advice: "weights of fewer bits, or memory that is faster: more threads gain nothing once it is read as fast as it comes, which \
                 `spec bench forward` shows"
            .to_owned(),
    })
}
