//! How many texts there is room for. `--mem-limit`: what a run will take, told before anything is loaded, and what would fit.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::ValueEnum as _;
use spec_cpu::{KvType, MemoryPlan};
use spec_model::Checkpoint;
use spec_runtime::resident_memory;

use crate::args::ModelArgs;
use crate::session::{CpuDevice, kv_type};

/// Texts that a run has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// Positions of each.
    pub(crate) context: usize,
    /// Texts at a time.
    pub(crate) parallel: usize,
    /// Tokens that a cache holds of all of them; as many as their contexts when not given.
    pub(crate) kv_tokens: Option<usize>,
}

/// Of one text.
impl From<usize> for Room {
    fn from(context: usize) -> Self {
        Self { context, parallel: 1, kv_tokens: None }
    }
}

/// Bytes, as people write them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Size(pub(crate) usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give a number and a unit, such as 300MB, 1.5GB or 2GiB".to_owned();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "b" | "" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "kib" => 1024.0,
            "mib" => 1024.0 * 1024.0,
            "gib" => 1024.0 * 1024.0 * 1024.0,
            _ => return Err(wrong()),
        };
        let bytes = digits.trim_end().parse::<f64>().map_err(|_| wrong())? * unit;
        if !bytes.is_finite() || bytes < 1.0 || bytes > (1_u64 << 62) as f64 {
            return Err(wrong());
        }
        Ok(Self(bytes as usize))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 as f64 {
            bytes if bytes < 1e6 => write!(f, "{:.1} kB", bytes / 1e3),
            bytes if bytes < 1e9 => write!(f, "{:.1} MB", bytes / 1e6),
            bytes => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

/// Refuses what `--mem-limit` does not allow, after saying on standard error what would be taken and what would fit.
pub(crate) fn check(
    args: &ModelArgs,
    device: &CpuDevice,
    target: &Checkpoint,
    draft: Option<&Checkpoint>,
    room: Room,
) -> Result<()> {
    let context = room.context;
    let Some(limit) = args.mem_limit else { return Ok(()) };
    // The vocabulary is there by now, which is most of what the program takes for itself.
    let program = resident_memory().unwrap_or(0);
    let run = |choice: Choice| -> Result<Run> {
        let plan = |checkpoint: &Checkpoint| -> Result<MemoryPlan> {
            let own = checkpoint.config().context_length;
            let mut options = device.options(args.storage, choice.context.min(own))?;
            (options.kv, options.parallel, options.kv_tokens) = (choice.kv, choice.parallel, room.kv_tokens);
            Ok(MemoryPlan::of(checkpoint, &options)?)
        };
        Ok(Run { program, target: plan(target)?, draft: draft.filter(|_| choice.draft).map(plan).transpose()? })
    };
    let kv = kv_type(args.storage.kv);
    let choice = Choice { context, parallel: room.parallel, kv, draft: draft.is_some() };
    let asked = run(choice)?;
    if asked.peak() <= limit.0 {
        return Ok(());
    }
    eprint!("{}", asked.table(choice, args));
    for way in ways(limit, choice, &run)? {
        eprintln!("  {way}");
    }
    bail!("{} takes {} at {choice}, and --mem-limit allows {limit}", target.name(), Size(asked.peak()))
}

/// What decides how much is taken.
#[derive(Clone, Copy, Debug)]
struct Choice {
    context: usize,
    parallel: usize,
    kv: KvType,
    /// Whether a draft model is loaded.
    draft: bool,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a context of {}", self.context)?;
        if self.parallel > 1 { write!(f, " for {} texts at a time", self.parallel) } else { Ok(()) }
    }
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
    let at = |context| Choice { context, ..asked };
    let (mut fits, mut too_long) = (SHORTEST, asked.context);
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
        let per_token = per_token * asked.parallel;
        ways.push(format!("--context {fits}: a position takes {}", Size(per_token)));
    }
    if asked.parallel > 1 {
        let few = |parallel| Choice { parallel, ..asked };
        let (mut fits, mut too_many) = (1, asked.parallel);
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
    if asked.kv != KvType::Q8 {
        let choice = Choice { kv: KvType::Q8, ..asked };
        ways.push(format!("--kv q8, a cache of bytes: {}", together(choice)?));
    }
    let bare = run(Choice { draft: false, ..at(1) })?.peak();
    ways.push(format!("a smaller model, or fewer bits a weight: this one takes {} with an empty cache", Size(bare)));
    let allowed = run(asked)?.peak().div_ceil(1_000_000);
    ways.push(format!("--mem-limit {allowed}MB"));
    Ok(ways)
}

