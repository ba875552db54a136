//! PagedAttention: decoding, one query row a sequence, and verification of drafts, several.

use super::attention::{Matrix, Scores, matrix_size, unsupported};
use super::cache::Layout;
use super::product::{Dot, in_parallel};
use super::tensor::{Argument, Desc, Format, Type};
use super::{Bound, Operator, Plan, all_of, is, shape, trap};
use crate::config::Soc;
use crate::failure::{Failure, Outcome, parameter, require};
use crate::world::world;
use acl_sys::{
    SPEC_ATB_ATTENTION_QUANT_NONE, SPEC_ATB_COMPRESS_NONE, SPEC_ATB_LAYOUT_BSND, SPEC_ATB_PAGED_ATTENTION_MASK_ALIBI,
    SPEC_ATB_PAGED_ATTENTION_MASK_FREE, SPEC_ATB_PAGED_ATTENTION_MASK_NONE, SPEC_ATB_PAGED_ATTENTION_MASK_NORM,
    SPEC_ATB_PAGED_ATTENTION_MASK_NORM_COMPRESS, SPEC_ATB_PAGED_ATTENTION_MASK_SPEC, SPEC_ATB_PAGED_ATTENTION_SPEC,
    SPEC_ATB_SCALE_PLAIN, spec_atb_paged_attention_mask, spec_atb_paged_attention_param,
};
use std::ops::Range;
use std::sync::Mutex;

/// Sequences of a verification at most.
const MAX_BATCH: usize = 2000;
const MAX_HEADS: usize = 256;
/// Head size times heads, and head size times block size, at most.
const MAX_AREA: usize = 16_384;

#[derive(Clone)]
pub(crate) struct PagedAttention {
    heads: usize,
    kv_heads: usize,
    scale: f32,
    mask: spec_atb_paged_attention_mask,
    spec: bool,
}

impl PagedAttention {
    pub(crate) fn new(param: spec_atb_paged_attention_param, soc: Soc) -> Outcome<Self> {
        let heads = usize::try_from(param.head_num).ok().filter(|heads| *heads > 0);
        let heads = heads.ok_or_else(|| parameter(format!("headNum is {}", param.head_num)))?;
        let kv_heads = match usize::try_from(param.kv_head_num) {
            Ok(0) => heads,
            Ok(kv_heads) if heads % kv_heads == 0 => kv_heads,
            _ => return Err(parameter(format!("kvHeadNum {} does not divide headNum {heads}", param.kv_head_num))),
        };
        require(param.mask.0 <= 5, || parameter(format!("mask type {}", param.mask.0)))?;
        require(param.calc.0 <= 1, || parameter(format!("calc type {}", param.calc.0)))?;
        let spec = param.calc == SPEC_ATB_PAGED_ATTENTION_SPEC;
        let special = param.batch_run_status_enable != 0
            || param.quant != SPEC_ATB_ATTENTION_QUANT_NONE
            || param.compress != SPEC_ATB_COMPRESS_NONE
            || param.scale != SPEC_ATB_SCALE_PLAIN
            || param.layout != SPEC_ATB_LAYOUT_BSND;
        require(!(spec && special), || {
            parameter("CALC_TYPE_SPEC excludes batchRunStatus, quantised or compressed caches, LogN and BNSD")
        })?;
        require(!special && param.mla_v_head_size == 0, || {
            unsupported(
                "PagedAttention with batchRunStatus, quantised or compressed caches, LogN, BNSD or latent heads",
            )
        })?;
        require(param.has_quant_offset == 0 && param.out_data_type == -1, || {
            parameter("hasQuantOffset and outDataType are of quantised caches")
        })?;
        let mask = param.mask;
        if spec && !soc.is_310p() {
            let allowed = [SPEC_ATB_PAGED_ATTENTION_MASK_SPEC, SPEC_ATB_PAGED_ATTENTION_MASK_NORM];
            require(allowed.contains(&mask), || parameter("CALC_TYPE_SPEC needs a mask of type SPEC or NORM"))?;
        }
        require(spec || mask != SPEC_ATB_PAGED_ATTENTION_MASK_SPEC, || {
            parameter("a mask of type SPEC needs CALC_TYPE_SPEC")
        })?;
        let compressed = [SPEC_ATB_PAGED_ATTENTION_MASK_FREE, SPEC_ATB_PAGED_ATTENTION_MASK_NORM_COMPRESS];
        require(!compressed.contains(&mask), || unsupported("PagedAttention with MASK_FREE or NORM_COMPRESS"))?;
        let q_scale = if param.q_scale == 0.0 { 1.0 } else { param.q_scale };
        Ok(Self { heads, kv_heads, scale: param.qk_scale * q_scale, mask, spec })
    }

