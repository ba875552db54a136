//! The binary `spec`.

mod acceptance_watch;
mod args;
mod ascend;
mod audit;
mod batch;
mod bench;
mod cache;
mod chat;
mod color;
mod config;
mod demo;
mod device;
mod doctor;
#[cfg(test)]
mod documented;
mod explain;
mod generate;
mod inspect;
mod last_run;
mod logs;
mod manual;
mod memory;
mod nearest;
mod observers;
mod printer;
mod profile;
mod pull;
mod quantize;
mod record;
mod refusal;
mod report;
mod serve;
mod session;
mod storage;
mod tokenize;
mod tune;

use std::process::ExitCode;

use args::{Bench, Cli, Command};
use config::CommandLine;
use refusal::{Usage, one_line, refuse, usage};

fn main() -> ExitCode {
    // SAFETY: the program has just begun, and has started no thread that could read the environment meanwhile.
    if let Err(error) = unsafe { logs::prepare_device_logs() } {
        return end(Err(error));
    }
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let line = match CommandLine::read(std::env::args_os().collect(), variables.collect()) {
        Ok(line) => line,
        Err(refusal) => return refuse(&refusal),
    };
    if line.prints() {
        return end(manual::print(&line.print()));
    }
    match line.parsed() {
        Ok(Cli { command, log_format, .. }) => {
            end(logs::start(log_format, &command, &line).and_then(|()| run(command, &line)))
        }
        Err(refusal) => refuse(&refusal),
    }
}

fn run(command: Command, line: &CommandLine) -> anyhow::Result<ExitCode> {
    match command {
        Command::Generate(args) => generate::run(*args),
        Command::Chat(args) => chat::run(*args, line),
        Command::Serve(args) => serve::run(*args),
        Command::Batch(args) => batch::run(*args),
        Command::Audit(args) => audit::run(*args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Bench(args) => match args.bench {
            Bench::Forward(args) => bench::forward(&args),
            Bench::Sweep(args) => bench::sweep(&args),
        },
        Command::Demo(args) => demo::run(&args),
        Command::Profile(args) => profile::run(args, line),
        Command::Tune(args) => tune::run(&args),
        Command::Explain(args) => explain::run(&args, line),
        Command::Pull(args) => pull::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    }
}

fn end(result: anyhow::Result<ExitCode>) -> ExitCode {
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

/// The reader of our output has gone: not a failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
