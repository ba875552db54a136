//! A pass under way, and its logits.

use std::cell::OnceCell;
use std::sync::Arc;

use atb_rs::{DeviceBuffer, GreedyVerdict};
use parking_lot::Mutex;
use spec_core::Token;
use spec_runtime::{Pass, Rows, RuntimeError};

use crate::store::Slot;
use crate::{AscendError, AscendStream, HalfType};

/// Memory of passes that are over.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pinned: Mutex<Vec<Slot>>,
    /// Logits on the device that nobody asks for any more.
    logits: Mutex<Vec<DeviceBuffer>>,
}

/// Slots that are kept for later passes.
const KEPT: usize = 4;

impl Slots {
    /// One that no pass uses any more.
    pub(crate) fn take(&self) -> Option<Slot> {
        let mut slots = self.pinned.lock();
        let at = slots.iter().position(Slot::is_free)?;
        Some(slots.swap_remove(at))
    }

    pub(crate) fn take_logits(&self) -> Option<DeviceBuffer> {
        self.logits.lock().pop()
    }

    fn give_back(&self, mut slot: Slot) {
        // Others are freed once no stream uses them.
        if let Some(buffer) = slot.judged.take() {
            let mut logits = self.logits.lock();
            if logits.len() < KEPT {
                logits.push(buffer);
            }
        }
        let mut slots = self.pinned.lock();
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
        let index = std::mem::take(&mut self.index);
        let mut results = Results { logits: Vec::new(), index, vocab: self.vocab, dtype: self.dtype, judged: None };
        let Some(slot) = &mut self.slot else { return Ok(results) };
        slot.done.synchronize_for(device.pass_timeout()).map_err(|error| device.judge(error))?;
        self.stream.outcome(self.number)?;
        let scored = results.index.iter().flatten().count();
        if slot.judged.is_some() {
            results.judged = self.judged(scored)?;
            return Ok(results);
        }
        results.logits = vec![0.0; scored * self.vocab];
        if scored > 0 {
            let bits = slot.logits.read::<u16>().map_err(|error| device.judge(error))?;
            self.dtype.decode(&bits[..scored * self.vocab], &mut results.logits);
        }
        results.check(&results.logits, 0)?;
        if let Some(cap) = self.softcap {
            results.logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
        }
        Ok(results)
    }

    /// What the device said of the rows, which stay there.
    fn judged(&mut self, scored: usize) -> Result<Option<Judged>, AscendError> {
        let Some(slot) = self.slot.take() else { return Ok(None) };
        let rows = (0..scored).map(|_| OnceCell::new()).collect();
        let (slots, stream) = (Arc::clone(&self.slots), self.stream.clone());
        let mut judged = Judged { tokens: Vec::new(), rows, slot: Some(slot), slots, stream };
        if let Some(verdicts) = judged.slot.as_ref().and_then(|slot| slot.verdicts.get(&scored.next_power_of_two())) {
            let verdicts = verdicts.greedy().map_err(|error| judged.stream.device().judge(error))?;
            judged.tokens = verdicts.iter().take(scored).map(GreedyVerdict::decided).collect();
        }
        Ok(Some(judged))
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
    dtype: HalfType,
    /// Of a pass whose rows the device has judged; `logits` is empty then.
    judged: Option<Judged>,
}

/// Rows that the device has judged, and still has.
struct Judged {
    /// The most probable token of each scored row, where it is sure.
    tokens: Vec<Option<Token>>,
    /// Rows that were asked for all the same.
    rows: Vec<OnceCell<Vec<f32>>>,
    /// Taken when this is dropped.
    slot: Option<Slot>,
    slots: Arc<Slots>,
    stream: AscendStream,
}

impl Drop for Judged {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.slots.give_back(slot);
        }
    }
}

impl Results {
    /// Logits of whole rows, the first of which has place `first` among the scored ones.
    fn check(&self, logits: &[f32], first: usize) -> Result<(), AscendError> {
        let Some(at) = logits.iter().position(|logit| !logit.is_finite()) else { return Ok(()) };
        let place = first + at / self.vocab;
        let row = self.index.iter().position(|found| *found == Some(place)).unwrap_or(0);
        let dtype = match self.dtype {
            HalfType::F16 => "f16",
            HalfType::Bf16 => "bf16",
        };
        Err(AscendError::NotFinite { row, id: at % self.vocab, value: logits[at], dtype })
    }

    /// Brings a row from the device.
    fn fetch(&self, judged: &Judged, at: usize) -> Result<Vec<f32>, AscendError> {
        let mut bits = vec![0; self.vocab];
        let mut logits = vec![0.0; self.vocab];
        if let Some(buffer) = judged.slot.as_ref().and_then(|slot| slot.judged.as_ref()) {
            let read = buffer.read(at * self.vocab * HalfType::SIZE, &mut bits);
            read.map_err(|error| judged.stream.device().judge(error))?;
        }
        self.dtype.decode(&bits, &mut logits);
        self.check(&logits, at)?;
        Ok(logits)
    }
}

impl Rows for Results {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        let at = self.index.get(row).copied().flatten().ok_or(RuntimeError::NotWanted { row })?;
        let Some(judged) = &self.judged else { return Ok(&self.logits[at * self.vocab..(at + 1) * self.vocab]) };
        if let Some(logits) = judged.rows[at].get() {
            return Ok(logits);
        }
        let logits = self.fetch(judged, at).map_err(|error| error.at(judged.stream.device().name()))?;
        Ok(judged.rows[at].get_or_init(|| logits))
    }

    fn verdict(&self, row: usize) -> Result<Option<Token>, RuntimeError> {
        let at = self.index.get(row).copied().flatten().ok_or(RuntimeError::NotWanted { row })?;
        Ok(self.judged.as_ref().and_then(|judged| judged.tokens.get(at).copied().flatten()))
    }
}
