//! The field reports of `docs/testing.md`: each is held by a test that exists, or says why it is not.

use super::Problem;
use super::markdown::{Document, Row, spans};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const DOCUMENT: &str = "docs/testing.md";

/// The reports of each group that has to be answered whole. Several that say the same were counted once, hence the gaps.
const GROUPS: &[(&str, &[u32])] = &[
    ("A", &[1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25]),
    ("B", &[26, 27, 29, 30, 31, 33, 34, 35, 37, 38, 39, 41, 42]),
    ("C", &[43, 45, 46, 47, 49, 50, 51, 53, 54, 55, 57, 58, 59, 61, 62]),
    ("D", &[63, 65, 66, 67, 69, 70, 71, 73, 74, 75, 77, 78, 79, 81, 82, 83]),
    ("E", &[85, 86, 87, 89, 90, 91, 93, 94, 95]),
    ("F", &[97, 98, 99, 101, 102, 103, 105, 106, 107, 109, 110, 111, 113, 114, 115, 117, 118, 119, 121]),
    ("G", &[122, 123, 125, 126, 127, 129, 130, 131, 133, 134, 135]),
    ("H", &[137, 138, 139, 141, 142, 143, 145, 146, 147, 149, 150]),
    ("J", &[187, 189, 190, 191, 193, 194, 195, 197, 198, 199]),
];

/// How many reports may wait for a part that is still to come.
const MOST_WAITING: usize = 10;

/// What a row says in the place of a test.
const WAITS: &str = "waits for ";
const NOT_APPLICABLE: &str = "not applicable: ";

/// The names of the tests in a source file: functions marked so, and claims that a macro makes a test of for every device.
pub(crate) fn tests_in(source: &str) -> impl Iterator<Item = &str> {
    let mut is_marked = false;
    source.lines().map(str::trim).filter_map(move |line| {
        is_marked |= line == "#[test]";
        let claim = line.strip_prefix("pub fn ").filter(|declaration| declaration.contains("(backend: &Backend<"));
        let declaration = claim.or_else(|| line.strip_prefix("fn ").filter(|_| is_marked))?;
        is_marked = false;
        Some(declaration.split('(').next().unwrap_or(declaration))
    })
}

pub(crate) fn check(text: &str, tests: &BTreeSet<String>) -> Vec<Problem> {
    let document = Document::read(text);
    let mut problems = Vec::new();
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    let mut waiting = 0;
    for row in document.rows.iter().filter(|row| group(row).is_some()) {
        let mut report = |message: String| problems.push(Problem::new(DOCUMENT, row.line, message));
        let &[numbers, _, held] = row.cells.as_slice() else {
            report(format!(
                "a report has three cells: numbers, what went wrong, held by; here are {}",
                row.cells.len()
            ));
            continue;
        };
        let numbers: Vec<u32> = numbers.split(',').filter_map(|number| number.trim().parse().ok()).collect();
        if numbers.is_empty() {
            report("the first cell has the numbers of the reports, separated by commas".into());
        }
        for number in &numbers {
            if let Some(line) = seen.insert(*number, row.line) {
                report(format!("report {number} stands in line {line} already"));
            }
        }
        waiting += if held.starts_with(WAITS) { numbers.len() } else { 0 };
        let says_why = [WAITS, NOT_APPLICABLE].iter().any(|start| held.len() > start.len() && held.starts_with(start));
        if spans(held).next().is_none() && !says_why && is_answered_whole(row) {
            report(format!("names no test, and does not begin with `{WAITS}` or `{NOT_APPLICABLE}`"));
        }
        for name in spans(held).filter(|name| !tests.contains(*name)) {
            report(format!("there is no test `{name}`"));
        }
    }
    for (name, numbers) in GROUPS {
        for number in numbers.iter().filter(|number| !seen.contains_key(number)) {
            problems.push(Problem::new(DOCUMENT, 0, format!("report {number} of group {name} is in no table")));
        }
    }
    if waiting > MOST_WAITING {
        let message = format!("{waiting} reports wait for something, and {MOST_WAITING} are the limit");
        problems.push(Problem::new(DOCUMENT, 0, message));
    }
    problems
}

/// The letter of the group that a row belongs to: its heading is such as `### A. Verification`.
fn group<'a>(row: &Row<'a>) -> Option<&'a str> {
    let (letter, _) = row.heading.strip_prefix("### ")?.split_once(". ")?;
    (letter.len() == 1).then_some(letter)
}

fn is_answered_whole(row: &Row<'_>) -> bool {
    GROUPS.iter().any(|(letter, _)| Some(*letter) == group(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &str) -> Vec<String> {
        let complete: String = GROUPS
            .iter()
            .map(|(letter, numbers)| {
                let row = |number: &u32| format!("| {number} | it | `held` |\n");
                let rows: String = numbers.iter().filter(|number| **number != 1).map(row).collect();
                format!("### {letter}. Group\n\n| no. | what | held by |\n|---|---|---|\n{rows}\n")
            })
            .collect();
        let text = format!("{complete}### A. More\n\n| no. | what | held by |\n|---|---|---|\n{rows}");
        let tests = BTreeSet::from(["held".to_owned(), "also".to_owned()]);
        check(&text, &tests).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn a_report_has_a_test_that_exists_or_says_why_not() {
        assert_eq!(found("| 1 | it | spec-core: `held`, `also`; more in words |\n"), [""; 0]);
        assert_eq!(found("| 1 | it | waits for the server |\n"), [""; 0]);
        assert_eq!(found("| 1 | it | not applicable: nothing of it is here |\n"), [""; 0]);
        assert_eq!(found("| 1 | it | `gone` |\n"), ["there is no test `gone`"]);
        assert!(found("| 1 | it | spec-core |\n")[0].contains("names no test"));
        assert!(found("| 1 | it | waits for |\n")[0].contains("names no test"));
        assert!(found("| 1 | it |\n")[0].contains("three cells"));
    }

    #[test]
    fn every_report_stands_in_one_row() {
        assert_eq!(found(""), ["report 1 of group A is in no table"]);
        assert!(found("| 1, 2 | it | `held` |\n")[0].contains("report 2 stands in line"));
        let waiting: String = (1000..1011).map(|number| format!("| {number} | it | waits for it |\n")).collect();
        assert_eq!(
            found(&format!("| 1 | it | `held` |\n{waiting}")),
            ["11 reports wait for something, and 10 are the limit"]
        );
    }

    #[test]
    fn tests_are_found_behind_their_attributes() {
        let source = "fn helper() {}\n#[test]\nfn a() {}\n    #[test]\n    #[ignore = \"why\"]\n    fn b(x in 0..3) {}\n    fn inner() {}\n";
        assert_eq!(tests_in(source).collect::<Vec<_>>(), ["a", "b"]);
        let claims = "pub fn it_holds(backend: &Backend<'_>) {\npub fn run(backend: usize) {\nfn room() {}\n";
        assert_eq!(tests_in(claims).collect::<Vec<_>>(), ["it_holds"]);
    }
}