/// The part that is added for pages that are used in part, and for code that has not run yet.
const MARGIN: usize = 16;

/// What a run takes, in bytes.
#[derive(Clone, Copy, Debug)]
struct Run {
    program: usize,
    target: MemoryPlan,
    draft: Option<MemoryPlan>,
}

impl Run {
    /// The most at any time: the models are loaded one after the other.
    fn peak(&self) -> usize {
        let draft = self.draft.unwrap_or_default();
        let beside = self.target.weights + self.target.kv + self.target.scratch;
        let counted = self.program + self.target.peak().max(beside + draft.peak());
        counted + counted / MARGIN
    }

    fn table(&self, choice: Choice, args: &ModelArgs) -> String {
        let draft = self.draft.unwrap_or_default();
        let rows = [
            ("this program and the vocabulary", self.program),
            ("weights", self.target.weights),
            ("weights of the draft model", draft.weights),
            ("keys and values", self.target.kv + draft.kv),
            ("scratch", self.target.scratch + draft.scratch),
        ];
        let kv = args.storage.kv.to_possible_value().map_or(String::new(), |kv| format!(" and --kv {}", kv.get_name()));
        let mut table = format!("Memory that is needed, at {choice}{kv}:\n");
        for (name, bytes) in rows.into_iter().filter(|row| row.1 > 0) {
            table += &format!("  {name:<32} {:>10}\n", Size(bytes).to_string());
        }
        let settled: usize = rows.iter().map(|row| row.1).sum();
        let margin = self.peak() / (MARGIN + 1);
        let loading = self.peak().saturating_sub(settled + margin);
        for (name, bytes) in [("the file's pages while loading", loading), ("margin", margin)] {
            if bytes >= 1000 {
                table += &format!("  {name:<32} {:>10}\n", Size(bytes).to_string());
            }
        }
        table + &format!("  {:<32} {:>10}\nWays to fit:\n", "together", Size(self.peak()).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("300MB", 300_000_000),
            ("300m", 300_000_000),
            ("1.5GB", 1_500_000_000),
            ("2GiB", 2 << 30),
            ("1 GiB", 1 << 30),
            ("4096", 4096),
            ("64kib", 65_536),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MB", "-1GB", "0", "nan", "1TB", "1e999GB", "3 megabytes", "1,5GB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_peak_is_the_sum_or_the_loading_of_either_model() {
        let plan = |weights, loading, kv| {
            let mut plan = MemoryPlan::default();
            (plan.weights, plan.loading, plan.kv, plan.kv_per_token) = (weights, loading, kv, 1);
            plan
        };
        let alone = Run { program: 5, target: plan(100, 150, 30), draft: None };
        assert_eq!(alone.peak(), 155 + 9, "the file's pages go as the cache fills");
        let both = Run { draft: Some(plan(50, 70, 10)), ..alone };
        assert_eq!(both.peak(), 5 + 130 + 70 + 12);
        // The cache grows by a byte a position of either model, as far as the draft model's own context goes.
        let run = |choice: Choice| {
            let bytes = |positions: usize| if choice.kv == KvType::Q8 { positions / 2 } else { positions };
            let draft = choice.draft.then(|| plan(50, 70, bytes(choice.context.min(10))));
            Ok(Run { target: plan(100, 150, choice.parallel * bytes(choice.context)), draft, ..alone })
        };
        let asked = Choice { context: 400, parallel: 1, kv: KvType::F16, draft: true };
        let advice = |limit| ways(Size(limit), asked, &run).expect("plans");
        let ways = advice(430);
        assert!(ways[0].starts_with("--context 230:"), "{ways:?}");
        assert!(ways[1].starts_with("--draft ngram") && ways[1].ends_with("still too much"), "{ways:?}");
        assert!(ways[2].starts_with("--kv q8") && ways[2].ends_with("which fits"), "{ways:?}");
        assert!(advice(200)[0].contains("does not do"));
        assert!(ways.len() >= 3);
        // Four at a time take three caches more, of which there is room for two.
        let several = Choice { parallel: 4, ..asked };
        let ways = super::ways(Size(1500), several, &run).expect("plans");
        assert!(ways[1].starts_with("--parallel 3:") && ways[1].ends_with("which fits"), "{ways:?}");
        assert_eq!(several.to_string(), "a context of 400 for 4 texts at a time");
    }
}
