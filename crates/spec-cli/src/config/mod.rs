//! Where the value of a flag comes from: the command line, else the environment, else the configuration file, else
//! its default.
//!
//! Flags are defined once, in `args`. This layer knows none of them by name: it takes the flags of the command that was
//! given, looks each up in the environment and in the file, and makes what it finds the flag's default.

mod file;
mod print;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use crate::args::Cli;
use file::{File, Setting};

/// Variables of the environment.
pub(crate) type Environment = BTreeMap<String, String>;

/// Why a command line cannot be used.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// What clap says, which may also be help or the version.
    Clap(clap::Error),
    /// One line about the configuration.
    Config(String),
}

impl From<clap::Error> for Refusal {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Environment(String),
    File { path: PathBuf, line: usize },
}

/// A command line with what the environment and the file add to it.
#[derive(Debug)]
pub(crate) struct CommandLine {
    words: Vec<OsString>,
    environment: Environment,
    command: Command,
    matches: ArgMatches,
    /// The subcommand, and its own where it has one.
    path: Vec<String>,
    /// By id of the flag, for those that are not from the command line.
    origins: BTreeMap<String, Origin>,
    file: Option<File>,
}

impl CommandLine {
    /// Reads `words`, the program's name first.
    pub(crate) fn read(words: Vec<OsString>, environment: Environment) -> Result<Self, Refusal> {
        let command = Cli::command();
        // What was asked for, before anything is known to be right. Requests for help are answered here.
        let seen = lenient(command.clone()).try_get_matches_from(&words)?;
        let file = File::find(seen.get_one::<PathBuf>("config"), &environment, &command).map_err(Refusal::Config)?;
        let path = path(&seen);
        let leaf = leaf(&command, &path);
        let settings = settings(leaf, &path, &environment, file.as_ref());
        // A flag that is on by its setting can be turned off, which counts as given.
        let command = at(command, &path, &mut |leaf| with_switches(leaf, &settings));
        let seen = lenient(command.clone()).try_get_matches_from(&words)?;
        let given = given(&seen);

        let mut origins = BTreeMap::new();
        let mut refused = None;
        let command = at(command, &path, &mut |leaf| {
            let free = |id: &str| !given.iter().any(|given| given == id || excludes(&leaf, given, id));
            let chosen: BTreeMap<&str, &Setting> =
                settings.iter().filter(|(id, _)| free(id)).map(|(id, setting)| (id.as_str(), setting)).collect();
            let wrong = chosen.iter().find_map(|(id, setting)| check(&leaf, id, setting).err());
            if wrong.is_some() {
                refused = wrong;
                return leaf;
            }
            origins = chosen.iter().map(|(&id, setting)| (id.to_owned(), setting.origin.clone())).collect();
            with_defaults(leaf, &chosen)
        });
        if let Some(refused) = refused {
            return Err(Refusal::Config(refused));
        }
        let command = if seen.get_flag("print_config") { at(command, &path, &mut optional) } else { command };
        let matches =
            at(command.clone(), &path, &mut |leaf| leaf.args_override_self(true)).try_get_matches_from(&words)?;
        Ok(Self { words, environment, command, matches, path, origins, file })
    }

    /// The same with more words at its end, which count where a flag was given before.
    pub(crate) fn with(&self, words: &[String]) -> Result<Self, Refusal> {
        let words = self.words.iter().cloned().chain(words.iter().map(OsString::from)).collect();
        Self::read(words, self.environment.clone())
    }

    /// Another command in the same environment.
    pub(crate) fn of_command(&self, words: Vec<OsString>) -> Result<Self, Refusal> {
        let program = self.words.first().cloned().unwrap_or_default();
        Self::read(std::iter::once(program).chain(words).collect(), self.environment.clone())
    }

    /// What was read, typed.
    pub(crate) fn parsed(&self) -> Result<Cli, Refusal> {
        Ok(Cli::from_arg_matches(&self.matches).map_err(|error| error.format(&mut self.command.clone()))?)
    }

    /// Whether the values in force are to be printed in place of doing anything.
    pub(crate) fn prints(&self) -> bool {
        self.matches.get_flag("print_config")
    }

    /// The values in force, as a configuration file, each with where it came from.
    pub(crate) fn print(&self) -> String {
        print::text(self)
    }

    /// Whether the command has a flag, by its long name.
    pub(crate) fn has(&self, long: &str) -> bool {
        self.leaf().get_arguments().any(|arg| arg.get_long() == Some(long))
    }

    /// The value in force of a flag of the command, by its long name.
    pub(crate) fn value(&self, long: &str) -> Option<String> {
        let arg = self.leaf().get_arguments().find(|arg| arg.get_long() == Some(long))?;
        let values: Vec<String> = raw(self.leaf_matches(), arg.get_id().as_str());
        (!values.is_empty()).then(|| values.join(" "))
    }

    /// A variable of the environment; `None` when it is empty too.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn leaf(&self) -> &Command {
        leaf(&self.command, &self.path)
    }

    fn leaf_matches(&self) -> &ArgMatches {
        let mut matches = &self.matches;
        while let Some((_, below)) = matches.subcommand() {
            matches = below;
        }
        matches
    }
}

/// The values of a flag as they were written.
fn raw(matches: &ArgMatches, id: &str) -> Vec<String> {
    let values = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
    values.map(|value| value.to_string_lossy().into_owned()).collect()
}

/// The flag that names one run to `spec explain`, which is nothing to keep; its variable is that of the log.
const NOT_KEPT: &str = "log";

