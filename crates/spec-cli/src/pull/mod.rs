//! `spec pull`, and `hf:ORG/REPO` wherever a model's file is asked for.

mod choose;
mod download;
mod hub;
mod source;

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::args::PullArgs;
use crate::{cache, usage};
use hub::Hub;
use source::Source;

pub(crate) fn run(args: &PullArgs) -> Result<ExitCode> {
    let path = match Source::parse(&args.source) {
        Some(source) => pull(&source.map_err(usage)?)?,
        None => {
            return Err(usage(format!(
                "`{}` is no place to pull from; give hf:ORG/REPO[@REVISION][:FILE]",
                args.source
            )));
        }
    };
    println!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// The path itself, or where the model is that it names as `hf:ORG/REPO`: fetched unless it is in the cache.
pub(crate) fn resolve(path: &Path) -> Result<Cow<'_, Path>> {
    match path.to_str().and_then(Source::parse) {
        Some(source) => pull(&source.map_err(usage)?).map(Cow::Owned),
        None => Ok(Cow::Borrowed(path)),
    }
}

/// The model's file or folder. What was pulled once needs no network.
fn pull(source: &Source) -> Result<PathBuf> {
    let folder = models_folder(cache::variable)?.join(source.folder());
    // Written when all of a choice is there; it says what to open.
    let mark = folder.join(mark_name(source));
    if let Ok(open) = std::fs::read_to_string(&mark)
        && (open.is_empty() || source::is_path(&open))
    {
        let path = opened(&folder, &open);
        if path.exists() {
            return Ok(path);
        }
    }
    let hub = Hub::from_environment()?;
    let choice = choose::choose(source, hub.list(source)?).map_err(anyhow::Error::msg)?;
    for entry in &choice.files {
        download::download(&hub, source, entry, &folder.join(&entry.path))?;
    }
    std::fs::write(&mark, &choice.open).with_context(|| format!("cannot write {}", mark.display()))?;
    Ok(opened(&folder, &choice.open))
}

/// What to open of a folder: a file in it, or itself.
fn opened(folder: &Path, open: &str) -> PathBuf {
    if open.is_empty() { folder.to_path_buf() } else { folder.join(open) }
}

/// The mark of a choice: one for a repository, one for each file that is asked for by name.
fn mark_name(source: &Source) -> String {
    match &source.file {
        Some(file) => format!(".chosen-{}", file.replace('/', "%2F")),
        None => ".chosen".to_owned(),
    }
}

/// Where models are kept, which `cargo xtask fetch` shares.
fn models_folder(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    if let Some(folder) = variable("SPEC_MODELS") {
        return Ok(folder.into());
    }
    let cache = cache::folder(variable).context("no folder for models: HOME is not set; set SPEC_MODELS to one")?;
    Ok(cache.join("models"))
}
