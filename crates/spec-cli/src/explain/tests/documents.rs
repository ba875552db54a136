//! What `docs/explain.md` maps to diagnoses, against the table.

use super::super::diagnosis::DIAGNOSES;

const DOCUMENT: &str = include_str!("../../../../../docs/explain.md");
const TESTING: &str = include_str!("../../../../../docs/testing.md");

/// Rows of the table below a heading: its cells.
fn rows(document: &'static str, heading: &str) -> Vec<Vec<&'static str>> {
    let below = document.split_once(heading).map(|(_, below)| below).unwrap_or_default();
    let section = below.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    // The first is the table's head.
    rows.skip(1).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_diagnosis_is_described_and_nothing_else_is() {
    let described: Vec<&str> =
        rows(DOCUMENT, "### What it finds").iter().filter_map(|row| spans(row[0]).next()).collect();
    let named: Vec<&str> = DIAGNOSES.iter().map(|diagnosis| diagnosis.name).collect();
    assert_eq!(described, named, "in the order of the table");
}

#[test]
fn symptoms_log_lines_and_reports_lead_to_diagnoses_that_exist() {
    let rows = rows(DOCUMENT, "### From symptoms to diagnoses");
    assert!(rows.len() > 14, "{rows:?}");
    for row in &rows {
        let named: Vec<&str> = spans(row[1]).collect();
        assert!(!named.is_empty(), "{row:?}");
        for name in named {
            assert!(DIAGNOSES.iter().any(|diagnosis| diagnosis.name == name), "{name}: {row:?}");
        }
    }
    // The article's symptoms, and what its log says.
    for symptom in [
        "吞吐量不升反降",
        "生成结果质量差",
        "显存溢出",
        "draft prob 0.12 < target prob 0.15",
        "rollback at position 3",
        "kernel timeout",
    ] {
        assert!(rows.iter().any(|row| row[0].contains(symptom)), "{symptom}");
    }
    // Every report on speed.
    let reports = self::rows(TESTING, "### H. Performance and adaptivity");
    assert!(reports.len() > 8, "{reports:?}");
    for number in reports.iter().flat_map(|row| row[0].split(',')).map(str::trim) {
        let is_there = |row: &Vec<&str>| row[0].split(|c: char| !c.is_ascii_digit()).any(|word| word == number);
        assert!(rows.iter().any(is_there), "report {number}");
    }
}
