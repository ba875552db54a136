//! `cargo xtask bench compare A B`: two commits, built beside each other and measured in turn.

mod kernels;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use spec_figures::{Spread, Table, ratios};

use crate::contention::{Contention, Ticks};
use crate::engine::{Passes, Spec};
use crate::launcher::{Launcher, capture, last_line, run as run_command};
use crate::machine::{self, Machine};
use crate::options::write;
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The commit to compare with: a branch, a tag, HEAD~1, a hash
    before: String,

    /// The commit that is compared
    after: String,

    /// The checkout that both are in
    #[arg(long, value_name = "DIR")]
    repository: PathBuf,

    /// Where the results go, and the two builds
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// A GGUF file, whose passes are timed
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// Row counts
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,4,8,16")]
    rows: Vec<usize>,

    /// Tokens in the KV cache before the passes
    #[arg(long, value_name = "N", default_value_t = 512)]
    context: usize,

    /// Weight types whose kernels are timed; those of the model files in use when not given
    #[arg(long, value_name = "TYPE,TYPE", default_value = "Q4_1,Q4_K,Q6_K,Q5_0,Q8_0")]
    types: String,

    /// Interleaved rounds; 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,

    /// One round
    #[arg(long)]
    quick: bool,

    /// Leave out the kernels, and compare passes alone
    #[arg(long)]
    passes_only: bool,

    /// Threads; all cores when not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,

    /// Words put before every program that is measured, such as 'taskset -c 0-7'
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    launcher: String,
}

/// What is measured of one commit: figures with their names, in the order of the first round.
#[derive(Default)]
struct Figures(Vec<(Figure, Vec<f64>)>);

/// Something that is timed; all figures are times or turned into them, so that less is better.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
}

impl Figures {
    fn push(&mut self, figure: Figure, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == figure) {
            Some((_, values)) => values.push(value),
            None => self.0.push((figure, vec![value])),
        }
    }

    fn of(&self, figure: &Figure) -> Option<&[f64]> {
        self.0.iter().find(|(known, _)| known == figure).map(|(_, values)| values.as_slice())
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.model.is_file(), "no model at {}; give the path of a GGUF file", options.model.display());
    fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let folder = std::path::absolute(&options.out)?.join("compare");
    let builds = [&options.before, &options.after]
        .map(|name| Build::of(name, &options.repository, &folder))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    if builds[0].commit == builds[1].commit {
        eprintln!("both are {}: this shows the noise of the measurement", builds[0].commit);
    }
    let launcher = Launcher::new(&options.launcher);
    let threads = options.threads.map_or_else(machine::threads, |threads| threads as usize);
    let repeats = options.repeats.unwrap_or(if options.quick { 1 } else { 5 }) as usize;
    let mut figures = [Figures::default(), Figures::default()];
    let mut progress = Progress::new(repeats * 2 * (1 + usize::from(!options.passes_only)));
    let begun = Ticks::now();
    for round in 0..repeats {
        // Who begins changes from round to round, lest one of them always meets what the other left.
        for at in [round % 2, 1 - round % 2] {
            let build = &builds[at];
            if !options.passes_only {
                let mut command = launcher.command(&build.kernels);
                let printed = capture(command.args([&threads.to_string(), &options.types, "1,8,16", "3"]))?;
                let found = kernels::figures(&printed.stdout);
                ensure!(
                    !found.is_empty(),
                    "the kernels example of {} prints nothing that is known here; --passes-only leaves it out",
                    build.name
                );
                for (figure, value) in found {
                    figures[at].push(figure, value);
                }
                progress.done(&format!("kernels of {}", build.name));
            }
            let spec = Spec { program: build.spec.clone(), launcher: launcher.clone(), threads };
            let passes = Passes { rows: options.rows.clone(), context: options.context, all_logits: true, rounds: 5 };
            let forward = spec.forward(&options.model, &passes)?;
            for pass in &forward.rows {
                let name = format!("pass of {} rows behind {}", pass.rows, options.context);
                figures[at].push(Figure { name, unit: "ms" }, pass.ms);
            }
            progress.done(&format!("passes of {}", build.name));
        }
    }
    report(options, &builds, &figures, repeats, threads, Contention::since(begun))
}

/// The programs of one commit.
struct Build {
    /// As asked for.
    name: String,
    commit: String,
    spec: PathBuf,
    kernels: PathBuf,
}

