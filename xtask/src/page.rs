//! `cargo xtask page`: the server's page in a browser, on a real model.

use crate::process::{self, cargo};
use crate::{binary, fetch, workspace};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Names under which distributions install it.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Drives the page as a reader would; with `screenshot`, writes the picture that the documents show.
///
/// # Errors
/// A claim about the page that does not hold, and a browser that cannot be had: nothing is skipped for it.
pub(crate) fn run(screenshot: Option<&str>) -> Result<()> {
    let tests = workspace::root().join("crates/spec-server/tests/page");
    let mut node = Command::new("node");
    if !node.arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        bail!("node is needed to drive the page; install version 20 or newer");
    }
    process::run(Command::new("node").arg("--test").arg(tests.join("parts.test.mjs")))?;
    let browser = browser()?;
    let model = fetch::models(false)?.into_iter().next().context("the table of models is empty")?;
    process::run(&mut cargo(["build", "-p", "spec-cli"]))?;
    let spec = binary::target_folder()?.join("debug").join("spec");
    let mut drive = Command::new("node");
    drive.arg(tests.join("drive.mjs")).args([&spec, &model, &browser]).args(screenshot);
    process::run(&mut drive)
}

/// The browser that `SPEC_CHROMIUM` names, one that is there, or the system's package of it.
fn browser() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("SPEC_CHROMIUM") {
        return Ok(named.into());
    }
    let there = || {
        BROWSERS.into_iter().find(|name| {
            let mut version = Command::new(name);
            version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        })
    };
    if there().is_none() {
        // A machine that is new has no lists of packages yet.
        process::run(Command::new("apt-get").arg("update"))
            .and_then(|()| {
                let install = ["install", "--yes", "--no-install-recommends", "chromium"];
                process::run(Command::new("apt-get").args(install).env("DEBIAN_FRONTEND", "noninteractive"))
            })
            .context("a browser is needed; install chromium, or name one with SPEC_CHROMIUM")?;
    }
    there().map(PathBuf::from).context("chromium was installed and does not start; name a browser with SPEC_CHROMIUM")
}
