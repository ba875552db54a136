//! What a model has on its device: weights, cache, the memory of passes; and the work of a pass, queued.

use std::collections::{BTreeMap, btree_map};
use std::ops::Range;

use atb_rs::parameters::{PagedAttention, Verify};
use atb_rs::{DataType, DeviceBuffer, Event, HostBuffer, Lengths, Operation, Tensor, TensorDesc, Verdicts};
use spec_runtime::kv::Move;

use crate::batch::Layout;
use crate::graphs::{self, Role};
use crate::pass::Slots;
use crate::plan::SCORED_ROWS;
use crate::shape::Shape;
use crate::{AscendDevice, AscendStream, HalfType};

type Result<T> = std::result::Result<T, atb_rs::Error>;

/// Integers between the starts of two tensors in one buffer, at least: 64 bytes, as allocations are aligned.
const ALIGNMENT: usize = 16;

/// One layer.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Weights, by role.
    pub(crate) weights: Vec<(Role, Tensor)>,
    /// The caches of keys and values.
    pub(crate) caches: [Tensor; 2],
    /// Which rotary tables it turns by.
    pub(crate) rope: usize,
    pub(crate) operation: Operation,
    /// `None` where caches lie in tiles.
    pub(crate) compaction: Option<Operation>,
}

/// Everything of a model on its device.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) device: AscendDevice,
    pub(crate) shape: Shape,
    pub(crate) embedding: Tensor,
    /// Cosines and sines of each rotary embedding, `[positions, head size]`.
    pub(crate) tables: Vec<[Tensor; 2]>,
    pub(crate) output_norm: Tensor,
    pub(crate) head: Tensor,
    pub(crate) layers: Vec<Layer>,
    pub(crate) operations: [Operation; 2],
    /// Judges rows where the shim has the spec-decode module.
    pub(crate) verify: Option<Operation>,
    pub(crate) memory: PassMemory,
}

/// Memory that every pass uses, one after the other.
#[derive(Debug)]
pub(crate) struct PassMemory {
    hidden: [DeviceBuffer; 2],
    /// Rows of the rotary tables.
    turned: Vec<[DeviceBuffer; 2]>,
    integers: DeviceBuffer,
    /// Of layers that see everything, and of those with a window.
    masks: Vec<DeviceBuffer>,
    /// `None` while a pass that was judged on the device keeps it.
    logits: Option<DeviceBuffer>,
    /// Contexts and rows, by the number of entries.
    lengths: BTreeMap<usize, [Lengths; 2]>,
}

/// Pinned memory of a pass that is under way.
#[derive(Debug)]
pub(crate) struct Slot {
    integers: HostBuffer,
    masks: Vec<HostBuffer>,
    pub(crate) logits: HostBuffer,
    /// Verdicts, by the number of rows.
    pub(crate) verdicts: BTreeMap<usize, Verdicts>,
    /// Where the rows of a pass that was judged on the device still are.
    pub(crate) judged: Option<DeviceBuffer>,
    /// Behind everything that the pass queued.
    pub(crate) done: Event,
    pub(crate) is_used: bool,
}

impl PassMemory {
    pub(crate) fn new(device: &AscendDevice, shape: &Shape, ropes: usize) -> Result<Self> {
        let context = device.context();
        let buffer = |bytes: usize| DeviceBuffer::new(context, bytes);
        let rows = shape.max_rows.next_power_of_two();
        let hidden = rows * shape.hidden * HalfType::SIZE;
        let turned = rows * shape.head_dim * shape.table_type().size();
        let mask = rows * shape.widest() * HalfType::SIZE;
        let masks = 1 + usize::from(shape.windows.is_some());
        Ok(Self {
            hidden: [buffer(hidden)?, buffer(hidden)?],
            turned: (0..ropes).map(|_| Ok([buffer(turned)?, buffer(turned)?])).collect::<Result<_>>()?,
            integers: buffer(4 * shape.integers())?,
            masks: (0..masks).map(|_| buffer(mask)).collect::<Result<_>>()?,
            logits: Some(buffer(SCORED_ROWS.min(rows) * shape.vocab * HalfType::SIZE)?),
            lengths: BTreeMap::new(),
        })
    }
}

