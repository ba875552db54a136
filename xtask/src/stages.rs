//! The checks that are one or two cargo commands each, and the script that runs them all.

use crate::process::{self, cargo};
use crate::workspace;
use anyhow::Result;
use std::process::Command;

pub(crate) fn lint() -> Result<()> {
    process::run(&mut cargo(["fmt", "--all", "--check"]))?;
    process::run(&mut cargo(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))
}

pub(crate) fn docs() -> Result<()> {
    process::run(cargo(["doc", "--workspace", "--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Advisories are left out: their database is a download of its own, and a new advisory should not fail an old commit.
pub(crate) fn deny() -> Result<()> {
    process::ensure_cargo_tool("deny", &[])?;
    process::run(&mut cargo(["deny", "--config", "ci/deny.toml", "check", "bans", "licenses", "sources"]))
}

pub(crate) fn no_std() -> Result<()> {
    process::run(&mut cargo(["build", "--release", "--manifest-path", "ci/no-std/Cargo.toml"]))
}

/// What is proved by enumeration and takes too long for every run.
pub(crate) fn proof() -> Result<()> {
    process::run(&mut cargo(["test", "-p", "spec-core", "--lib", "--", "--ignored", "proof::long_"]))
}

/// The list of stages is the script's, so that there is one.
pub(crate) fn ci() -> Result<()> {
    process::run(Command::new("bash").arg("ci/run.sh").current_dir(workspace::root()))
}