    fn has_mask(&self) -> bool {
        self.mask != SPEC_ATB_PAGED_ATTENTION_MASK_NONE
    }

    /// Head sizes of keys and values, and the key cache's layout.
    fn sizes(&self, inputs: &[Desc]) -> Outcome<(usize, usize, Layout, Layout)> {
        let query = &inputs[0];
        require(matches!(query.dims.len(), 2 | 3), || shape(format!("the query has shape {:?}", query.dims)))?;
        let hidden = query.elements() / query.dims[0];
        let fits = query.dims.len() == 2 && hidden.is_multiple_of(self.heads) || query.dims.get(1) == Some(&self.heads);
        require(fits, || shape(format!("a query of shape {:?} with {} heads", query.dims, self.heads)))?;
        let size = hidden / self.heads;
        let (keys, values) = (Layout::of(&inputs[1])?, Layout::of(&inputs[2])?);
        require(keys.width == self.kv_heads * size && values.width % self.kv_heads == 0, || {
            let dims = (&inputs[1].dims, &inputs[2].dims);
            shape(format!("caches of shapes {dims:?} with {} heads of {size}", self.kv_heads))
        })?;
        require((keys.blocks, keys.block_size) == (values.blocks, values.block_size), || {
            shape("the caches have different numbers or sizes of blocks")
        })?;
        Ok((size, values.width / self.kv_heads, keys, values))
    }

    fn check_limits(&self, size: usize, value_size: usize, keys: &Layout, batch: usize, many: bool) -> Outcome {
        require(size <= 256, || parameter(format!("heads of {size}, and 256 is the largest")))?;
        let block = keys.block_size;
        let fits = if size == 256 { block <= 64 || block.is_multiple_of(128) } else { size * block <= MAX_AREA };
        require(block.is_multiple_of(16) && fits, || parameter(format!("blocks of {block} with heads of {size}")))?;
        if many {
            require(batch <= MAX_BATCH, || parameter(format!("{batch} sequences, and {MAX_BATCH} can be verified")))?;
            require(self.heads <= MAX_HEADS && block <= 128 && size * self.heads <= MAX_AREA, || {
                parameter(format!("{} heads of {size} with blocks of {block} are too many to verify", self.heads))
            })?;
            require(size == value_size, || parameter("verification needs keys and values of one head size"))?;
        }
        Ok(())
    }

