//! Diagnoses of what is accepted, and of how much is drafted.

use spec_core::RuleName;

use super::diagnosis::{FITTING, Seen, Weight};
use super::figures::{Figures, ratio};
use super::text::{count, percent, tenths};
use crate::record::FORBIDDEN;

/// Rounds with a draft after which a share of them says something.
const FEW: usize = 6;
const MANY: usize = 16;
/// The share of first draft tokens that stand below which drafts are looked at for what is wrong with them.
const LOW: f64 = 0.4;
/// The share of them that chance alone may bring.
const HARDLY: f64 = 0.05;
/// The share of the target's vocabulary that models of one family have in common, at least: what differs is padding and markers.
const SHARED: f64 = 0.99;
/// A temperature from which on it is a reason.
const HOT: f64 = 0.7;

/// Why drafts do not stand. One alone is named, the most certain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Forbidden,
    Vocabulary,
    Tuning,
    Nothing,
    Temperature,
    Unlike,
}

fn cause(figures: &Figures<'_>) -> Option<Cause> {
    let tried = figures.drafting.rounds;
    let kept = first_kept(figures);
    if tried < FEW || ratio(kept, tried) >= LOW {
        return None;
    }
    let refused = figures.rounds.iter().filter_map(|round| round.rejection.as_ref());
    let forbidden = refused.clone().filter(|rejection| rejection.reason == FORBIDDEN).count();
    if 2 * forbidden > refused.count() {
        return Some(Cause::Forbidden);
    }
    let model = figures.has_draft_model();
    let hot = figures.run.temperature.is_some_and(|temperature| temperature >= HOT);
    if model && figures.run.shared_vocabulary.is_some_and(|share| share < SHARED) {
        Some(Cause::Vocabulary)
    } else if model && is_tuned_differently(figures) {
        Some(Cause::Tuning)
    } else if model && kept as f64 <= HARDLY * tried as f64 && tried >= MANY {
        Some(Cause::Nothing)
    } else if hot {
        Some(Cause::Temperature)
    } else {
        // That look-ups find nothing is the text's doing.
        model.then_some(Cause::Unlike)
    }
}

fn first_kept(figures: &Figures<'_>) -> usize {
    figures.positions.first().map_or(0, |position| position.kept)
}

/// What would be saved if drafts stood as those of fitting models do.
fn could(figures: &Figures<'_>) -> f64 {
    let draft = figures.drafting.per_token.unwrap_or(0.0);
    figures.saved_by_rate(figures.best(draft, |_| FITTING).1)
}

fn of_cause(figures: &Figures<'_>, which: Cause, evidence: impl FnOnce() -> String, advice: &str) -> Option<Seen> {
    let is_fault = matches!(which, Cause::Forbidden | Cause::Vocabulary | Cause::Tuning | Cause::Nothing);
    (cause(figures)? == which).then(|| {
        let share = could(figures);
        let tried = figures.drafting.rounds;
        let first = format!(
            "{} of {tried} drafts had a first token that stood, {} of {} draft tokens in all",
            first_kept(figures),
            figures.drafting.accepted,
            figures.drafting.tokens
        );
        Seen {
            weight: if is_fault { Weight::Fault(share) } else { Weight::Could(share) },
            evidence: format!("{first}; {}", evidence()),
            advice: advice.to_owned(),
        }
    })
}

pub(super) fn forbidden_drafts(figures: &Figures<'_>) -> Option<Seen> {
    let refused = figures.rounds.iter().filter_map(|round| round.rejection.as_ref());
    let forbidden = refused.clone().filter(|rejection| rejection.reason == FORBIDDEN).count();
    of_cause(
        figures,
        Cause::Forbidden,
        || format!("the grammar forbade {forbidden} of {} tokens at which drafts ended", refused.count()),
        "say in the prompt what form the answer has, with an example, so that models guess it; what the grammar leaves no choice \
         about is drafted for nothing as it is",
    )
}

