//! Paged caches of keys and values: their layouts, and ReshapeAndCache, which writes them.

use super::attention::unsupported;
use super::tensor::{Argument, Desc, Format, Tensor, Type};
use super::{Bound, Operator, Plan, all_of, is, shape, trap};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use crate::order::Usage;
use acl_sys::{
    SPEC_ATB_CACHE_KEY_AND_VALUE, SPEC_ATB_CACHE_KEY_AND_VALUE_NZ, SPEC_ATB_CACHE_KEY_ONLY, SPEC_ATB_COMPRESS_NONE,
    spec_atb_reshape_and_cache_param,
};

/// Where a cache keeps its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) blocks: usize,
    pub(crate) block_size: usize,
    /// Elements of a token: heads times head size.
    pub(crate) width: usize,
    /// Columns of a tile in NZ.
    tile: Option<usize>,
}

impl Layout {
    /// Of a cache [blocks, block size, heads, head size], or in NZ [blocks, width / tile, block size, tile].
    pub(crate) fn of(desc: &Desc) -> Outcome<Self> {
        let [blocks, second, third, fourth] = desc.dims[..] else {
            return Err(shape(format!("a cache has shape {:?}, not 4 dimensions", desc.dims)));
        };
        Ok(match desc.format {
            Format::Nz => Self { blocks, block_size: third, width: second * fourth, tile: Some(fourth) },
            _ => Self { blocks, block_size: second, width: third * fourth, tile: None },
        })
    }

    /// Reads `to.len()` elements of a token, from element `first` on.
    pub(crate) fn read(&self, cache: &Tensor, block: usize, at: usize, first: usize, to: &mut [f32]) {
        match self.tile {
            None => cache.read_floats((block * self.block_size + at) * self.width + first, to),
            Some(tile) => {
                for (column, to) in (first..).zip(to) {
                    cache.read_floats(self.tiled(tile, block, at, column), std::slice::from_mut(to));
                }
            }
        }
    }

    fn tiled(&self, tile: usize, block: usize, at: usize, column: usize) -> usize {
        ((block * (self.width / tile) + column / tile) * self.block_size + at) * tile + column % tile
    }

    /// Copies a whole token's elements to a slot.
    fn write(&self, cache: &Tensor, slot: usize, from: &Tensor, token: usize) {
        let (block, at) = (slot / self.block_size, slot % self.block_size);
        match self.tile {
            None => cache.copy_from(slot * self.width, from, token * self.width, self.width),
            Some(tile) => {
                for column in (0..self.width).step_by(tile) {
                    let to = self.tiled(tile, block, at, column);
                    cache.copy_from(to, from, token * self.width + column, tile);
                }
            }
        }
    }
}

pub(crate) struct ReshapeAndCache {
    key_only: bool,
    nz: bool,
}

impl ReshapeAndCache {
    pub(crate) fn new(param: spec_atb_reshape_and_cache_param, soc: Soc) -> Outcome<Self> {
        require(param.compress == SPEC_ATB_COMPRESS_NONE, || unsupported("compressed caches"))?;
        let known = [SPEC_ATB_CACHE_KEY_AND_VALUE, SPEC_ATB_CACHE_KEY_ONLY, SPEC_ATB_CACHE_KEY_AND_VALUE_NZ];
        require(known.contains(&param.cache), || parameter(format!("cache configuration {}", param.cache.0)))?;
        let key_only = param.cache == SPEC_ATB_CACHE_KEY_ONLY;
        require(!(key_only && soc.is_310p()), || parameter("this chip writes keys and values together only"))?;
        Ok(Self { key_only, nz: soc.is_310p() || param.cache == SPEC_ATB_CACHE_KEY_AND_VALUE_NZ })
    }

    /// Tokens, each with the cache that they go to: places of inputs.
    fn pairs(&self) -> &'static [(usize, usize)] {
        if self.key_only { &[(0, 1)] } else { &[(0, 2), (1, 3)] }
    }
}

impl Operator for ReshapeAndCache {
    fn name(&self) -> &'static str {
        "ReshapeAndCache"
    }

    fn arity(&self) -> (usize, usize) {
        if self.key_only { (3, 1) } else { (5, 2) }
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], _soc: Soc) -> bool {
        let types = [Type::F16, Type::Bf16, Type::I8];
        let format = if self.nz { Format::Nz } else { Format::Nd };
        let pairs = self.pairs().iter().enumerate().all(|(at, (tokens, cache))| {
            let caches = [&inputs[*cache], &outputs[at]];
            all_of([&inputs[*tokens]], &types)
                && caches.iter().all(|cache| cache.format == format && cache.dtype == inputs[*tokens].dtype)
        });
        pairs && is(&inputs[inputs.len() - 1], Type::I32)
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let slots = &inputs[inputs.len() - 1];
        require(slots.dims.len() == 1, || shape(format!("slots have shape {:?}, not one dimension", slots.dims)))?;
        let mut outputs = Vec::new();
        for (tokens, cache) in self.pairs() {
            let (tokens, cache) = (&inputs[*tokens], &inputs[*cache]);
            let layout = Layout::of(cache)?;
            require(tokens.dims[0] == slots.dims[0] && tokens.elements() == slots.dims[0] * layout.width, || {
                shape(format!("{:?} does not fit {} slots of a cache {:?}", tokens.dims, slots.dims[0], cache.dims))
            })?;
            require(!self.nz || layout.block_size % 16 == 0, || {
                shape(format!("blocks of {} in NZ layout", layout.block_size))
            })?;
            outputs.push(cache.clone());
        }
        Ok(outputs)
    }

    fn plan(&self, inputs: &[Argument], outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        for ((_, cache), output) in self.pairs().iter().zip(outputs) {
            // Inside a graph both may still be without memory.
            require(inputs[*cache].device == output.device, || {
                parameter("a cache is an input and an output, and has to be one memory")
            })?;
        }
        let pairs = self.pairs();
        let bytes: usize = pairs.iter().map(|(tokens, _)| 2 * inputs[*tokens].desc.bytes()).sum();
        Ok(Plan::new(move |bound| run(bound, pairs)).with_bytes(bytes as f64))
    }

    fn usage(&self, is_input: bool, index: usize) -> Option<Usage> {
        let is_cache = self.pairs().iter().any(|(_, cache)| *cache == index);
        match (is_input, is_cache) {
            (true, true) => None,
            (true, false) => Some(Usage::Read),
            (false, _) => Some(Usage::Scatter),
        }
    }
}

fn run(bound: &Bound, pairs: &[(usize, usize)]) -> Outcome {
    let slots = bound.inputs[bound.inputs.len() - 1].integers();
    for ((tokens, _), cache) in pairs.iter().zip(&bound.outputs) {
        let layout = Layout::of(&cache.desc)?;
        for (token, slot) in slots.iter().enumerate() {
            // Negative slots are tokens to leave out.
            let Ok(slot) = usize::try_from(*slot) else { continue };
            require(slot < layout.blocks * layout.block_size, || {
                trap(format!("slot {slot} of a cache of {} blocks of {}", layout.blocks, layout.block_size))
            })?;
            layout.write(cache, slot, &bound.inputs[*tokens], token);
        }
    }
    Ok(())
}
