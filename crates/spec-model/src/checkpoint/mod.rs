//! A whole checkpoint: configuration and every tensor the architecture needs, checked at open.

mod files;
mod folder;
mod resolve;
mod shards;

use std::ops::Range;
use std::path::Path;

use crate::document::{self, Json, MAX_CONFIG};
use crate::gguf::write::Value;
use crate::gguf::{Gguf, Metadata};
use crate::tokenizer::described;
use crate::weights::Form;
use crate::{
    Architecture, ChatTemplate, Error, ModelConfig, Result, StoredTensor, TensorView, Tokenizer, Vocabulary, Weights,
};
use files::{Description, Files};
use resolve::Place;

/// Longest `tokenizer.json` and `tokenizer_config.json` that are read, in bytes; published ones have up to 40 million.
const MAX_TOKENIZER: u64 = 1 << 28;
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// How a checkpoint is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// [`gguf`](crate::gguf), one file or a set.
    Gguf {
        /// Of the format.
        version: u32,
    },
    /// [`safetensors`](crate::safetensors), one file or a set, with JSON files beside them.
    Safetensors,
}

/// An open checkpoint. Opening reads headers only, however large the files are.
#[derive(Debug)]
pub struct Checkpoint {
    files: Files,
    config: ModelConfig,
    weights: Weights<Place>,
}

impl Checkpoint {
    /// Opens and checks the checkpoint at `path`, which may be
    /// - a GGUF file, or any file of a set that it was split into,
    /// - a safetensors file with its `config.json` beside it, any file of a set of them, or the set's index,
    /// - a folder with one of these.
    ///
    /// Files are told by what they hold, whatever they are called.
    ///
    /// # Errors
    /// Any of the crate's errors about files; no tensor is ever skipped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(Files::open(path.as_ref())?)
    }

    /// As [`Self::open`], of a GGUF file in memory; `name` stands for the file in messages.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self> {
        Self::new(Files::from_bytes(bytes, name)?)
    }

    fn new(files: Files) -> Result<Self> {
        let (mut config, declared) = match files.description() {
            Description::Gguf(metadata) => ModelConfig::from_metadata(metadata)?,
            Description::Safetensors { folder, config } => ModelConfig::from_json(config, shards::file_name(folder))?,
        };
        let weights = resolve::resolve(&files, &mut config, &declared)?;
        Ok(Self { files, config, weights })
    }

    /// The hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What was opened, for messages.
    pub fn name(&self) -> &str {
        self.files.name()
    }

    /// How it is stored.
    pub fn format(&self) -> Format {
        self.files.format()
    }

    /// Names and sizes in bytes of the files.
    pub fn files(&self) -> impl Iterator<Item = (&str, usize)> {
        (0..self.files.count()).map(|file| (self.files.file_name(file), self.files.bytes(file).as_ref().len()))
    }

    /// A GGUF file's metadata, for keys that no accessor covers; the first file's of a set.
    pub fn metadata(&self) -> Option<Metadata<'_>> {
        match self.files.description() {
            Description::Gguf(metadata) => Some(metadata),
            Description::Safetensors { .. } => None,
        }
    }

    /// Its keys in file order.
    pub fn keys(&self) -> &[String] {
        self.files.keys()
    }

    /// The first GGUF file's keys with their values as they are stored; empty for safetensors.
    pub(crate) fn stored_values(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.first_gguf().into_iter().flat_map(Gguf::stored_values)
    }

    /// A stored tensor's dimensions, fastest first.
    pub(crate) fn dims(&self, tensor: &TensorView<'_>) -> &[usize] {
        let place = self.files.find(tensor.name);
        let (file, index) = place.expect("a view's name is that of a tensor of its checkpoint");
        &self.files.tensors(file)[index].dims
    }

    /// Every tensor, as it is stored, in the order of the files.
    pub fn tensors(&self) -> impl Iterator<Item = TensorView<'_>> {
        let slots =
            (0..self.files.count()).flat_map(|file| (0..self.files.tensors(file).len()).map(move |i| (file, i)));
        slots.map(|(file, tensor)| Place::whole(&self.files, file, tensor).view(&self.files))
    }

    /// The tensor of this name, as it is stored.
    ///
    /// # Errors
    /// [`Error::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        match self.files.find(name) {
            Some((file, tensor)) => Ok(Place::whole(&self.files, file, tensor).view(&self.files)),
            None => Err(Error::MissingTensor { file: self.name().to_owned(), tensor: name.to_owned() }),
        }
    }

    /// All tensors that the decoder uses, by their role.
    pub fn weights(&self) -> Weights<TensorView<'_>> {
        self.weights.map(|place| place.view(&self.files))
    }

    /// A tensor that outlives the checkpoint; its file stays mapped.
    #[must_use]
    pub fn keep(&self, tensor: &TensorView<'_>) -> StoredTensor {
        StoredTensor::new(tensor, self.files.bytes(tensor.file))
    }

    /// Lets the pages of a tensor go once it was repacked; they are read from the file again if touched.
    pub fn release(&self, tensor: &TensorView<'_>) {
        self.files.bytes(tensor.file).release(tensor.file_range());
    }

    /// As [`Self::release`], of some of the bytes that [`TensorView::bytes`] gives; nothing happens where those are a copy.
    pub fn release_part(&self, tensor: &TensorView<'_>, bytes: Range<usize>) {
        if tensor.form == Form::Plain {
            let start = tensor.file_range().start;
            self.files.bytes(tensor.file).release(start + bytes.start..start + bytes.end);
        }
    }

    /// Builds the tokenizer: the one costly step, some tenths of a second for a vocabulary of 150,000.
    ///
    /// # Errors
    /// [`Error::PreTokenizer`], [`Error::Tokenizer`] and those about keys.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        self.tokenizer_with(None)
    }

    /// As [`Self::tokenizer`], with the pre-tokenizer named by the caller instead of `tokenizer.ggml.pre`.
    ///
    /// # Errors
    /// As [`Self::tokenizer`], and [`Error::Unsupported`] for a name beside a `tokenizer.json`.
    pub fn tokenizer_with(&self, pre_tokenizer: Option<&str>) -> Result<Tokenizer> {
        let tokenizer = match self.files.description() {
            Description::Gguf(metadata) => Tokenizer::from_metadata(metadata, pre_tokenizer)?,
            Description::Safetensors { folder, .. } => match pre_tokenizer {
                None => tokenizer_of(folder)?,
                Some(name) => {
                    let what = format!("pre-tokenizer `{name}` in the place of what tokenizer.json says");
                    return Err(Error::Unsupported { file: self.name().to_owned(), what });
                }
            },
        };
        self.check_size(tokenizer.vocab_size())?;
        Ok(tokenizer)
    }

    /// The tokens alone, in milliseconds where [`Self::tokenizer`] takes tenths of a second: nothing is built that splits text.
    ///
    /// # Errors
    /// As [`Self::tokenizer`]; a GGUF file may leave open, or name a pre-tokenizer that is unknown.
    pub fn vocabulary(&self) -> Result<Vocabulary> {
        let vocabulary = match self.files.description() {
            Description::Gguf(metadata) => Vocabulary::from_metadata(metadata)?,
            Description::Safetensors { folder, .. } => {
                let (text, file) = tokenizer_json(folder)?;
                Vocabulary::from_json(&text, &file)?
            }
        };
        self.check_size(vocabulary.len())?;
        Ok(vocabulary)
    }

    /// The tokenizer beside safetensors in the words of GGUF's keys; none for GGUF files.
    pub(crate) fn tokenizer_keys(&self) -> Result<Vec<(String, Value)>> {
        match self.files.description() {
            Description::Gguf(_) => Ok(Vec::new()),
            Description::Safetensors { folder, .. } => {
                let (text, file) = tokenizer_json(folder)?;
                described::keys(&text, &file, &self.tokenizer()?, self.config.vocab_size)
            }
        }
    }

    fn check_size(&self, tokens: usize) -> Result<()> {
        let rows = self.config.vocab_size;
        if tokens > rows {
            let problem = format!("{tokens} tokens, but the embedding has only {rows} rows");
            return Err(Error::Tokenizer { file: self.name().to_owned(), problem });
        }
        Ok(())
    }

    /// The chat template; `None` when the checkpoint has none.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when it does not compile.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        match self.files.description() {
            Description::Gguf(metadata) => ChatTemplate::from_metadata(metadata),
            Description::Safetensors { folder, .. } => {
                let path = folder.join(TOKENIZER_CONFIG);
                let jinja = document::read_text(&folder.join("chat_template.jinja"), MAX_CONFIG)?;
                match (document::read(&path, MAX_TOKENIZER)?, jinja) {
                    (None, None) => Ok(None),
                    (config, jinja) => {
                        let config = config.unwrap_or_else(|| b"{}".to_vec());
                        ChatTemplate::from_config(&config, jinja.as_deref(), &path.display().to_string())
                    }
                }
            }
        }
    }
}

