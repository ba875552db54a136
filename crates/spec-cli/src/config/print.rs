//! `--print-config`.

use std::fmt::Write as _;

use clap::ArgAction;
use clap::parser::ValueSource;

use super::{CommandLine, flags, raw, takes_several, variable};
use crate::nearest::nearest;

/// Column that remarks begin at, where values leave room.
const REMARKS: usize = 44;

/// The values in force, fit to be a configuration file.
pub(super) fn text(line: &CommandLine) -> String {
    let (command, matches) = (line.leaf(), line.leaf_matches());
    let mut out = format!("# What `spec {}` would run with.\n", line.path.join(" "));
    out += &match &line.file {
        Some(file) => format!("# Configuration file: {}\n", file.path.display()),
        None => "# Configuration file: none\n".to_owned(),
    };
    if !line.path.is_empty() {
        // Writing to a string does not fail.
        let _ = writeln!(out, "\n[{}]", line.path.join("."));
    }
    for (arg, long) in flags(command) {
        let id = arg.get_id().as_str();
        let values = raw(matches, id);
        let from = match (matches.value_source(id), line.origins.get(id)) {
            (Some(ValueSource::CommandLine), _) => "command line".to_owned(),
            (_, Some(origin)) => origin.to_string(),
            _ => "default".to_owned(),
        };
        let setting = match &values[..] {
            [] => format!("# {long} is not set"),
            _ if takes_several(arg) => {
                format!("{long} = [{}]", values.iter().map(|value| literal(value)).collect::<Vec<_>>().join(", "))
            }
            // A switch that was given has no value of its own.
            [value, ..] if value.is_empty() && matches!(arg.get_action(), ArgAction::SetTrue) => {
                format!("{long} = true")
            }
            [value, ..] => format!("{long} = {}", literal(value)),
        };
        let _ = match values.is_empty() {
            true => writeln!(out, "{setting}"),
            false => writeln!(out, "{setting:<REMARKS$} # {from}"),
        };
    }
    for (name, meant) in misspelt(line) {
        let _ = writeln!(out, "# {name} sets nothing; {meant} would");
    }
    out
}

/// A value of TOML that is read back as `value`.
fn literal(value: &str) -> String {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let number = digits.starts_with(|c: char| c.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0') || digits.starts_with("0."))
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
        && !digits.ends_with('.')
        && value.parse::<f64>().is_ok();
    match number || value == "true" || value == "false" {
        true => value.to_owned(),
        // JSON's escapes are TOML's too.
        false => serde_json::Value::from(value).to_string(),
    }
}

/// Variables that set no flag and are named much like one that would.
fn misspelt(line: &CommandLine) -> Vec<(&str, String)> {
    let known: Vec<String> = flags(line.leaf()).map(|(_, long)| variable(long)).collect();
    // These are read elsewhere.
    let other = ["SPEC_CONFIG", "SPEC_MODELS", "SPEC_CPU_ISA", "SPEC_ASCEND_SIM", "SPEC_ATB_MAX_WS_SIZE"];
    let unknown = line
        .environment
        .keys()
        .filter(|name| name.starts_with("SPEC_") && !known.contains(name) && !other.contains(&name.as_str()));
    unknown
        .filter_map(|name| {
            let meant = nearest(&name["SPEC_".len()..], known.iter().map(|known| &known["SPEC_".len()..]))?;
            Some((name.as_str(), format!("SPEC_{meant}")))
        })
        .collect()
}
