//! Measures `spec`. `cargo xtask bench` builds the binary, brings the models, and starts this.
//!
//! - `measure`: ceilings of the machine, passes by rows, and every drafter on every prompt beside plain decoding;
//! - `peers`: llama.cpp on the same files and prompts;
//! - `compare`: two commits of this repository.
//!
//! Everything is measured from outside, through programs as users start them, in interleaved rounds; ratios are taken within a
//! round, and the answers with and without drafts have to be equal. `docs/performance.md` says how to read the results.

mod compare;
mod contention;
mod drafters;
mod engine;
mod generations;
mod launcher;
mod machine;
mod measure;
mod options;
mod passes;
mod peers;
mod plots;
mod progress;
mod prompts;
mod reach;
mod startup;
mod statistics;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "spec-bench", about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ceilings, passes by rows, and every drafter on every prompt
    Measure(measure::Options),
    /// llama.cpp on the same files and prompts, and what ours should reach beside it
    Peers(peers::Options),
    /// Two commits, kernel by kernel and pass by pass
    Compare(compare::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Measure(options) => measure::run(&options),
        Command::Peers(options) => peers::run(&options),
        Command::Compare(options) => compare::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