impl Build {
    /// Builds the commit in a worktree of its own, unless its programs are there from an earlier run.
    fn of(name: &str, repository: &Path, folder: &Path) -> Result<Self> {
        let commit = git(repository, &["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")])
            .with_context(|| format!("`{name}` names no commit"))?;
        let programs = folder.join("programs").join(&commit);
        let [spec, kernels] = ["spec", "kernels"].map(|program| programs.join(program));
        let build = Self { name: name.to_owned(), commit, spec, kernels };
        if build.spec.is_file() && build.kernels.is_file() {
            return Ok(build);
        }
        let worktree = folder.join(format!("tree-{}", &build.commit[..10]));
        let path = worktree.to_string_lossy().into_owned();
        if worktree.exists() {
            // Left by a run that was interrupted.
            git(repository, &["worktree", "remove", "--force", &path])?;
        }
        git(repository, &["worktree", "add", "--detach", "--quiet", &path, &build.commit])?;
        let built = build.compile(&worktree, &folder.join("target"), &programs);
        git(repository, &["worktree", "remove", "--force", &path])?;
        built.with_context(|| format!("{name} cannot be built"))?;
        Ok(build)
    }

    /// One target folder for all: what they share of dependencies is compiled once.
    fn compile(&self, worktree: &Path, target: &Path, programs: &Path) -> Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        for arguments in [["-p", "spec-cli", "--bin", "spec"], ["-p", "spec-cpu", "--example", "kernels"]] {
            let mut command = Command::new(&cargo);
            command.args(["build", "--release", "--quiet", "--target-dir"]).arg(target).args(arguments);
            run_command(command.current_dir(worktree))?;
        }
        fs::create_dir_all(programs).with_context(|| format!("cannot create {}", programs.display()))?;
        for (from, to) in [("release/spec", &self.spec), ("release/examples/kernels", &self.kernels)] {
            fs::copy(target.join(from), to).with_context(|| format!("cannot copy {from}"))?;
        }
        Ok(())
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(folder).output().context("git cannot be started")?;
    if !output.status.success() {
        bail!("git {} failed: {}", arguments.join(" "), last_line(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn report(
    options: &Options,
    builds: &[Build],
    figures: &[Figures; 2],
    repeats: usize,
    threads: usize,
    contention: Option<Contention>,
) -> Result<()> {
    let machine = Machine::this(threads, &options.repository);
    let table = table(figures);
    ensure!(!table.is_empty(), "the two commits have no figure in common");
    let text = format!(
        "# {} ({:.10}) and {} ({:.10})\n\n{}, {} threads, {}. Medians of {repeats} interleaved rounds; the ratio is before \
         over after, taken within a round: above 1 the second one is faster.{}\n\n{}",
        builds[0].name,
        builds[0].commit,
        builds[1].name,
        builds[1].commit,
        machine.processor,
        machine.threads,
        machine.date,
        Contention::describe(contention),
        table.markdown()
    );
    print!("{text}");
    write(&options.out.join("compare.md"), &text)?;
    let values = |figures: &Figures| {
        let entries = figures
            .0
            .iter()
            .map(|(figure, values)| json!({ "figure": figure.name, "unit": figure.unit, "values": values }));
        entries.collect::<Vec<_>>()
    };
    let json = json!({
        "machine": machine,
        "contention": contention,
        "before": { "name": builds[0].name, "commit": builds[0].commit, "figures": values(&figures[0]) },
        "after": { "name": builds[1].name, "commit": builds[1].commit, "figures": values(&figures[1]) },
    });
    write(&options.out.join("compare.json"), &serde_json::to_string_pretty(&json)?)
}

/// What both have, a row each.
fn table([before, after]: &[Figures; 2]) -> Table {
    let mut table = Table::new(["figure", "unit", "before", "after", "ratio"]);
    for (figure, old) in &before.0 {
        let Some(new) = after.of(figure) else { continue };
        let (Some(old_spread), Some(new_spread), Some(ratio)) =
            (Spread::of(old), Spread::of(new), Spread::of(&ratios(old, new)))
        else {
            continue;
        };
        table.row([
            figure.name.clone(),
            figure.unit.to_owned(),
            format!("{:.2}", old_spread.median),
            format!("{:.2}", new_spread.median),
            format!("{:.3} ({:.3}-{:.3})", ratio.median, ratio.least, ratio.most),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{Build, Figure, Figures, git, table};
    use std::path::Path;

    fn figure(name: &str) -> Figure {
        Figure { name: name.into(), unit: "ms" }
    }

    #[test]
    fn the_ratio_is_above_one_when_the_second_is_faster_and_needs_both() {
        let mut figures = [Figures::default(), Figures::default()];
        for (old, new) in [(30.0, 20.0), (60.0, 40.0)] {
            figures[0].push(figure("pass"), old);
            figures[1].push(figure("pass"), new);
            figures[0].push(figure("gone"), old);
        }
        let text = table(&figures).markdown();
        assert!(text.contains("| pass   | ms   | 45.00  | 30.00 | 1.500 (1.500-1.500) |"), "{text}");
        assert!(!text.contains("gone"), "{text}");
    }

    #[test]
    fn a_name_that_is_no_commit_is_refused_before_anything_is_built() {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "--quiet"]).unwrap();
        let error = format!("{:#}", Build::of("no-such", folder.path(), Path::new("x")).err().unwrap());
        assert!(error.contains("`no-such` names no commit"), "{error}");
    }
}
