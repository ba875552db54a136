//! Finding tensors by their role, and checking them.

use super::files::{Description, Files};
use crate::architecture::Bias;
use crate::config::Declared;
use crate::names::{self, Names};
use crate::weights::Form;
use crate::{
    Error, LayerWeights, Linear, ModelConfig, Norm, NormKind, Result, TensorType, TensorView, Weights, safetensors,
};

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
pub(super) fn resolve(files: &Files, config: &mut ModelConfig, declared: &Declared) -> Result<Weights<Place>> {
    let layout = match files.description() {
        Description::Gguf(_) => {
            Layout { names: &names::GGUF, prefix: "", transposed: false, norms_from_one: false, derived: false }
        }
        Description::Safetensors { .. } => {
            let names = config.architecture.names;
            // The last norm stands in for an embedding that is missing, so that the message names that as it would be.
            let under = |prefix: &&&str| {
                let there = |name: &str| files.find(&format!("{prefix}{name}.weight")).is_some();
                there(names.embedding) || there(names.output_norm)
            };
            Layout {
                names,
                prefix: names::PREFIXES.iter().find(under).copied().unwrap_or(names::PREFIXES[0]),
                transposed: config.architecture.transposed,
                norms_from_one: config.architecture.norms_from_one,
                derived: true,
            }
        }
    };
    let used = (0..files.count()).map(|file| vec![false; files.tensors(file).len()]).collect();
    Resolver { files, layout, architecture: config.architecture.name, used }.resolve(config, declared)
}

/// How a format stores what an architecture needs.
#[derive(Clone, Copy)]
struct Layout {
    names: &'static Names,
    /// Before every name but the head's.
    prefix: &'static str,
    /// Matrices are `[inputs, outputs]`.
    transposed: bool,
    norms_from_one: bool,
    /// True when tensors that follow from the configuration may be there.
    derived: bool,
}

impl Layout {
    fn named(&self, name: &str) -> String {
        format!("{}{name}.weight", self.prefix)
    }

    fn layer_part(&self, layer: usize, part: &str) -> String {
        format!("{}{}{layer}.{part}", self.prefix, self.names.layers)
    }

    /// The head's name, of those that there are.
    fn output(&self, files: &Files) -> Option<String> {
        let prefixes = if self.derived { names::OUTPUT_PREFIXES.as_slice() } else { &[""] };
        let mut named = prefixes.iter().map(|prefix| format!("{prefix}{}.weight", self.names.output));
        named.find(|name| files.find(name).is_some())
    }

    /// True for a tensor that may be left aside.
    fn may_ignore(&self, name: &str, declared: &Declared) -> bool {
        (self.derived && names::DERIVED.iter().any(|ending| name.ends_with(ending)))
            || (declared.other_parts && names::OTHER_PARTS.iter().any(|beginning| name.starts_with(beginning)))
    }
}

/// Remembers which tensors were used.
struct Resolver<'a> {
    files: &'a Files,
    layout: Layout,
    architecture: &'static str,
    used: Vec<Vec<bool>>,
}

