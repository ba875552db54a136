//! What `cargo xtask build-atb` starts: builds ATB with its own script, compiles the shim beside it, tries both, and says
//! what to export; or lays the simulator out like a CANN installation.

mod arguments;
mod compile;
mod hardware;
mod simulator;
mod smoke;
mod step;

use acl_sys::Host;
use anyhow::Result;
use arguments::{Arguments, Command};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use step::Step;

/// What is to be done, and what to tell when it is done.
#[derive(Debug, Default)]
struct Plan {
    /// What was found, and what is odd about it.
    findings: Vec<String>,
    steps: Vec<Step>,
    /// What is installed and what is not, and the lines to paste.
    outcome: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::Smoke { simulator: true, path, .. }) => smoke::simulator(path),
        Some(Command::Smoke { simulator: false, spec_decode, path }) => smoke::shim(path, *spec_decode),
        None => build(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("build-atb: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build(arguments: &Arguments) -> Result<()> {
    let target = target_folder();
    let plan = match arguments.sim {
        true => simulator::plan(arguments, &target)?,
        false => hardware::plan(arguments, &Host::current(), &target)?,
    };
    for finding in &plan.findings {
        println!("{finding}");
    }
    for step in &plan.steps {
        println!("+ {step}");
        if !arguments.dry_run {
            step.take()?;
        }
    }
    if arguments.dry_run {
        println!("nothing was done: --dry-run");
    }
    println!();
    for line in &plan.outcome {
        println!("{line}");
    }
    Ok(())
}

/// The workspace's root folder. Cargo says at run time where the package is; what was known when it was compiled is wrong
/// after a move of the checkout.
fn root() -> PathBuf {
    let said = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let own = said.filter(|folder| folder.ends_with("crates/atb-builder"));
    let own = own.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    own.ancestors().nth(2).map(Path::to_owned).unwrap_or(own)
}

/// The folder that cargo builds in: the one that this program was built in, unless it was moved.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let profile = program.ancestors().find(|folder| folder.ends_with("debug") || folder.ends_with("release"));
    profile.and_then(Path::parent).map_or_else(|| root().join("target"), Path::to_owned)
}
