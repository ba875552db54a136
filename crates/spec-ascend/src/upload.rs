//! Weights on their way to the device: dequantised row by row, rounded, and copied through pinned memory while the next
//! rows are made.

use atb_rs::{DataType, DeviceBuffer, Element, Event, HostBuffer, Stream, Tensor, TensorDesc};
use spec_model::{Checkpoint, TensorView};

use crate::{AscendDevice, AscendError, HalfType};

/// Bytes of each of the two pinned buffers.
const CHUNK: usize = 8 << 20;
/// The largest code of an int8 weight; -128 stays unused, so that the range has two equal sides.
const LARGEST_CODE: f32 = 127.0;

/// Rows of a projection: a tensor of the file, and which of its rows come in which order.
pub(crate) struct Part<'a> {
    pub(crate) view: TensorView<'a>,
    pub(crate) order: Option<Vec<usize>>,
}

/// A projection on the device.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    /// `[outputs, inputs]`, a half type or int8.
    pub(crate) weight: Tensor,
    /// f32 `[outputs]`, for int8.
    pub(crate) scale: Option<Tensor>,
}

pub(crate) struct Uploader<'a> {
    device: &'a AscendDevice,
    stream: &'a Stream,
    checkpoint: &'a Checkpoint,
    dtype: HalfType,
    chunks: [Chunk; 2],
    turn: usize,
    progress: &'a mut dyn FnMut(usize, usize),
    done: usize,
    total: usize,
}

/// A pinned buffer, and the end of the copy that it was last used for.
struct Chunk {
    buffer: HostBuffer,
    copied: Event,
    is_used: bool,
}

