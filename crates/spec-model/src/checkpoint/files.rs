//! The files of a checkpoint as one table of tensors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::folder::{self, Found};
use super::{Format, shards};
use crate::document::Json;
use crate::gguf::{Gguf, Metadata, TensorInfo};
use crate::safetensors::Safetensors;
use crate::{Error, Mapping, Result, gguf, sniff};

/// Open files; tensors are found by (file, index in its table).
#[derive(Debug)]
pub(super) struct Files {
    name: String,
    parsed: Parsed,
    index: HashMap<String, (usize, usize)>,
}

/// One file or more, of one format.
#[derive(Debug)]
enum Parsed {
    Gguf(Vec<Gguf<Mapping>>),
    Safetensors { files: Vec<Safetensors<Mapping>>, folder: PathBuf, config: Json },
}

/// What the configuration is read from.
pub(super) enum Description<'a> {
    Gguf(Metadata<'a>),
    Safetensors { folder: &'a Path, config: &'a Json },
}

impl Files {
    /// `path` is told by what it holds, not by its name.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        if path.is_dir() {
            return match folder::search(path)? {
                Found::Gguf(file) => Self::new(name, Parsed::Gguf(shards::open_gguf(&file, Mapping::open(&file)?)?)),
                Found::Safetensors(weights) => Self::safetensors(name, path, &weights),
            };
        }
        let bytes = Mapping::open(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_gguf = bytes.as_ref().starts_with(&gguf::MAGIC);
        if !is_gguf && sniff::is_safetensors(bytes.as_ref()) {
            return Self::safetensors(name, folder, &folder::of_file(path)?);
        }
        if !is_gguf && sniff::is_index(bytes.as_ref()) {
            return Self::safetensors(name, folder, &folder::of_index(path)?);
        }
        Self::new(name, Parsed::Gguf(shards::open_gguf(path, bytes)?))
    }

    pub(super) fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self> {
        let file = shards::lone_gguf(bytes.into(), name)?;
        Self::new(name.to_owned(), Parsed::Gguf(file))
    }

    fn safetensors(name: String, folder: &Path, weights: &folder::Weights) -> Result<Self> {
        let Some(config) = folder::config(folder)? else {
            let problem = "safetensors files need a config.json beside them; download it from the same place".into();
            return Err(Error::Folder { folder: folder.display().to_string(), problem });
        };
        super::refuse_early(&config)?;
        Self::new(name, Parsed::Safetensors { files: weights.open()?, folder: folder.to_owned(), config })
    }

    fn new(name: String, parsed: Parsed) -> Result<Self> {
        let mut files = Self { name, parsed, index: HashMap::new() };
        let mut index = HashMap::new();
        for file in 0..files.count() {
            for (tensor, info) in files.tensors(file).iter().enumerate() {
                if let Some((other, _)) = index.insert(info.name.clone(), (file, tensor)) {
                    let problem = format!("tensor `{}` is in {} too", info.name, files.file_name(other));
                    return Err(Error::Shards { file: files.file_name(file).to_owned(), problem });
                }
            }
        }
        files.index = index;
        Ok(files)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn format(&self) -> Format {
        match &self.parsed {
            Parsed::Gguf(files) => Format::Gguf { version: files[0].version() },
            Parsed::Safetensors { .. } => Format::Safetensors,
        }
    }

    pub(super) fn count(&self) -> usize {
        match &self.parsed {
            Parsed::Gguf(files) => files.len(),
            Parsed::Safetensors { files, .. } => files.len(),
        }
    }

    pub(super) fn file_name(&self, file: usize) -> &str {
        match &self.parsed {
            Parsed::Gguf(files) => files[file].name(),
            Parsed::Safetensors { files, .. } => files[file].name(),
        }
    }

    pub(super) fn bytes(&self, file: usize) -> &Mapping {
        match &self.parsed {
            Parsed::Gguf(files) => files[file].bytes(),
            Parsed::Safetensors { files, .. } => files[file].bytes(),
        }
    }

    pub(super) fn tensors(&self, file: usize) -> &[TensorInfo] {
        match &self.parsed {
            Parsed::Gguf(files) => files[file].tensors(),
            Parsed::Safetensors { files, .. } => files[file].tensors(),
        }
    }

    /// Tensors of types that no decoder can use, with their types.
    pub(super) fn others(&self, file: usize) -> &[(String, &'static str)] {
        match &self.parsed {
            Parsed::Gguf(_) => &[],
            Parsed::Safetensors { files, .. } => files[file].others(),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<(usize, usize)> {
        self.index.get(name).copied()
    }

    pub(super) fn description(&self) -> Description<'_> {
        match &self.parsed {
            Parsed::Gguf(files) => Description::Gguf(files[0].metadata()),
            Parsed::Safetensors { folder, config, .. } => Description::Safetensors { folder, config },
        }
    }

    /// The first GGUF file, where there is one.
    pub(super) fn first_gguf(&self) -> Option<&Gguf<Mapping>> {
        match &self.parsed {
            Parsed::Gguf(files) => files.first(),
            Parsed::Safetensors { .. } => None,
        }
    }

    pub(super) fn keys(&self) -> &[String] {
        match &self.parsed {
            Parsed::Gguf(files) => files[0].keys(),
            Parsed::Safetensors { .. } => &[],
        }
    }
}
