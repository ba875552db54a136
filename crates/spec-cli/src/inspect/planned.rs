//! A model that memory is planned for: a file, a description without weights, or a name.

use std::path::Path;

use anyhow::Result;
use spec_model::{Checkpoint, FileType, Outline};

use crate::{pull, usage};

/// What a published model is taken to be stored as, when nothing is said.
const USUAL: FileType = FileType::Q4KM;

/// What is known of a model.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) outline: Outline,
    /// Of a file at hand.
    pub(super) checkpoint: Option<Checkpoint>,
}

impl Planned {
    /// Finds what `path` names.
    pub(super) fn find(path: &Path) -> Result<Self> {
        let text = path.to_string_lossy();
        if path.exists() || text.starts_with("hf:") {
            return Self::at(path, None);
        }
        let (name, stored) = match text.rsplit_once(':') {
            None => (&*text, USUAL),
            Some((name, stored)) => match FileType::of(stored) {
                Some(stored) => (name, stored),
                None => {
                    let known = FileType::names();
                    return Err(usage(format!("{text}: {stored} is no type of file that is known; they are {known}")));
                }
            },
        };
        if Path::new(name).is_file() {
            return Self::at(Path::new(name), Some(stored));
        }
        match Outline::published(name, stored) {
            Some(outline) => Ok(Self { name: format!("{name}:{}", stored.name()), outline, checkpoint: None }),
            None => {
                let known: Vec<&str> = Outline::known().collect();
                Err(usage(format!(
                    "{text}: no such file, and no published model whose shape is known; those are {}",
                    known.join(", ")
                )))
            }
        }
    }

    fn at(path: &Path, stored: Option<FileType>) -> Result<Self> {
        let name = path.display().to_string();
        let is_description =
            path.extension().is_some_and(|ending| ending == "json") && !name.ends_with(".safetensors.index.json");
        if is_description {
            return Ok(Self { name, outline: Outline::open(path, stored)?, checkpoint: None });
        }
        if stored.is_some() {
            return Err(usage(format!("{name}: a type of file is for a config.json or a name; this file has its own")));
        }
        let checkpoint = Checkpoint::open(pull::resolve(path)?)?;
        Ok(Self { name, outline: checkpoint.outline(), checkpoint: Some(checkpoint) })
    }
}
