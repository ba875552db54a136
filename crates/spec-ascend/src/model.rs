//! A decoder on a device as a [`Model`] of the engine.

use std::collections::HashMap;
use std::sync::Arc;

use atb_rs::Chip;
use parking_lot::Mutex;
use spec_core::Token;
use spec_model::Checkpoint;
use spec_runtime::kv::{Adopted, Move, PagedKv};
use spec_runtime::{Batch, KvUsage, Model, ModelConfig, Pass, Row, RuntimeError, SeqId, Stream};

use crate::batch::Layout;
use crate::pass::{AscendPass, Slots};
use crate::shape::Shape;
use crate::store::{Slot, Store};
use crate::{AscendDevice, AscendError, AscendStream, LoadOptions, MemoryPlan, load};

/// A model on an Ascend device, or on the simulator of one.
///
/// [`Model::submit`] queues a pass and returns; [`Pass::wait`] waits for it. Passes of one model follow each other: on
/// several streams an event has to put them in order, else submitting fails and names both streams.
pub struct AscendModel {
    config: ModelConfig,
    gives_verdicts: bool,
    plan: MemoryPlan,
    device: AscendDevice,
    /// Where passes go that are submitted on the host's stream, or on another device's.
    stream: AscendStream,
    /// Taken before `pages` where both are needed.
    state: Mutex<State>,
    pages: Mutex<PagedKv>,
    slots: Arc<Slots>,
}

struct State {
    store: Store,
    /// The stream of the last pass.
    last: AscendStream,
    /// Where each sequence's passes went, and how many failures its stream had told of then.
    sequences: HashMap<SeqId, (AscendStream, u64)>,
    /// The streams that passes went to, and how many failures each had told of when the prefixes in the cache were last trusted.
    streams: Vec<(AscendStream, u64)>,
}

impl AscendModel {
    /// Brings the weights of `checkpoint` to the device of `stream`, and sets up the cache. The checkpoint is not needed
    /// afterwards.
    ///
    /// # Errors
    /// [`AscendError::Unsupported`], [`AscendError::Limit`] and [`AscendError::Choice`] for what ATB's operators do not
    /// do, before anything is taken; [`AscendError::Memory`]; [`AscendError::Tensor`] for numbers out of range; what
    /// the device reports.
    pub fn load(
        checkpoint: &Checkpoint,
        stream: &AscendStream,
        mut options: LoadOptions<'_>,
    ) -> Result<Self, AscendError> {
        let device = stream.device().clone();
        device.require()?;
        let shape = Shape::new(checkpoint, device.chip(), &options)?;
        let plan = MemoryPlan::of(&shape);
        let config = ModelConfig {
            name: shape.model.clone(),
            device: format!("{} ({}, {})", device.name(), chip_name(device.chip()), numbers(&shape)),
            vocab: shape.vocab,
            context: shape.context,
            max_rows: shape.max_rows,
        };
        tracing::debug!(
            model = config.name,
            device = config.device,
            context = config.context,
            kv_blocks = shape.kv_blocks,
            device_bytes = plan.device_bytes(),
            "loading"
        );
        let pages = PagedKv::new(shape.kv_blocks, shape.block_tokens, shape.context);
        let mut silent = |_, _| ();
        let progress = options.progress.take();
        let store = load::store(checkpoint, stream, shape, progress.unwrap_or(&mut silent))?;
        Ok(Self {
            config,
            gives_verdicts: store.verify.is_some(),
            plan,
            device,
            stream: stream.clone(),
            state: Mutex::new(State { store, last: stream.clone(), sequences: HashMap::new(), streams: Vec::new() }),
            pages: Mutex::new(pages),
            slots: Arc::default(),
        })
    }

    /// What it takes of device and host.
    #[must_use]
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// The stream that it was loaded on.
    #[must_use]
    pub fn stream(&self) -> &AscendStream {
        &self.stream
    }

    /// Blocks of the cache that no sequence holds.
    #[must_use]
    pub fn free_blocks(&self) -> usize {
        self.pages.lock().free_blocks()
    }

    /// Blocks of the cache.
    #[must_use]
    pub fn total_blocks(&self) -> usize {
        self.pages.lock().total_blocks()
    }

    /// Tokens of a block.
    #[must_use]
    pub fn block_tokens(&self) -> usize {
        self.pages.lock().block_tokens()
    }

    fn report(&self, error: AscendError) -> RuntimeError {
        let error = match error {
            AscendError::Call(call) => self.device.judge(call),
            other => other,
        };
        error.at(self.device.name())
    }

    fn slot(&self, shape: &Shape) -> Result<Slot, AscendError> {
        match self.slots.take() {
            Some(slot) => Ok(slot),
            None => Ok(Slot::new(&self.device, shape)?),
        }
    }
}

impl State {
    /// A failure that a stream told of may have hit rows that a later text would begin with: they are found no more.
    fn forget_after_failures(&mut self, pages: &mut PagedKv) {
        for (stream, failures) in &mut self.streams {
            if stream.failures() != *failures {
                *failures = stream.failures();
                pages.forget_prefixes();
            }
        }
    }

