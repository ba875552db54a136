//! The cache as the decoder uses it, with its element type behind one pointer.

use half::f16;
use spec_runtime::kv::{Move, Place};

use crate::attention::{Attention, AttentionPlan, AttentionScratch, Scoring};
use crate::kv::{KvArena, KvElement, KvShape, KvType, store_token};
use crate::{CpuError, Isa, Pool, SharedSlice};

/// Rows that one task stores: those of a group share cache lines.
const STORE_ROWS: usize = 16;

/// Keys and values of all layers, and attention over them.
pub(crate) trait KvCache: Send {
    /// Stores the keys and values, `[row][kv_head][head_dim]`, of the rows at `places`.
    fn store(&mut self, pool: &Pool, layer: usize, places: &[Place], keys: &[f32], values: &[f32]);

    /// Attends with `queries`, `[row][head][head_dim]`, of the rows of `plan`; `out` has the same shape. The layer comes with
    /// its window: the newest positions that each row sees, or all of them.
    fn attend(
        &self,
        pool: &Pool,
        layer: (usize, Option<usize>),
        plan: &AttentionPlan,
        queries: &[f32],
        out: &mut [f32],
    );

    /// Moves tokens in all layers, in order.
    fn move_tokens(&mut self, moves: &[Move]);
}

/// A cache of `kind` for a decoder with `heads` query heads that scores as `scoring` says.
pub(crate) fn new(
    kind: KvType,
    isa: Isa,
    threads: usize,
    (heads, scoring): (usize, Scoring),
    shape: KvShape,
) -> Result<Box<dyn KvCache>, CpuError> {
    Ok(match kind {
        KvType::F16 => Box::new(Cache::<f16>::new(isa, threads, (heads, scoring), shape)?),
        KvType::F32 => Box::new(Cache::<f32>::new(isa, threads, (heads, scoring), shape)?),
        KvType::Q8 => Box::new(Cache::<i8>::new(isa, threads, (heads, scoring), shape)?),
    })
}

struct Cache<E: 'static> {
    arena: KvArena<E>,
    isa: Isa,
    scratch: AttentionScratch<E>,
    heads: usize,
    scoring: Scoring,
}

impl<E: KvElement> Cache<E> {
    fn new(isa: Isa, threads: usize, (heads, scoring): (usize, Scoring), shape: KvShape) -> Result<Self, CpuError> {
        let scratch = AttentionScratch::new(threads);
        Ok(Self { arena: KvArena::new(shape)?, isa, scratch, heads, scoring })
    }
}

impl<E: KvElement> KvCache for Cache<E> {
    fn store(&mut self, pool: &Pool, layer: usize, places: &[Place], keys: &[f32], values: &[f32]) {
        let shape = *self.arena.shape();
        let width = shape.kv_heads * shape.head_dim;
        let isa = self.isa;
        let elements = SharedSlice::new(self.arena.elements_mut());
        pool.run(places.len().div_ceil(STORE_ROWS), |task| {
            for (row, place) in places.iter().enumerate().skip(task * STORE_ROWS).take(STORE_ROWS) {
                let range = row * width..(row + 1) * width;
                let numbers = (&keys[range.clone()], &values[range]);
                // SAFETY: rows have slots of their own, and each row belongs to one task.
                unsafe { store_token(isa, &elements, &shape, (layer, place.slot), numbers) };
            }
        });
    }

    fn attend(
        &self,
        pool: &Pool,
        (layer, window): (usize, Option<usize>),
        plan: &AttentionPlan,
        queries: &[f32],
        out: &mut [f32],
    ) {
        let Self { isa, ref arena, scoring, heads, .. } = *self;
        let attention = Attention { isa, arena, plan, layer, scoring, window, heads, queries };
        attention.run(pool, &self.scratch, out);
    }

    fn move_tokens(&mut self, moves: &[Move]) {
        self.arena.move_tokens(moves);
    }
}