/// What `model_type` alone decides, before a weight is looked at.
fn refuse_early(config: &Json) -> Result<()> {
    match config.fields().get("model_type").and_then(|value| value.as_str()) {
        Some(model_type) => Architecture::of_model_type(model_type, config.file()).map(|_| ()),
        // Said with the rest of the configuration.
        None => Ok(()),
    }
}

/// The tokenizer of the files beside the weights.
fn tokenizer_of(folder: &Path) -> Result<Tokenizer> {
    let (text, file) = tokenizer_json(folder)?;
    let config = document::read(&folder.join(TOKENIZER_CONFIG), MAX_TOKENIZER)?;
    let generation = document::read(&folder.join("generation_config.json"), MAX_CONFIG)?;
    Tokenizer::from_json(&text, config.as_deref(), generation.as_deref(), &file)
}

/// The text of `tokenizer.json`, and its name for messages.
fn tokenizer_json(folder: &Path) -> Result<(Vec<u8>, String)> {
    let path = folder.join("tokenizer.json");
    match document::read(&path, MAX_TOKENIZER)? {
        Some(text) => Ok((text, path.display().to_string())),
        None => {
            let problem = "no tokenizer.json beside the weights; download it from the same place".into();
            Err(Error::Folder { folder: folder.display().to_string(), problem })
        }
    }
}
