//! Finding tensors by their role, and checking them.

use super::files::Files;
use crate::architecture::Bias;
use crate::names::{self, Names};
use crate::weights::Form;
use crate::{Error, LayerWeights, Linear, ModelConfig, Norm, NormKind, Result, TensorType, TensorView, Weights};

/// Where a tensor of the decoder is: a stored one, or a part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    file: usize,
    tensor: usize,
    rows: usize,
    cols: usize,
    /// Bytes before it in the stored one.
    before: usize,
    form: Form,
}

impl Place {
    /// All of a stored tensor.
    pub(super) fn whole(files: &Files, file: usize, tensor: usize) -> Self {
        let info = &files.tensors(file)[tensor];
        Self { file, tensor, rows: info.rows(), cols: info.cols(), before: 0, form: Form::Plain }
    }

    pub(super) fn view<'a>(&self, files: &'a Files) -> TensorView<'a> {
        let info = &files.tensors(self.file)[self.tensor];
        let start = info.range.start + self.before;
        let length = match self.form {
            Form::Plain => {
                info.range.len() / (info.rows() * info.cols() / info.tensor_type.block_size())
                    * (self.rows * self.cols / info.tensor_type.block_size())
            }
            Form::Transposed { .. } | Form::FromOne(_) => info.range.len(),
        };
        TensorView {
            name: &info.name,
            tensor_type: if matches!(self.form, Form::FromOne(_)) { TensorType::F32 } else { info.tensor_type },
            rows: self.rows,
            cols: self.cols,
            stored: &files.bytes(self.file).as_ref()[start..start + length],
            file: self.file,
            start,
            form: self.form,
        }
    }
}

/// Finds every tensor of `config`'s architecture, and completes `config` with what tensors tell: the vocabulary, whether
/// the head is the embedding, frequency factors.
pub(super) fn resolve(files: &Files, config: &mut ModelConfig) -> Result<Weights<Place>> {
    let used = (0..files.count()).map(|file| vec![false; files.tensors(file).len()]).collect();
    Resolver { files, names: &names::GGUF, architecture: config.architecture.name, used }.resolve(config)
}

/// Remembers which tensors were used.
struct Resolver<'a> {
    files: &'a Files,
    names: &'static Names,
    architecture: &'static str,
    used: Vec<Vec<bool>>,
}

