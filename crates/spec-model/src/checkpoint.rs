//! A whole checkpoint: configuration and every tensor the architecture needs, checked at open.

use std::ops::Range;
use std::path::Path;

use crate::gguf::{Gguf, Metadata, TensorInfo};
use crate::{ChatTemplate, Error, Mapping, ModelConfig, Result, TensorType, Tokenizer, dequantize};

/// An open checkpoint. Opening reads the header only, however large the file is.
#[derive(Debug)]
pub struct Checkpoint {
    gguf: Gguf<Mapping>,
    config: ModelConfig,
    weights: Weights<usize>,
}

/// A tensor's bytes and what they mean. A vector is one row.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct TensorView<'a> {
    /// Name in the file.
    pub name: &'a str,
    /// Element type.
    pub tensor_type: TensorType,
    /// Rows: outputs of a matrix.
    pub rows: usize,
    /// Elements per row: inputs of a matrix.
    pub cols: usize,
    /// `rows` rows of [`TensorType::row_bytes`]`(cols)` bytes, without padding; no alignment is promised.
    pub bytes: &'a [u8],
    /// First byte in the file.
    start: usize,
}

impl<'a> TensorView<'a> {
    fn new(info: &'a TensorInfo, bytes: &'a [u8]) -> Self {
        Self {
            name: &info.name,
            tensor_type: info.tensor_type,
            rows: info.rows(),
            cols: info.cols(),
            bytes,
            start: info.range.start,
        }
    }

    /// Bytes of row `index`; `None` past the last row.
    pub fn row(&self, index: usize) -> Option<&'a [u8]> {
        let size = self.bytes.len() / self.rows;
        self.bytes.chunks_exact(size).nth(index)
    }

    /// All elements as `f32`, row by row. Meant for vectors; a matrix is as large as its product.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.cols];
        dequantize(self.tensor_type, self.bytes, &mut values).expect("a view's length was checked when it was parsed");
        values
    }

    /// The tensor's bytes in the file, for [`Checkpoint::release`].
    pub fn file_range(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }
}

/// The tensors of a decoder. `T` is a [`TensorView`] for users.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Weights<T> {
    /// Token embedding, `[vocab_size, hidden_size]`.
    pub embedding: T,
    /// Last norm, `[hidden_size]` of F32.
    pub output_norm: T,
    /// Head, `[vocab_size, hidden_size]`; `None` when the embedding serves as head.
    pub output: Option<T>,
    /// The layers, first to last.
    pub layers: Vec<LayerWeights<T>>,
}

/// The tensors of one decoder layer; matrices are `[outputs, inputs]`, norms and biases F32 vectors.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LayerWeights<T> {
    /// Norm before attention, `[hidden_size]`.
    pub attn_norm: T,
    /// Query, `[heads * head_dim, hidden_size]`.
    pub q: T,
    /// Key, `[kv_heads * head_dim, hidden_size]`.
    pub k: T,
    /// Value, `[kv_heads * head_dim, hidden_size]`.
    pub v: T,
    /// Query bias, when the architecture has attention biases.
    pub q_bias: Option<T>,
    /// Key bias, likewise.
    pub k_bias: Option<T>,
    /// Value bias, likewise.
    pub v_bias: Option<T>,
    /// Attention output, `[hidden_size, heads * head_dim]`.
    pub attn_output: T,
    /// Norm before the feed-forward block, `[hidden_size]`.
    pub ffn_norm: T,
    /// Gate, `[intermediate_size, hidden_size]`.
    pub gate: T,
    /// Up, `[intermediate_size, hidden_size]`.
    pub up: T,
    /// Down, `[hidden_size, intermediate_size]`.
    pub down: T,
}

impl<T> Weights<T> {
    fn map<U>(&self, f: impl Fn(&T) -> U) -> Weights<U> {
        let layer = |l: &LayerWeights<T>| LayerWeights {
            attn_norm: f(&l.attn_norm),
            q: f(&l.q),
            k: f(&l.k),
            v: f(&l.v),
            q_bias: l.q_bias.as_ref().map(&f),
            k_bias: l.k_bias.as_ref().map(&f),
            v_bias: l.v_bias.as_ref().map(&f),
            attn_output: f(&l.attn_output),
            ffn_norm: f(&l.ffn_norm),
            gate: f(&l.gate),
            up: f(&l.up),
            down: f(&l.down),
        };
        Weights {
            embedding: f(&self.embedding),
            output_norm: f(&self.output_norm),
            output: self.output.as_ref().map(&f),
            layers: self.layers.iter().map(layer).collect(),
        }
    }
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
        TensorView::new(&self.gguf.tensors()[index], self.gguf.tensor_bytes(index))
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
        if self.gguf.tensor_index("rope_freqs.weight").is_some() {
            config.rope.frequency_factors = Some(self.frequency_factors(config.rope.dims / 2)?);
        }
        let output_norm = self.vector("output_norm.weight", hidden)?;

        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let bias = config.architecture.attention_bias;
        let mut layers = Vec::new();
        for i in 0..config.layers {
            let name = |part: &str| format!("blk.{i}.{part}");
            let mut optional_bias = |part: &str, length| match bias {
                true => self.vector(&name(part), length).map(Some),
                false => Ok(None),
            };
            let q_bias = optional_bias("attn_q.bias", queries)?;
            let k_bias = optional_bias("attn_k.bias", keys)?;
            let v_bias = optional_bias("attn_v.bias", keys)?;
            layers.push(LayerWeights {
                attn_norm: self.vector(&name("attn_norm.weight"), hidden)?,
                q: self.matrix(&name("attn_q.weight"), queries, hidden)?,
                k: self.matrix(&name("attn_k.weight"), keys, hidden)?,
                v: self.matrix(&name("attn_v.weight"), keys, hidden)?,
                q_bias,
                k_bias,
                v_bias,
                attn_output: self.matrix(&name("attn_output.weight"), hidden, queries)?,
                ffn_norm: self.vector(&name("ffn_norm.weight"), hidden)?,
                gate: self.matrix(&name("ffn_gate.weight"), inner, hidden)?,
                up: self.matrix(&name("ffn_up.weight"), inner, hidden)?,
                down: self.matrix(&name("ffn_down.weight"), hidden, inner)?,
            });
        }
        if let Some(unused) = self.used.iter().position(|used| !used) {
            return Err(Error::UnexpectedTensor {
                file: self.gguf.name().to_owned(),
                tensor: self.gguf.tensors()[unused].name.clone(),
                architecture: config.architecture.name,
            });
        }
        Ok(Weights { embedding, output_norm, output, layers })
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
        let factors = TensorView::new(&self.gguf.tensors()[index], self.gguf.tensor_bytes(index)).to_f32();
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
