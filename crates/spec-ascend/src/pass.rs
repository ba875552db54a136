//! A pass under way, and its logits.

use std::sync::Arc;

use parking_lot::Mutex;
use spec_runtime::{Pass, Rows, RuntimeError};

use crate::store::Slot;
use crate::{AscendError, AscendStream, HalfType};

/// Pinned memory of passes that are over.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<Vec<Slot>>);

/// Slots that are kept for later passes.
const KEPT: usize = 4;

impl Slots {
    /// One that no pass uses any more.
    pub(crate) fn take(&self) -> Option<Slot> {
        let mut slots = self.0.lock();
        let at = slots.iter().position(Slot::is_free)?;
        Some(slots.swap_remove(at))
    }

    fn give_back(&self, slot: Slot) {
        let mut slots = self.0.lock();
        // Others are freed once no stream uses them.
        if slots.len() < KEPT {
            slots.push(slot);
        }
    }
}

/// A pass that was queued.
pub(crate) struct AscendPass {
    pub(crate) stream: AscendStream,
    /// Its number on the stream.
    pub(crate) number: u64,
    pub(crate) slot: Option<Slot>,
    pub(crate) slots: Arc<Slots>,
    /// For each row of the batch, its place among the scored ones.
    pub(crate) index: Vec<Option<usize>>,
    pub(crate) vocab: usize,
    pub(crate) dtype: HalfType,
    pub(crate) softcap: Option<f32>,
}

impl AscendPass {
    fn finish(&mut self) -> Result<Results, AscendError> {
        let device = self.stream.device();
        device.require()?;
        let mut results = Results { logits: Vec::new(), index: std::mem::take(&mut self.index), vocab: self.vocab };
        let Some(slot) = &mut self.slot else { return Ok(results) };
        slot.done.synchronize_for(device.pass_timeout()).map_err(|error| device.judge(error))?;
        self.stream.outcome(self.number)?;
        let scored = results.index.iter().flatten().count();
        results.logits = vec![0.0; scored * self.vocab];
        if scored > 0 {
            let bits = slot.logits.read::<u16>().map_err(|error| device.judge(error))?;
            self.dtype.decode(&bits[..scored * self.vocab], &mut results.logits);
        }
        results.check(self.dtype)?;
        if let Some(cap) = self.softcap {
            results.logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
        }
        Ok(results)
    }
}

impl Pass for AscendPass {
    fn wait(mut self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError> {
        let name = self.stream.device().name().to_owned();
        match self.finish() {
            Ok(results) => Ok(Box::new(results)),
            Err(error) => Err(error.at(&name)),
        }
    }
}

impl Drop for AscendPass {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.slots.give_back(slot);
        }
    }
}

struct Results {
    logits: Vec<f32>,
    /// Place of each row's logits.
    index: Vec<Option<usize>>,
    vocab: usize,
}

impl Results {
    fn check(&self, dtype: HalfType) -> Result<(), AscendError> {
        let Some(at) = self.logits.iter().position(|logit| !logit.is_finite()) else { return Ok(()) };
        let place = at / self.vocab;
        let row = self.index.iter().position(|found| *found == Some(place)).unwrap_or(0);
        let dtype = match dtype {
            HalfType::F16 => "f16",
            HalfType::Bf16 => "bf16",
        };
        Err(AscendError::NotFinite { row, id: at % self.vocab, value: self.logits[at], dtype })
    }
}

impl Rows for Results {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        let at = self.index.get(row).copied().flatten().ok_or(RuntimeError::NotWanted { row })?;
        Ok(&self.logits[at * self.vocab..(at + 1) * self.vocab])
    }
}
