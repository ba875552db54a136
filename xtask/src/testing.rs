//! `cargo xtask test`: everything that has to hold, on a real model too.

use crate::fetch;
use crate::process::{self, cargo};
use crate::serving;
use crate::workspace;
use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Runs all tests; with `pair`, those that need the two Qwen models as well, with `gemma`, those that need Gemma 3.
///
/// # Errors
/// The first step that fails ends it. A model that cannot be had is such a failure: nothing is skipped for it.
pub(crate) fn run(pair: bool, gemma: bool) -> Result<()> {
    // Its default features, an updater of itself and probes for tracing, bring an HTTP client that is not wanted here.
    process::ensure_cargo_tool("nextest", &["--no-default-features"])?;
    // Resolved before the first test is compiled, so that a missing model is known after seconds.
    let small = fetch::models(false)?;
    if pair {
        fetch::models(true)?;
    }
    if gemma {
        fetch::gemma()?;
    }
    let cache = fetch::cache_folder()?;

    process::run(&mut nextest(&cache, ["--workspace"]))?;
    let ignored = [(pair, "test(/(^|::)real_qwen_pair/)"), (gemma, "test(/(^|::)real_gemma/)")];
    for (_, filter) in ignored.into_iter().filter(|(wanted, _)| *wanted) {
        process::run(&mut nextest(&cache, ["--workspace", "--run-ignored", "all", "-E", filter]))?;
    }
    process::run(cargo(["test", "--doc", "--workspace"]).env("SPEC_MODELS", &cache))?;
    for model in &small {
        run_examples(model)?;
    }
    check_each_alone(&cache)?;
    serving::test()
}

fn nextest<const N: usize>(cache: &Path, arguments: [&str; N]) -> Command {
    let mut command = cargo(["nextest", "run"]);
    if std::env::var_os("CI").is_some() {
        command.args(["--profile", "ci"]);
    }
    command.args(arguments).env("SPEC_MODELS", cache);
    command
}

/// Examples that measure, or that need an NPU: compiled with the tests, not run.
const NOT_RUN: [(&str, &str); 4] =
    [("acl-sys", "devices"), ("spec-core", "row_costs"), ("spec-cpu", "kernels"), ("spec-cpu", "round_costs")];

/// Every other example gets the model's file as its one argument; those without a use for it ignore it.
fn run_examples(model: &Path) -> Result<()> {
    for package in workspace::packages()? {
        for example in package.examples() {
            if NOT_RUN.contains(&(package.name.as_str(), example.as_str())) {
                continue;
            }
            let arguments = ["run", "--quiet", "-p", &package.name, "--example", &example, "--"];
            process::run(cargo(arguments.map(OsString::from)).arg(model))?;
        }
    }
    Ok(())
}

/// A layer is used without the layers above it, so it has to build without what they switch on in shared dependencies.
fn check_each_alone(cache: &Path) -> Result<()> {
    for package in workspace::packages()?.iter().filter(|package| package.is_published()) {
        process::run(&mut cargo(["check", "--quiet", "-p", &package.name, "--no-default-features"]))?;
        if package.has_features() {
            let without_models = "not test(/(^|::)real_/)";
            process::run(&mut nextest(
                cache,
                ["-p", &package.name, "--no-default-features", "--no-tests", "pass", "-E", without_models],
            ))?;
        }
    }
    Ok(())
}
