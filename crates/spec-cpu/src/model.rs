//! A decoder as a [`Model`] of the engine.

use std::sync::Arc;

use parking_lot::Mutex;
use spec_core::Token;
use spec_model::Checkpoint;
use spec_runtime::kv::{Adopted, PagedKv};
use spec_runtime::{Batch, KvUsage, Model, ModelConfig, Pass, Rows, RuntimeError, SeqId, Stream, Want};

use crate::attention::Scoring;
use crate::decoder::{Decoder, Workspace};
use crate::kv::{BLOCK_TOKENS, KvShape};
use crate::kv_cache::{self, KvCache};
use crate::load::{LoadOptions, Quantizing};
use crate::shortlist::Shortlist;
use crate::{CpuError, Pool};

/// Logit buffers kept for later passes.
const SPARE_BUFFERS: usize = 4;
/// Tokens beyond the context that the cache holds by default: rows of a reservation take slots whatever their
/// position, and every further sequence wastes part of a block.
const DRAFT_SLACK: usize = 4 * BLOCK_TOKENS;

/// Tokens that the cache of a model with `limit` positions holds.
pub(crate) fn cache_tokens(options: &LoadOptions<'_>, limit: usize) -> usize {
    let one = options.context.unwrap_or(limit).saturating_add(DRAFT_SLACK);
    options.kv_tokens.unwrap_or_else(|| one.saturating_mul(options.parallel))
}

/// A model on the CPU.
///
/// Passes run inline: [`Model::submit`] returns when the results are there. Passes of one model exclude each other;
/// bookkeeping (opening, reserving, closing) does not wait for them.
pub struct CpuModel {
    config: ModelConfig,
    decoder: Decoder,
    pool: Arc<Pool>,
    token_bytes: usize,
    /// Whether nothing but the shortlist can be scored.
    trimmed_head: bool,
    /// Taken before `pages` where both are needed.
    state: Mutex<State>,
    pages: Mutex<PagedKv>,
    spare: Arc<Mutex<Vec<Vec<f32>>>>,
}

struct State {
    cache: Box<dyn KvCache>,
    workspace: Workspace,
    shortlist: Option<Shortlist>,
}

impl CpuModel {
    /// Packs the weights of `checkpoint` and sets up the cache. The checkpoint is not needed afterwards.
    ///
    /// # Errors
    /// [`CpuError::Tensor`] for a matrix that no kernel takes, [`CpuError::Unsupported`] and [`CpuError::Context`] for
    /// sizes, [`CpuError::Memory`] and [`CpuError::KvSize`] for memory.
    pub fn load(checkpoint: &Checkpoint, options: LoadOptions<'_>) -> Result<Self, CpuError> {
        let begun = std::time::Instant::now();
        let config = checkpoint.config();
        let tokens = cache_tokens(&options, config.context_length);
        let LoadOptions { pool, kv, context, max_rows, isa, quant, requantize, trimmed_head, progress, .. } = options;
        let isa = match isa {
            Some(isa) => isa,
            None => crate::Isa::from_environment()?,
        };
        let limit = config.context_length;
        let context = context.unwrap_or(limit);
        if context == 0 || context > limit {
            return Err(CpuError::Context { context, limit });
        }
        if !config.head_dim.is_multiple_of(crate::attention::LANES) {
            return Err(CpuError::Unsupported {
                what: format!("head size {}", config.head_dim),
                instead: "use a model whose heads have a multiple of 16 elements",
            });
        }
        if max_rows == 0 {
            return Err(CpuError::Unsupported {
                what: "a pass of 0 rows".into(),
                instead: "set max_rows to at least 1",
            });
        }

        let blocks = tokens.div_ceil(BLOCK_TOKENS);
        if blocks == 0 || u32::try_from(blocks.saturating_mul(BLOCK_TOKENS)).is_err() {
            return Err(CpuError::KvSize { blocks });
        }
        let shape = KvShape { layers: config.layers, blocks, kv_heads: config.kv_heads, head_dim: config.head_dim };
        let scoring = Scoring { scale: config.attention_scale, softcap: config.attention_softcap };
        let cache = kv_cache::new(kv, isa, pool.threads(), (config.heads, scoring), shape)?;
        let mut silent = |_, _| ();
        let decoder = Decoder::load(
            checkpoint,
            isa,
            &pool,
            (Quantizing::new(quant, requantize), trimmed_head),
            progress.unwrap_or(&mut silent),
        )?;
        let threads = pool.threads();
        let plural = if threads == 1 { "" } else { "s" };
        tracing::debug!(
            model = config.name,
            isa = isa.name(),
            threads,
            context,
            kv_blocks = blocks,
            weight_bytes = decoder.weights.bytes(),
            seconds = begun.elapsed().as_secs_f64(),
            "model loaded"
        );
        Ok(Self {
            config: ModelConfig {
                name: config.name.clone(),
                device: format!("cpu ({}, {threads} thread{plural})", isa.name()),
                vocab: config.vocab_size,
                context,
                max_rows,
            },
            trimmed_head,
            token_bytes: shape.token_rows() * kv.head_bytes(config.head_dim),
            state: Mutex::new(State { cache, workspace: Workspace::new(config), shortlist: None }),
            pages: Mutex::new(PagedKv::new(blocks, BLOCK_TOKENS, context)),
            decoder,
            pool,
            spare: Arc::default(),
        })
    }

