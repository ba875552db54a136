//! Starting other programs: each is printed before it runs, and a failure names the command that failed.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// The cargo that started this program, in the workspace's root.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
}

/// Prints and runs `command`, its output going to the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    eprintln!("+ {line}");
    let status = command.status().with_context(|| format!("`{line}` could not be started"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs `command` in silence and returns what it printed on standard output.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let line = describe(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("`{line}` could not be started"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed something other than UTF-8"))
}

/// Installs the cargo subcommand `cargo-NAME`, with `options` of `cargo install`, when it is missing.
pub(crate) fn ensure_cargo_tool(name: &str, options: &[&str]) -> Result<()> {
    let mut version = cargo([name, "--version"]);
    if version.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let package = format!("cargo-{name}");
    eprintln!("{package} is missing; installing it, which takes a few minutes once");
    // These tools wait for other programs most of the time: what optimising them costs here is never earned back.
    run(cargo(["install", "--locked", &package])
        .args(options)
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0"))
    .with_context(|| format!("{package} is needed here; install it by hand with `cargo install --locked {package}`"))
}

fn describe(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut line = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        line.push(' ');
        if argument.is_empty() || argument.contains([' ', '\'', '(', '|', '&', '$']) {
            line.push_str(&format!("'{}'", argument.replace('\'', r"'\''")));
        } else {
            line.push_str(&argument);
        }
    }
    line
}
