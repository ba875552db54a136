//! What `cargo xtask bench` and `cargo xtask bench peers` have in common on their command lines.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::engine::{Models, Spec};
use crate::launcher::Launcher;
use crate::machine::{self, Machine};
use crate::prompts::{self, Prompt};

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The binary `spec`
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,

    /// Where the results go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// The target: a GGUF file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// The draft model: a smaller GGUF file of the same vocabulary
    #[arg(long, value_name = "FILE")]
    draft_model: Option<PathBuf>,

    /// The prompts: a folder of .txt files
    #[arg(long, value_name = "DIR")]
    prompts_folder: PathBuf,

    /// Only these prompts
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub(crate) prompts: Vec<String>,

    /// Tokens per answer; 200, with --quick 64
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    max_tokens: Option<u32>,

    /// Interleaved rounds; 7, with --quick 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,

    /// Fewer and shorter runs: to see that it works, not to quote
    #[arg(long)]
    pub(crate) quick: bool,

    /// Threads of every program that is measured; all cores when not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,

    /// Words put before every program that is measured, such as 'taskset -c 0-7'
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    launcher: String,
}

impl Common {
    pub(crate) fn spec(&self) -> Spec {
        Spec { program: self.spec.clone(), launcher: self.launcher(), threads: self.threads() }
    }

    pub(crate) fn launcher(&self) -> Launcher {
        Launcher::new(&self.launcher)
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.map_or_else(machine::threads, |threads| threads as usize)
    }

    /// # Errors
    /// A file is not there.
    pub(crate) fn models(&self) -> Result<Models> {
        for file in std::iter::once(&self.model).chain(&self.draft_model) {
            ensure!(file.is_file(), "no model at {}; give the path of a GGUF file", file.display());
        }
        Ok(Models { target: self.model.clone(), draft: self.draft_model.clone() })
    }

    pub(crate) fn prompts(&self) -> Result<Vec<Prompt>> {
        prompts::read(&self.prompts_folder, &self.prompts)
    }

    pub(crate) fn max_tokens(&self) -> usize {
        self.max_tokens.unwrap_or(if self.quick { 64 } else { 200 }) as usize
    }

    pub(crate) fn repeats(&self) -> usize {
        self.repeats.unwrap_or(if self.quick { 2 } else { 7 }) as usize
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine::this(self.threads(), &self.prompts_folder)
    }

    /// The folder for results, there from now on.
    pub(crate) fn out(&self) -> Result<&Path> {
        std::fs::create_dir_all(&self.out).with_context(|| format!("cannot create {}", self.out.display()))?;
        Ok(&self.out)
    }
}

/// A model's name in the reports: its file's, without the folder.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes one of the results.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
