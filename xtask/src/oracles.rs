//! Making the answers of other implementations anew, which tests compare ours with.

use crate::process::run;
use crate::{UsageError, workspace};
use anyhow::{Context, Result};
use std::process::Command;

/// Scripts in `crates/spec-testing/oracles`; each writes to the folder of its name in `crates/spec-testing/data`.
const ORACLES: &[&str] = &["chat_templates", "logits", "pre_tokenizers", "sentencepiece_scores", "tensor_types"];

/// Runs the oracle `name`, or all of them, in a Python environment of their own.
pub(crate) fn make(name: Option<&str>) -> Result<()> {
    let known: Vec<&str> = ORACLES.iter().copied().filter(|oracle| name.is_none_or(|name| name == *oracle)).collect();
    if known.is_empty() {
        let name = name.unwrap_or_default();
        return Err(UsageError(format!("no oracle `{name}`; there are {}", ORACLES.join(", "))).into());
    }
    let testing = workspace::root().join("crates/spec-testing");
    let environment = workspace::root().join("target/oracles");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment)).context("Python 3 with venv is needed")?;
    let python = environment.join("bin/python");
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "-r"])
        .arg(testing.join("oracles/requirements.txt")))?;
    for oracle in known {
        let folder = testing.join("data").join(oracle);
        // What one script needs alone, and takes long to build, is in a file of its name.
        let own = testing.join("oracles").join(format!("{oracle}.txt"));
        if own.is_file() {
            run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(&own))?;
        }
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        run(Command::new(&python).arg(testing.join("oracles").join(format!("{oracle}.py"))).arg(&folder))?;
    }
    Ok(())
}