    /// Bytes, as stored in the file, of the tensors that a pass of `rows` scored rows must read.
    #[must_use]
    pub fn pass_bytes(&self, rows: usize) -> usize {
        self.decoder.weights.pass_bytes(rows)
    }

    /// Bytes that the weights take in memory.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.decoder.weights.bytes()
    }

    /// Weights that a scored row is multiplied with, the head's included: its multiply-adds without attention.
    #[must_use]
    pub fn row_macs(&self) -> u64 {
        self.decoder.weights.row_macs()
    }

    /// Bytes of the cache that one token takes in all layers.
    #[must_use]
    pub fn kv_bytes_per_token(&self) -> usize {
        self.token_bytes
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

    /// What loading did otherwise than asked for, a sentence each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.decoder.weights.notes
    }

    /// The threads that passes run on.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The instruction set of the kernels.
    #[must_use]
    pub fn isa(&self) -> crate::Isa {
        self.decoder.isa
    }

    fn buffer(&self, rows: usize) -> Vec<f32> {
        let mut spare = self.spare.lock();
        let wanted = rows * self.config.vocab;
        // The smallest that suffices, else the largest, which then grows.
        let fitting = (0..spare.len()).filter(|&i| spare[i].len() >= wanted).min_by_key(|&i| spare[i].len());
        let index = fitting.or_else(|| (0..spare.len()).max_by_key(|&i| spare[i].len()));
        let mut buffer = index.map_or_else(Vec::new, |index| spare.swap_remove(index));
        drop(spare);
        if buffer.len() < wanted {
            // Not `resize`: old logits need no copy.
            buffer = vec![0.0; wanted];
        }
        buffer
    }
}

impl std::fmt::Debug for CpuModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Model for CpuModel {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn open(&self) -> Result<SeqId, RuntimeError> {
        Ok(self.pages.lock().open())
    }

    fn close(&self, seq: SeqId) {
        self.pages.lock().close(seq);
    }

    fn kv_len(&self, seq: SeqId) -> Result<usize, RuntimeError> {
        self.pages.lock().committed(seq)
    }

    fn reserve(&self, seq: SeqId, rows: usize) -> Result<(), RuntimeError> {
        // Only a copy touches the cache, and has to wait for a pass that is under way.
        let mut state = if self.pages.lock().copies_on_reserve(seq)? { Some(self.state.lock()) } else { None };
        let mut pages = self.pages.lock();
        let moves = pages.reserve(seq, rows)?;
        if let Some(state) = &mut state {
            state.cache.move_tokens(&moves);
        }
        Ok(())
    }