impl Resolver<'_> {
    fn resolve(mut self, config: &mut ModelConfig) -> Result<Weights<Place>> {
        let hidden = config.hidden_size;
        let embedding = self.embedding(config)?;
        let output = format!("{}.weight", self.names.output);
        let output = match self.files.find(&output) {
            Some(_) => Some(self.matrix(&output, config.vocab_size, hidden)?),
            None => None,
        };
        config.tied_embeddings = output.is_none();
        if let Some(rope) = &mut config.rope
            && self.files.find(FREQUENCY_FACTORS).is_some()
        {
            rope.frequency_factors = Some(self.frequency_factors(rope.dims / 2)?);
        }
        let positions = match config.rope {
            Some(_) => None,
            None => {
                let name = format!("{}.weight", self.names.positions);
                Some(self.matrix(&name, config.context_length, hidden)?)
            }
        };
        let output_norm = self.norm(self.names.output_norm, hidden, config.norm)?;
        let parts = Parts::of(&self, config);
        let layers = (0..config.layers).map(|layer| self.layer(layer, config, &parts)).collect::<Result<Vec<_>>>()?;
        self.refuse_unused()?;
        Ok(Weights { embedding, positions, output_norm, output, layers })
    }

    fn embedding(&mut self, config: &mut ModelConfig) -> Result<Place> {
        let hidden = config.hidden_size;
        let (file, tensor) = self.find(&format!("{}.weight", self.names.embedding))?;
        let rows = self.files.tensors(file)[tensor].rows();
        if u32::try_from(rows).is_err() {
            return Err(self.shape_error((file, tensor), "at most 2^32 - 1 rows".into()));
        }
        self.check((file, tensor), &[rows, hidden])?;
        let key = format!("{}.vocab_size", config.architecture.name);
        if let Some(vocab) = self.files.metadata().optional_u32(&key)?
            && vocab as usize != rows
        {
            return Err(self.shape_error((file, tensor), format!("[{vocab}, {hidden}]")));
        }
        config.vocab_size = rows;
        Ok(Place::whole(self.files, file, tensor))
    }

    fn layer(&mut self, layer: usize, config: &ModelConfig, parts: &Parts) -> Result<LayerWeights<Place>> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let queries = config.heads * config.head_dim;
        let (names, architecture) = (self.names, config.architecture);
        let name = |part: &str| layer_part(names, layer, part);
        let [q, k, v] = self.query_key_value(layer, config, parts)?;
        Ok(LayerWeights {
            attn_norm: self.norm(&name(names.attn_norm), hidden, config.norm)?,
            q,
            k,
            v,
            q_norm: self.head_norm(&name(names.q_norm), config)?,
            k_norm: self.head_norm(&name(names.k_norm), config)?,
            attn_output: self.linear(&name(names.attn_output), hidden, queries, parts.attn_output_bias)?,
            post_attn_norm: match architecture.post_norms {
                true => Some(self.norm(&name(names.post_attn_norm), hidden, config.norm)?),
                false => None,
            },
            ffn_norm: self.norm(&name(names.ffn_norm), hidden, config.norm)?,
            gate: match architecture.gated {
                true => Some(self.linear(&name(names.gate), inner, hidden, parts.ffn_bias)?),
                false => None,
            },
            up: self.linear(&name(names.up), inner, hidden, parts.ffn_bias)?,
            down: self.linear(&name(names.down), hidden, inner, parts.ffn_bias)?,
            post_ffn_norm: match architecture.post_norms {
                true => Some(self.norm(&name(names.post_ffn_norm), hidden, config.norm)?),
                false => None,
            },
        })
    }

    fn query_key_value(&mut self, layer: usize, config: &ModelConfig, parts: &Parts) -> Result<[Linear<Place>; 3]> {
        let (hidden, names) = (config.hidden_size, self.names);
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let widths = [queries, keys, keys];
        if !config.architecture.fused_qkv {
            let [q, k, v] = [names.q, names.k, names.v].map(|part| layer_part(names, layer, part));
            return Ok([
                self.linear(&q, queries, hidden, parts.qkv_bias)?,
                self.linear(&k, keys, hidden, parts.qkv_bias)?,
                self.linear(&v, keys, hidden, parts.qkv_bias)?,
            ]);
        }
        let fused = layer_part(names, layer, names.qkv);
        let Linear { weight, bias } = self.linear(&fused, queries + 2 * keys, hidden, parts.qkv_bias)?;
        let mut first = 0;
        Ok(widths.map(|width| {
            let part = Linear {
                weight: self.rows(weight, first, width),
                bias: bias.map(|bias| self.elements(bias, first, width)),
            };
            first += width;
            part
        }))
    }

    /// Rows of a matrix, of any form but one that needs its whole.
    fn rows(&self, whole: Place, first: usize, rows: usize) -> Place {
        let info = &self.files.tensors(whole.file)[whole.tensor];
        match whole.form {
            Form::Transposed { of, .. } => Place { rows, form: Form::Transposed { first, of }, ..whole },
            Form::Plain | Form::FromOne(_) => Place { rows, before: first * (info.range.len() / whole.rows), ..whole },
        }
    }

    /// Elements of a vector whose type's block is one element.
    fn elements(&self, whole: Place, first: usize, cols: usize) -> Place {
        let info = &self.files.tensors(whole.file)[whole.tensor];
        Place { cols, before: first * info.tensor_type.block_bytes(), ..whole }
    }

    fn refuse_unused(&self) -> Result<()> {
        for (file, used) in self.used.iter().enumerate() {
            if let Some(unused) = used.iter().position(|used| !used) {
                return Err(Error::UnexpectedTensor {
                    file: self.files.file_name(file).to_owned(),
                    tensor: self.files.tensors(file)[unused].name.clone(),
                    architecture: self.architecture,
                });
            }
        }
        Ok(())
    }

    fn find(&mut self, name: &str) -> Result<(usize, usize)> {
        let slot = self
            .files
            .find(name)
            .ok_or_else(|| Error::MissingTensor { file: self.files.name().to_owned(), tensor: name.to_owned() })?;
        self.used[slot.0][slot.1] = true;
        Ok(slot)
    }

    /// `shape` is slowest first.
    fn check(&self, slot: (usize, usize), shape: &[usize]) -> Result<()> {
        if self.files.tensors(slot.0)[slot.1].dims.iter().rev().eq(shape) {
            return Ok(());
        }
        Err(self.shape_error(slot, format!("{shape:?}")))
    }

    fn shape_error(&self, (file, tensor): (usize, usize), wanted: String) -> Error {
        let info = &self.files.tensors(file)[tensor];
        Error::TensorShape {
            file: self.files.file_name(file).to_owned(),
            tensor: info.name.clone(),
            found: info.shape(),
            wanted,
        }
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Place> {
        let (file, tensor) = self.find(name)?;
        self.check((file, tensor), &[rows, cols])?;
        Ok(Place::whole(self.files, file, tensor))
    }

    fn norm(&mut self, name: &str, width: usize, kind: NormKind) -> Result<Norm<Place>> {
        let weight = self.vector(&format!("{name}.weight"), width)?;
        let bias = match kind {
            NormKind::Layer => Some(self.vector(&format!("{name}.bias"), width)?),
            NormKind::Rms => None,
        };
        Ok(Norm { weight, bias })
    }

    fn head_norm(&mut self, name: &str, config: &ModelConfig) -> Result<Option<Place>> {
        match config.architecture.head_norms {
            true => self.vector(&format!("{name}.weight"), config.head_dim).map(Some),
            false => Ok(None),
        }
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize, bias: bool) -> Result<Linear<Place>> {
        let weight = self.matrix(&format!("{name}.weight"), outputs, inputs)?;
        let bias = bias.then(|| self.vector(&format!("{name}.bias"), outputs)).transpose()?;
        Ok(Linear { weight, bias })
    }

    /// A vector may have any type whose block is one element.
    fn vector(&mut self, name: &str, length: usize) -> Result<Place> {
        let (file, tensor) = self.find(name)?;
        self.check((file, tensor), &[length])?;
        let found = self.files.tensors(file)[tensor].tensor_type;
        if found.block_size() != 1 {
            return Err(Error::TensorType {
                file: self.files.file_name(file).to_owned(),
                tensor: name.to_owned(),
                found: format!("{found} for a vector"),
                supported: "F32, F16, BF16".to_owned(),
            });
        }
        Ok(Place::whole(self.files, file, tensor))
    }

    fn frequency_factors(&mut self, pairs: usize) -> Result<Vec<f32>> {
        let factors = self.vector(FREQUENCY_FACTORS, pairs)?.view(self.files).to_f32();
        match factors.iter().find(|f| !f.is_finite() || **f <= 0.0) {
            None => Ok(factors),
            Some(bad) => Err(Error::Malformed {
                file: self.files.name().to_owned(),
                place: format!("tensor `{FREQUENCY_FACTORS}`"),
                problem: format!("factor {bad} is not a positive number"),
            }),
        }
    }
}

/// GGUF's divisors of rotary frequencies.
const FREQUENCY_FACTORS: &str = "rope_freqs.weight";

fn layer_part(names: &Names, layer: usize, part: &str) -> String {
    format!("{}{layer}.{part}", names.layers)
}

/// Which projections have a bias.
struct Parts {
    qkv_bias: bool,
    attn_output_bias: bool,
    ffn_bias: bool,
}

impl Parts {
    /// What is left open is as in the first layer: one that differs is an error.
    fn of(resolver: &Resolver<'_>, config: &ModelConfig) -> Self {
        let names = resolver.names;
        let has = |bias: Bias, part: &str| match bias {
            Bias::Never => false,
            Bias::Always => true,
            Bias::Configured => resolver.files.find(&format!("{}.bias", layer_part(names, 0, part))).is_some(),
        };
        let architecture = config.architecture;
        Self {
            qkv_bias: has(architecture.qkv_bias, names.q),
            attn_output_bias: has(architecture.attn_output_bias, names.attn_output),
            ffn_bias: has(architecture.ffn_bias, names.up),
        }
    }
}