/// The flags that the environment and the file may set: those with a long name that are no global ones.
fn flags(command: &Command) -> impl Iterator<Item = (&Arg, &str)> {
    let own = |arg: &&Arg| {
        !arg.is_global_set() && !matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpLong | ArgAction::Version)
    };
    let named = command.get_arguments().filter(own).filter_map(|arg| Some((arg, arg.get_long()?)));
    named.filter(|&(_, long)| long != NOT_KEPT)
}

/// The variable that sets a flag.
fn variable(long: &str) -> String {
    format!("SPEC_{}", long.replace('-', "_").to_ascii_uppercase())
}

/// Whether a flag takes several values.
fn takes_several(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append) || arg.get_value_delimiter().is_some()
}

/// What the environment, else the file, says of the flags of a command, by their ids.
fn settings(
    command: &Command,
    path: &[String],
    environment: &Environment,
    file: Option<&File>,
) -> BTreeMap<String, Setting> {
    let mut settings = BTreeMap::new();
    for (arg, long) in flags(command) {
        let name = variable(long);
        let setting = match environment.get(&name).filter(|value| !value.is_empty()) {
            Some(value) => Some(Setting { values: vec![value.clone()], origin: Origin::Environment(name) }),
            None => file.and_then(|file| file.setting(path, long)),
        };
        settings.extend(setting.map(|setting| (arg.get_id().to_string(), setting)));
    }
    settings
}

/// The subcommands that were named.
fn path(matches: &ArgMatches) -> Vec<String> {
    let (mut path, mut matches) = (Vec::new(), matches);
    while let Some((name, below)) = matches.subcommand() {
        path.push(name.to_owned());
        matches = below;
    }
    path
}

fn leaf<'a>(command: &'a Command, path: &[String]) -> &'a Command {
    path.iter().fold(command, |command, name| command.find_subcommand(name).unwrap_or(command))
}

/// Changes the command at the end of `path`.
fn at(command: Command, path: &[String], change: &mut dyn FnMut(Command) -> Command) -> Command {
    match path.split_first() {
        Some((name, rest)) => command.mut_subcommand(name, |below| at(below, rest, change)),
        None => change(command),
    }
}

/// A command that says what it can of a command line with mistakes.
fn lenient(command: Command) -> Command {
    command.ignore_errors(true)
}

/// Ids of the flags that were given.
fn given(matches: &ArgMatches) -> Vec<String> {
    let mut matches = matches;
    while let Some((_, below)) = matches.subcommand() {
        matches = below;
    }
    let given = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    matches.ids().filter(given).map(ToString::to_string).collect()
}

/// Whether the two flags cannot both be set.
fn excludes(command: &Command, one: &str, other: &str) -> bool {
    let find = |id: &str| command.get_arguments().find(|arg| arg.get_id() == id);
    let names = |a: &str, b: &str| {
        find(a).is_some_and(|a| command.get_arg_conflicts_with(a).iter().any(|arg| arg.get_id() == b))
    };
    let together = command.get_groups().any(|group| {
        let has = |id: &str| group.get_args().any(|arg| arg == id);
        !group.clone().is_multiple() && has(one) && has(other)
    });
    names(one, other) || names(other, one) || together
}

/// Flags without a value that a setting names get one, so that the command line can say `--flag=false`.
fn with_switches(command: Command, settings: &BTreeMap<String, Setting>) -> Command {
    command.mut_args(|arg| {
        if !matches!(arg.get_action(), ArgAction::SetTrue) || !settings.contains_key(arg.get_id().as_str()) {
            return arg;
        }
        arg.action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .value_name("true|false")
            .value_parser(BoolishValueParser::new())
            .default_missing_value("true")
            .default_value("false")
    })
}

/// Whether a setting is a value of its flag, by the flag's own parser.
fn check(command: &Command, id: &str, setting: &Setting) -> Result<(), String> {
    let from = setting.origin.to_string();
    let Some(arg) = command.get_arguments().find(|arg| arg.get_id() == id) else { return Ok(()) };
    let long = arg.get_long().unwrap_or(id);
    if setting.values.len() != 1 && !takes_several(arg) {
        return Err(format!("{from}: --{long} takes one value, not a list"));
    }
    let words = setting.values.iter().map(|value| format!("--{long}={value}"));
    let words: Vec<String> = std::iter::once(command.get_name().to_owned()).chain(words).collect();
    match optional(command.clone()).try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{from}: {}", crate::refusal::sentence(&error))),
    }
}

/// The command with nothing required.
fn optional(command: Command) -> Command {
    let groups: Vec<String> = command.get_groups().map(|group| group.get_id().to_string()).collect();
    let command = command.mut_args(|arg| arg.required(false));
    groups.into_iter().fold(command, |command, group| command.mut_group(group, |group| group.required(false)))
}

/// The settings as defaults. What has one is no longer asked for.
fn with_defaults(command: Command, settings: &BTreeMap<&str, &Setting>) -> Command {
    let satisfied: Vec<String> = command
        .get_groups()
        .filter(|group| group.get_args().any(|arg| settings.contains_key(arg.as_str())))
        .map(|group| group.get_id().to_string())
        .collect();
    let command = command.mut_args(|arg| {
        let Some(setting) = settings.get(arg.get_id().as_str()) else { return arg };
        let arg = if setting.values.len() > 1 { arg.num_args(1..) } else { arg };
        arg.required(false).default_values(setting.values.clone())
    });
    satisfied.into_iter().fold(command, |command, group| command.mut_group(group, |group| group.required(false)))
}
