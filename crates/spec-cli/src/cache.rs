//! Where this program keeps what can be made or fetched anew.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A variable of the environment that says something.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Its folder in the user's cache; `None` where the environment names neither that nor a home.
pub(crate) fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let cache = match variable("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&variable("HOME")?).join(".cache"),
    };
    Some(cache.join("spec"))
}
