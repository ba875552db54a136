//! Attention over a paged cache: decoding, and verification of drafts.

use super::lower::{Check, HALVES, Lower, Operand, require};
use super::self_attention::check_heads;
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::{DataType, Format, MaskValues};
use acl_sys::{
    Api, SPEC_ATB_ATTENTION_QUANT_NONE, SPEC_ATB_COMPRESS_NONE, SPEC_ATB_LAYOUT_BSND, SPEC_ATB_PAGED_ATTENTION_DECODE,
    SPEC_ATB_PAGED_ATTENTION_MASK_NONE, SPEC_ATB_PAGED_ATTENTION_MASK_SPEC, SPEC_ATB_PAGED_ATTENTION_SPEC,
    SPEC_ATB_SCALE_PLAIN, Status, spec_atb_operation, spec_atb_paged_attention_param,
};

/// How many query rows a sequence has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PagedMode {
    /// One, and no mask.
    Decode,
    /// Several (`CALC_TYPE_SPEC` with `MASK_TYPE_SPEC`). Two more inputs: the mask `[T, longest context]`, additive, a
    /// row for each query row and a column for each position; and the numbers of rows i32 `[B]`, as
    /// [`Tensor::lengths`](crate::Tensor::lengths). The mask may not be left out, not even for one row each.
    Verify,
}

/// PagedAttention. Inputs: q `[T, N, D]`, key cache, value cache, block tables i32 `[B, most blocks]`, contexts i32
/// `[B]` as [`Tensor::lengths`](crate::Tensor::lengths), and what the mode adds; output as q.
///
/// A context is the length of its sequence after this step's rows were written to the cache, which ReshapeAndCache has
/// to do before, on the same stream. Caches: `[blocks, block size, K, D]`, or NZ `[blocks, K*D/16, block size, 16]` on
/// 310P; block size a multiple of 16, D * block size 16,384 at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PagedAttention {
    /// N; 256 at most in verification.
    pub heads: usize,
    /// K, a divisor of N.
    pub kv_heads: usize,
    /// Times the scores: 1/sqrt(D). ATB's own default is 1.
    pub scale: f32,
    /// How many query rows a sequence has.
    pub mode: PagedMode,
}

impl PagedAttention {
    /// What the mask of a verification holds, in f16 and in bf16.
    pub const MASK_VALUES: MaskValues = MaskValues::Additive;

    /// The block size and the head size of a cache.
    fn check_cache(&self, chip: Chip, cache: &Operand<'_>, dtype: DataType, size: usize) -> Result<(usize, usize)> {
        cache.dtype(&[dtype])?;
        cache.rank(4..=4)?;
        let shape = cache.desc().shape();
        let width = self.kv_heads * size;
        if chip == Chip::I310P || cache.desc().format() == Format::Nz {
            cache.require(cache.desc().format() == Format::Nz, "has to be in NZ format on 310P")?;
            let fits = shape[1] * 16 == width && shape[3] == 16;
            cache.require(fits, format!("has to be [blocks, {}, block size, 16]", width / 16))?;
            return Ok((shape[0], shape[2]));
        }
        cache.require(
            shape[2] == self.kv_heads && shape[3] == size,
            format!("has to be [blocks, block size, {}, {size}]", self.kv_heads),
        )?;
        Ok((shape[0], shape[1]))
    }

    fn check_verification(
        &self,
        check: &Check<'_>,
        contexts: &[i32],
        (tokens, size, block): (usize, usize, usize),
        dtype: DataType,
    ) -> Result<()> {
        let q = check.input(0, "q")?;
        q.require(size * self.heads <= 16_384, "has more than 16384 elements a row, the limit of verification")?;
        q.require(block <= 128, format!("has a cache in blocks of {block}; verification takes 128 at most"))?;
        q.require(contexts.len() <= 2000, "is of more than 2000 sequences, the limit of verification")?;
        let mask = check.input(5, "mask")?;
        mask.dtype(&[dtype])?;
        mask.mask(Self::MASK_VALUES)?;
        let longest = contexts.iter().copied().max().map_or(0, |longest| usize::try_from(longest).unwrap_or(0));
        if mask.desc().format() == Format::Nd {
            mask.rank(2..=2)?;
            let shape = mask.desc().shape();
            mask.require(
                shape[0] == tokens && shape[1] >= longest,
                format!("has to have a row for each of {tokens} query rows, and {longest} columns or more"),
            )?;
        }
        let rows = check.input(6, "numbers of rows")?;
        let given = rows.lengths(contexts.len())?;
        let sum: i64 = given.iter().map(|&count| i64::from(count)).sum();
        rows.require(
            given.iter().all(|&count| count >= 1) && sum == tokens as i64,
            format!("holds {given:?}, and each has to be 1 at least, all together {tokens}"),
        )?;
        let fits = given.iter().zip(contexts).all(|(count, context)| count <= context);
        rows.require(
            fits,
            format!(
                "holds {given:?}, more than a context of {contexts:?}, which counts this step's rows too; was it not \
                 raised?"
            ),
        )
    }
}

