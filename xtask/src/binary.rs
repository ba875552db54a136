//! Programs of this workspace, built optimised: what demos show and benchmarks measure, and what measures it.

use crate::process::{self, cargo};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Builds the program `name` of `package`; its path.
pub(crate) fn build(package: &str, name: &str) -> Result<PathBuf> {
    process::run(&mut cargo(["build", "--release", "-p", package]))?;
    built("release", package, name)
}

/// Builds it as the tests do, which have built it already where they ran; the kernels are optimised there too.
pub(crate) fn build_quick(package: &str, name: &str) -> Result<PathBuf> {
    process::run(&mut cargo(["build", "-p", package]))?;
    built("debug", package, name)
}

fn built(profile: &str, package: &str, name: &str) -> Result<PathBuf> {
    let binary = target_folder()?.join(profile).join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !binary.is_file() {
        bail!("cargo built {package}, but {} is not there", binary.display());
    }
    Ok(binary)
}

/// Runs a program that reports its failures itself; its code becomes this program's.
pub(crate) fn run(command: &mut Command) -> Result<ExitCode> {
    let status =
        command.status().with_context(|| format!("{} cannot be started", command.get_program().to_string_lossy()))?;
    Ok(match status.code() {
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        // Ended by a signal.
        None => ExitCode::FAILURE,
    })
}

/// The folder above the profile folder that this program was built into: wherever the user's settings put the target folder,
/// all builds obeyed them.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own path")?;
    let target = own.parent().and_then(|profile| profile.parent());
    Ok(target.context("this program lies outside a target folder")?.to_path_buf())
}
