//! The configuration file: TOML whose keys are the long names of flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Command;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Environment, Origin, flags};
use crate::nearest::nearest;

/// What is said of a flag outside the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Setting {
    pub(super) values: Vec<String>,
    pub(super) origin: Origin,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// Settings by the table that they stand in: `[]` above all tables, `["bench", "forward"]` in `[bench.forward]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    tables: BTreeMap<Vec<String>, BTreeMap<String, Setting>>,
}

impl File {
    /// The file that was asked for, else the user's own where there is one.
    pub(super) fn find(
        asked: Option<&PathBuf>,
        environment: &Environment,
        command: &Command,
    ) -> Result<Option<Self>, String> {
        let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let asked = asked.cloned().or_else(|| variable("SPEC_CONFIG").map(PathBuf::from));
        let own = || {
            let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from);
            let folder = folder.or_else(|| variable("HOME").map(|home| Path::new(home).join(".config")));
            folder.map(|folder| folder.join("spec/config.toml")).filter(|path| path.exists())
        };
        if asked.as_deref() == Some(Path::new("none")) {
            return Ok(None);
        }
        let Some(path) = asked.or_else(own) else { return Ok(None) };
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("configuration file {}: {error}", path.display()))?;
        Self::parse(path, &text, command).map(Some)
    }

    /// Reads `text`, every key of which must be a flag of some command.
    pub(super) fn parse(path: PathBuf, text: &str, command: &Command) -> Result<Self, String> {
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(String::new(), |span| format!(":{}", line_of(text, span.start)));
            format!("{}{line}: {}", path.display(), error.message())
        })?;
        let mut reading = Reading { path: &path, text, tables: BTreeMap::new() };
        reading.table(table.get_ref(), &[], command)?;
        let tables = reading.tables;
        Ok(Self { path, tables })
    }

    /// What the file says of a flag of the command at `path`: in the command's own table, else in one above.
    pub(super) fn setting(&self, path: &[String], long: &str) -> Option<Setting> {
        let tables = (0..=path.len()).rev().filter_map(|length| self.tables.get(&path[..length]));
        tables.filter_map(|table| table.get(long)).next().cloned()
    }
}

fn line_of(text: &str, byte: usize) -> usize {
    1 + text.as_bytes().iter().take(byte).filter(|&&byte| byte == b'\n').count()
}

struct Reading<'a> {
    path: &'a Path,
    text: &'a str,
    tables: BTreeMap<Vec<String>, BTreeMap<String, Setting>>,
}

impl Reading<'_> {
    fn table(&mut self, table: &DeTable<'_>, at: &[String], command: &Command) -> Result<(), String> {
        for (key, value) in table {
            let origin = Origin::File { path: self.path.to_owned(), line: line_of(self.text, key.span().start) };
            let name = key.get_ref().replace('_', "-");
            if let DeValue::Table(below) = value.get_ref() {
                let Some(subcommand) = command.find_subcommand(&name) else {
                    let names = command.get_subcommands().map(Command::get_name);
                    return Err(unknown(&origin, "table", key.get_ref(), "command", nearest(&name, names)));
                };
                let path: Vec<String> = at.iter().cloned().chain([name]).collect();
                self.table(below, &path, subcommand)?;
                continue;
            }
            let known = longs(command);
            if !known.contains(&name.as_str()) {
                let whose = if at.is_empty() { "flag".to_owned() } else { format!("flag of `spec {}`", at.join(" ")) };
                return Err(unknown(&origin, "key", key.get_ref(), &whose, nearest(&name, known)));
            }
            let values = values(value).ok_or_else(|| {
                format!("{origin}: `{}` takes text, a number, true or false, or a list of them", key.get_ref())
            })?;
            self.tables.entry(at.to_vec()).or_default().insert(name, Setting { values, origin });
        }
        Ok(())
    }
}

fn unknown(origin: &Origin, kind: &str, name: &str, whose: &str, nearest: Option<&str>) -> String {
    let meant = nearest.map_or(String::new(), |nearest| format!("; did you mean `{nearest}`?"));
    format!("{origin}: {kind} `{name}` is no {whose}{meant}")
}

/// The long names of the flags of a command and of all below it.
fn longs(command: &Command) -> Vec<&str> {
    let own = flags(command).map(|(_, long)| long);
    own.chain(command.get_subcommands().flat_map(longs)).collect()
}

/// Values as the command line would have them.
fn values(value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    match value.get_ref() {
        DeValue::Array(items) => items.iter().map(|item| scalar(item.get_ref())).collect(),
        one => Some(vec![scalar(one)?]),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i128::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}