    fn check_mask(&self, mask: &Desc, rows: usize, longest: usize, batch: usize) -> Outcome {
        let size = matrix_size(mask);
        let wrong = |wanted: String| shape(format!("the mask has shape {:?}, and has to be {wanted}", mask.dims));
        let (mask_rows, columns) = size.ok_or_else(|| wrong("a matrix".to_owned()))?;
        require(columns >= longest, || wrong(format!("at least {longest} columns wide, as the longest context is")))?;
        match (self.mask, self.spec) {
            (SPEC_ATB_PAGED_ATTENTION_MASK_SPEC, _) => {
                let wanted = if mask.format == Format::Nz { rows.next_multiple_of(16) } else { rows };
                require(mask_rows == wanted && mask.dims.len() != 3, || wrong(format!("[{wanted}, positions]")))
            }
            (SPEC_ATB_PAGED_ATTENTION_MASK_NORM, true) => require(mask_rows == columns, || wrong("square".to_owned())),
            (SPEC_ATB_PAGED_ATTENTION_MASK_ALIBI, _) => {
                let fits = match mask.dims[..] {
                    [heads, 1, _] => heads == self.heads,
                    [of, heads, 1, _] => of == batch && heads == self.heads,
                    _ => false,
                };
                require(fits, || wrong(format!("[{}, 1, positions], with or without the batch before", self.heads)))
            }
            _ => {
                let fits = mask_rows == 1 && matches!(mask.dims[..], [1, _] | [1, 1, _])
                    || mask.dims.len() == 3 && mask.dims[0] == batch;
                require(fits && mask_rows == 1, || wrong("[batch, 1, positions] or [1, positions]".to_owned()))
            }
        }
    }
}

impl Operator for PagedAttention {
    fn name(&self) -> &'static str {
        "PagedAttention"
    }

    fn arity(&self) -> (usize, usize) {
        (5 + usize::from(self.has_mask()) + usize::from(self.spec), 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        let types: &[Type] = if soc.is_310p() { &[Type::F16] } else { &[Type::F16, Type::Bf16] };
        let cache_format = if soc.is_310p() { Format::Nz } else { Format::Nd };
        let dtype = inputs[0].dtype;
        let caches = inputs[1..3].iter().all(|cache| cache.format == cache_format && cache.dtype == dtype);
        let mask = match (self.has_mask(), self.spec) {
            (true, _) => {
                let mask = &inputs[5];
                mask.dtype == dtype && (mask.format == Format::Nd || soc.is_310p() && mask.format == Format::Nz)
            }
            // There is no row for several query rows without a mask.
            (false, spec) => !spec,
        };
        let lengths = inputs[3..5].iter().chain(self.spec.then(|| &inputs[inputs.len() - 1])).all(|l| is(l, Type::I32));
        all_of([&inputs[0], &outputs[0]], types) && caches && mask && lengths
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let (size, value_size, _, _) = self.sizes(inputs)?;
        let query = &inputs[0];
        let (tables, lengths) = (&inputs[3].dims, &inputs[4].dims);
        require(tables.len() == 2 && lengths.len() == 1 && tables[0] == lengths[0], || {
            shape(format!("block tables and context lengths have shapes {tables:?} and {lengths:?}"))
        })?;
        if self.spec {
            let rows = &inputs[inputs.len() - 1].dims;
            require(rows == lengths, || shape(format!("qSeqLen has shape {rows:?}, and contextLens {lengths:?}")))?;
        } else {
            require(query.dims[0] == lengths[0], || {
                shape(format!("{} query rows of {} sequences", query.dims[0], lengths[0]))
            })?;
        }
        let mut dims = query.dims.clone();
        if value_size != size {
            let last = dims.len() - 1;
            dims[last] = dims[last] / size * value_size;
        }
        Ok(vec![query.with(dims)])
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], soc: Soc) -> Outcome<Plan> {
        let descs: Vec<Desc> = inputs.iter().map(|input| input.desc.clone()).collect();
        let (size, value_size, keys, values) = self.sizes(&descs)?;
        let batch = descs[4].dims[0];
        let on_host = |at: usize, what: &str| {
            inputs[at]
                .host_lengths()
                .ok_or_else(|| parameter(format!("{what} need hostData too, with the same numbers")))
        };
        let rows = match self.spec {
            true => on_host(inputs.len() - 1, "qSeqLen")?,
            false => vec![1; batch],
        };
        let contexts = match inputs[4].host_lengths() {
            Some(contexts) => Some(contexts),
            None if soc.is_310p() => None,
            None => {
                return Err(on_host(4, "contextLens").err().unwrap_or_else(|| parameter("contextLens need hostData")));
            }
        };
        let many = self.mask == SPEC_ATB_PAGED_ATTENTION_MASK_SPEC || rows.iter().any(|rows| *rows > 1);
        self.check_limits(size, value_size, &keys, batch, many)?;
        let total: i64 = rows.iter().sum();
        require(rows.iter().all(|rows| *rows >= 1) && total == descs[0].dims[0] as i64, || {
            parameter(format!("qSeqLen {rows:?} for {} query rows; each has to be 1 or more", descs[0].dims[0]))
        })?;
        let room = descs[3].dims[1] * keys.block_size;
        let known = contexts.clone().unwrap_or_default();
        for (context, rows) in known.iter().zip(&rows) {
            require(*context >= 0 && *context <= room as i64, || {
                parameter(format!("a context of {context}, and the block table has room for {room}"))
            })?;
            if self.spec && *context != 0 && context < rows {
                world()
                    .violation(format!("PagedAttention: a context of {context} with {rows} query rows of its own"))?;
            }
        }
        if self.has_mask() {
            let longest = known.iter().max().copied().unwrap_or(0) as usize;
            self.check_mask(&descs[5], descs[0].dims[0], longest, batch)?;
        }
        let pairs: f64 = known.iter().zip(&rows).map(|(context, rows)| (context * rows) as f64).sum();
        let positions: f64 = known.iter().map(|context| *context as f64).sum();
        let moved = positions * ((keys.width + values.width) * 2) as f64 + 4.0 * descs[0].bytes() as f64;
        let operator = self.clone();
        let row_counts: Vec<usize> = rows.iter().map(|rows| *rows as usize).collect();
        let plan = Plan::new(move |bound| operator.run(bound, &row_counts, contexts.as_deref()));
        let scratch = descs[0].dims[0] * self.heads * (value_size + 2) * 4;
        Ok(plan.with_work(pairs * (self.heads * (size + value_size)) as f64).with_bytes(moved).with_scratch(scratch))
    }

    fn sums(&self) -> bool {
        true
    }
}