impl<'a> Uploader<'a> {
    pub(crate) fn new(
        device: &'a AscendDevice,
        stream: &'a Stream,
        checkpoint: &'a Checkpoint,
        dtype: HalfType,
        progress: &'a mut dyn FnMut(usize, usize),
    ) -> Result<Self, AscendError> {
        let weights = checkpoint.weights();
        let of_layer = |layer: &spec_model::LayerWeights<TensorView<'_>>| {
            let linears = [&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.up, &layer.down];
            linears.into_iter().chain(&layer.gate).map(|linear| linear.weight.stored_bytes()).sum::<usize>()
        };
        let total = weights.layers.iter().map(of_layer).sum::<usize>()
            + weights.embedding.stored_bytes()
            + weights.output.as_ref().map_or(0, TensorView::stored_bytes);
        progress(0, total);
        let chunk = || -> Result<Chunk, AscendError> {
            let context = device.context();
            Ok(Chunk { buffer: HostBuffer::new(context, CHUNK)?, copied: Event::new(context)?, is_used: false })
        };
        let chunks = [chunk()?, chunk()?];
        Ok(Self { device, stream, checkpoint, dtype, chunks, turn: 0, progress, done: 0, total })
    }

    /// Bytes of pinned memory that loading takes, and gives back.
    pub(crate) const fn pinned_bytes() -> usize {
        2 * CHUNK
    }

    /// Brings a projection to the device, its parts one below the other.
    pub(crate) fn matrix(&mut self, parts: &[Part<'_>], int8: bool) -> Result<Matrix, AscendError> {
        let rows: usize = parts.iter().map(|part| part.view.rows).sum();
        let columns = parts.first().map_or(0, |part| part.view.cols);
        let mut scales = Vec::new();
        let weight = match int8 {
            false => {
                let dtype = self.dtype;
                self.rows(parts, (rows, columns), dtype.data_type(), |values, bits: &mut [u16]| {
                    dtype.encode(values, bits)
                })?
            }
            true => self.rows(parts, (rows, columns), DataType::I8, |values, codes: &mut [i8]| {
                let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
                let scale = largest / LARGEST_CODE;
                scales.push(scale);
                let code = |value: f32| if scale > 0.0 { (value / scale).round_ties_even() } else { 0.0 };
                codes.iter_mut().zip(values).for_each(|(to, &value)| *to = code(value) as i8);
                largest.is_finite()
            })?,
        };
        let scale = match int8 {
            false => None,
            true => Some(self.elements(&scales, TensorDesc::new(DataType::F32, [rows]))?),
        };
        Ok(Matrix { weight, scale })
    }

    /// Brings rows to the device, each made of its numbers by `round`, which says whether they are in range.
    fn rows<T: Element + Default>(
        &mut self,
        parts: &[Part<'_>],
        (rows, columns): (usize, usize),
        dtype: DataType,
        mut round: impl FnMut(&[f32], &mut [T]) -> bool,
    ) -> Result<Tensor, AscendError> {
        let desc = TensorDesc::new(dtype, [rows, columns]);
        let buffer = DeviceBuffer::new(self.device.context(), desc.bytes())?;
        let row_bytes = columns * dtype.size();
        // A row that is longer than a chunk would be one of a model that no device holds.
        let in_chunk = (CHUNK / row_bytes.max(1)).max(1);
        let mut values = vec![0.0; columns];
        let mut at = 0;
        for part in parts {
            let view = &part.view;
            for first in (0..view.rows).step_by(in_chunk) {
                let count = in_chunk.min(view.rows - first);
                let chunk = self.next_chunk()?;
                let elements = chunk.buffer.write::<T>()?;
                for (row, to) in (first..first + count).zip(elements.chunks_exact_mut(columns)) {
                    let source = part.order.as_ref().map_or(row, |order| order[row]);
                    read_row(view, source, &mut values)?;
                    if !round(&values, to) {
                        let reason =
                            format!("row {source} has values that {dtype} cannot hold; load the model in bf16");
                        return Err(AscendError::Tensor { tensor: view.name.to_owned(), reason });
                    }
                }
                let bytes = count * row_bytes;
                self.send(&buffer, at * row_bytes, bytes)?;
                at += count;
            }
            self.checkpoint.release(view);
            self.done += view.stored_bytes();
            (self.progress)(self.done, self.total);
        }
        Ok(Tensor::new(desc, &buffer)?)
    }

    /// Brings numbers to the device, rounded to the model's type.
    pub(crate) fn vector(&mut self, name: &str, values: &[f32]) -> Result<Tensor, AscendError> {
        let mut bits = vec![0u16; values.len()];
        if !self.dtype.encode(values, &mut bits) {
            let reason = format!("has values that {} cannot hold; load the model in bf16", self.dtype.data_type());
            return Err(AscendError::Tensor { tensor: name.to_owned(), reason });
        }
        self.elements(&bits, TensorDesc::new(self.dtype.data_type(), [values.len()]))
    }

    /// Brings elements to the device as they are.
    pub(crate) fn elements<T: Element>(&mut self, elements: &[T], desc: TensorDesc) -> Result<Tensor, AscendError> {
        Ok(Tensor::new(desc, &DeviceBuffer::from_slice(self.device.context(), elements)?)?)
    }

    /// The buffer whose turn it is, once its last copy is over.
    fn next_chunk(&mut self) -> Result<&mut Chunk, AscendError> {
        self.turn = 1 - self.turn;
        let chunk = &mut self.chunks[self.turn];
        if chunk.is_used {
            chunk.copied.synchronize_for(self.device.pass_timeout())?;
        }
        Ok(chunk)
    }

    /// Queues the copy of what was just written.
    fn send(&mut self, to: &DeviceBuffer, offset: usize, bytes: usize) -> Result<(), AscendError> {
        let chunk = &mut self.chunks[self.turn];
        self.stream.upload_part(&chunk.buffer, 0..bytes, to, offset..offset + bytes)?;
        self.stream.record(&mut chunk.copied)?;
        chunk.is_used = true;
        Ok(())
    }
}

fn read_row(view: &TensorView<'_>, row: usize, values: &mut [f32]) -> Result<(), AscendError> {
    let broken = |reason: String| AscendError::Tensor { tensor: view.name.to_owned(), reason };
    let bytes = view.row(row).ok_or_else(|| broken(format!("has no row {row} of the {} it declares", view.rows)))?;
    spec_model::dequantize(view.tensor_type, &bytes, values).map_err(|error| broken(error.to_string()))
}