impl Slot {
    pub(crate) fn new(device: &AscendDevice, shape: &Shape) -> Result<Self> {
        let context = device.context();
        let rows = shape.max_rows.next_power_of_two();
        let mask = rows * shape.widest() * HalfType::SIZE;
        let masks = 1 + usize::from(shape.windows.is_some());
        Ok(Self {
            integers: HostBuffer::new(context, 4 * shape.integers())?,
            masks: (0..masks).map(|_| HostBuffer::new(context, mask)).collect::<Result<_>>()?,
            logits: HostBuffer::new(context, SCORED_ROWS.min(rows) * shape.vocab * HalfType::SIZE)?,
            verdicts: BTreeMap::new(),
            judged: None,
            done: Event::new(context)?,
            is_used: false,
        })
    }

    /// Whether a pass may use it: the last one that did is over.
    pub(crate) fn is_free(&self) -> bool {
        !self.is_used || self.done.is_complete().unwrap_or(false)
    }
}

/// Tensors that all layers of a pass share.
struct Shared {
    slots: Tensor,
    tables: Tensor,
    contexts: Tensor,
    rows: Tensor,
    masks: Vec<Tensor>,
    /// Cosines and sines of each rotary embedding.
    turned: Vec<[Tensor; 2]>,
}

impl Store {
    /// Queues a pass. On failure a part of it may have been queued.
    pub(crate) fn forward(
        &mut self,
        stream: &AscendStream,
        layout: &Layout,
        slot: &mut Slot,
        slots: &Slots,
    ) -> Result<()> {
        slot.is_used = true;
        let tokens = layout.len();
        let regions = self.upload(stream, layout, slot)?;
        let shared = self.shared(stream, layout, &regions)?;
        let executor = stream.executor();

        let hidden = |memory: &PassMemory, at: usize| {
            let desc = TensorDesc::new(self.shape.dtype.data_type(), [tokens, self.shape.hidden]);
            Tensor::new(desc, &memory.hidden[at % 2])
        };
        let streams = [hidden(&self.memory, 0)?, hidden(&self.memory, 1)?];
        let mut inputs = vec![
            self.embedding.clone(),
            self.integers(&regions.tokens, [tokens])?,
            self.integers(&regions.positions, [tokens])?,
        ];
        inputs.extend(self.tables.iter().flatten().cloned());
        let mut outputs = vec![streams[0].clone()];
        outputs.extend(shared.turned.iter().flatten().cloned());
        let [embed, head] = &mut self.operations;
        embed.setup(executor, inputs, outputs)?.execute()?;

        let roles = self.shape.roles();
        for (at, layer) in self.layers.iter_mut().enumerate() {
            let windowed = usize::from(self.shape.is_windowed(at));
            let (from, to) = (&streams[at % 2], &streams[(at + 1) % 2]);
            let input = |role: &Role| match role {
                Role::Hidden => from.clone(),
                Role::Cos => shared.turned[layer.rope][0].clone(),
                Role::Sin => shared.turned[layer.rope][1].clone(),
                Role::Keys => layer.caches[0].clone(),
                Role::Values => layer.caches[1].clone(),
                Role::Slots => shared.slots.clone(),
                Role::Tables => shared.tables.clone(),
                Role::Contexts => shared.contexts.clone(),
                Role::Rows => shared.rows.clone(),
                Role::Mask => shared.masks[windowed].clone(),
                weight => {
                    let found = layer.weights.iter().find(|(role, _)| role == weight);
                    found.map_or_else(Tensor::absent, |(_, tensor)| tensor.clone())
                }
            };
            let inputs = roles.iter().map(input).collect();
            let [keys, values] = layer.caches.clone();
            layer.operation.setup(executor, inputs, vec![to.clone(), keys, values])?.execute()?;
        }

        let scored = layout.scored.len();
        if scored > 0 {
            let desc = TensorDesc::new(self.shape.dtype.data_type(), [scored, self.shape.vocab]);
            let context = self.device.context();
            let spare = self.memory.logits.take().or_else(|| slots.take_logits());
            let buffer = match spare.filter(|buffer| buffer.len() >= desc.bytes()) {
                Some(buffer) => buffer,
                None => DeviceBuffer::new(context, desc.bytes())?,
            };
            let indices = integers(&self.memory.integers, &regions.scored, [scored])?;
            let last = streams[self.layers.len() % 2].clone();
            let logits = Tensor::new(desc, &buffer)?;
            let inputs = vec![last, indices, self.output_norm.clone(), self.head.clone()];
            head.setup(executor, inputs, vec![logits.clone()])?.execute()?;
            match self.verify.as_mut().filter(|_| layout.verdicts) {
                Some(verify) => {
                    let verdicts = match slot.verdicts.entry(scored) {
                        btree_map::Entry::Occupied(found) => found.into_mut(),
                        btree_map::Entry::Vacant(place) => {
                            place.insert(Verdicts::new(context, Verify::Greedy, scored, desc.dtype())?)
                        }
                    };
                    verify.setup(executor, vec![logits], verdicts.tensors())?.execute()?;
                    verdicts.download(stream.queue())?;
                    slot.judged = Some(buffer);
                }
                None => {
                    let bytes = 0..desc.bytes();
                    if slot.logits.len() < bytes.end {
                        slot.logits = HostBuffer::new(context, bytes.end)?;
                    }
                    stream.queue().download_part(&buffer, bytes.clone(), &mut slot.logits, bytes)?;
                    self.memory.logits = Some(buffer);
                }
            }
        }
        stream.queue().record(&mut slot.done)
    }

