//! Finding the files of a checkpoint in a folder of the Hugging Face layout: weights in one safetensors file or in a set
//! with an index, and JSON files beside them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use super::shards::{MAX_SHARDS, ShardName, all_there, file_name};
use crate::document::{self, Json, MAX_CONFIG};
use crate::safetensors::Safetensors;
use crate::{Error, Mapping, Result};

/// Longest index that is read, in bytes; published ones have some hundred thousand.
const MAX_INDEX: u64 = 1 << 26;
/// Most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 1 << 16;
const INDEX_ENDING: &str = ".safetensors.index.json";

/// Weights that cannot be read, by the ending of their names, and what to do.
const OTHER_WEIGHTS: [(&str, &str); 8] = [
    (".bin", "PyTorch pickles; convert them to safetensors or GGUF"),
    (".pt", "PyTorch pickles; convert them to safetensors or GGUF"),
    (".pth", "PyTorch pickles; convert them to safetensors or GGUF"),
    (
        ".onnx",
        "an ONNX graph, which holds no decoder that can be driven; take the safetensors or GGUF form of the model",
    ),
    (".h5", "TensorFlow weights; convert them to safetensors or GGUF"),
    (".msgpack", "Flax weights; convert them to safetensors or GGUF"),
    (".npz", "NumPy arrays; convert them to safetensors or GGUF"),
    (".tflite", "a TensorFlow Lite graph; take the safetensors or GGUF form of the model"),
];

/// What lies in a folder.
pub(super) enum Found {
    /// A GGUF file, of a set maybe.
    Gguf(PathBuf),
    /// Safetensors files, and the index that lists their tensors.
    Safetensors(Weights),
}

/// Safetensors files that belong together.
pub(super) struct Weights {
    paths: Vec<PathBuf>,
    index: Option<Index>,
}

/// Which file a tensor is in.
struct Index {
    file: String,
    tensors: BTreeMap<String, String>,
}

/// The checkpoint in `folder`. What `config.json` names is refused before any weights are looked for.
pub(super) fn search(folder: &Path) -> Result<Found> {
    let shown = folder.display().to_string();
    let fail = |problem: String| Error::Folder { folder: shown.clone(), problem };
    if let Some(json) = config(folder)? {
        super::refuse_early(&json)?;
    }
    let names = list(folder)?;
    let with = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).cloned().collect::<Vec<_>>();
    let indices = with(INDEX_ENDING);
    let preferred = format!("model{INDEX_ENDING}");
    if let Some(index) = indices.iter().find(|name| **name == preferred).or_else(|| single(&indices)) {
        return of_index(&folder.join(index)).map(Found::Safetensors);
    }
    let weights = with(".safetensors");
    if let Some(name) = weights.iter().find(|name| *name == "model.safetensors") {
        return of_file(&folder.join(name)).map(Found::Safetensors);
    }
    if let Some(name) = first_of_one_set(&weights) {
        return of_file(&folder.join(name)).map(Found::Safetensors);
    }
    let ggufs = with(".gguf");
    if weights.is_empty()
        && let Some(name) = first_of_one_set(&ggufs)
    {
        return Ok(Found::Gguf(folder.join(name)));
    }
    let candidates: Vec<String> = weights.into_iter().chain(ggufs).take(8).collect();
    if !candidates.is_empty() {
        return Err(fail(format!("more than one checkpoint; name one of {}", candidates.join(", "))));
    }
    for (ending, what) in OTHER_WEIGHTS {
        if let Some(name) = names.iter().find(|name| name.ends_with(ending)) {
            return Err(fail(format!("no safetensors or GGUF file, but {name}: {what}")));
        }
    }
    Err(fail("no safetensors or GGUF file in this folder".into()))
}

fn single(names: &[String]) -> Option<&String> {
    match names {
        [name] => Some(name),
        _ => None,
    }
}

