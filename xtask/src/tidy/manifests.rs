//! Rules about manifests and the changelog: what a package says about itself.

use super::Problem;
use crate::workspace::Package;
use anyhow::{Context, Result};
use std::path::Path;

pub(crate) fn check(packages: &[Package], root: &Path) -> Result<Vec<Problem>> {
    let mut problems: Vec<Problem> = packages.iter().flat_map(check_package).collect();
    let changelog = root.join("docs/CHANGELOG.md");
    let text = std::fs::read_to_string(&changelog).with_context(|| format!("cannot read {}", changelog.display()))?;
    problems.extend(check_changelog(&text));
    Ok(problems)
}

fn check_package(package: &Package) -> Vec<Problem> {
    let mut problems = Vec::new();
    let manifest = format!("crates/{}/Cargo.toml", package.name);
    let mut report = |file: &str, message: &str| problems.push(Problem::new(file, 0, message));
    if !package.has_line_starting(&format!("name = \"{}\"", package.name)) {
        report(&manifest, "the package is named otherwise than its folder; give both one name");
    }
    for key in ["description", "license"] {
        if !package.has_line_starting(key) {
            report(&manifest, &format!("no {key}; a package says what it is and on which terms"));
        }
    }
    let library = std::fs::read_to_string(package.folder.join("src/lib.rs")).unwrap_or_default();
    if package.is_published() && !library.is_empty() && !library.contains("deny(missing_docs)") {
        let file = format!("crates/{}/src/lib.rs", package.name);
        report(&file, "no `#![deny(missing_docs)]`; the public items of a published crate are documented");
    }
    problems
}

pub(crate) fn check_changelog(text: &str) -> Option<Problem> {
    let first = text.lines().find(|line| line.starts_with("## "));
    let is_open =
        first.is_some_and(|heading| heading.trim_start_matches("## ").trim_matches(['[', ']']) == "Unreleased");
    (!is_open).then(|| Problem::new("docs/CHANGELOG.md", 0, "its first section is not `## Unreleased`; keep one open"))
}
