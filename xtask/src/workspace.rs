//! Where the workspace is and which packages it has, read from its folders.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The workspace's root folder.
///
/// Cargo and nextest set the variable at run time; the path known at compile time is wrong after a move of the
/// checkout and serves only a binary that was started by hand.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.file_name().is_some_and(|name| name == "xtask"))
        .unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    own.parent().map(Path::to_path_buf).unwrap_or(own)
}

/// A package of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// The package's folder, absolute.
    pub(crate) folder: PathBuf,
    /// The text of its `Cargo.toml`.
    pub(crate) manifest: String,
}

impl Package {
    fn read(folder: PathBuf) -> Result<Self> {
        let path = folder.join("Cargo.toml");
        let manifest = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder, manifest })
    }

    /// Whether the package is meant for others to depend on.
    pub(crate) fn is_published(&self) -> bool {
        !self.has_line_starting("publish = false") && !self.has_line_starting("publish.workspace")
    }

    /// Whether a feature of its own can be turned off.
    pub(crate) fn has_features(&self) -> bool {
        self.has_line_starting("[features]")
    }

    pub(crate) fn has_line_starting(&self, start: &str) -> bool {
        self.manifest.lines().any(|line| line.starts_with(start))
    }

    /// The names of the package's examples, sorted.
    pub(crate) fn examples(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder.join("examples")) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
            .collect();
        names.sort();
        names
    }
}

/// The packages under `crates/`, sorted by name; each folder is named as its package.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let folder = root().join("crates");
    let mut packages = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.join("Cargo.toml").is_file() {
            packages.push(Package::read(path)?);
        }
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}
