//! SelfAttention as prefill beside a paged cache (PA_ENCODER): keys and values of whole sequences are inputs.

use super::attention::{Matrix, Scores, matrix_size, unsupported};
use super::product::{Dot, in_parallel};
use super::tensor::{Argument, Desc, Format, Type};
use super::{Bound, Operator, Plan, all_of, is, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::{
    SPEC_ATB_ATTENTION_QUANT_NONE, SPEC_ATB_LAYOUT_BSND, SPEC_ATB_SCALE_PLAIN,
    SPEC_ATB_SELF_ATTENTION_KERNEL_HIGH_PRECISION, SPEC_ATB_SELF_ATTENTION_MASK_CAUSAL,
    SPEC_ATB_SELF_ATTENTION_MASK_NONE, SPEC_ATB_SELF_ATTENTION_MASK_NORM, SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS,
    SPEC_ATB_SELF_ATTENTION_PA_ENCODER, spec_atb_self_attention_mask, spec_atb_self_attention_param,
};

/// Side of the mask that serves every length.
const COMPRESSED: usize = 128;
/// What kernels of bf16, and of high precision, multiply a mask of 0 and 1 by.
const DROP: f32 = -3e38;

#[derive(Clone, Copy)]
pub(crate) struct SelfAttention {
    heads: usize,
    kv_heads: usize,
    scores: Scores,
    mask: spec_atb_self_attention_mask,
    is_triangular: bool,
    high_precision: bool,
}

impl SelfAttention {
    pub(crate) fn new(param: spec_atb_self_attention_param) -> Outcome<Self> {
        let heads = usize::try_from(param.head_num).ok().filter(|heads| *heads > 0);
        let heads = heads.ok_or_else(|| parameter(format!("headNum is {}", param.head_num)))?;
        let kv_heads = match usize::try_from(param.kv_head_num) {
            Ok(0) => heads,
            Ok(kv_heads) if heads % kv_heads == 0 => kv_heads,
            _ => return Err(parameter(format!("kvHeadNum {} does not divide headNum {heads}", param.kv_head_num))),
        };
        require(param.calc.0 <= 4 && param.kernel.0 <= 2 && param.mask.0 <= 9, || {
            parameter("a calc, kernel or mask type is unknown")
        })?;
        require(param.calc == SPEC_ATB_SELF_ATTENTION_PA_ENCODER, || {
            unsupported("SelfAttention of another calcType than PA_ENCODER")
        })?;
        let masks = [
            SPEC_ATB_SELF_ATTENTION_MASK_NONE,
            SPEC_ATB_SELF_ATTENTION_MASK_NORM,
            SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS,
            SPEC_ATB_SELF_ATTENTION_MASK_CAUSAL,
        ];
        require(masks.contains(&param.mask), || unsupported("SelfAttention with alibi or sliding-window masks"))?;
        let plain = param.quant == SPEC_ATB_ATTENTION_QUANT_NONE
            && param.scale == SPEC_ATB_SCALE_PLAIN
            && param.layout == SPEC_ATB_LAYOUT_BSND
            && param.mla_v_head_size == 0
            && param.batch_run_status_enable == 0
            && param.sliding_window_cache == 0
            && param.window_size == 0;
        require(plain, || {
            unsupported("SelfAttention with quantisation, LogN, BNSD, latent heads, batchRunStatus or a window")
        })?;
        require(param.is_triu_mask == 0 || param.mask != SPEC_ATB_SELF_ATTENTION_MASK_NONE, || {
            parameter("isTriuMask needs a mask")
        })?;
        let q_scale = if param.q_scale == 0.0 { 1.0 } else { param.q_scale };
        Ok(Self {
            heads,
            kv_heads,
            scores: Scores {
                scale: param.qk_scale * q_scale,
                clamp: (param.clamp != 0).then_some((param.clamp_min, param.clamp_max)),
            },
            mask: param.mask,
            is_triangular: param.is_triu_mask != 0,
            high_precision: param.kernel == SPEC_ATB_SELF_ATTENTION_KERNEL_HIGH_PRECISION,
        })
    }

    /// Whether the mask is a tensor.
    fn has_mask(&self) -> bool {
        matches!(self.mask, SPEC_ATB_SELF_ATTENTION_MASK_NORM | SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS)
    }

    fn is_compressed(&self, mask: &Desc) -> bool {
        let small = matrix_size(mask) == Some((COMPRESSED, COMPRESSED));
        self.mask == SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS || self.is_triangular && small
    }

    fn head_size(&self, desc: &Desc, heads: usize, what: &str) -> Outcome<usize> {
        let hidden = desc.elements() / desc.dims[0];
        let fits =
            desc.dims.len() == 2 && hidden.is_multiple_of(heads) || desc.dims.len() == 3 && desc.dims[1] == heads;
        require(fits, || shape(format!("the {what} has shape {:?}, with {heads} heads", desc.dims)))?;
        Ok(hidden / heads)
    }

    /// Head sizes of keys and values.
    fn sizes(&self, inputs: &[Desc]) -> Outcome<(usize, usize)> {
        let size = self.head_size(&inputs[0], self.heads, "query")?;
        let key_size = self.head_size(&inputs[1], self.kv_heads, "key")?;
        let value_size = self.head_size(&inputs[2], self.kv_heads, "value")?;
        require(size == key_size, || shape(format!("query heads of {size} and key heads of {key_size}")))?;
        require(inputs[1].dims[0] == inputs[0].dims[0] && inputs[2].dims[0] == inputs[0].dims[0], || {
            shape("query, key and value have different numbers of tokens")
        })?;
        Ok((size, value_size))
    }
}

impl Operator for SelfAttention {
    fn name(&self) -> &'static str {
        "SelfAttention"
    }

    fn arity(&self) -> (usize, usize) {
        (4 + usize::from(self.has_mask()), 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        let types: &[Type] = if soc.is_310p() { &[Type::F16] } else { &[Type::F16, Type::Bf16] };
        let mask_format = if soc.is_310p() { Format::Nz } else { Format::Nd };
        let mask = !self.has_mask() || inputs[3].dtype == inputs[0].dtype && inputs[3].format == mask_format;
        let lengths = &inputs[inputs.len() - 1];
        all_of(inputs[..3].iter().chain(outputs), types) && mask && (is(lengths, Type::I32) || is(lengths, Type::U32))
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let (size, value_size) = self.sizes(inputs)?;
        let mut dims = inputs[0].dims.clone();
        let last = dims.len() - 1;
        dims[last] = dims[last] / size * value_size;
        Ok(vec![inputs[0].with(dims)])
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], soc: Soc) -> Outcome<Plan> {
        let descs: Vec<Desc> = inputs.iter().map(|input| input.desc.clone()).collect();
        let (size, value_size) = self.sizes(&descs)?;
        require(size <= 256 && value_size <= 256, || parameter(format!("heads of {size}, and 256 is the largest")))?;
        require(!(soc.is_310p() && self.scores.clamp.is_some()), || parameter("this chip does not clamp scores"))?;
        let lengths = &inputs[inputs.len() - 1];
        let values = lengths.host_lengths();
        let mut values = values.ok_or_else(|| parameter("seqLen needs hostData too, with the same numbers"))?;
        if let [2, batch] = lengths.desc.dims[..] {
            require(values[..batch] == values[batch..], || unsupported("PA_ENCODER with more keys than queries"))?;
            values.truncate(batch);
        }
        let tokens = descs[0].dims[0];
        require(values.iter().all(|length| *length >= 0) && values.iter().sum::<i64>() == tokens as i64, || {
            parameter(format!("seqLen {values:?} does not sum to {tokens} tokens"))
        })?;
        let longest = values.iter().max().copied().unwrap_or(0) as usize;
        if self.has_mask() {
            let mask = &descs[3];
            let wrong = |wanted: String| shape(format!("the mask has shape {:?}, and has to be {wanted}", mask.dims));
            let (rows, columns) = matrix_size(mask).ok_or_else(|| wrong("a matrix".to_owned()))?;
            if self.mask == SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS {
                require((rows, columns) == (COMPRESSED, COMPRESSED), || wrong("[128, 128]".to_owned()))?;
            } else if !self.is_compressed(mask) {
                require(rows == columns && rows >= longest, || wrong(format!("square, {longest} or wider")))?;
                let batched = mask.format == Format::Nd && mask.dims.len() == 3;
                require(!batched || mask.dims[0] == values.len(), || {
                    wrong(format!("one for each of {} sequences", values.len()))
                })?;
            }
        }
        let pairs: f64 = values.iter().map(|length| (length * length) as f64 / 2.0).sum();
        let operator = *self;
        let counts: Vec<usize> = values.iter().map(|length| *length as usize).collect();
        let plan = Plan::new(move |bound| operator.run(bound, &counts));
        let scratch = longest.clamp(1, COMPRESSED) * longest.clamp(1, 512) * 4;
        Ok(plan.with_work(pairs * (self.heads * (size + value_size)) as f64).with_scratch(scratch))
    }

    fn sums(&self) -> bool {
        true
    }
}