/// The only name, or the first of the only set.
fn first_of_one_set(names: &[String]) -> Option<&String> {
    let first = names.first()?;
    if names.len() == 1 {
        return Some(first);
    }
    let set = ShardName::parse(first)?;
    names.iter().all(|name| ShardName::parse(name).is_some_and(|other| other.set() == set.set())).then_some(first)
}

/// Names of the folder's entries, sorted.
fn list(folder: &Path) -> Result<Vec<String>> {
    let fail = |source| Error::Io { file: folder.display().to_string(), action: "list", source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)?.take(MAX_ENTRIES) {
        names.extend(entry.map_err(fail)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// The folder's `config.json`, where there is one.
pub(super) fn config(folder: &Path) -> Result<Option<Json>> {
    let path = folder.join("config.json");
    let bytes = document::read(&path, MAX_CONFIG)?;
    bytes.map(|bytes| Json::parse(&path.display().to_string(), &bytes)).transpose()
}

/// The safetensors file at `path` alone, or the set it belongs to by its name.
pub(super) fn of_file(path: &Path) -> Result<Weights> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let Some(name) = ShardName::parse(file_name(path)) else {
        return Ok(Weights { paths: vec![path.to_owned()], index: None });
    };
    let index = folder.join(name.index());
    if index.is_file() {
        return of_index(&index);
    }
    let paths = all_there(folder, &name.all(), &path.display().to_string())?;
    Ok(Weights { paths, index: None })
}

/// The files that an index names.
pub(super) fn of_index(path: &Path) -> Result<Weights> {
    #[derive(serde::Deserialize)]
    struct Document {
        weight_map: BTreeMap<String, String>,
    }
    let file = path.display().to_string();
    let bytes = document::read(path, MAX_INDEX)?.unwrap_or_default();
    let Document { weight_map: tensors } = serde_json::from_slice(&bytes)
        .map_err(|error| Error::Json { file: file.clone(), problem: error.to_string() })?;
    let names: BTreeSet<&String> = tensors.values().collect();
    // A name that leads elsewhere would open files that nobody meant.
    let elsewhere =
        names.iter().find(|name| name.contains(['/', '\\']) || !name.ends_with(".safetensors") || name.len() > 255);
    if let Some(name) = elsewhere {
        let name: String = name.chars().take(64).collect();
        let problem = format!("names {name:?}, which is no safetensors file of this folder");
        return Err(Error::Shards { file, problem });
    }
    if names.is_empty() || names.len() > MAX_SHARDS as usize {
        let problem = format!("names {} files, 1 to {MAX_SHARDS} are accepted", names.len());
        return Err(Error::Shards { file, problem });
    }
    let names: Vec<String> = names.into_iter().cloned().collect();
    let paths = all_there(path.parent().unwrap_or(Path::new("")), &names, &file)?;
    Ok(Weights { paths, index: Some(Index { file, tensors }) })
}

impl Weights {
    /// Opens the files, and compares them with the index.
    pub(super) fn open(&self) -> Result<Vec<Safetensors<Mapping>>> {
        let open = |path: &PathBuf| Safetensors::parse(Mapping::open(path)?, &path.display().to_string());
        let files = self.paths.iter().map(open).collect::<Result<Vec<_>>>()?;
        let Some(index) = &self.index else {
            return Ok(files);
        };
        let fail = |problem: String| Err(Error::Shards { file: index.file.clone(), problem });
        let mut stored = HashSet::new();
        for (path, file) in self.paths.iter().zip(&files) {
            let names =
                file.tensors().iter().map(|tensor| &tensor.name).chain(file.others().iter().map(|other| &other.0));
            for tensor in names {
                if index.tensors.get(tensor).is_none_or(|listed| listed != file_name(path)) {
                    return fail(format!(
                        "does not list tensor `{tensor}` for {}; download both again",
                        file_name(path)
                    ));
                }
                stored.insert(tensor.as_str());
            }
        }
        match index.tensors.iter().find(|(tensor, _)| !stored.contains(tensor.as_str())) {
            Some((tensor, listed)) => fail(format!("tensor `{tensor}` is not in {listed}; download both again")),
            None => Ok(files),
        }
    }
}