    fn compact(&mut self, device: &AscendDevice, pages: &mut PagedKv, moves: &[Move]) -> Result<(), RuntimeError> {
        if moves.is_empty() {
            return Ok(());
        }
        let Self { store, last, .. } = self;
        store.compact(last, moves).map_err(|error| {
            // Rows that were to be moved are named already.
            pages.forget_prefixes();
            AscendError::Compaction(Box::new(device.judge(error))).at(device.name())
        })
    }

    /// A failure that a stream told of may have hit rows of any sequence that was open then.
    fn require_sound(&mut self, rows: &[Row], stream: &AscendStream) -> Result<(), AscendError> {
        for row in rows {
            let (known, failures) =
                self.sequences.entry(row.seq).or_insert_with(|| (stream.clone(), stream.failures()));
            if known.failures() != *failures {
                return Err(AscendError::Suspect);
            }
            if !known.is_same(stream) {
                (*known, *failures) = (stream.clone(), stream.failures());
            }
        }
        Ok(())
    }
}

fn chip_name(chip: Chip) -> &'static str {
    match chip {
        Chip::A2 => "Atlas A2 or A3",
        Chip::I310P => "Atlas 300I Duo",
        _ => "another chip",
    }
}

fn numbers(shape: &Shape) -> String {
    let dtype = shape.dtype.data_type();
    if shape.int8 { format!("int8 weights, {dtype}") } else { dtype.to_string() }
}

impl std::fmt::Debug for AscendModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AscendModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Model for AscendModel {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn open(&self) -> Result<SeqId, RuntimeError> {
        self.device.require().map_err(|error| self.report(error))?;
        Ok(self.pages.lock().open())
    }

    fn close(&self, seq: SeqId) {
        let mut state = self.state.lock();
        state.sequences.remove(&seq);
        self.pages.lock().close(seq);
    }

    fn kv_len(&self, seq: SeqId) -> Result<usize, RuntimeError> {
        self.pages.lock().committed(seq)
    }

    fn reserve(&self, seq: SeqId, rows: usize) -> Result<(), RuntimeError> {
        // Only a copy has to be queued, in turn with passes.
        let mut state = if self.pages.lock().copies_on_reserve(seq)? { Some(self.state.lock()) } else { None };
        let mut pages = self.pages.lock();
        let moves = pages.reserve(seq, rows)?;
        state.as_mut().map_or(Ok(()), |state| state.compact(&self.device, &mut pages, &moves))
    }

    fn settle(&self, seq: SeqId, path: &[u32]) -> Result<(), RuntimeError> {
        let mut state = self.state.lock();
        // Held until the moves are queued, as `kv::Move` demands.
        let mut pages = self.pages.lock();
        state.forget_after_failures(&mut pages);
        let moves = pages.settle(seq, path)?;
        state.compact(&self.device, &mut pages, &moves)
    }

    fn adopt(&self, seq: SeqId, scope: u64, tokens: &[Token]) -> Result<usize, RuntimeError> {
        self.device.require().map_err(|error| self.report(error))?;
        let mut state = self.state.lock();
        let mut pages = self.pages.lock();
        state.forget_after_failures(&mut pages);
        let Adopted { length, moves } = pages.adopt(seq, scope, tokens)?;
        // A failure that is told of from now on may have hit what was adopted.
        let known = (state.last.clone(), state.last.failures());
        state.sequences.insert(seq, known);
        state.compact(&self.device, &mut pages, &moves)?;
        Ok(length)
    }

    fn kv_usage(&self) -> Option<KvUsage> {
        Some(self.pages.lock().usage())
    }

    fn gives_verdicts(&self) -> bool {
        self.gives_verdicts
    }

    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        let rows = &batch.rows[..];
        self.config.check(rows)?;
        self.device.require().map_err(|error| self.report(error))?;
        let _range = self.device.range(|| format!("{}: pass of {} rows", self.config.name, rows.len()));
        let stream = AscendStream::of(stream, &self.device).unwrap_or(&self.stream);
        let mut state = self.state.lock();
        let layout = {
            let mut pages = self.pages.lock();
            let places = pages.append(rows)?;
            Layout::new(&state.store.shape, &pages, rows, &places)?
        };
        let shape = &state.store.shape;
        let mut pass = AscendPass {
            stream: stream.clone(),
            number: 0,
            slot: None,
            slots: Arc::clone(&self.slots),
            index: layout.index.clone(),
            vocab: shape.vocab,
            dtype: shape.dtype,
            softcap: shape.logit_softcap,
        };
        if rows.is_empty() {
            return Ok(Box::new(pass));
        }
        state.require_sound(rows, stream).map_err(|error| self.report(error))?;
        let mut slot = self.slot(&state.store.shape).map_err(|error| self.report(error))?;
        pass.number = stream.begin_pass();
        if !state.streams.iter().any(|(known, _)| known.is_same(stream)) {
            state.streams.push((stream.clone(), stream.failures()));
        }
        state.last = stream.clone();
        // A slot of a pass that was queued in part is freed once the stream is past it.
        state.store.forward(stream, &layout, &mut slot, &self.slots).map_err(|error| self.report(error.into()))?;
        pass.slot = Some(slot);
        Ok(Box::new(pass))
    }
}
