//! `--mem-limit`: what a run will take, told before anything is loaded, and what would fit.

use anyhow::{Result, bail};
use clap::ValueEnum as _;

use super::run::{Choice, Models, Run};
use super::{Room, Size};
use crate::args::KvKind;

/// Refuses what `limit` does not allow, after saying on standard error what would be taken and what would fit.
pub(crate) fn check(limit: Option<Size>, models: &Models<'_>, room: Room, name: &str) -> Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let choice = models.choice(room);
    let asked = models.run(choice)?;
    if asked.peak() <= limit.0 {
        return Ok(());
    }
    let kv = choice.kv.to_possible_value().map_or(String::new(), |kv| format!(" and --kv {}", kv.get_name()));
    eprint!("Memory that is needed, at {choice}{kv}:\n{}Ways to fit:\n", asked.table());
    for way in ways(limit, choice, &|choice| models.run(choice))? {
        eprintln!("  {way}");
    }
    bail!("{name} takes {} at {choice}, and --mem-limit allows {limit}", Size(asked.peak()))
}

/// Positions that a model is worth having with.
const SHORTEST: usize = 128;

/// What would fit, or come nearer, with figures; `run` tells what a choice takes.
fn ways(limit: Size, asked: Choice, run: &dyn Fn(Choice) -> Result<Run>) -> Result<Vec<String>> {
    let together = |choice: Choice| -> Result<String> {
        let peak = run(choice)?.peak();
        let verdict = if peak <= limit.0 { "which fits" } else { "still too much" };
        Ok(format!("{} together, {verdict}", Size(peak)))
    };
    let Room { context, parallel, .. } = asked.room;
    let at = |context| Choice { room: Room { context, ..asked.room }, ..asked };
    let (mut fits, mut too_long) = (SHORTEST, context);
    let shortest = run(at(SHORTEST))?;
    let mut ways = Vec::new();
    if shortest.peak() > limit.0 || too_long <= SHORTEST {
        ways.push(format!("a shorter context alone does not do: {SHORTEST} positions take {}", Size(shortest.peak())));
    } else {
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            if run(at(middle))?.peak() <= limit.0 { fits = middle } else { too_long = middle }
        }
        let per_token = shortest.target.kv_per_token + shortest.draft.map_or(0, |draft| draft.kv_per_token);
        let per_token = per_token * parallel;
        ways.push(format!("--context {fits}: a position takes {}", Size(per_token)));
    }
    if parallel > 1 {
        let few = |parallel| Choice { room: Room { parallel, ..asked.room }, ..asked };
        let (mut fits, mut too_many) = (1, parallel);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if run(few(middle))?.peak() <= limit.0 { fits = middle } else { too_many = middle }
        }
        ways.push(format!("--parallel {fits}: {}", together(few(fits))?));
    }
    if asked.draft {
        let choice = Choice { draft: false, ..asked };
        ways.push(format!("--draft ngram, without a draft model: {}", together(choice)?));
    }
    if asked.kv != KvKind::Q8 {
        let choice = Choice { kv: KvKind::Q8, draft_kv: KvKind::Q8, ..asked };
        ways.push(format!("--kv q8, a cache of bytes: {}", together(choice)?));
    }
    let bare = run(Choice { draft: false, ..at(1) })?.peak();
    ways.push(format!("a smaller model, or fewer bits a weight: this one takes {} with an empty cache", Size(bare)));
    let allowed = run(asked)?.peak().div_ceil(1_000_000);
    ways.push(format!("--mem-limit {allowed}MB"));
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use spec_cpu::MemoryPlan;

    use super::*;

    #[test]
    fn the_peak_is_the_sum_or_the_loading_of_either_model() {
        let plan = |weights, loading, kv| {
            let mut plan = MemoryPlan::default();
            (plan.weights, plan.loading, plan.kv, plan.kv_per_token) = (weights, loading, kv, 1);
            plan
        };
        let alone = Run { program: 5, target: plan(100, 150, 30), draft: None, lookup: 0, parallel: 1 };
        assert_eq!(alone.peak(), 155 + 4, "the file's pages go as the cache fills");
        let both = Run { draft: Some(plan(50, 70, 10)), ..alone };
        assert_eq!(both.peak(), 5 + 130 + 70 + 6);
        // The cache grows by a byte a position of either model, as far as the draft model's own context goes.
        let run = |choice: Choice| {
            let bytes = |kv, positions: usize| if kv == KvKind::Q8 { positions / 2 } else { positions };
            let Room { context, parallel, .. } = choice.room;
            let draft = choice.draft.then(|| plan(50, 70, bytes(choice.draft_kv, context.min(10))));
            Ok(Run { target: plan(100, 150, parallel * bytes(choice.kv, context)), draft, ..alone })
        };
        let asked = Choice { room: 400.into(), kv: KvKind::F16, draft_kv: KvKind::F16, draft: true };
        let advice = |limit| ways(Size(limit), asked, &run).expect("plans");
        let ways = advice(430);
        assert!(ways[0].starts_with("--context 242:"), "{ways:?}");
        assert!(ways[1].starts_with("--draft ngram") && ways[1].ends_with("still too much"), "{ways:?}");
        assert!(ways[2].starts_with("--kv q8") && ways[2].ends_with("which fits"), "{ways:?}");
        assert!(advice(200)[0].contains("does not do"));
        assert!(ways.len() >= 3);
        // Four at a time take three caches more, of which there is room for two.
        let several = Choice { room: Room { parallel: 4, ..asked.room }, ..asked };
        let ways = super::ways(Size(1500), several, &run).expect("plans");
        assert!(ways[1].starts_with("--parallel 3:") && ways[1].ends_with("which fits"), "{ways:?}");
        assert_eq!(several.to_string(), "a context of 400 for 4 texts at a time");
    }
}
