//! Writing to a paged cache of keys and values.

use super::lower::{Check, Lower, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::{DataType, Format};
use acl_sys::{
    Api, SPEC_ATB_CACHE_KEY_AND_VALUE, SPEC_ATB_CACHE_KEY_AND_VALUE_NZ, SPEC_ATB_CACHE_KEY_ONLY,
    SPEC_ATB_COMPRESS_NONE, Status, spec_atb_operation, spec_atb_reshape_and_cache_param,
};

/// How a cache lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheLayout {
    /// `[blocks, block size, K, D]`, for A2.
    Nd,
    /// `[blocks, K*D/16, block size, 16]`, in NZ; the only one on 310P.
    Nz,
    /// Keys alone, as `Nd`; for A2. Inputs: key, key cache, slots; output: key cache.
    KeysNd,
}

/// ReshapeAndCache. Inputs: key `[T, K, D]`, value `[T, K, D]`, key cache, value cache, slots i32 `[T]`; outputs: the
/// two caches, which have to be the inputs, in the same memory: only the slots' rows are written. A slot is block *
/// block size + offset; a negative one skips its token (A2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapeAndCache {
    /// How the caches lie in memory.
    pub layout: CacheLayout,
}

impl Lower for ReshapeAndCache {
    fn name(&self) -> &'static str {
        "ReshapeAndCache"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_reshape_and_cache"
    }

    fn check(&self, chip: Chip) -> Result<()> {
        let is_nz = self.layout == CacheLayout::Nz;
        require(chip != Chip::I310P || is_nz, self.name(), || "310P has caches in NZ layout only".to_owned())
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let key = check.input(0, "key")?;
        let dtype = key.dtype(&[DataType::F16, DataType::Bf16, DataType::I8])?;
        key.rank(3..=3)?;
        let tokens = key.desc().shape()[0];
        // Position of the caches among the inputs, and how many there are.
        let caches = if self.layout == CacheLayout::KeysNd { 1..2 } else { 2..4 };
        for at in caches.clone() {
            let source = check.input(at - caches.start, if at == caches.start { "key" } else { "value" })?;
            let name = if at == caches.start { "key cache" } else { "value cache" };
            source.rank(3..=3)?;
            source.dtype(&[dtype])?;
            let (heads, size) = (source.desc().shape()[1], source.desc().last());
            source.require(source.desc().shape()[0] == tokens, format!("has to have {tokens} rows like key"))?;
            let cache = check.input(at, name)?;
            cache.dtype(&[dtype])?;
            cache.rank(4..=4)?;
            let shape = cache.desc().shape();
            match self.layout {
                CacheLayout::Nz => {
                    let tile = 32 / dtype.size();
                    cache.require(cache.desc().format() == Format::Nz, "has to be in NZ format")?;
                    cache.require(
                        shape[1] * tile == heads * size && shape[3] == tile && shape[2].is_multiple_of(16),
                        format!("has to be [blocks, {}, a multiple of 16, {tile}]", heads * size / tile),
                    )?;
                }
                CacheLayout::Nd | CacheLayout::KeysNd => {
                    cache.nd()?;
                    let fits = shape[2] == heads && shape[3] == size;
                    cache.require(fits, format!("has to be [blocks, block size, {heads}, {size}]"))?;
                }
            }
            check.in_place(at, at - caches.start, name)?;
        }
        let slots = check.input(caches.end, "slots")?;
        slots.dtype(&[DataType::I32])?;
        slots.shape(&[tokens])
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let param = spec_atb_reshape_and_cache_param {
            compress: SPEC_ATB_COMPRESS_NONE,
            cache: match self.layout {
                CacheLayout::Nd => SPEC_ATB_CACHE_KEY_AND_VALUE,
                CacheLayout::Nz => SPEC_ATB_CACHE_KEY_AND_VALUE_NZ,
                CacheLayout::KeysNd => SPEC_ATB_CACHE_KEY_ONLY,
            },
        };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_reshape_and_cache(&param, operation) }
    }
}
