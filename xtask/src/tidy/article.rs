//! `docs/from-the-article.md`: what it names as ours has to exist, and the article's names have to lead there.
//!
//! Words of the command line `spec` are compared with its parser by a test of spec-cli.

use super::Problem;
use super::markdown::{Document, spans};
use crate::help;
use std::collections::HashMap;

pub(crate) const DOCUMENT: &str = "docs/from-the-article.md";

/// What the document is compared with.
pub(crate) struct Workspace<'a> {
    /// The sources of each crate in one text, by its name in Rust.
    pub(crate) crates: &'a HashMap<String, String>,
    /// Files, relative to the root.
    pub(crate) files: &'a [String],
}

pub(crate) fn check(text: &str, workspace: &Workspace<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let document = Document::read(text);
    for row in &document.rows {
        let mut report = |message: String| problems.push(Problem::new(DOCUMENT, row.line, message));
        let &[theirs, ours, _] = row.cells.as_slice() else {
            report(format!("three cells are wanted: the article, here, what differs; these are {}", row.cells.len()));
            continue;
        };
        for span in spans(ours) {
            if let Some(problem) = workspace.lacks(span) {
                report(problem);
            }
        }
        let items: Vec<&str> = spans(ours).filter(|span| workspace.item(span).is_some()).collect();
        for name in spans(theirs).filter_map(article_name).filter(|_| !items.is_empty()) {
            if !items.iter().any(|item| workspace.leads_to(name, item)) {
                let items = items.join(", ");
                report(format!(
                    "no `#[doc(alias = \"{name}\")]` in the crate of {items}: a search for it finds nothing"
                ));
            }
        }
    }
    for span in document.spans.iter().filter(|span| workspace.item(span).is_some()) {
        problems.extend(workspace.lacks(span).map(|problem| Problem::new(DOCUMENT, 0, problem)));
    }
    problems.dedup_by(|a, b| a.message == b.message);
    problems
}

/// A single name of the article's, without its namespace.
fn article_name(span: &str) -> Option<&str> {
    let name = span.rsplit("::").next().unwrap_or(span);
    is_identifier(name).then_some(name)
}

fn is_identifier(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Workspace<'_> {
    /// The crate's sources and the path within it, of `spec_core::Outcome` and its like.
    fn item<'a>(&self, span: &'a str) -> Option<(&str, &'a str)> {
        let (name, path) = span.split_once("::")?;
        Some((self.crates.get(name)?, path))
    }

    /// What is wrong with the name of something of ours.
    fn lacks(&self, span: &str) -> Option<String> {
        if let Some((source, path)) = self.item(span) {
            let missing = path.split("::").find(|name| !declares(source, name))?;
            return Some(format!("`{span}`: that crate declares no `{missing}`"));
        }
        if let Some(words) = span.strip_prefix("cargo xtask ") {
            let mut words = words.split(' ');
            let topic = words.next().unwrap_or_default();
            let Ok(details) = help::text(Some(topic)) else {
                return Some(format!("`{span}`: there is no such command"));
            };
            let flag = words.filter(|word| word.starts_with("--")).find(|flag| !details.contains(flag))?;
            return Some(format!("`{span}`: its help does not mention {flag}"));
        }
        let is_known = span.starts_with("spec ")
            || span.starts_with('-')
            || self.files.iter().any(|file| file == span)
            || is_identifier(span) && self.crates.values().any(|source| source.contains(span));
        (!is_known).then(|| format!("`{span}` is no item, command, flag, file or variable of this repository"))
    }

    fn leads_to(&self, name: &str, item: &str) -> bool {
        let is_its_own_name = item.rsplit("::").next() == Some(name);
        is_its_own_name
            || self.item(item).is_some_and(|(source, _)| source.contains(&format!("doc(alias = \"{name}\")")))
    }
}

/// Whether a line of the source declares the item, method or field.
fn declares(source: &str, name: &str) -> bool {
    const KEYWORDS: &[&str] = &["struct ", "enum ", "trait ", "fn ", "type ", "const ", "static ", "mod "];
    source.lines().map(str::trim_start).any(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let declared = KEYWORDS.iter().find_map(|keyword| line.strip_prefix(keyword)).unwrap_or(line);
        declared.strip_prefix(name).is_some_and(|rest| rest.starts_with(['(', '<', ':', ';', ' ', '{', ',']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(row: &str) -> Vec<String> {
        let source =
            "#[doc(alias = \"verify_tokens\")]\npub trait Rule<T> {\n    fn verify(&self);\n}\npub struct Engine;\n";
        let crates = HashMap::from([("spec_core".to_owned(), format!("{source}const VARIABLE: &str = \"SPEC_X\";"))]);
        let workspace = Workspace { crates: &crates, files: &["docs/ascend.md".to_owned()] };
        let text = format!("| theirs | ours | why |\n|---|---|---|\n{row}\n");
        check(&text, &workspace).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn what_exists_passes() {
        for row in [
            "| `verify_tokens` | `spec_core::Rule::verify` | |",
            "| `atb::Engine` | `spec_core::Engine` | the same name |",
            "| `a(b)`, words | `spec_core::Engine`, `--model M`, `spec generate`, `docs/ascend.md`, `SPEC_X` | |",
            "| `x` | `cargo xtask build-atb --max-ws-size 2048` | |",
            "| `anything` | not there yet | see `spec_core::Rule` |",
        ] {
            assert_eq!(found(row), [""; 0], "{row}");
        }
    }

    #[test]
    fn what_does_not_exist_is_named() {
        for (row, words) in [
            ("| `verify_tokens` | `spec_core::Rule::judge` | |", "no `judge`"),
            ("| `x y` | `spec_core::Ruler` | |", "no `Ruler`"),
            ("| `x y` | words | and `spec_core::Ruler` |", "no `Ruler`"),
            ("| `other` | `spec_core::Rule` | |", "alias = \"other\""),
            ("| `x` | `cargo xtask conjure` | |", "no such command"),
            ("| `x` | `cargo xtask tidy --hard` | |", "does not mention --hard"),
            ("| `x` | `docs/nowhere.md` | |", "no item, command"),
            ("| `x` | `SPEC_Y` | |", "no item, command"),
            ("| `x` | `y` |", "three cells"),
        ] {
            let problems = found(row);
            assert!(problems.len() == 1 && problems[0].contains(words), "{row}: {problems:?}");
        }
    }
}