impl PagedAttention {
    fn run(&self, bound: &Bound, rows: &[usize], planned: Option<&[i64]>) -> Outcome {
        let descs: Vec<Desc> = bound.inputs.iter().map(|input| input.desc.clone()).collect();
        let (size, value_size, keys, values) = self.sizes(&descs)?;
        let on_device = bound.inputs[4].integers();
        if let Some(planned) = planned {
            if planned != on_device {
                world().violation("PagedAttention: contextLens differ between device and host".to_owned())?;
            }
            if self.spec
                && bound.inputs[bound.inputs.len() - 1].integers().iter().ne(rows
                    .iter()
                    .map(|r| *r as i64)
                    .collect::<Vec<_>>()
                    .iter())
            {
                world().violation("PagedAttention: qSeqLen differ between device and host".to_owned())?;
            }
        }
        let contexts = planned.unwrap_or(&on_device);
        let tables = bound.inputs[3].integers();
        let table_width = descs[3].dims[1];
        let mut start = 0;
        let mut sequences = Vec::with_capacity(rows.len());
        for (at, (count, context)) in rows.iter().zip(contexts).enumerate() {
            let context = usize::try_from(*context).map_err(|_| trap(format!("a context of {context}")))?;
            let blocks = &tables[at * table_width..][..context.div_ceil(keys.block_size)];
            let blocks = blocks.iter().map(|block| {
                let inside = usize::try_from(*block).ok().filter(|block| *block < keys.blocks);
                inside.ok_or_else(|| trap(format!("block {block} of {} in sequence {at}'s table", keys.blocks)))
            });
            sequences.push(Sequence {
                at,
                rows: start..start + count,
                context,
                blocks: blocks.collect::<Outcome<_>>()?,
            });
            start += count;
        }
        let failure = Mutex::new(None);
        let work: usize = sequences.iter().map(|s| s.rows.len() * s.context * self.heads * (size + value_size)).sum();
        in_parallel(sequences.len() * self.kv_heads, work, |units| {
            for unit in units {
                let (sequence, head) = (&sequences[unit / self.kv_heads], unit % self.kv_heads);
                if let Err(error) = self.group(bound, sequence, head, (size, value_size), (&keys, &values)) {
                    failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
                }
            }
        });
        let failure: Option<Failure> = failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.map_or(Ok(()), Err)
    }

