//! Documents in two languages: whoever changes one has to change the other.

use super::Problem;
use super::markdown::Document;

/// Each with its translation.
pub(crate) const TWINS: &[(&str, &str)] =
    &[("README.md", "docs/README.zh-CN.md"), ("docs/from-the-article.md", "docs/from-the-article.zh-CN.md")];

/// Compares what is not translated: levels of headings, rows of tables, and all code but its comments.
pub(crate) fn check((file, text): (&str, &str), (other_file, other_text): (&str, &str)) -> Vec<Problem> {
    let (one, other) = (Document::read(text), Document::read(other_text));
    let mut problems = Vec::new();
    let mut compare = |what: &str, one: Vec<String>, other: Vec<String>| {
        let pairs = one.len().max(other.len());
        let differs = (0..pairs).find(|&at| one.get(at) != other.get(at));
        if let Some(at) = differs {
            let shown = |side: &[String]| side.get(at).map_or("nothing".to_owned(), |text| format!("`{text}`"));
            let message = format!("{what} differ from those of {file}: {} here, {} there", shown(&other), shown(&one));
            problems.push(Problem::new(other_file, 0, message));
        }
    };
    compare("levels of headings", levels(&one), levels(&other));
    compare("cells of the tables' rows", row_lengths(&one), row_lengths(&other));
    compare("code spans", sorted_spans(&one), sorted_spans(&other));
    compare("lines of code", uncommented(&one), uncommented(&other));
    for (from, to, text) in [(file, other_file, text), (other_file, file, other_text)] {
        let name = to.rsplit('/').next().unwrap_or(to);
        if !text.contains(&format!("{name})")) {
            problems.push(Problem::new(from, 0, format!("no link to {to}")));
        }
    }
    problems
}

fn levels(document: &Document<'_>) -> Vec<String> {
    document.headings.iter().map(|line| line.chars().take_while(|&mark| mark == '#').collect()).collect()
}

fn row_lengths(document: &Document<'_>) -> Vec<String> {
    document.rows.iter().map(|row| row.cells.len().to_string()).collect()
}

/// Sorted, since the order of words is each language's own.
fn sorted_spans(document: &Document<'_>) -> Vec<String> {
    let mut spans: Vec<String> = document.spans.iter().map(|&span| span.to_owned()).collect();
    spans.sort();
    spans
}

fn uncommented(document: &Document<'_>) -> Vec<String> {
    document.code.iter().map(|line| line.split("  # ").next().unwrap_or(line).trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH: &str = "# A\n[b](b.md) `x`, then `y`\n| h | i |\n|---|---|\n| 1 | 2 |\n```\nrun it   # why\n```\n";

    fn found(other: &str) -> Vec<String> {
        check(("a.md", ENGLISH), ("b.md", other)).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn a_translation_differs_in_words_alone() {
        let same = "# 甲\n[a](a.md) `y` 在 `x` 之后\n| 子 | 丑 |\n|---|---|\n| 1 | 二 |\n```\nrun it   # 因为\n```\n";
        assert_eq!(found(same), [""; 0]);
        let changes = [
            ("# 甲", "## 甲", "levels of headings"),
            ("| 1 | 二 |\n", "", "cells of the tables' rows"),
            ("`x`", "`z`", "code spans"),
            ("run it", "run that", "lines of code"),
            ("(a.md)", "", "no link to a.md"),
        ];
        for (from, to, problem) in changes {
            let problems = found(&same.replacen(from, to, 1));
            assert!(problems.len() == 1 && problems[0].starts_with(problem), "{problem}: {problems:?}");
        }
    }
}
