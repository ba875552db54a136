//! One file, from a hub to its place: resumed where it broke off, and whole there or not there at all.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::hub::{Entry, Hub};
use super::source::Source;

/// Connections that may break without a byte between them.
const PATIENCE: u32 = 3;

/// Brings `entry` to `place`, unless it is there.
pub(crate) fn download(hub: &Hub, source: &Source, entry: &Entry, place: &Path) -> Result<()> {
    if place.exists() {
        return Ok(());
    }
    let folder = place.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make {}; set SPEC_MODELS to a folder that you can write", folder.display()))?;
    let partial = Partial::open(place)?;
    let bar = ProgressBar::new(entry.bytes).with_style(style()).with_message(entry.path.clone());
    let result = fetch(hub, source, entry, partial, &bar);
    bar.finish_and_clear();
    let partial = result?;
    partial.file.sync_all().with_context(|| format!("cannot write {}", partial.path))?;
    fs::rename(&partial.path, place).with_context(|| format!("cannot move {} to {}", partial.path, place.display()))
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Asks again, from the byte that is wanted next, until the file is whole.
fn fetch(hub: &Hub, source: &Source, entry: &Entry, mut partial: Partial, bar: &ProgressBar) -> Result<Partial> {
    let mut failures = 0;
    let mut expected = entry.sha256.clone();
    if partial.bytes > entry.bytes {
        partial.restart()?;
    }
    while partial.bytes < entry.bytes {
        bar.set_position(partial.bytes);
        let before = partial.bytes;
        let answer = hub.bytes(source, &entry.path, partial.bytes)?;
        expected = expected.or(answer.sha256);
        match answer.status {
            206 if answer.start == Some(partial.bytes) => {}
            // The server gives all of it, whatever was asked.
            200 => partial.restart()?,
            // What is here does not fit what is there, such as a file that has become shorter.
            206 | 416 if partial.bytes > 0 => {
                partial.restart()?;
                failures += 1;
                if failures > PATIENCE {
                    bail!("{source}: the hub does not give the rest of {}; try again later", entry.path);
                }
                continue;
            }
            status => return Err(hub.refusal(status, &source.with_file(&entry.path))),
        }
        if let Err(broken) = partial.append(answer.body, entry.bytes, bar)? {
            failures = if partial.bytes > before { 0 } else { failures + 1 };
            if failures > PATIENCE {
                bail!(
                    "{source}: {} broke off at {} of {} bytes ({broken}); run this again to go on from there",
                    entry.path,
                    partial.bytes,
                    entry.bytes
                );
            }
        }
    }
    let sha256 = partial.sha256();
    if let Some(expected) = expected.filter(|expected| *expected != sha256) {
        fs::remove_file(&partial.path).with_context(|| format!("cannot delete {}", partial.path))?;
        bail!(
            "{source}: {} has the SHA-256 {sha256}, and the hub names {expected}; it was deleted, run this again",
            entry.path
        );
    }
    Ok(partial)
}

/// What there is of a file so far, held by this process alone.
struct Partial {
    path: String,
    file: File,
    bytes: u64,
    hash: Sha256,
}

impl Partial {
    fn open(place: &Path) -> Result<Self> {
        let path = format!("{}.partial", place.display());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.with_context(|| format!("cannot write {path}"))?;
        file.try_lock().map_err(|_| anyhow!("{path} is being downloaded by another process; wait for it"))?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut bytes = 0;
        loop {
            let read = file.read(&mut buffer).with_context(|| format!("cannot read {path}"))?;
            if read == 0 {
                return Ok(Self { path, file, bytes, hash });
            }
            hash.update(&buffer[..read]);
            bytes += read as u64;
        }
    }

    fn restart(&mut self) -> Result<()> {
        let cut = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cut.with_context(|| format!("cannot write {}", self.path))?;
        (self.bytes, self.hash) = (0, Sha256::new());
        Ok(())
    }

    /// Appends a body up to `whole` bytes in all; the inner error is the connection's.
    fn append(&mut self, mut body: impl Read, whole: u64, bar: &ProgressBar) -> Result<Result<(), String>> {
        let mut buffer = vec![0; 1 << 18];
        while self.bytes < whole {
            let room = usize::try_from(whole - self.bytes).unwrap_or(usize::MAX).min(buffer.len());
            let read = match body.read(&mut buffer[..room]) {
                Ok(0) => return Ok(Err("the connection ended".into())),
                Ok(read) => read,
                Err(error) => return Ok(Err(error.to_string())),
            };
            self.file.write_all(&buffer[..read]).with_context(|| format!("cannot write {}", self.path))?;
            self.hash.update(&buffer[..read]);
            self.bytes += read as u64;
            bar.set_position(self.bytes);
        }
        Ok(Ok(()))
    }

    fn sha256(&self) -> String {
        self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