    fn settle(&self, seq: SeqId, path: &[u32]) -> Result<(), RuntimeError> {
        let mut state = self.state.lock();
        // Held until the moves are done, as `kv::Move` demands.
        let mut pages = self.pages.lock();
        let moves = pages.settle(seq, path)?;
        state.cache.move_tokens(&moves);
        Ok(())
    }

    fn truncate(&self, seq: SeqId, length: usize) -> Result<bool, RuntimeError> {
        self.pages.lock().truncate(seq, length)?;
        Ok(true)
    }

    fn adopt(&self, seq: SeqId, scope: u64, tokens: &[Token]) -> Result<usize, RuntimeError> {
        let mut state = self.state.lock();
        let mut pages = self.pages.lock();
        let Adopted { length, moves } = pages.adopt(seq, scope, tokens)?;
        state.cache.move_tokens(&moves);
        Ok(length)
    }

    fn kv_usage(&self) -> Option<KvUsage> {
        Some(self.pages.lock().usage())
    }

    fn shortlist(&self, tokens: &[Token]) -> Result<bool, RuntimeError> {
        let head = self.decoder.weights.head();
        let mut state = self.state.lock();
        let extended = match &mut state.shortlist {
            Some(shortlist) => shortlist.extend(head, tokens),
            none => Shortlist::new(head).and_then(|mut shortlist| {
                shortlist.extend(head, tokens)?;
                *none = Some(shortlist);
                Ok(())
            }),
        };
        extended
            .map(|()| true)
            .map_err(|error| RuntimeError::Device { device: self.config.device.clone(), reason: error.to_string() })
    }

    fn submit(&self, _: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        let rows = &batch.rows[..];
        self.config.check(rows)?;
        let mut state = self.state.lock();
        let State { cache, workspace, shortlist } = &mut *state;
        let places = {
            let mut pages = self.pages.lock();
            let places = pages.append(rows)?;
            workspace.plan.build(&pages, rows, &places)?;
            places
        };
        let scored: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].want != Want::Nothing).collect();
        let whole = !self.trimmed_head && rows.iter().any(|row| row.want == Want::Logits);
        let shortlist = shortlist.as_ref().filter(|_| !whole);
        let vocab = self.config.vocab;
        let mut results = Results {
            logits: self.buffer(scored.len()),
            index: vec![None; rows.len()],
            vocab,
            spare: Arc::clone(&self.spare),
        };
        for (at, &row) in scored.iter().enumerate() {
            results.index[row] = Some(at);
        }
        if !rows.is_empty() {
            let logits = &mut results.logits[..scored.len() * vocab];
            self.decoder
                .forward(&self.pool, &mut **cache, workspace, (rows, &places), (&scored, shortlist), logits)
                .map_err(|error| RuntimeError::Device {
                    device: self.config.device.clone(),
                    reason: error.to_string(),
                })?;
        }
        Ok(Box::new(Done(results)))
    }
}

/// A pass whose results are there.
struct Done(Results);

impl Pass for Done {
    fn wait(self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError> {
        Ok(Box::new(self.0))
    }
}

struct Results {
    logits: Vec<f32>,
    /// Place of each row's logits.
    index: Vec<Option<usize>>,
    vocab: usize,
    spare: Arc<Mutex<Vec<Vec<f32>>>>,
}

impl Rows for Results {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        let at = self.index.get(row).copied().flatten().ok_or(RuntimeError::NotWanted { row })?;
        Ok(&self.logits[at * self.vocab..(at + 1) * self.vocab])
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let mut spare = self.spare.lock();
        if !self.logits.is_empty() && spare.len() < SPARE_BUFFERS {
            spare.push(std::mem::take(&mut self.logits));
        }
    }
}
