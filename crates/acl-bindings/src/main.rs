//! Makes the bindings of `acl-sys` from its headers, and compares them with the vendor's headers.

mod abi_check;
mod emit;
mod facts;
mod libclang;
mod model;
#[cfg(test)]
mod tests;
mod vendor;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};

#[derive(Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write crates/acl-sys/src/bindings from crates/acl-sys/headers
    Generate {
        /// Write nothing; fail when something would change
        #[arg(long)]
        check: bool,
    },
    /// Compare every signature, constant, enumeration, size and offset with the vendor's headers
    AbiCheck {
        /// Headers to compare with, such as a CANN installation; several folders make one set, the first one first.
        /// Without it, those in the wheel of torch-npu, which is downloaded once
        #[arg(long, value_name = "DIR")]
        headers: Vec<PathBuf>,
        /// List absent names without failing: for releases that are older than what we declare
        #[arg(long, requires = "headers")]
        allow_absent: bool,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let acl_sys = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("acl-sys");
    // SAFETY: no other thread has been started yet.
    unsafe { libclang::locate()? };
    let headers = model::read(&acl_sys)?;
    match arguments.command {
        Command::Generate { check } => emit::run(&acl_sys, &headers, check),
        Command::AbiCheck { headers: folders, allow_absent } => {
            abi_check::run(&acl_sys, &headers, &folders, allow_absent)
        }
    }
}
