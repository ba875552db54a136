//! A file's bytes, mapped. The only unsafe code of the crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::{Error, Result};

/// The bytes of a checkpoint: a read-only map of a file, or bytes in memory. Clones share them.
#[derive(Debug, Clone)]
pub struct Mapping(Arc<Source>);

#[derive(Debug)]
enum Source {
    Mapped(Mmap),
    Memory(Vec<u8>),
}

impl Mapping {
    /// Maps the regular file at `path`. No page is read.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |action| move |source| Error::Io { file: path.display().to_string(), action, source };
        let file = File::open(path).map_err(fail("open"))?;
        let metadata = file.metadata().map_err(fail("read the size"))?;
        if !metadata.is_file() {
            return Err(fail("map")(std::io::Error::other("not a regular file; give the path of a .gguf file")));
        }
        if metadata.len() == 0 {
            // An empty range cannot be mapped everywhere; the parser says what is wrong with it.
            return Ok(Self(Arc::new(Source::Memory(Vec::new()))));
        }
        // SAFETY: the map is read-only and private to this value. Its bytes change only if another process writes to
        // the file; every value taken from it was bounds-checked when parsed, and weights are plain numbers, for which
        // any bit pattern is valid. A file that is shortened meanwhile raises SIGBUS, as the crate's docs say.
        let map = unsafe { Mmap::map(&file) }.map_err(fail("map"))?;
        Ok(Self(Arc::new(Source::Mapped(map))))
    }

    /// Tells the system that the pages of `range` are not needed for now: they leave this process's resident set and
    /// are read again from the file if touched. Out-of-range parts are ignored; advice that the system refuses, too.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Source::Mapped(map) = &*self.0 {
            let end = range.end.min(map.len());
            let Some(length) = end.checked_sub(range.start).filter(|&n| n > 0) else {
                return;
            };
            // SAFETY: the map is file-backed and never written through, so a dropped page is read again from the file
            // with the same bytes: no reference into it observes a change.
            let advised =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, length) };
            // Only memory use depends on it, never a result.
            drop(advised);
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl From<Vec<u8>> for Mapping {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Source::Memory(bytes)))
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        match &*self.0 {
            Source::Mapped(map) => map,
            Source::Memory(bytes) => bytes,
        }
    }
}