impl Resolver<'_> {
    fn resolve(mut self, config: &mut ModelConfig, declared: &Declared) -> Result<Weights<Place>> {
        let (hidden, layout) = (config.hidden_size, self.layout);
        self.refuse_types(declared)?;
        let embedding = self.embedding(config, declared)?;
        let stored = layout.output(self.files);
        let output = match (declared.tied, stored) {
            // A copy that some files carry beside the embedding.
            (Some(true), Some(name)) => {
                self.find(&name)?;
                None
            }
            (Some(true) | None, None) => None,
            (_, Some(name)) => Some(self.matrix(&name, config.vocab_size, hidden)?),
            (Some(false), None) => {
                Some(self.matrix(&format!("{}.weight", layout.names.output), config.vocab_size, hidden)?)
            }
        };
        config.tied_embeddings = output.is_none();
        if let Some(rope) = &mut config.rope
            && self.files.find(FREQUENCY_FACTORS).is_some()
        {
            rope.frequency_factors = Some(self.frequency_factors(rope.dims / 2)?);
        }
        let positions = match config.rope {
            Some(_) => None,
            None => Some(self.matrix(&layout.named(layout.names.positions), config.context_length, hidden)?),
        };
        let output_norm = self.norm(&format!("{}{}", layout.prefix, layout.names.output_norm), hidden, config.norm)?;
        let parts = Parts::of(&self, config, declared);
        let layers = (0..config.layers).map(|layer| self.layer(layer, config, &parts)).collect::<Result<Vec<_>>>()?;
        self.refuse_unused(declared)?;
        Ok(Weights { embedding, positions, output_norm, output, layers })
    }

    fn embedding(&mut self, config: &mut ModelConfig, declared: &Declared) -> Result<Place> {
        let hidden = config.hidden_size;
        let (file, tensor) = self.find(&self.layout.named(self.layout.names.embedding))?;
        let rows = self.files.tensors(file)[tensor].rows();
        if u32::try_from(rows).is_err() {
            return Err(self.shape_error((file, tensor), "at most 2^32 - 1 rows".into()));
        }
        self.check((file, tensor), &[rows, hidden])?;
        if let Some(vocab) = declared.vocab_size.filter(|&vocab| vocab != rows) {
            return Err(self.shape_error((file, tensor), format!("[{vocab}, {hidden}]")));
        }
        config.vocab_size = rows;
        Ok(Place::whole(self.files, file, tensor))
    }

    fn layer(&mut self, layer: usize, config: &ModelConfig, parts: &Parts) -> Result<LayerWeights<Place>> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let queries = config.heads * config.head_dim;
        let (layout, architecture) = (self.layout, config.architecture);
        let names = layout.names;
        let name = |part: &str| layout.layer_part(layer, part);
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
        let (hidden, layout) = (config.hidden_size, self.layout);
        let names = layout.names;
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let widths = [queries, keys, keys];
        if !config.architecture.fused_qkv {
            let [q, k, v] = [names.q, names.k, names.v].map(|part| layout.layer_part(layer, part));
            return Ok([
                self.linear(&q, queries, hidden, parts.qkv_bias)?,
                self.linear(&k, keys, hidden, parts.qkv_bias)?,
                self.linear(&v, keys, hidden, parts.qkv_bias)?,
            ]);
        }
        let fused = layout.layer_part(layer, names.qkv);
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

    /// Types that cannot be read are refused before the first shape is.
    fn refuse_types(&self, declared: &Declared) -> Result<()> {
        for file in 0..self.files.count() {
            let needed = self.files.others(file).iter().find(|(name, _)| !self.layout.may_ignore(name, declared));
            if let Some((name, found)) = needed {
                return Err(safetensors::type_error(self.files.file_name(file), name, found));
            }
        }
        Ok(())
    }

    fn refuse_unused(&self, declared: &Declared) -> Result<()> {
        for (file, used) in self.used.iter().enumerate() {
            let tensors = self.files.tensors(file);
            let unused =
                tensors.iter().zip(used).find(|(info, used)| !**used && !self.layout.may_ignore(&info.name, declared));
            if let Some((info, _)) = unused {
                return Err(Error::UnexpectedTensor {
                    file: self.files.file_name(file).to_owned(),
                    tensor: info.name.clone(),
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
        let weight = self.scale(name, width)?;
        let bias = match kind {
            NormKind::Layer => Some(self.vector(&format!("{name}.bias"), width)?),
            NormKind::Rms => None,
        };
        Ok(Norm { weight, bias })
    }

    fn head_norm(&mut self, name: &str, config: &ModelConfig) -> Result<Option<Place>> {
        match config.architecture.head_norms {
            true => self.scale(name, config.head_dim).map(Some),
            false => Ok(None),
        }
    }

    /// What a norm multiplies with.
    fn scale(&mut self, name: &str, width: usize) -> Result<Place> {
        let place = self.vector(&format!("{name}.weight"), width)?;
        let stored = self.files.tensors(place.file)[place.tensor].tensor_type;
        let form = if self.layout.norms_from_one { Form::FromOne(stored) } else { Form::Plain };
        Ok(Place { form, ..place })
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize, bias: bool) -> Result<Linear<Place>> {
        let weight = match self.layout.transposed {
            false => self.matrix(&format!("{name}.weight"), outputs, inputs)?,
            true => {
                let stored = self.matrix(&format!("{name}.weight"), inputs, outputs)?;
                Place { rows: outputs, cols: inputs, form: Form::Transposed { first: 0, of: outputs }, ..stored }
            }
        };
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

/// Which projections have a bias.
struct Parts {
    qkv_bias: bool,
    attn_output_bias: bool,
    ffn_bias: bool,
}

impl Parts {
    /// What is left open is as in the first layer: one that differs is an error.
    fn of(resolver: &Resolver<'_>, config: &ModelConfig, declared: &Declared) -> Self {
        let Resolver { files, layout, .. } = resolver;
        let has = |bias: Bias, declared: Option<bool>, part: &str| match bias {
            Bias::Never => false,
            Bias::Always => true,
            Bias::Configured => {
                declared.unwrap_or_else(|| files.find(&format!("{}.bias", layout.layer_part(0, part))).is_some())
            }
        };
        let architecture = config.architecture;
        Self {
            qkv_bias: has(architecture.qkv_bias, declared.attention_bias, layout.names.q),
            attn_output_bias: has(architecture.attn_output_bias, declared.attention_bias, layout.names.attn_output),
            ffn_bias: has(architecture.ffn_bias, declared.ffn_bias, layout.names.up),
        }
    }
}