    /// Brings a pass's integers, masks and lengths to the device.
    fn upload(&mut self, stream: &AscendStream, layout: &Layout, slot: &mut Slot) -> Result<Regions> {
        let queue = stream.queue();
        let (regions, count) = Regions::new(layout);
        let bytes = 4 * count;
        let context = self.device.context();
        // Reservations longer than the context make wider tables than were planned for.
        if self.memory.integers.len() < bytes {
            self.memory.integers = DeviceBuffer::new(context, bytes)?;
        }
        if slot.integers.len() < bytes {
            slot.integers = HostBuffer::new(context, bytes)?;
        }
        let words = slot.integers.write::<i32>()?;
        for (region, values) in regions.of(layout) {
            words[region.clone()].copy_from_slice(values);
        }
        queue.upload_part(&slot.integers, 0..bytes, &self.memory.integers, 0..bytes)?;

        let width = layout.width(&self.shape);
        let bytes = layout.len() * width * HalfType::SIZE;
        let windows = [None, self.shape.windows.as_ref().map(|windows| windows.size)];
        for ((to, from), window) in self.memory.masks.iter_mut().zip(&mut slot.masks).zip(windows) {
            if to.len() < bytes {
                *to = DeviceBuffer::new(context, bytes)?;
            }
            if from.len() < bytes {
                *from = HostBuffer::new(context, bytes)?;
            }
            layout.write_mask(self.shape.dtype, window, width, &mut from.write()?[..layout.len() * width]);
            queue.upload_part(from, 0..bytes, to, 0..bytes)?;
        }
        Ok(regions)
    }

    fn shared(&mut self, stream: &AscendStream, layout: &Layout, regions: &Regions) -> Result<Shared> {
        let (tokens, entries) = (layout.len(), layout.entries());
        let context = self.device.context();
        let lengths = match self.memory.lengths.get(&entries) {
            Some(lengths) => lengths.clone(),
            None => {
                let fresh = [Lengths::new(context, entries)?, Lengths::new(context, entries)?];
                self.memory.lengths.insert(entries, fresh.clone());
                fresh
            }
        };
        lengths[0].set(stream.queue(), &layout.contexts)?;
        lengths[1].set(stream.queue(), &layout.rows)?;
        let mask = TensorDesc::new(self.shape.dtype.data_type(), [tokens, layout.width(&self.shape)]);
        let table = TensorDesc::new(self.shape.table_type(), [tokens, self.shape.head_dim]);
        let masks = self
            .memory
            .masks
            .iter()
            .map(|buffer| Ok(Tensor::new(mask, buffer)?.with_mask_values(PagedAttention::MASK_VALUES)));
        let turned =
            self.memory.turned.iter().map(|[cos, sin]| Ok([Tensor::new(table, cos)?, Tensor::new(table, sin)?]));
        Ok(Shared {
            slots: self.integers(&regions.slots, [tokens])?,
            tables: self.integers(&regions.tables, [entries, layout.columns])?,
            contexts: Tensor::lengths(&lengths[0]),
            rows: Tensor::lengths(&lengths[1]),
            masks: masks.collect::<Result<_>>()?,
            turned: turned.collect::<Result<_>>()?,
        })
    }

    fn integers<const RANK: usize>(&self, region: &Range<usize>, shape: [usize; RANK]) -> Result<Tensor> {
        integers(&self.memory.integers, region, shape)
    }

