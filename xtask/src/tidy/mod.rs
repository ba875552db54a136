//! The house rules that no compiler checks. `docs/style.md` gives their reasons.

mod article;
mod layers;
mod lexer;
mod manifests;
mod markdown;
mod reports;
mod sources;
#[cfg(test)]
mod tests;
mod text;
mod twins;

use crate::process;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;

/// One broken rule, in the form that editors make a link of.
#[derive(Debug, PartialEq)]
pub(crate) struct Problem {
    /// Relative to the workspace's root.
    file: String,
    /// From 1; 0 when it is about the file as a whole.
    line: usize,
    message: String,
}

impl Problem {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.file, self.message),
            line => write!(formatter, "{}:{line}: {}", self.file, self.message),
        }
    }
}

pub(crate) fn run() -> Result<()> {
    let files = files()?;
    let machine = text::Machine::this();
    let mut problems = Vec::new();
    let mut tests = BTreeSet::new();
    let mut crates: HashMap<String, String> = HashMap::new();
    for file in &files {
        problems.extend(text::check_name(file));
        let path = workspace::root().join(file);
        // Not every file is text; those that are not have no lines to judge.
        let Ok(content) = std::fs::read_to_string(&path) else { continue };
        problems.extend(text::check(file, &content, &machine));
        if file.ends_with(".rs") {
            problems.extend(sources::check(file, &content));
            tests.extend(reports::tests_in(&content).map(str::to_owned));
            if let Some((name, _)) = file.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) {
                crates.entry(name.replace('-', "_")).or_default().push_str(&content);
            }
        }
    }
    problems.extend(reports::check(&document(reports::DOCUMENT)?, &tests));
    for (file, twin) in twins::TWINS {
        problems.extend(twins::check((file, &document(file)?), (twin, &document(twin)?)));
    }
    let named = article::Workspace { crates: &crates, files: &files };
    problems.extend(article::check(&document(article::DOCUMENT)?, &named));
    problems.extend(manifests::check(&workspace::packages()?, &workspace::root())?);
    problems.extend(layers::check()?);

    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: {} files, no problems", files.len());
            Ok(())
        }
        1 => bail!("tidy: 1 problem"),
        count => bail!("tidy: {count} problems"),
    }
}

fn document(file: &str) -> Result<String> {
    std::fs::read_to_string(workspace::root().join(file)).with_context(|| format!("cannot read {file}"))
}

/// What is in the repository or would be after `git add --all`, relative to the root.
fn files() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(workspace::root());
    let list = process::capture(&mut git).context("tidy asks git which files there are")?;
    let mut files: Vec<String> = list.split_terminator('\0').map(str::to_owned).collect();
    // A file deleted and not yet committed is listed still.
    files.retain(|file| workspace::root().join(PathBuf::from(file)).exists());
    files.sort();
    files.dedup();
    Ok(files)
}
