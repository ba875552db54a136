//! A model whose logits are a hash of everything a row sees.
//!
//! It keeps its "keys and values" (the tokens themselves) in paged slots and reads them back for every
//! row, so that a row placed, kept, moved or forgotten wrongly changes the output.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use spec_core::Token;
use spec_runtime::kv::{Adopted, Move, PagedKv};
use spec_runtime::{Batch, KvUsage, Model, ModelConfig, Pass, Rows, RuntimeError, SeqId, Stream, Want};

/// What a [`HashModel`] is made of.
#[derive(Clone, Debug)]
pub struct HashSpec {
    /// Width of a row of logits.
    pub vocab: usize,
    /// Positions a sequence can have.
    pub context: usize,
    /// Tokens a KV block holds.
    pub block_tokens: usize,
    /// Blocks in the pool.
    pub blocks: usize,
    /// Rows per pass.
    pub max_rows: usize,
    /// Visible tokens that the logits depend on; fewer make text that repeats itself.
    pub order: usize,
    /// Two models of one seed are alike.
    pub seed: u64,
    /// Share of another model's logits that is mixed in: 0 is the model itself, 1 another one.
    pub noise: f32,
    /// The greatest logit that a token can have, 0 being the least: with 8 the likeliest of 32 tokens has a fifth of the probability, with
    /// hundreds nearly all.
    pub spread: f32,
    /// Whether a sequence can be cut ([`Model::truncate`]).
    pub truncates: bool,
}

impl Default for HashSpec {
    fn default() -> Self {
        Self {
            vocab: 32,
            context: 512,
            block_tokens: 16,
            blocks: 64,
            max_rows: 64,
            order: usize::MAX,
            seed: 1,
            noise: 0.0,
            spread: 8.0,
            truncates: true,
        }
    }
}

/// The model. Built by [`HashModel::new`].
pub struct HashModel {
    config: ModelConfig,
    spec: HashSpec,
    state: Mutex<State>,
    passes: AtomicUsize,
    rows: AtomicUsize,
    /// Passes that fail: from the first of these on, up to the second.
    failing: [AtomicUsize; 2],
    /// Whose rows have logits that are no numbers; no token's at first.
    spoilt: AtomicU32,
}

struct State {
    kv: PagedKv,
    /// The token in each slot; a slot that was never written holds none.
    slots: Vec<Option<Token>>,
}

impl State {
    fn follow(&mut self, moves: &[Move]) {
        for step in moves {
            self.slots[step.to] = self.slots[step.from];
        }
    }
}

impl HashModel {
    /// Builds the model.
    pub fn new(spec: HashSpec) -> Arc<Self> {
        Arc::new(Self {
            config: ModelConfig {
                name: format!("hash-{}", spec.seed),
                device: "test".into(),
                vocab: spec.vocab,
                context: spec.context,
                max_rows: spec.max_rows,
            },
            state: Mutex::new(State {
                kv: PagedKv::new(spec.blocks, spec.block_tokens, spec.context),
                slots: vec![None; spec.blocks * spec.block_tokens],
            }),
            passes: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
            failing: [AtomicUsize::new(usize::MAX), AtomicUsize::new(usize::MAX)],
            spoilt: AtomicU32::new(Token::MAX),
            spec,
        })
    }

    /// Lets the pass with this number (from 0) fail as a device would.
    pub fn fail_at(&self, pass: usize) {
        self.fail_in(pass..pass.saturating_add(1));
    }

    /// Lets the passes with these numbers fail.
    pub fn fail_in(&self, passes: std::ops::Range<usize>) {
        self.failing[0].store(passes.start, Ordering::Relaxed);
        self.failing[1].store(passes.end, Ordering::Relaxed);
    }

    /// Gives the rows of this token logits that are no numbers, as an overflow in a kernel would.
    pub fn spoil(&self, token: Token) {
        self.spoilt.store(token, Ordering::Relaxed);
    }

    /// Passes so far.
    pub fn passes(&self) -> usize {
        self.passes.load(Ordering::Relaxed)
    }

    /// Rows of all passes so far.
    pub fn rows(&self) -> usize {
        self.rows.load(Ordering::Relaxed)
    }

    /// KV blocks that no sequence holds.
    pub fn free_blocks(&self) -> usize {
        self.state.lock().kv.free_blocks()
    }