    /// Queues the moves of rows that a commit makes, in every layer.
    pub(crate) fn compact(&mut self, stream: &AscendStream, moves: &[Move]) -> Result<()> {
        if self.shape.is_tiled() {
            return self.compact_tiles(stream, moves);
        }
        // Padded by moving a row that belongs to nobody onto itself.
        let count = moves.len().next_power_of_two();
        let scratch = self.shape.kv_blocks * self.shape.block_tokens;
        let slots = |of: fn(&Move) -> usize| {
            let mut slots: Vec<i32> = moves.iter().map(|step| of(step) as i32).collect();
            slots.resize(count, scratch as i32);
            slots
        };
        let both = [slots(|step| step.from), slots(|step| step.to)];
        let mut tensors = Vec::with_capacity(2);
        for slots in both {
            let mut pinned = HostBuffer::new(self.device.context(), 4 * count)?;
            pinned.write()?.copy_from_slice(&slots);
            let buffer = DeviceBuffer::new(self.device.context(), 4 * count)?;
            stream.queue().upload(&pinned, &buffer)?;
            tensors.push(Tensor::new(TensorDesc::new(DataType::I32, [count]), &buffer)?);
        }
        for layer in &mut self.layers {
            let Some(compaction) = &mut layer.compaction else { continue };
            let inputs = layer.caches.iter().chain(&tensors).cloned().collect();
            compaction.setup(stream.executor(), inputs, layer.caches.to_vec())?.execute()?;
        }
        Ok(())
    }

    /// A row of tiles is no row of memory: piece by piece.
    fn compact_tiles(&self, stream: &AscendStream, moves: &[Move]) -> Result<()> {
        const TILE: usize = 16;
        let block = self.shape.block_tokens;
        let tiles = self.shape.key_width() / TILE;
        let piece = |slot: usize, tile: usize| {
            let start = (((slot / block) * tiles + tile) * block + slot % block) * TILE * HalfType::SIZE;
            start..start + TILE * HalfType::SIZE
        };
        for buffer in self.layers.iter().flat_map(|layer| &layer.caches).filter_map(Tensor::buffer) {
            for step in moves {
                for tile in 0..tiles {
                    stream.queue().copy(buffer, piece(step.from, tile), buffer, piece(step.to, tile))?;
                }
            }
        }
        Ok(())
    }
}

/// A tensor of integers in the pass's buffer of them.
fn integers<const RANK: usize>(buffer: &DeviceBuffer, region: &Range<usize>, shape: [usize; RANK]) -> Result<Tensor> {
    Tensor::at(TensorDesc::new(DataType::I32, shape), buffer, 4 * region.start)
}

/// Where the integers of a pass lie in their buffer.
struct Regions {
    tokens: Range<usize>,
    positions: Range<usize>,
    slots: Range<usize>,
    tables: Range<usize>,
    scored: Range<usize>,
}

impl Regions {
    /// The regions, and the integers that all of them take.
    fn new(layout: &Layout) -> (Self, usize) {
        let mut end = 0;
        let mut region = |count: usize| {
            let start = usize::next_multiple_of(end, ALIGNMENT);
            end = start + count;
            start..end
        };
        let regions = Self {
            tokens: region(layout.tokens.len()),
            positions: region(layout.positions.len()),
            slots: region(layout.slots.len()),
            tables: region(layout.tables.len()),
            scored: region(layout.scored.len()),
        };
        (regions, end)
    }

    fn of<'a>(&'a self, layout: &'a Layout) -> [(&'a Range<usize>, &'a [i32]); 5] {
        [
            (&self.tokens, &layout.tokens),
            (&self.positions, &layout.positions),
            (&self.slots, &layout.slots),
            (&self.tables, &layout.tables),
            (&self.scored, &layout.scored),
        ]
    }
}

/// What judges rows: `None` without the spec-decode module, and for soft-capped logits, of which the cap may make two equal.
pub(crate) fn verify(device: &AscendDevice, shape: &Shape) -> Result<Option<Operation>> {
    let context = device.context();
    let judges = shape.logit_softcap.is_none() && context.device().runtime().has_spec_decode();
    judges.then(|| Operation::new(context, Verify::Greedy)).transpose()
}

/// The graphs of embedding and head.
pub(crate) fn operations(device: &AscendDevice, shape: &Shape, ropes: usize) -> Result<[Operation; 2]> {
    let context = device.context();
    Ok([graphs::embedding(context, shape, ropes)?, graphs::head(context, shape)?])
}