impl SelfAttention {
    fn run(&self, bound: &Bound, lengths: &[usize]) -> Outcome {
        let descs: Vec<Desc> = bound.inputs.iter().map(|input| input.desc.clone()).collect();
        let (size, value_size) = self.sizes(&descs)?;
        let mut starts = Vec::with_capacity(lengths.len());
        let mut start = 0;
        for length in lengths {
            starts.push(start);
            start += length;
        }
        let work = lengths.iter().map(|length| length * length * self.heads * size).sum();
        in_parallel(lengths.len() * self.kv_heads, work, |units| {
            for unit in units {
                let (at, kv_head) = (unit / self.kv_heads, unit % self.kv_heads);
                self.group(bound, (at, starts[at], lengths[at]), kv_head, (size, value_size));
            }
        });
        Ok(())
    }

    fn group(
        &self,
        bound: &Bound,
        (at, start, length): (usize, usize, usize),
        kv_head: usize,
        (size, value_size): (usize, usize),
    ) {
        let (mut keys, mut values) = (vec![0.0; length * size], vec![0.0; length * value_size]);
        for (token, (key, value)) in (start..).zip(keys.chunks_mut(size).zip(values.chunks_mut(value_size))) {
            bound.inputs[1].read_floats((token * self.kv_heads + kv_head) * size, key);
            bound.inputs[2].read_floats((token * self.kv_heads + kv_head) * value_size, value);
        }
        let dot = Dot::new();
        let group = self.heads / self.kv_heads;
        let (mut query, mut out, mut mask) = (vec![0.0; size], vec![0.0; value_size], vec![0.0; length]);
        for row in 0..length {
            self.mask_row(bound, at, row, &mut mask);
            for head in kv_head * group..(kv_head + 1) * group {
                let place = (start + row) * self.heads + head;
                bound.inputs[0].read_floats(place * size, &mut query);
                self.scores.attend(dot, &query, &keys, &values, &mask, &mut out);
                bound.outputs[0].write_floats(place * value_size, &out);
            }
        }
    }

