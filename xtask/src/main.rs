//! The repository's own commands: `cargo xtask help` lists them.
//!
//! Kept tiny, since everyone who clones the repository compiles it first: anyhow is its only dependency, and heavy
//! work is a crate of its own that a command here starts.

mod arguments;
mod bench;
mod binary;
mod demo;
mod fetch;
mod help;
mod oracles;
mod page;
mod process;
mod serving;
mod stages;
mod testing;
mod tidy;
mod workspace;

use arguments::Arguments;
use std::process::ExitCode;

/// Told apart from other failures because it exits with 2 instead of 1.
#[derive(Debug)]
struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}; `cargo xtask help` lists the commands", self.0)
    }
}

impl std::error::Error for UsageError {}

fn run(mut arguments: Arguments) -> anyhow::Result<ExitCode> {
    let command = arguments.next_word();
    match command.as_deref() {
        None | Some("help" | "--help" | "-h") => {
            let topic = arguments.next_word();
            arguments.finish()?;
            print!("{}", help::text(topic.as_deref())?);
        }
        Some(command) if arguments.take_switch("--help") || arguments.take_switch("-h") => {
            print!("{}", help::text(Some(command))?);
        }
        Some("bench") => return bench::run(&bench::Options::parse(arguments)?),
        Some("soak") => return serving::soak(&serving::Soak::parse(arguments)?),
        Some("demo") => return demo::run(&demo::Options::parse(arguments)?),
        Some("build-atb") => return stages::build_atb(&arguments.rest()),
        Some("oracles") => {
            let name = arguments.next_word();
            arguments.finish()?;
            oracles::make(name.as_deref())?;
        }
        Some("page") => {
            let screenshot = arguments.take_value("--screenshot")?;
            arguments.finish()?;
            page::run(screenshot.as_deref())?;
        }
        Some(command) => {
            let pair = matches!(command, "test" | "fetch") && arguments.take_switch("--pair");
            let gemma = matches!(command, "test" | "fetch") && arguments.take_switch("--gemma");
            let check = matches!(command, "bindings" | "headers") && arguments.take_switch("--check");
            let headers = if command == "abi-check" { arguments.take_value("--headers")? } else { None };
            arguments.finish()?;
            match command {
                "test" => testing::run(pair, gemma)?,
                "fetch" => {
                    let paths = if gemma { fetch::gemma()? } else { fetch::models(pair)? };
                    for path in paths {
                        println!("{}", path.display());
                    }
                }
                "clients" => serving::clients()?,
                "tidy" => tidy::run()?,
                "lint" => stages::lint()?,
                "docs" => stages::docs()?,
                "deny" => stages::deny()?,
                "no-std" => stages::no_std()?,
                "bindings" => stages::bindings(check)?,
                "headers" => stages::headers(check)?,
                "abi-check" => stages::abi_check(headers.as_deref())?,
                "proof" => stages::proof()?,
                "ci" => stages::ci()?,
                unknown => return Err(UsageError(format!("no command `{unknown}`")).into()),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    match run(Arguments::from_environment()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}
