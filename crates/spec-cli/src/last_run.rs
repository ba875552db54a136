//! The record of the last run, for `spec explain`: figures alone, no text and no token ids, and a few megabytes at most.

use std::path::PathBuf;

use crate::cache;
use crate::record::Recorder;

/// Bytes of it at most: some ten thousand rounds.
const MOST_BYTES: u64 = 4 << 20;

/// Where it is.
pub(crate) fn path() -> Option<PathBuf> {
    Some(cache::folder(cache::variable)?.join("last-run.jsonl"))
}

/// Begins it anew. Where that cannot be done, there is none: an answer does not fail for it.
pub(crate) fn recorder() -> Option<Recorder> {
    let path = path()?;
    std::fs::create_dir_all(path.parent()?).ok()?;
    // Begun beside the older one and put in its place: of two runs at a time each writes into a file of its own.
    let begun = path.with_extension(format!("{}.jsonl", std::process::id()));
    let recorder = Recorder::quiet(&begun, MOST_BYTES).ok();
    if std::fs::rename(&begun, &path).is_err() {
        let _ = std::fs::remove_file(&begun);
        return None;
    }
    recorder
}
