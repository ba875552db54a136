//! The tensors of a decoder by their role, whatever file they come from.

use std::borrow::Cow;
use std::ops::Range;

use crate::{Mapping, TensorType, dequantize};

/// A tensor and how it is stored. A vector is one row.
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
    pub(crate) stored: &'a [u8],
    /// Which file of the checkpoint, and the first byte in it.
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) form: Form,
}

/// How the stored elements become those of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// Rows `first..first + rows` of a matrix stored as `[cols, of]`, of a type whose block is one element.
    Transposed {
        /// First row.
        first: usize,
        /// Rows of the stored matrix.
        of: usize,
    },
    /// One to be added to each: a norm stored as its distance from one, in this type; the view's is F32.
    FromOne(TensorType),
}

impl<'a> TensorView<'a> {
    /// `rows` rows of [`TensorType::row_bytes`]`(cols)` bytes, without padding; no alignment is promised. Owned where
    /// the file stores them otherwise.
    #[must_use]
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self.form {
            Form::Plain => Cow::Borrowed(self.stored),
            Form::Transposed { first, of } => {
                let size = self.tensor_type.block_bytes();
                let mut bytes = Vec::with_capacity(self.rows * self.cols * size);
                for row in first..first + self.rows {
                    for col in 0..self.cols {
                        let at = (col * of + row) * size;
                        bytes.extend_from_slice(&self.stored[at..at + size]);
                    }
                }
                Cow::Owned(bytes)
            }
            Form::FromOne(_) => Cow::Owned(self.to_f32().iter().flat_map(|value| value.to_le_bytes()).collect()),
        }
    }

    /// Bytes that the view's elements take in the file.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        match self.form {
            Form::Plain | Form::FromOne(_) => self.stored.len(),
            Form::Transposed { .. } => self.rows * self.cols * self.tensor_type.block_bytes(),
        }
    }

    /// Bytes of row `index`; `None` past the last row.
    #[must_use]
    pub fn row(&self, index: usize) -> Option<Cow<'a, [u8]>> {
        if index >= self.rows {
            return None;
        }
        Some(match self.form {
            Form::Plain => {
                let size = self.stored.len() / self.rows;
                Cow::Borrowed(&self.stored[index * size..(index + 1) * size])
            }
            Form::Transposed { first, of } => {
                let row = Self { rows: 1, form: Form::Transposed { first: first + index, of }, ..*self };
                row.bytes()
            }
            Form::FromOne(_) => {
                let bytes = self.bytes();
                let size = bytes.len() / self.rows;
                Cow::Owned(bytes[index * size..(index + 1) * size].to_vec())
            }
        })
    }

    /// All elements as `f32`, row by row. Meant for vectors; a matrix is as large as its product.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        let (stored_type, bytes) = match self.form {
            Form::FromOne(stored_type) => (stored_type, Cow::Borrowed(self.stored)),
            Form::Plain | Form::Transposed { .. } => (self.tensor_type, self.bytes()),
        };
        let mut values = vec![0.0; self.rows * self.cols];
        dequantize(stored_type, &bytes, &mut values).expect("a view's length was checked when it was parsed");
        if matches!(self.form, Form::FromOne(_)) {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        values
    }

    /// The tensor's bytes in its file.
    #[must_use]
    pub fn file_range(&self) -> Range<usize> {
        self.start..self.start + self.stored.len()
    }
}

/// A tensor that needs no checkpoint around it: its bytes stay where they are, in a file's map as a rule.
#[derive(Debug, Clone)]
pub struct StoredTensor {
    mapping: Mapping,
    range: Range<usize>,
    name: String,
    tensor_type: TensorType,
    rows: usize,
    cols: usize,
}

impl StoredTensor {
    /// `mapping` is the file that `view` is in.
    pub(crate) fn new(view: &TensorView<'_>, mapping: &Mapping) -> Self {
        let TensorView { name, tensor_type, rows, cols, .. } = *view;
        let (mapping, range) = match view.form {
            Form::Plain => (mapping.clone(), view.file_range()),
            Form::Transposed { .. } | Form::FromOne(_) => {
                let bytes = view.bytes().into_owned();
                let range = 0..bytes.len();
                (Mapping::from(bytes), range)
            }
        };
        Self { mapping, range, name: name.to_owned(), tensor_type, rows, cols }
    }

    /// Name in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Element type.
    #[must_use]
    pub fn tensor_type(&self) -> TensorType {
        self.tensor_type
    }

    /// Rows: outputs of a matrix.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements per row: inputs of a matrix.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The bytes of these rows, as many of them as there are.
    #[must_use]
    pub fn bytes(&self, rows: Range<usize>) -> &[u8] {
        let size = self.range.len() / self.rows;
        let bytes = &self.mapping.as_ref()[self.range.clone()];
        &bytes[rows.start.min(self.rows) * size..rows.end.min(self.rows) * size]
    }

    /// Lets its pages go; they are read from the file again if touched.
    pub fn release(&self) {
        self.mapping.release(self.range.clone());
    }
}

/// A norm's vectors, of the normed width; F32, F16 or BF16.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Norm<T> {
    /// Factors.
    pub weight: T,
    /// Summands, in architectures with [`NormKind::Layer`](crate::NormKind).
    pub bias: Option<T>,
}

/// A projection, `[outputs, inputs]`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Linear<T> {
    /// The matrix.
    pub weight: T,
    /// `[outputs]`; F32, F16 or BF16.
    pub bias: Option<T>,
}

