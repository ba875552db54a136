//! A whole checkpoint: configuration and every tensor the architecture needs, checked at open.

use std::path::Path;

use crate::gguf::{Gguf, Metadata};
use crate::weights::Form;
use crate::{
    ChatTemplate, Error, LayerWeights, Linear, Mapping, ModelConfig, Norm, Result, TensorType, TensorView, Tokenizer,
    Weights,
};

/// An open checkpoint. Opening reads the header only, however large the file is.
#[derive(Debug)]
pub struct Checkpoint {
    gguf: Gguf<Mapping>,
    config: ModelConfig,
    weights: Weights<usize>,
}

impl Checkpoint {
    /// Opens and checks the GGUF file at `path`.
    ///
    /// # Errors
    /// Any of the crate's errors about files; no tensor is ever skipped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::new(Mapping::open(path)?, &path.display().to_string())
    }

    /// As [`Self::open`], of bytes in memory; `name` stands for the file in messages.
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self> {
        Self::new(bytes.into(), name)
    }

    fn new(bytes: Mapping, name: &str) -> Result<Self> {
        let gguf = Gguf::parse(bytes, name)?;
        let mut config = ModelConfig::from_metadata(gguf.metadata())?;
        let weights = Resolver { gguf: &gguf, used: vec![false; gguf.tensors().len()] }.resolve(&mut config)?;
        Ok(Self { gguf, config, weights })
    }

    /// The hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The metadata, for keys that no accessor covers.
    pub fn metadata(&self) -> Metadata<'_> {
        self.gguf.metadata()
    }

    /// The container, for listings.
    pub fn gguf(&self) -> &Gguf<Mapping> {
        &self.gguf
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        match self.gguf.tensor_index(name) {
            Some(index) => Ok(self.view(index)),
            None => Err(Error::MissingTensor { file: self.gguf.name().to_owned(), tensor: name.to_owned() }),
        }
    }

    /// All tensors, by their role.
    pub fn weights(&self) -> Weights<TensorView<'_>> {
        self.weights.map(|&index| self.view(index))
    }

    /// Lets the pages of a tensor go once it was repacked; they are read from the file again if touched.
    pub fn release(&self, tensor: &TensorView<'_>) {
        self.gguf.bytes().release(tensor.file_range());
    }

    /// Builds the tokenizer: the one costly step, some tenths of a second for a vocabulary of 150,000.
    ///
    /// # Errors
    /// [`Error::PreTokenizer`], [`Error::Tokenizer`] and those about keys.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        self.tokenizer_with(None)
    }

    /// As [`Self::tokenizer`], with the pre-tokenizer named by the caller instead of `tokenizer.ggml.pre`.
    pub fn tokenizer_with(&self, pre_tokenizer: Option<&str>) -> Result<Tokenizer> {
        let tokenizer = Tokenizer::from_metadata(self.metadata(), pre_tokenizer)?;
        if tokenizer.vocab_size() > self.config.vocab_size {
            return Err(Error::Tokenizer {
                file: self.gguf.name().to_owned(),
                problem: format!(
                    "{} tokens, but the embedding has only {} rows",
                    tokenizer.vocab_size(),
                    self.config.vocab_size
                ),
            });
        }
        Ok(tokenizer)
    }

    /// The chat template; `None` when the file has none.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when it does not compile.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        ChatTemplate::from_metadata(self.metadata())
    }

    fn view(&self, index: usize) -> TensorView<'_> {
        view(&self.gguf, index)
    }
}

fn view(gguf: &Gguf<Mapping>, index: usize) -> TensorView<'_> {
    let info = &gguf.tensors()[index];
    TensorView {
        name: &info.name,
        tensor_type: info.tensor_type,
        rows: info.rows(),
        cols: info.cols(),
        stored: gguf.tensor_bytes(index),
        file: 0,
        start: info.range.start,
        form: Form::Plain,
    }
}

/// Finds tensors by name, checks them, and remembers which were used.
struct Resolver<'a> {
    gguf: &'a Gguf<Mapping>,
    used: Vec<bool>,
}

