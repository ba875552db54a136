//! Verdicts: what Verify gives, brought to the host in one copy.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::{DeviceBuffer, HostBuffer};
use crate::parameters::Verify;
use crate::stream::Stream;
use crate::tensor::{DataType, Tensor};
use half::{bf16, f16};

/// Where each output starts: what copies and kernels like.
const ALIGNMENT: usize = 64;

/// What a row says under [`Verify::Greedy`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GreedyVerdict {
    /// The likeliest tokens. Of equal ones the order says nothing.
    pub tokens: [u32; 2],
    /// Their logits, widened.
    pub logits: [f32; 2],
    /// Their probabilities at temperature 1, in the precision of the logits.
    pub probabilities: [f32; 2],
}

impl GreedyVerdict {
    /// The argmax of the row; `None` where the row itself has to say: at a tie, whose lowest id need not be among the two,
    /// and where there is no law because of NaN or an infinity.
    pub fn decided(&self) -> Option<u32> {
        let leads = self.logits[0] > self.logits[1] && self.logits[0].is_finite();
        (leads && self.probabilities[0] > 0.0).then_some(self.tokens[0])
    }
}

/// What a row says under [`Verify::Rejection`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RejectionVerdict {
    /// Whether the drafted token stands. Rows after the first refusal of a chain mean nothing.
    pub accepted: bool,
    /// The target's probability of it; NaN where the row has no law.
    pub probability: f32,
}

/// The outputs of a [`Verify`] over some rows, in one piece of memory on the device and one on the host.
#[derive(Debug)]
pub struct Verdicts {
    rule: Verify,
    logits: DataType,
    rows: usize,
    tensors: Vec<Tensor>,
    offsets: Vec<usize>,
    device: DeviceBuffer,
    host: HostBuffer,
}

impl Verdicts {
    /// Room for the verdicts over so many rows of logits of a type.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::new`] and [`HostBuffer::new`].
    pub fn new(context: &Context, rule: Verify, rows: usize, logits: DataType) -> Result<Self> {
        let descs = rule.outputs(rows, logits);
        let mut offsets = Vec::with_capacity(descs.len());
        let mut bytes: usize = 0;
        for desc in &descs {
            bytes = bytes.next_multiple_of(ALIGNMENT);
            offsets.push(bytes);
            bytes = bytes.saturating_add(desc.bytes());
        }
        let device = DeviceBuffer::new(context, bytes)?;
        let host = HostBuffer::new(context, bytes)?;
        let tensors = descs.into_iter().zip(&offsets).map(|(desc, offset)| Tensor::at(desc, &device, *offset));
        let tensors = tensors.collect::<Result<_>>()?;
        Ok(Self { rule, logits, rows, tensors, offsets, device, host })
    }

    /// The outputs, for [`Operation::setup`](crate::Operation::setup).
    pub fn tensors(&self) -> Vec<Tensor> {
        self.tensors.clone()
    }

    /// Bytes that go to the host.
    pub fn bytes(&self) -> usize {
        self.device.len()
    }

    /// Queues the copy to the host, behind the operation.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn download(&mut self, stream: &Stream) -> Result<()> {
        stream.download(&self.device, &mut self.host)
    }

    /// What each row said, once the copy is known to be over.
    ///
    /// # Errors
    /// [`Error::InUse`] before that; [`Error::Tensor`] under the other rule.
    pub fn greedy(&self) -> Result<Vec<GreedyVerdict>> {
        if self.rule != Verify::Greedy {
            return self.refuse("greedy");
        }
        let bytes = self.host.read::<u8>()?;
        let pair = |start: usize, row: usize, size: usize| {
            [0, 1].map(|at| &bytes[start + (2 * row + at) * size..start + (2 * row + at + 1) * size])
        };
        let floats = |start, row| pair(start, row, self.logits.size()).map(|bytes| float(self.logits, bytes));
        let verdict = |row| GreedyVerdict {
            // Indices of a row, which no negative number is.
            tokens: pair(self.offsets[0], row, size_of::<i32>()).map(|bytes| integer(bytes) as u32),
            logits: floats(self.offsets[1], row),
            probabilities: floats(self.offsets[2], row),
        };
        Ok((0..self.rows).map(verdict).collect())
    }

    /// What each row said, once the copy is known to be over.
    ///
    /// # Errors
    /// As [`greedy`](Self::greedy).
    pub fn rejection(&self) -> Result<Vec<RejectionVerdict>> {
        if self.rule == Verify::Greedy {
            return self.refuse("rejection");
        }
        let bytes = self.host.read::<u8>()?;
        let size = size_of::<f32>();
        let verdict = |row: usize| {
            let start = self.offsets[1] + row * size;
            let probability = float(DataType::F32, &bytes[start..start + size]);
            RejectionVerdict { accepted: bytes[self.offsets[0] + row] != 0, probability }
        };
        Ok((0..self.rows).map(verdict).collect())
    }

    fn refuse<T>(&self, asked: &str) -> Result<T> {
        Err(Error::Tensor {
            operation: "Verify",
            tensor: "verdicts".to_owned(),
            rule: format!("are those of {:?}, and were read as {asked} ones", self.rule),
        })
    }
}

fn integer(bytes: &[u8]) -> i32 {
    bytes.try_into().map_or(0, i32::from_le_bytes)
}

/// One element; NaN for a type that logits do not have.
fn float(dtype: DataType, bytes: &[u8]) -> f32 {
    match (dtype, bytes) {
        (DataType::F16, &[low, high]) => f16::from_le_bytes([low, high]).to_f32(),
        (DataType::Bf16, &[low, high]) => bf16::from_le_bytes([low, high]).to_f32(),
        (DataType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        _ => f32::NAN,
    }
}
