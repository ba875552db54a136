//! The JSON files beside a checkpoint's weights.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value};

use crate::{Error, Result};

/// Longest `config.json` that is read, in bytes; published ones have a few thousand. Values in memory take tens of
/// times their text.
pub(crate) const MAX_CONFIG: u64 = 1 << 20;

/// The bytes of a regular file of at most `max`; `None` when there is none.
pub(crate) fn read(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let name = || path.display().to_string();
    let fail = |action| move |source| Error::Io { file: name(), action, source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail("open")(error)),
    };
    let metadata = file.metadata().map_err(fail("read the size"))?;
    if !metadata.is_file() || metadata.len() > max {
        let problem = format!("{} bytes long; a regular file of at most {max} is accepted", metadata.len());
        return Err(Error::Json { file: name(), problem });
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(max).read_to_end(&mut bytes).map_err(fail("read"))?;
    Ok(Some(bytes))
}

/// As [`read`], of text.
pub(crate) fn read_text(path: &Path, max: u64) -> Result<Option<String>> {
    let Some(bytes) = read(path, max)? else {
        return Ok(None);
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| Error::Json { file: path.display().to_string(), problem: "not UTF-8".into() })
}

/// An object in a file.
#[derive(Debug)]
pub(crate) struct Json {
    file: String,
    fields: Map<String, Value>,
}

impl Json {
    pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<Self> {
        let fields = serde_json::from_slice(bytes)
            .map_err(|error| Error::Json { file: file.to_owned(), problem: error.to_string() })?;
        Ok(Self { file: file.to_owned(), fields })
    }

    /// File name, for messages.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    pub(crate) fn bad(&self, field: &str, problem: String) -> Error {
        Error::Field { file: self.file.clone(), field: field.to_owned(), problem }
    }
}