impl Resolver<'_> {
    fn resolve(mut self, config: &mut ModelConfig) -> Result<Weights<usize>> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let embedding = self.find("token_embd.weight")?;
        config.vocab_size = self.gguf.tensors()[embedding].rows();
        if u32::try_from(config.vocab_size).is_err() {
            return Err(self.shape_error(embedding, "at most 2^32 - 1 rows".into()));
        }
        self.check(embedding, &[config.vocab_size, hidden])?;
        let key = format!("{}.vocab_size", config.architecture.name);
        if let Some(vocab) = self.gguf.metadata().optional_u32(&key)?
            && vocab as usize != config.vocab_size
        {
            return Err(self.shape_error(embedding, format!("[{vocab}, {hidden}]")));
        }
        let output = match self.gguf.tensor_index("output.weight") {
            Some(_) => Some(self.matrix("output.weight", config.vocab_size, hidden)?),
            None => None,
        };
        config.tied_embeddings = output.is_none();
        if let Some(rope) = &mut config.rope
            && self.gguf.tensor_index("rope_freqs.weight").is_some()
        {
            rope.frequency_factors = Some(self.frequency_factors(rope.dims / 2)?);
        }
        let output_norm = self.norm("output_norm", hidden)?;

        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let bias = config.architecture.attention_bias;
        let mut layers = Vec::new();
        for i in 0..config.layers {
            let name = |part: &str| format!("blk.{i}.{part}");
            layers.push(LayerWeights {
                attn_norm: self.norm(&name("attn_norm"), hidden)?,
                q: self.linear(&name("attn_q"), queries, hidden, bias)?,
                k: self.linear(&name("attn_k"), keys, hidden, bias)?,
                v: self.linear(&name("attn_v"), keys, hidden, bias)?,
                q_norm: None,
                k_norm: None,
                attn_output: self.linear(&name("attn_output"), hidden, queries, false)?,
                post_attn_norm: None,
                ffn_norm: self.norm(&name("ffn_norm"), hidden)?,
                gate: Some(self.linear(&name("ffn_gate"), inner, hidden, false)?),
                up: self.linear(&name("ffn_up"), inner, hidden, false)?,
                down: self.linear(&name("ffn_down"), hidden, inner, false)?,
                post_ffn_norm: None,
            });
        }
        if let Some(unused) = self.used.iter().position(|used| !used) {
            return Err(Error::UnexpectedTensor {
                file: self.gguf.name().to_owned(),
                tensor: self.gguf.tensors()[unused].name.clone(),
                architecture: config.architecture.name,
            });
        }
        Ok(Weights { embedding, positions: None, output_norm, output, layers })
    }

    fn find(&mut self, name: &str) -> Result<usize> {
        let index = self
            .gguf
            .tensor_index(name)
            .ok_or_else(|| Error::MissingTensor { file: self.gguf.name().to_owned(), tensor: name.to_owned() })?;
        self.used[index] = true;
        Ok(index)
    }

    /// `shape` is slowest first.
    fn check(&self, index: usize, shape: &[usize]) -> Result<()> {
        if self.gguf.tensors()[index].dims.iter().rev().eq(shape) {
            return Ok(());
        }
        Err(self.shape_error(index, format!("{shape:?}")))
    }

    fn shape_error(&self, index: usize, wanted: String) -> Error {
        let info = &self.gguf.tensors()[index];
        Error::TensorShape { file: self.gguf.name().to_owned(), tensor: info.name.clone(), found: info.shape(), wanted }
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<usize> {
        let index = self.find(name)?;
        self.check(index, &[rows, cols])?;
        Ok(index)
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Norm<usize>> {
        Ok(Norm { weight: self.vector(&format!("{name}.weight"), width)?, bias: None })
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize, bias: bool) -> Result<Linear<usize>> {
        let weight = self.matrix(&format!("{name}.weight"), outputs, inputs)?;
        let bias = bias.then(|| self.vector(&format!("{name}.bias"), outputs)).transpose()?;
        Ok(Linear { weight, bias })
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<usize> {
        let index = self.find(name)?;
        self.check(index, &[length])?;
        let found = self.gguf.tensors()[index].tensor_type;
        if found != TensorType::F32 {
            return Err(Error::TensorType {
                file: self.gguf.name().to_owned(),
                tensor: name.to_owned(),
                found: format!("{found} for a vector"),
                supported: TensorType::F32.name().to_owned(),
            });
        }
        Ok(index)
    }

    fn frequency_factors(&mut self, pairs: usize) -> Result<Vec<f32>> {
        let name = "rope_freqs.weight";
        let index = self.vector(name, pairs)?;
        let factors = view(self.gguf, index).to_f32();
        match factors.iter().find(|f| !f.is_finite() || **f <= 0.0) {
            None => Ok(factors),
            Some(bad) => Err(Error::Malformed {
                file: self.gguf.name().to_owned(),
                place: format!("tensor `{name}`"),
                problem: format!("factor {bad} is not a positive number"),
            }),
        }
    }
}