    /// The logits behind a text, computed without any cache.
    pub fn logits_of(&self, visible: &[Token]) -> Vec<f32> {
        let seen = &visible[visible.len().saturating_sub(self.spec.order)..];
        let context = seen.iter().fold(mix(self.spec.seed), |hash, &token| mix(hash ^ u64::from(token)));
        let logit = |salt: u64, id: usize| {
            (mix(context ^ salt ^ mix(id as u64)) >> 40) as f32 / (1 << 24) as f32 * self.spec.spread
        };
        (0..self.spec.vocab)
            .map(|id| {
                let own = logit(0, id);
                own + self.spec.noise * (logit(0x5eed, id) - own)
            })
            .collect()
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).wrapping_add(0x9e37_79b9_7f4a_7c15)
}

impl Model for HashModel {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn open(&self) -> Result<SeqId, RuntimeError> {
        Ok(self.state.lock().kv.open())
    }

    fn close(&self, seq: SeqId) {
        self.state.lock().kv.close(seq);
    }

    fn kv_len(&self, seq: SeqId) -> Result<usize, RuntimeError> {
        self.state.lock().kv.committed(seq)
    }

    fn reserve(&self, seq: SeqId, rows: usize) -> Result<(), RuntimeError> {
        let mut state = self.state.lock();
        let moves = state.kv.reserve(seq, rows)?;
        state.follow(&moves);
        Ok(())
    }

    fn settle(&self, seq: SeqId, path: &[u32]) -> Result<(), RuntimeError> {
        let mut state = self.state.lock();
        let moves = state.kv.settle(seq, path)?;
        state.follow(&moves);
        Ok(())
    }

    fn adopt(&self, seq: SeqId, scope: u64, tokens: &[Token]) -> Result<usize, RuntimeError> {
        let mut state = self.state.lock();
        let Adopted { length, moves } = state.kv.adopt(seq, scope, tokens)?;
        state.follow(&moves);
        Ok(length)
    }

    fn kv_usage(&self) -> Option<KvUsage> {
        Some(self.state.lock().kv.usage())
    }

    fn truncate(&self, seq: SeqId, length: usize) -> Result<bool, RuntimeError> {
        if self.spec.truncates {
            self.state.lock().kv.truncate(seq, length)?;
        }
        Ok(self.spec.truncates)
    }

    fn submit(&self, _: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        assert!(batch.rows.len() <= self.config.max_rows, "a batch of {} rows", batch.rows.len());
        let pass = self.passes.fetch_add(1, Ordering::Relaxed);
        let [first, end] = &self.failing;
        if (first.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&pass) {
            return Err(RuntimeError::Device { device: "test".into(), reason: format!("pass {pass} fails") });
        }
        self.rows.fetch_add(batch.rows.len(), Ordering::Relaxed);
        let mut state = self.state.lock();
        let places = state.kv.append(&batch.rows)?;
        for (row, place) in batch.rows.iter().zip(&places) {
            state.slots[place.slot] = Some(row.token);
        }
        let mut logits = Vec::with_capacity(batch.rows.len());
        for (row, place) in batch.rows.iter().zip(&places) {
            if row.want == Want::Nothing {
                logits.push(None);
                continue;
            }
            let blocks = state.kv.blocks(row.seq)?;
            let size = state.kv.block_tokens();
            let committed = (0..state.kv.committed(row.seq)?).map(|i| blocks[i / size] as usize * size + i % size);
            let path = state.kv.path(row.seq, place.row)?;
            let own = path.iter().map(|&row_number| state.kv.row_slot(row.seq, row_number));
            let slots = committed.map(Ok).chain(own).collect::<Result<Vec<_>, _>>()?;
            assert_eq!(slots.len(), row.position + 1, "a row sees one token per position up to its own");
            let visible: Vec<Token> =
                slots.iter().map(|&s| state.slots[s].expect("a visible slot was written")).collect();
            let is_spoilt = row.token == self.spoilt.load(Ordering::Relaxed);
            logits.push(Some(if is_spoilt { vec![f32::NAN; self.config.vocab] } else { self.logits_of(&visible) }));
        }
        Ok(Box::new(Done(logits)))
    }
}

struct Done(Vec<Option<Vec<f32>>>);

impl Pass for Done {
    fn wait(self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError> {
        Ok(self)
    }
}

impl Rows for Done {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        self.0.get(row).and_then(Option::as_deref).ok_or(RuntimeError::NotWanted { row })
    }
}
