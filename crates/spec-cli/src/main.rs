//! The binary `spec`.

mod args;
mod ascend;
mod bench;
mod demo;
mod device;
mod doctor;
#[cfg(test)]
mod documented;
mod generate;
mod inspect;
mod printer;
mod pull;
mod report;
mod session;
mod tokenize;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Bench, Cli, Command};

/// The command line was wrong: exit code 2.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of the command line, told in one line.
fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Generate(args) => generate::run(args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Bench(args) => match args.bench {
            Bench::Forward(args) => bench::forward(&args),
        },
        Command::Demo(args) => demo::run(&args),
        Command::Pull(args) => pull::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is::<Usage>() { 2 } else { 1 };
            eprintln!("spec: {}", one_line(&format!("{error:#}")));
            ExitCode::from(code)
        }
    }
}

/// Help and version go to standard output; anything else is one line, and the way to more.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            // Nothing is left to say when the terminal has gone.
            let _ = error.print();
            ExitCode::from(if help { 2 } else { 0 })
        }
        _ => {
            let text = error.to_string();
            let message = text.split("\n\nUsage:").next().unwrap_or(&text);
            let message = message.split("\n\nFor more information").next().unwrap_or(message);
            let message = one_line(message.trim_start_matches("error: "));
            eprintln!("spec: {message}; `spec {}--help` lists what there is", subcommand());
            ExitCode::from(2)
        }
    }
}

fn subcommand() -> String {
    let known = ["generate", "inspect", "tokenize", "bench", "demo", "pull", "doctor"];
    std::env::args().nth(1).filter(|name| known.contains(&name.as_str())).map_or(String::new(), |name| name + " ")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The reader of our output has gone: not a failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