pub(super) fn foreign_vocabulary(figures: &Figures<'_>) -> Option<Seen> {
    let share = figures.run.shared_vocabulary.unwrap_or(1.0);
    of_cause(
        figures,
        Cause::Vocabulary,
        || format!("the draft model has {} of the target's tokens", percent(share)),
        "a draft model of the target's own family, with its tokenizer; or none: `--draft auto` without `--draft-model`",
    )
}

pub(super) fn base_and_instruct(figures: &Figures<'_>) -> Option<Seen> {
    let names = (&figures.run.target.name, figures.run.draft.as_ref().map_or("", |draft| &draft.name));
    of_cause(
        figures,
        Cause::Tuning,
        || format!("the target is {} and the draft model {}", names.0, names.1),
        "the draft model in the same tuning as the target, instruct with instruct and base with base",
    )
}

/// Whether the names say that one model of the two alone is tuned.
fn is_tuned_differently(figures: &Figures<'_>) -> bool {
    let is_tuned = |name: &str| {
        name.to_ascii_lowercase()
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| matches!(word, "instruct" | "chat" | "it" | "assistant"))
    };
    figures.run.draft.as_ref().is_some_and(|draft| is_tuned(&draft.name) != is_tuned(&figures.run.target.name))
}

pub(super) fn no_acceptance(figures: &Figures<'_>) -> Option<Seen> {
    of_cause(
        figures,
        Cause::Nothing,
        || "vocabulary, tuning and grammar give no reason".to_owned(),
        "compare the files with `spec inspect`, and see that `--draft self` accepts all; another chat template than the models were \
         trained with, or a damaged draft file, looks like this",
    )
}

pub(super) fn high_temperature(figures: &Figures<'_>) -> Option<Seen> {
    let temperature = figures.run.temperature.unwrap_or(0.0);
    of_cause(
        figures,
        Cause::Temperature,
        || format!("the temperature is {temperature}"),
        "a lower `--temperature`, or `--top-p`, `--top-k` and `--min-p`, which narrow what both models choose from; drafts then agree \
         more often",
    )
}

pub(super) fn unlike_target(figures: &Figures<'_>) -> Option<Seen> {
    of_cause(
        figures,
        Cause::Unlike,
        || format!("it is accepted {} of the time", percent(figures.acceptance())),
        "another draft model of the family, or this one trained on the target's answers, for which `--record-training` writes data; or \
         `--draft auto` without it",
    )
}

pub(super) fn nothing_to_copy(figures: &Figures<'_>) -> Option<Seen> {
    let rounds = figures.rounds.len();
    let asked = figures.rounds.iter().filter(|round| round.budget > 0).count();
    let gained = ratio(figures.emitted, rounds) - 1.0;
    if figures.has_draft_model() || !figures.has_drafter() || asked < MANY || gained >= 0.15 || cause(figures).is_some()
    {
        return None;
    }
    // A model of a fifth of the target's cost.
    let reached = figures.best(0.2 * figures.plain_pass(), |_| FITTING).1;
    Some(Seen {
        weight: Weight::Could(figures.saved_by_rate(reached)),
        evidence: format!(
            "{} of {asked} rounds found something to copy, and {} of {} copied tokens stood",
            figures.drafting.rounds, figures.drafting.accepted, figures.drafting.tokens
        ),
        advice: "a draft model: `--draft-model SMALLER.gguf`, of the same family and at a fifth of the size or less"
            .to_owned(),
    })
}

/// The mean length of drafts, the one that would be best, and the share of the time that it would save.
fn better_length(figures: &Figures<'_>) -> Option<(f64, usize, f64)> {
    let draft = figures.drafting.per_token?;
    let chains =
        figures.rounds.iter().filter(|round| round.drafted() > 0).all(|round| round.drafted() == round.by_depth.len());
    if figures.drafting.rounds < FEW || !chains || cause(figures).is_some() {
        return None;
    }
    let (length, stands) = (figures.drafting.length, |at: usize| figures.stands(at));
    let (best, rate) = figures.best(draft, stands);
    // Model against model: what the present length would bring by the same figures.
    let (below, above) = (length.floor(), length.ceil());
    let now = |length: f64| figures.rate_at(length as usize, draft, stands);
    let now = now(below) + (now(above) - now(below)) * (length - below);
    Some((length, best, figures.of_all((1.0 - now / rate).max(0.0) * figures.wall.decode())))
}

