//! The checks that are one or two cargo commands each, and the script that runs them all.

use crate::process::{self, cargo};
use crate::workspace;
use anyhow::{Context, Result};
use std::process::{Command, ExitCode, Stdio};

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

/// Regenerates the committed bindings of acl-sys; with `check`, fails when they are stale, and tests the generator.
pub(crate) fn bindings(check: bool) -> Result<()> {
    ensure_libclang()?;
    let mut generate = cargo(["run", "--quiet", "-p", "acl-bindings", "--", "generate"]);
    if !check {
        return process::run(&mut generate);
    }
    process::run(generate.arg("--check"))?;
    process::run(&mut cargo(["test", "--quiet", "-p", "acl-bindings", "--", "--ignored"]))
}

/// Regenerates the committed C header of spec-capi; with `check`, fails when it is stale.
pub(crate) fn headers(check: bool) -> Result<()> {
    let mut generate = cargo(["run", "--quiet", "-p", "capi-header", "--"]);
    if check {
        generate.arg("--check");
    }
    process::run(&mut generate)
}

/// Compares what acl-sys declares with the vendor's headers: a folder of them, else those of a pinned torch-npu.
pub(crate) fn abi_check(headers: Option<&str>) -> Result<()> {
    ensure_libclang()?;
    let mut check = cargo(["run", "--quiet", "-p", "acl-bindings", "--", "abi-check"]);
    if let Some(folder) = headers {
        check.args(["--headers", folder]);
    }
    process::run(&mut check)
}

/// Builds ATB and the shim, or lays the simulator out. Its program reads the options, and explains its failures itself.
pub(crate) fn build_atb(arguments: &[String]) -> Result<ExitCode> {
    let mut build = cargo(["run", "--quiet", "-p", "atb-builder", "--"]);
    let status = build.args(arguments).status().context("cargo could not be started")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// bindgen reads headers through libclang; Python's package of it is the one that installs everywhere.
fn ensure_libclang() -> Result<()> {
    let mut import = Command::new("python3");
    import.args(["-c", "import clang.cindex"]).stdout(Stdio::null()).stderr(Stdio::null());
    if std::env::var_os("LIBCLANG_PATH").is_some() || import.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    process::run(Command::new("python3").args(["-m", "pip", "install", "--quiet", "libclang"]))
}

/// What is proved by enumeration and takes too long for every run.
pub(crate) fn proof() -> Result<()> {
    process::run(&mut cargo(["test", "-p", "spec-core", "--lib", "--", "--ignored", "proof::long_"]))
}

/// The list of stages is the script's, so that there is one.
pub(crate) fn ci() -> Result<()> {
    process::run(Command::new("bash").arg("ci/run.sh").current_dir(workspace::root()))
}