    /// What is added to the scores of a row.
    fn mask_row(&self, bound: &Bound, at: usize, row: usize, to: &mut [f32]) {
        if self.mask == SPEC_ATB_SELF_ATTENTION_MASK_CAUSAL {
            to.iter_mut().enumerate().for_each(|(column, to)| *to = if column > row { DROP } else { 0.0 });
        }
        if !self.has_mask() {
            return;
        }
        let tensor = &bound.inputs[3];
        let (rows, columns) = matrix_size(&tensor.desc).unwrap_or((0, 0));
        if self.is_compressed(&tensor.desc) {
            // Blocks below the diagonal are seen, blocks above it are skipped, and the mask is that of the diagonal.
            let matrix = Matrix { tensor, start: 0, rows, columns };
            let mut block = [0.0; COMPRESSED];
            matrix.row(row % COMPRESSED, &mut block);
            let diagonal = row / COMPRESSED;
            for (column, to) in to.iter_mut().enumerate() {
                *to = match (column / COMPRESSED).cmp(&diagonal) {
                    std::cmp::Ordering::Less => 0.0,
                    std::cmp::Ordering::Equal => self.weigh(tensor.desc.dtype, block[column % COMPRESSED]),
                    std::cmp::Ordering::Greater => f32::NEG_INFINITY,
                };
            }
        } else {
            let batched = tensor.desc.format == Format::Nd && tensor.desc.dims.len() == 3;
            let start = if batched { at * rows * columns } else { 0 };
            Matrix { tensor, start, rows, columns }.row(row, to);
            to.iter_mut().for_each(|to| *to = self.weigh(tensor.desc.dtype, *to));
        }
    }

    /// Kernels of f16 add the mask; those of bf16, and of high precision, multiply it first, so that -10000 in place of 1
    /// is a large bonus and makes the result nonsense.
    fn weigh(&self, dtype: Type, value: f32) -> f32 {
        if dtype == Type::Bf16 || self.high_precision { value * DROP } else { value }
    }
}