pub(super) fn draft_too_long(figures: &Figures<'_>) -> Option<Seen> {
    let (length, best, share) = better_length(figures)?;
    if best == 0 || best as f64 >= length.floor() {
        return None;
    }
    let mut survives = 1.0;
    let survival: Vec<String> = (0..length.ceil() as usize)
        .map(|position| {
            survives *= figures.stands(position);
            format!("{:.0}", 100.0 * survives)
        })
        .collect();
    Some(Seen {
        weight: Weight::Saves(share),
        evidence: format!(
            "drafts have {} tokens, of which {} % survive, position by position; behind position {best} a draft token costs more than it \
             brings",
            tenths(length),
            survival.join(", ")
        ),
        advice: format!("`--draft-len {best}`, or `--draft-len auto`, which measures it as it goes"),
    })
}

pub(super) fn draft_too_short(figures: &Figures<'_>) -> Option<Seen> {
    let (length, best, share) = better_length(figures)?;
    // Drafts that end before they must are as long as the drafter wants them.
    let drafts = || figures.rounds.iter().filter(|round| round.drafted() > 0 && !round.forced);
    let full = drafts().filter(|round| round.by_depth.len() >= round.budget).count();
    if best as f64 <= length.ceil() || 2 * full < figures.drafting.rounds {
        return None;
    }
    let last = (length.floor() as usize).saturating_sub(1);
    Some(Seen {
        weight: Weight::Saves(share),
        evidence: format!(
            "drafts have {} tokens, as many as they are allowed in {full} of {} rounds, and {} of those that come to the last stand there",
            tenths(length),
            figures.drafting.rounds,
            percent(figures.stands(last))
        ),
        advice: format!("`--draft-len {best}`, or `--draft-len auto`, which measures it as it goes"),
    })
}

pub(super) fn drafting_rests(figures: &Figures<'_>) -> Option<Seen> {
    let (rounds, tried) = (figures.rounds.len(), figures.drafting.rounds);
    let alone = figures.rounds.iter().filter(|round| round.company == 0).count();
    // In company it is others that drafts stand back for.
    if tried == 0 || rounds < 2 * MANY || 5 * tried > rounds || 2 * alone < rounds {
        return None;
    }
    if !figures.has_draft_model() || cause(figures).is_some() {
        return None;
    }
    Some(Seen {
        weight: Weight::Could(could(figures)),
        evidence: format!(
            "{} of {rounds} rounds were plain; {} made, and {} of {} tokens stood; a draft pays from {} on",
            rounds - tried,
            count(tried, "draft was", "drafts were"),
            figures.drafting.accepted,
            figures.drafting.tokens,
            super::costs::break_even(figures)
        ),
        advice: "a draft model that is nearer to the target or smaller; until then it can be left out, for it brings nothing here".to_owned(),
    })
}

pub(super) fn lossy_rule(figures: &Figures<'_>) -> Option<Seen> {
    // Of a server each request has its own.
    let of_requests = || figures.ends().find_map(|end| end.speculation["rule"].as_str());
    let rule = figures.run.rule.as_deref().or_else(of_requests)?;
    let name: RuleName = rule.parse().ok()?;
    if name.entry().lossless {
        return None;
    }
    let forgiven = figures.ends().filter_map(|end| end.speculation["forgiven"]["count"].as_u64()).sum::<u64>();
    Some(Seen {
        weight: Weight::Price,
        evidence: format!(
            "--rule {rule} is lossy; {} draft tokens stood, and {forgiven} of them are reported as forgiven",
            figures.drafting.accepted
        ),
        advice: "leave `--rule` out for the answer of the target alone; or begin with `epsilon:0.01`, raise it step by step, and watch \
                 what `spec bench sweep` says of the quality"
            .to_owned(),
    })
}