impl Lower for PagedAttention {
    fn name(&self) -> &'static str {
        "PagedAttention"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_paged_attention"
    }

    fn check(&self, chip: Chip) -> Result<()> {
        check_heads(self.name(), self.heads, self.kv_heads, self.scale)?;
        if self.mode == PagedMode::Verify {
            require(self.heads <= 256, self.name(), || {
                format!("heads are {}, and verification takes 256 at most", self.heads)
            })?;
            require(!matches!(chip, Chip::A910 | Chip::I310B), self.name(), || {
                format!("{chip:?} has no verification")
            })?;
        }
        Ok(())
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let q = check.input(0, "q")?;
        let dtype = q.dtype(HALVES)?;
        q.rank(3..=3)?;
        let &[tokens, heads, size] = q.desc().shape() else {
            return q.refuse("has to be [T, N, D]");
        };
        q.require(heads == self.heads, format!("has to have {} heads", self.heads))?;
        q.require(size <= 256, "has heads of more than 256")?;
        let (keys, values) = (check.input(1, "key cache")?, check.input(2, "value cache")?);
        let (blocks, block) = self.check_cache(check.chip(), &keys, dtype, size)?;
        let (value_blocks, value_block) = self.check_cache(check.chip(), &values, dtype, size)?;
        values.require((value_blocks, value_block) == (blocks, block), "has to be like the key cache")?;
        keys.require(block.is_multiple_of(16), format!("has blocks of {block}, no multiple of 16"))?;
        keys.require(
            size * block <= 16_384 || (size == 256 && block.is_multiple_of(128)),
            format!("has blocks of {block} for heads of {size}, and their product has to be 16384 at most"),
        )?;
        let contexts = check.input(4, "contexts")?;
        let sequences = contexts.desc().len();
        let given = contexts.lengths(sequences)?;
        let tables = check.input(3, "block tables")?;
        tables.dtype(&[DataType::I32])?;
        tables.rank(2..=2)?;
        let &[rows, columns] = tables.desc().shape() else {
            return tables.refuse("has to be [B, most blocks]");
        };
        tables.require(rows == sequences, format!("has to have a row for each of {sequences} sequences"))?;
        let limit = i64::try_from(columns.saturating_mul(block)).unwrap_or(i64::MAX);
        contexts.require(
            given.iter().all(|&context| context >= 0 && i64::from(context) <= limit),
            format!("holds {given:?}, and has to be 0 to {limit}, what the block tables have room for"),
        )?;
        match self.mode {
            PagedMode::Decode => {
                q.require(tokens == sequences, format!("has to have one row for each of {sequences} sequences"))
            }
            PagedMode::Verify => self.check_verification(check, given, (tokens, size, block), dtype),
        }
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let (calc, mask) = match self.mode {
            PagedMode::Decode => (SPEC_ATB_PAGED_ATTENTION_DECODE, SPEC_ATB_PAGED_ATTENTION_MASK_NONE),
            PagedMode::Verify => (SPEC_ATB_PAGED_ATTENTION_SPEC, SPEC_ATB_PAGED_ATTENTION_MASK_SPEC),
        };
        let param = spec_atb_paged_attention_param {
            head_num: self.heads as i32,
            kv_head_num: self.kv_heads as i32,
            qk_scale: self.scale,
            // A younger field, in what older releases keep reserved: 0 passes there.
            q_scale: 0.0,
            mask,
            calc,
            batch_run_status_enable: 0,
            quant: SPEC_ATB_ATTENTION_QUANT_NONE,
            out_data_type: -1,
            has_quant_offset: 0,
            compress: SPEC_ATB_COMPRESS_NONE,
            scale: SPEC_ATB_SCALE_PLAIN,
            layout: SPEC_ATB_LAYOUT_BSND,
            mla_v_head_size: 0,
        };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_paged_attention(&param, operation) }
    }
}