/// The tensors of a decoder. `T` is a [`TensorView`] for users.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Weights<T> {
    /// Token embedding, `[vocab_size, hidden_size]`.
    pub embedding: T,
    /// Learned positions, `[context_length, hidden_size]`, in architectures without rotary ones.
    pub positions: Option<T>,
    /// Last norm, of `hidden_size`.
    pub output_norm: Norm<T>,
    /// Head, `[vocab_size, hidden_size]`; `None` when the embedding serves as head.
    pub output: Option<T>,
    /// The layers, first to last.
    pub layers: Vec<LayerWeights<T>>,
}

/// The tensors of one decoder layer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LayerWeights<T> {
    /// Norm before attention, of `hidden_size`.
    pub attn_norm: Norm<T>,
    /// Query, `[heads * head_dim, hidden_size]`.
    pub q: Linear<T>,
    /// Key, `[kv_heads * head_dim, hidden_size]`.
    pub k: Linear<T>,
    /// Value, `[kv_heads * head_dim, hidden_size]`.
    pub v: Linear<T>,
    /// RMS norm of each query head, of `head_dim`.
    pub q_norm: Option<T>,
    /// RMS norm of each key head, of `head_dim`.
    pub k_norm: Option<T>,
    /// Attention output, `[hidden_size, heads * head_dim]`.
    pub attn_output: Linear<T>,
    /// Norm of attention's output before it joins the residual stream, of `hidden_size`.
    pub post_attn_norm: Option<Norm<T>>,
    /// Norm before the feed-forward block, of `hidden_size`.
    pub ffn_norm: Norm<T>,
    /// Gate, `[intermediate_size, hidden_size]`; `None` where the block has no gate.
    pub gate: Option<Linear<T>>,
    /// Up, `[intermediate_size, hidden_size]`.
    pub up: Linear<T>,
    /// Down, `[hidden_size, intermediate_size]`.
    pub down: Linear<T>,
    /// Norm of the feed-forward block's output before it joins the residual stream, of `hidden_size`.
    pub post_ffn_norm: Option<Norm<T>>,
}

impl<T> Norm<T> {
    fn vectors(&self) -> impl Iterator<Item = &T> {
        [&self.weight].into_iter().chain(&self.bias)
    }

    fn map<U>(&self, f: &impl Fn(&T) -> U) -> Norm<U> {
        Norm { weight: f(&self.weight), bias: self.bias.as_ref().map(f) }
    }
}

impl<T> Linear<T> {
    fn map<U>(&self, f: &impl Fn(&T) -> U) -> Linear<U> {
        Linear { weight: f(&self.weight), bias: self.bias.as_ref().map(f) }
    }
}

impl<T> LayerWeights<T> {
    fn map<U>(&self, f: &impl Fn(&T) -> U) -> LayerWeights<U> {
        LayerWeights {
            attn_norm: self.attn_norm.map(f),
            q: self.q.map(f),
            k: self.k.map(f),
            v: self.v.map(f),
            q_norm: self.q_norm.as_ref().map(f),
            k_norm: self.k_norm.as_ref().map(f),
            attn_output: self.attn_output.map(f),
            post_attn_norm: self.post_attn_norm.as_ref().map(|norm| norm.map(f)),
            ffn_norm: self.ffn_norm.map(f),
            gate: self.gate.as_ref().map(|gate| gate.map(f)),
            up: self.up.map(f),
            down: self.down.map(f),
            post_ffn_norm: self.post_ffn_norm.as_ref().map(|norm| norm.map(f)),
        }
    }
}

impl<T> LayerWeights<T> {
    fn projections(&self) -> impl Iterator<Item = &Linear<T>> {
        [&self.q, &self.k, &self.v, &self.attn_output].into_iter().chain(&self.gate).chain([&self.up, &self.down])
    }

    fn vectors(&self) -> impl Iterator<Item = &T> {
        let norms =
            [&self.attn_norm, &self.ffn_norm].into_iter().chain(&self.post_attn_norm).chain(&self.post_ffn_norm);
        let biases = self.projections().filter_map(|linear| linear.bias.as_ref());
        norms.flat_map(Norm::vectors).chain(&self.q_norm).chain(&self.k_norm).chain(biases)
    }
}

impl<T> Weights<T> {
    /// The matrices that rows are multiplied with, in the order of a pass: those of each layer, the head where it is one of its own,
    /// and the embedding.
    pub fn matrices(&self) -> impl Iterator<Item = &T> {
        let layers = self.layers.iter().flat_map(LayerWeights::projections).map(|linear| &linear.weight);
        layers.chain(&self.output).chain([&self.embedding])
    }

    /// Everything else: norms, biases and learned positions.
    pub fn vectors(&self) -> impl Iterator<Item = &T> {
        let layers = self.layers.iter().flat_map(LayerWeights::vectors);
        layers.chain(self.output_norm.vectors()).chain(&self.positions)
    }

    pub(crate) fn map<U>(&self, f: impl Fn(&T) -> U) -> Weights<U> {
        Weights {
            embedding: f(&self.embedding),
            positions: self.positions.as_ref().map(&f),
            output_norm: self.output_norm.map(&f),
            output: self.output.as_ref().map(&f),
            layers: self.layers.iter().map(|layer| layer.map(&f)).collect(),
        }
    }
}
