//! Measures `spec`. `cargo xtask bench` builds the binary, brings the models, and starts this.
//!
//! - `measure`: ceilings of the machine, passes by rows, and every drafter on every prompt beside plain decoding;
//! - `peers`: llama.cpp on the same files and prompts;
//! - `serve`: a server with many clients;
//! - `soak`: a server under every kind of client;
//! - `compare`: two commits of this repository.
//!
//! Everything is measured from outside, through programs as users start them, in interleaved rounds; ratios are taken within a
//! round, and the answers with and without drafts have to be equal. `docs/performance.md` says how to read the results.

mod arrivals;
mod asking;
mod compare;
mod contention;
mod drafters;
mod engine;
mod events;
mod exposition;
mod generations;
mod http;
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
mod serve;
mod server;
mod soak;
mod startup;

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
    /// `spec serve` with many clients: throughput, dialogues, labels, peak; llama.cpp's server beside it
    Serve(serve::Options),
    /// Every kind of client at a server, and what has to hold afterwards
    Soak(soak::Options),
    /// Two commits, kernel by kernel and pass by pass
    Compare(compare::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Measure(options) => measure::run(&options),
        Command::Peers(options) => peers::run(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Soak(options) => soak::run(&options),
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
