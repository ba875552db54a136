//! Reading a record back.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::{End, Line, Round, Run, VERSION};

/// Bytes of a line at most; a line of a record has a few hundred.
const MOST_BYTES: u64 = 1 << 20;

/// What a record holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    /// What ran: one for most records, more where something changed on the way.
    pub(crate) runs: Vec<Run>,
    /// In the order of their first rounds.
    pub(crate) requests: Vec<RequestRecord>,
    /// Whether its last line is not whole: the program that wrote it was ended.
    pub(crate) is_cut: bool,
}

/// The rounds of one request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestRecord {
    /// The run that it belongs to, of [`Record::runs`].
    pub(crate) run: usize,
    pub(crate) number: usize,
    pub(crate) rounds: Vec<Round>,
    pub(crate) end: Option<End>,
}

/// Reads a record.
///
/// # Errors
/// In one line that names file and line: what cannot be read, is no record, is damaged, or was written by a newer program.
pub(crate) fn read(path: &Path) -> Result<Record> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    parse(BufReader::new(file)).with_context(|| path.display().to_string())
}

pub(crate) fn parse(mut lines: impl BufRead) -> Result<Record> {
    let mut record = Record::default();
    let mut numbers = HashMap::new();
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        lines.by_ref().take(MOST_BYTES).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        let is_whole = bytes.ends_with(b"\n");
        let line = match line(&bytes, number) {
            Ok(line) => line,
            // Nothing is behind it.
            Err(_) if !is_whole && number > 1 && (bytes.len() as u64) < MOST_BYTES => {
                record.is_cut = true;
                break;
            }
            Err(error) => return Err(error),
        };
        match line {
            Line::Run(run) => record.runs.push(run),
            _ if record.runs.is_empty() => bail!("{}", foreign()),
            Line::Round(round) => {
                check(&round).map_err(|what| anyhow!("line {number} is damaged: {what}"))?;
                let run = record.runs.len() - 1;
                let index = *numbers.entry(round.request).or_insert_with(|| {
                    record.requests.push(RequestRecord { run, number: round.request, rounds: Vec::new(), end: None });
                    record.requests.len() - 1
                });
                record.requests[index].rounds.push(round);
            }
            Line::End(end) => match numbers.get(&end.request) {
                Some(&index) => record.requests[index].end = Some(end),
                None => bail!("line {number} is damaged: request {} ends and has no rounds", end.request),
            },
        }
    }
    if record.runs.is_empty() {
        bail!("it is empty; {}", MADE_BY);
    }
    Ok(record)
}

const MADE_BY: &str = "`spec generate --record FILE` and its like write records";

fn foreign() -> String {
    format!("it is no record of rounds; {MADE_BY}")
}

fn line(bytes: &[u8], number: usize) -> Result<Line> {
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(_) if number == 1 => bail!("{}", foreign()),
        Err(error) => bail!("line {number} is damaged: {error}"),
    };
    let is_run = value["kind"] == "run";
    if number == 1 && !is_run {
        bail!("{}", foreign());
    }
    match value["version"].as_u64() {
        Some(version) if is_run && version > VERSION.into() => {
            bail!("line {number}: it has version {version}, and this program reads up to {VERSION}; use a newer `spec`")
        }
        _ => serde_json::from_value(value).map_err(|error| anyhow!("line {number} is damaged: {error}")),
    }
}

/// What does not fit together in a round.
fn check(round: &Round) -> Result<(), String> {
    /// Rows of a pass, or tokens of a round, beyond which they are no figures of a run; and seconds of a part of one.
    const MOST: (usize, f64) = (1 << 20, 1e9);
    let Round { by_depth, accepted, emitted, length, seconds, read, company, budget, .. } = round;
    if *accepted > by_depth.len() || *accepted > *emitted || *emitted > by_depth.len() + 1 {
        return Err(format!("{emitted} tokens, {accepted} of them drafted, from {} depths", by_depth.len()));
    }
    if *length == 0 || by_depth.iter().any(|&nodes| nodes == 0 || nodes > 1 << 16) || by_depth.len() > 1 << 16 {
        return Err("a text of no tokens, or a depth of no nodes, or too many".to_owned());
    }
    let nodes: usize = by_depth.iter().sum();
    if [nodes, *read, *company, *budget].into_iter().any(|count| count > MOST.0) {
        return Err("a pass of more rows than any has".to_owned());
    }
    let parts = [
        seconds.draft,
        seconds.preparation,
        seconds.submit_to_passed,
        seconds.ahead,
        seconds.late,
        seconds.sample,
        seconds.rollback,
    ];
    match parts.iter().all(|seconds| (0.0..=MOST.1).contains(seconds)) {
        true => Ok(()),
        false => Err("a time that is none".to_owned()),
    }
}
