//! What is said of a command line that cannot be used.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use crate::args::Cli;
use crate::config::Refusal;

/// The command line was wrong: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of the command line, told in one line.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Help and version go to standard output; anything else is one line, and the way to more.
pub(crate) fn refuse(refusal: &Refusal) -> ExitCode {
    let error = match refusal {
        Refusal::Config(line) => {
            eprintln!("spec: {}", one_line(line));
            return ExitCode::from(2);
        }
        Refusal::Clap(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            // Nothing is left to say when the terminal has gone.
            let _ = error.print();
            ExitCode::from(if help { 2 } else { 0 })
        }
        _ => {
            eprintln!("spec: {}; `spec {}--help` lists what there is", sentence(error), subcommand());
            ExitCode::from(2)
        }
    }
}

/// What clap has to say, without its usage lines.
pub(crate) fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or(&text);
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    one_line(message.trim_start_matches("error: "))
}

fn subcommand() -> String {
    let command = Cli::command();
    let first = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    first.filter(|name| command.find_subcommand(name).is_some()).map_or(String::new(), |name| name + " ")
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
