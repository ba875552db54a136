//! The tensors of a decoder by their role, whatever file they come from.

use std::borrow::Cow;
use std::ops::Range;

use crate::{TensorType, dequantize};

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
    /// Stored as `[cols, rows]`, of a type whose block is one element.
    Transposed,
    /// F32, one to be added to each: a norm stored as its distance from one.
    FromOne,
}

impl<'a> TensorView<'a> {
    /// `rows` rows of [`TensorType::row_bytes`]`(cols)` bytes, without padding; no alignment is promised. Owned where
    /// the file stores them otherwise.
    #[must_use]
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self.form {
            Form::Plain => Cow::Borrowed(self.stored),
            Form::Transposed => {
                let size = self.tensor_type.block_bytes();
                let mut bytes = Vec::with_capacity(self.stored.len());
                for row in 0..self.rows {
                    for col in 0..self.cols {
                        let at = (col * self.rows + row) * size;
                        bytes.extend_from_slice(&self.stored[at..at + size]);
                    }
                }
                Cow::Owned(bytes)
            }
            Form::FromOne => Cow::Owned(self.to_f32().iter().flat_map(|value| value.to_le_bytes()).collect()),
        }
    }

    /// Bytes in the file.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.stored.len()
    }

    /// Bytes of row `index`; `None` past the last row.
    #[must_use]
    pub fn row(&self, index: usize) -> Option<Cow<'a, [u8]>> {
        if index >= self.rows {
            return None;
        }
        let size = self.stored.len() / self.rows;
        Some(match self.form {
            Form::Plain => Cow::Borrowed(&self.stored[index * size..(index + 1) * size]),
            Form::Transposed | Form::FromOne => Cow::Owned(self.bytes()[index * size..(index + 1) * size].to_vec()),
        })
    }

    /// All elements as `f32`, row by row. Meant for vectors; a matrix is as large as its product.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        let bytes = match self.form {
            Form::FromOne => Cow::Borrowed(self.stored),
            Form::Plain | Form::Transposed => self.bytes(),
        };
        let mut values = vec![0.0; self.rows * self.cols];
        dequantize(self.tensor_type, &bytes, &mut values).expect("a view's length was checked when it was parsed");
        if self.form == Form::FromOne {
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

/// A norm's vectors, F32 of the normed width.
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
    /// F32, `[outputs]`.
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

impl<T> Weights<T> {
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
