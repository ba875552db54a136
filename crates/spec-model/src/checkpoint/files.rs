//! The files of a checkpoint as one table of tensors.

use std::collections::HashMap;
use std::path::Path;

use crate::gguf::{Gguf, Metadata, TensorInfo};
use crate::{Mapping, Result};

/// Open files; tensors are found by (file, index in its table).
#[derive(Debug)]
pub(super) struct Files {
    name: String,
    gguf: Vec<Gguf<Mapping>>,
    index: HashMap<String, (usize, usize)>,
}

impl Files {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = Gguf::parse(Mapping::open(path)?, &name)?;
        Ok(Self::of_gguf(name, vec![file]))
    }

    pub(super) fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self> {
        let file = Gguf::parse(bytes.into(), name)?;
        Ok(Self::of_gguf(name.to_owned(), vec![file]))
    }

    /// `gguf` is not empty.
    fn of_gguf(name: String, gguf: Vec<Gguf<Mapping>>) -> Self {
        let mut index = HashMap::new();
        for (file, parsed) in gguf.iter().enumerate() {
            for (tensor, info) in parsed.tensors().iter().enumerate() {
                index.insert(info.name.clone(), (file, tensor));
            }
        }
        Self { name, gguf, index }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn count(&self) -> usize {
        self.gguf.len()
    }

    pub(super) fn file_name(&self, file: usize) -> &str {
        self.gguf[file].name()
    }

    pub(super) fn bytes(&self, file: usize) -> &Mapping {
        self.gguf[file].bytes()
    }

    pub(super) fn tensors(&self, file: usize) -> &[TensorInfo] {
        self.gguf[file].tensors()
    }

    pub(super) fn find(&self, name: &str) -> Option<(usize, usize)> {
        self.index.get(name).copied()
    }

    pub(super) fn metadata(&self) -> Metadata<'_> {
        self.gguf[0].metadata()
    }

    pub(super) fn keys(&self) -> &[String] {
        self.gguf[0].keys()
    }
}
