//! A file of JSON lines that grows while something runs.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::memory::Size;
use crate::usage;

/// Lines that are written as they come, so that a program that ends at once leaves what it has done. What goes wrong is said once, and
/// nothing is written any more: an answer does not fail for it.
#[derive(Debug)]
pub(crate) struct Lines {
    flag: &'static str,
    path: PathBuf,
    /// Bytes at most.
    limit: u64,
    /// Whether nothing is said of what goes wrong.
    quiet: bool,
    /// `None` once nothing is written any more.
    file: Mutex<Option<(File, u64)>>,
}

impl Lines {
    /// Begins the file that `flag` names, in the place of an older one. One that is there and whose first line does not begin with
    /// `opening` is somebody else's, and refused.
    pub(crate) fn create(flag: &'static str, path: &Path, opening: &str, limit: u64) -> Result<Self> {
        let named = || format!("{flag} {}", path.display());
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).with_context(named)?;
        let mut start = Vec::new();
        let reader = BufReader::new(&mut file);
        let is_file = reader.get_ref().metadata().with_context(named)?.is_file();
        if is_file {
            reader.take(opening.len() as u64).read_until(b'\n', &mut start).with_context(named)?;
            if !start.is_empty() && start != opening.as_bytes() {
                return Err(usage(format!("{}: the file is there and is no such record; name another", named())));
            }
            file = File::create(path).with_context(named)?;
        }
        Ok(Self { flag, path: path.to_owned(), limit, quiet: false, file: Mutex::new(Some((file, 0))) })
    }

    /// Lets nobody but its owner read the file.
    pub(crate) fn private(self) -> Result<Self> {
        #[cfg(unix)]
        if let Some((file, _)) = &*self.file.lock().unwrap_or_else(PoisonError::into_inner) {
            use std::os::unix::fs::PermissionsExt as _;
            if file.metadata()?.is_file() {
                file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            }
        }
        Ok(self)
    }

    /// Says nothing of what goes wrong: for what nobody has asked for.
    pub(crate) fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Whether lines are still written.
    pub(crate) fn is_open(&self) -> bool {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Writes a line.
    pub(crate) fn write(&self, line: &impl Serialize) {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((file, written)) = held.as_mut() else { return };
        let ended = match serde_json::to_string(line) {
            Ok(mut text) => {
                text.push('\n');
                *written += text.len() as u64;
                match *written > self.limit {
                    true => Some(format!("{} are full; the rest is not written", Size(self.limit as usize))),
                    false => {
                        file.write_all(text.as_bytes()).err().map(|error| format!("{error}; nothing more is written"))
                    }
                }
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = ended {
            *held = None;
            if !self.quiet {
                // Standard error may be closed, and an answer does not end for it.
                let _ = writeln!(std::io::stderr(), "spec: {} {}: {why}", self.flag, self.path.display());
            }
        }
    }
}