    /// The query heads of one sequence that share a head of keys and values.
    fn group(
        &self,
        bound: &Bound,
        sequence: &Sequence,
        kv_head: usize,
        (size, value_size): (usize, usize),
        (key_layout, value_layout): (&Layout, &Layout),
    ) -> Outcome {
        if sequence.context == 0 {
            return Ok(());
        }
        let (mut keys, mut values) = (vec![0.0; sequence.context * size], vec![0.0; sequence.context * value_size]);
        let slots =
            (0..sequence.context).map(|at| (sequence.blocks[at / key_layout.block_size], at % key_layout.block_size));
        for ((block, at), (key, value)) in slots.zip(keys.chunks_mut(size).zip(values.chunks_mut(value_size))) {
            key_layout.read(&bound.inputs[1], block, at, kv_head * size, key);
            value_layout.read(&bound.inputs[2], block, at, kv_head * value_size, value);
        }
        let scores = Scores { scale: self.scale, clamp: None };
        let dot = Dot::new();
        let group = self.heads / self.kv_heads;
        let (mut query, mut out) = (vec![0.0; size], vec![0.0; value_size]);
        let mut mask = vec![0.0; sequence.context];
        for row in sequence.rows.clone() {
            for head in kv_head * group..(kv_head + 1) * group {
                self.mask_row(bound, sequence, row, head, &mut mask)?;
                bound.inputs[0].read_floats((row * self.heads + head) * size, &mut query);
                scores.attend(dot, &query, &keys, &values, &mask, &mut out);
                bound.outputs[0].write_floats((row * self.heads + head) * value_size, &out);
            }
        }
        Ok(())
    }

    fn mask_row(&self, bound: &Bound, sequence: &Sequence, row: usize, head: usize, to: &mut [f32]) -> Outcome {
        if !self.has_mask() {
            return Ok(());
        }
        let tensor = &bound.inputs[5];
        let (rows, columns) = matrix_size(&tensor.desc).unwrap_or((0, 0));
        let of_one = rows * columns;
        let dims = &tensor.desc.dims;
        let (start, row) = match (self.mask, self.spec) {
            (SPEC_ATB_PAGED_ATTENTION_MASK_SPEC, _) => (0, row),
            (SPEC_ATB_PAGED_ATTENTION_MASK_NORM, true) => {
                // The last rows of the context's part of the square.
                let from_end = sequence.rows.end - row;
                (0, sequence.context.checked_sub(from_end).ok_or_else(|| trap("a context shorter than its query"))?)
            }
            (SPEC_ATB_PAGED_ATTENTION_MASK_ALIBI, _) if dims.len() == 4 => {
                ((sequence.at * self.heads + head) * of_one, 0)
            }
            (SPEC_ATB_PAGED_ATTENTION_MASK_ALIBI, _) => (head * of_one, 0),
            _ if dims.len() == 3 && dims[0] > 1 => (sequence.at * of_one, 0),
            _ => (0, 0),
        };
        require(to.len() <= columns, || trap(format!("{} positions and a mask of {columns} columns", to.len())))?;
        Matrix { tensor, start, rows, columns }.row(row, to);
        Ok(())
    }
}

struct Sequence {
    at: usize,
    rows: Range<usize>,
    context: usize,
    blocks: Vec<usize>,
}
