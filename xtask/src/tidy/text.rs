//! Rules about every file: where it is, what it is called, and that it names no machine but the reader's.

use super::Problem;
use crate::workspace;
use std::path::{Component, Path};

/// Names that say nothing about what is inside.
pub(crate) const EMPTY_NAMES: &[&str] =
    &["util", "utils", "helper", "helpers", "manager", "managers", "common", "misc", "stuff"];

/// What may lie at the top, beside dotfiles and licences.
const TOP_LEVEL: &[&str] = &["Cargo.toml", "Cargo.lock", "README.md", "crates", "xtask", "ci", "docs"];

/// Sites whose addresses stay what they are. A package registry is none of them: which one is used, or which mirror of
/// it, is the reader's configuration and never this repository's.
const SITES: &[&str] = &[
    "arxiv.org",
    // Where CANN's open sources are published.
    "atomgit.com",
    "doc.rust-lang.org",
    "docs.rs",
    "git-lfs.github.com",
    "github.com",
    "huggingface.co",
    "keepachangelog.com",
    "semver.org",
    "www.apache.org",
    "www.hiascend.com",
    "www.w3.org",
    // Reserved for examples, or this host.
    "example.com",
    "example.org",
    "127.0.0.1",
];

/// Folders that hold the home folders of people, by convention.
const HOMES: &[&str] = &["home", "root", "Users"];

/// Top folders that every Linux has: naming them gives nobody's machine away.
const STANDARD_FOLDERS: &[&str] = &[
    "bin", "boot", "dev", "etc", "lib", "lib64", "mnt", "opt", "proc", "run", "sbin", "srv", "sys", "tmp", "usr", "var",
];

/// Copies of others' words, and files that tools write: not ours to hold to rules about text.
fn is_exempt(file: &str) -> bool {
    file == "Cargo.lock" || file.starts_with("LICENSE-") || (file.starts_with("crates/") && file.contains("/data/"))
}

/// The top folders whose paths mean something on one machine only.
pub(crate) struct Machine {
    folders: Vec<String>,
}

impl Machine {
    /// The folders of people, and the one that this checkout is under.
    pub(crate) fn this() -> Self {
        Self::with_checkout(&workspace::root())
    }

    pub(crate) fn with_checkout(root: &Path) -> Self {
        let mut folders: Vec<String> = HOMES.iter().map(|folder| (*folder).to_owned()).collect();
        let top = root.components().find_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        });
        folders.extend(top.filter(|top| !STANDARD_FOLDERS.contains(&top.as_str())));
        Self { folders }
    }

    /// The first folder of this machine that `line` has a path into.
    fn named_in(&self, line: &str) -> Option<&str> {
        self.folders.iter().map(String::as_str).find(|folder| {
            let path = format!("/{folder}/");
            line.match_indices(&path).any(|(start, _)| {
                // Behind a folder or a variable the same word is another place.
                !line[..start].ends_with(|c: char| c.is_alphanumeric() || "._-~}/".contains(c))
            })
        })
    }
}

pub(crate) fn check_name(file: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = file.split('/').collect();
    let top = parts[0];
    if !TOP_LEVEL.contains(&top) && !top.starts_with('.') && !top.starts_with("LICENSE-") {
        problems.push(Problem::new(
            file,
            0,
            format!("`{top}` does not belong at the top; put it under crates, docs or ci"),
        ));
    }
    for part in &parts {
        let stem = part.split_once('.').map_or(*part, |(stem, _)| stem);
        if EMPTY_NAMES.contains(&stem) {
            problems.push(Problem::new(
                file,
                0,
                format!("the name `{stem}` says nothing about what is in it; name its subject"),
            ));
        }
    }
    problems
}

pub(crate) fn check(file: &str, content: &str, machine: &Machine) -> Vec<Problem> {
    if is_exempt(file) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (at, line) in content.lines().enumerate() {
        if let Some(folder) = machine.named_in(line) {
            let message = format!("a path under /{folder} exists on somebody's machine only; make it relative");
            problems.push(Problem::new(file, at + 1, message));
        }
        for host in hosts(line).filter(|host| !SITES.contains(host)) {
            let message =
                format!("a link to {host}, which is not among the sites that tidy knows; cite a lasting source");
            problems.push(Problem::new(file, at + 1, message));
        }
    }
    problems
}

/// The hosts of the web addresses in a line.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    let after = |scheme: &'static str| line.match_indices(scheme).map(|(start, scheme)| &line[start + scheme.len()..]);
    after("http://").chain(after("https://")).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-.".contains(c)).unwrap_or(rest.len());
        // A pattern such as `http://{address}`, and a name without a dot such as localhost, lead to no site.
        Some(rest[..end].trim_end_matches('.')).filter(|host| host.contains('.'))
    })
}
