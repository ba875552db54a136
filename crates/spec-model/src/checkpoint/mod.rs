//! A whole checkpoint: configuration and every tensor the architecture needs, checked at open.

mod files;
mod resolve;

use std::path::Path;

use crate::gguf::Metadata;
use crate::{ChatTemplate, Error, ModelConfig, Result, TensorView, Tokenizer, Weights};
use files::Files;
use resolve::Place;

/// An open checkpoint. Opening reads headers only, however large the files are.
#[derive(Debug)]
pub struct Checkpoint {
    files: Files,
    config: ModelConfig,
    weights: Weights<Place>,
}

impl Checkpoint {
    /// Opens and checks the checkpoint at `path`: a GGUF file, or any file of a set that it was split into.
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
        let mut config = ModelConfig::from_metadata(files.metadata())?;
        let weights = resolve::resolve(&files, &mut config)?;
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

    /// Names and sizes in bytes of the files.
    pub fn files(&self) -> impl Iterator<Item = (&str, usize)> {
        (0..self.files.count()).map(|file| (self.files.file_name(file), self.files.bytes(file).as_ref().len()))
    }

    /// The metadata, for keys that no accessor covers.
    pub fn metadata(&self) -> Metadata<'_> {
        self.files.metadata()
    }

    /// Metadata keys in file order.
    pub fn keys(&self) -> &[String] {
        self.files.keys()
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

    /// Lets the pages of a tensor go once it was repacked; they are read from the file again if touched.
    pub fn release(&self, tensor: &TensorView<'_>) {
        self.files.bytes(tensor.file).release(tensor.file_range());
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
    /// As [`Self::tokenizer`].
    pub fn tokenizer_with(&self, pre_tokenizer: Option<&str>) -> Result<Tokenizer> {
        let tokenizer = Tokenizer::from_metadata(self.metadata(), pre_tokenizer)?;
        if tokenizer.vocab_size() > self.config.vocab_size {
            return Err(Error::Tokenizer {
                file: self.name().to_owned(),
                problem: format!(
                    "{} tokens, but the embedding has only {} rows",
                    tokenizer.vocab_size(),
                    self.config.vocab_size
                ),
            });
        }
        Ok(tokenizer)
    }

    /// The chat template; `None` when the checkpoint has none.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when it does not compile.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        ChatTemplate::from_metadata(self.metadata())
    }
}
