//! Products of activation rows with packed matrices, several in one parallel region.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::panel::tiles;
#[cfg(target_arch = "x86_64")]
use crate::Amx;
use crate::activation::MAX_ROW_TILE;
use crate::packed::LANES;
use crate::{CpuError, Isa, PackedMatrix, Pool, QuantizedRows, SharedSlice};

/// One product: `output[row][o] = sum over i of activations[row][i] * weights[o][i]`, plus what the builder methods add.
#[derive(Debug)]
pub struct Product<'a> {
    weights: &'a PackedMatrix,
    activations: &'a QuantizedRows,
    output: &'a mut [f32],
    stride: usize,
    bias: Option<&'a [f32]>,
    accumulate: bool,
}

impl<'a> Product<'a> {
    /// A product whose output rows follow each other without gaps.
    #[must_use]
    pub fn new(weights: &'a PackedMatrix, activations: &'a QuantizedRows, output: &'a mut [f32]) -> Self {
        let stride = weights.outputs();
        Self { weights, activations, output, stride, bias: None, accumulate: false }
    }

    /// Puts output rows `stride` values apart instead.
    #[must_use]
    pub fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// Adds `bias[o]` to every row.
    #[must_use]
    pub fn bias(self, bias: Option<&'a [f32]>) -> Self {
        Self { bias, ..self }
    }

    /// Adds to what `output` holds instead of replacing it (a residual connection).
    #[must_use]
    pub fn accumulate(self) -> Self {
        Self { accumulate: true, ..self }
    }

    fn check(&self) -> Result<(), CpuError> {
        let (weights, rows) = (self.weights, self.activations.rows());
        let (expected, found) = (weights.activation_form(), self.activations.form());
        if expected != found {
            let weights = weights.weight_type();
            return Err(CpuError::ActivationForm { weights, expected, found });
        }
        let shape = |what, expected, found| Err(CpuError::Shape { operation: "matmul", what, expected, found });
        if weights.inputs() != self.activations.inputs() {
            return shape("inputs per row", weights.inputs(), self.activations.inputs());
        }
        if self.stride < weights.outputs() {
            return shape("the output stride, at least,", weights.outputs(), self.stride);
        }
        if let Some(bias) = self.bias.filter(|bias| bias.len() != weights.outputs()) {
            return shape("the bias length", weights.outputs(), bias.len());
        }
        let needed = rows.saturating_sub(1) * self.stride + weights.outputs();
        if rows > 0 && self.output.len() < needed {
            return shape("the output length, at least,", needed, self.output.len());
        }
        Ok(())
    }
}

/// Weights that one task reads at most: small enough for threads to finish together.
const TASK_BYTES: usize = 64 << 10;
/// The same where several tiles of rows pass over the weights: they stay in the second-level cache, and fewer tasks read
/// the activations again.
const TASK_BYTES_OF_TILES: usize = 256 << 10;
/// Weights that one task reads at least, when there are that many: a claim costs some tens of nanoseconds.
const MIN_TASK_BYTES: usize = 16 << 10;
/// Tasks per thread and region, for balance.
const TASKS_PER_THREAD: usize = 16;
/// Work (weight bytes times tiles of rows) below which a region costs more than it saves.
const INLINE_BYTES: usize = 16 << 10;

/// Computes all `products` in one parallel region.
///
/// Every output element is summed in the same order whatever the number of rows, products and threads: threads split outputs, tiles of rows
/// split rows, and nothing splits the sum.
///
/// # Errors
/// [`CpuError::ActivationForm`] or [`CpuError::Shape`] when the sides of a product do not fit; nothing is computed then.
pub fn matmul(isa: Isa, pool: &Pool, products: &mut [Product<'_>]) -> Result<(), CpuError> {
    products.iter().try_for_each(Product::check)?;

    let total: usize = products.iter().map(|product| product.weights.packed_bytes()).sum();
    let tiles = products.iter().map(|product| product.activations.tiles()).max().unwrap_or(0);
    let most = if tiles > 2 { TASK_BYTES_OF_TILES } else { TASK_BYTES };
    let task_bytes = (total / (pool.threads() * TASKS_PER_THREAD)).clamp(MIN_TASK_BYTES, most);
    let mut tasks = 0;
    let mut work = 0;
    let parts: Vec<Part<'_>> = products
        .iter_mut()
        .map(|product| {
            let weights = product.weights;
            let panels_per_task = isa
                .panels_together(weights.weight_type(), product.activations.rows())
                .max(task_bytes / weights.panel_bytes());
            let first_task = tasks;
            tasks += weights.panels().div_ceil(panels_per_task);
            work += weights.packed_bytes() * product.activations.tiles();
            Part {
                weights,
                activations: product.activations,
                output: SharedSlice::new(&mut *product.output),
                stride: product.stride,
                bias: product.bias,
                accumulate: product.accumulate,
                first_task,
                panels_per_task,
            }
        })
        .collect();

    let task = |index: usize| {
        let part = parts.iter().rfind(|part| part.first_task <= index);
        part.expect("the first part starts at task zero").run(isa, index);
    };
    if work <= INLINE_BYTES {
        (0..tasks).for_each(task);
    } else {
        pool.run(tasks, task);
    }
    Ok(())
}

/// A product in a region: where its tasks begin, and its output shared among them.
struct Part<'a> {
    weights: &'a PackedMatrix,
    activations: &'a QuantizedRows,
    output: SharedSlice<'a, f32>,
    stride: usize,
    bias: Option<&'a [f32]>,
    accumulate: bool,
    first_task: usize,
    panels_per_task: usize,
}

impl Part<'_> {
    fn run(&self, isa: Isa, task: usize) {
        let first = (task - self.first_task) * self.panels_per_task;
        let panels = first..self.weights.panels().min(first + self.panels_per_task);
        let mut sums = [[0.0; LANES]; MAX_ROW_TILE];
        let mut index = 0;
        while index < self.activations.tiles() {
            #[cfg(target_arch = "x86_64")]
            if let Isa::Amx(token) = isa {
                let multiplied = self.run_tiles(token, index, &panels);
                if multiplied > 0 {
                    index += multiplied;
                    continue;
                }
            }
            let (first_row, tile) = self.activations.tile(index);
            for panel in panels.clone() {
                let weights = self.weights.panel(panel);
                isa.panel(self.weights.weight_type(), weights, &tile, &mut sums);
                self.store_rows(first_row, panel, &sums[..tile.used]);
            }
            index += 1;
        }
    }

    /// Multiplies tile `index` with the panels by tiles of AMX, and the next one with it if it has as many rows; returns how many, or zero where
    /// vectors are to do it.
    #[cfg(target_arch = "x86_64")]
    fn run_tiles(&self, token: Amx, index: usize, panels: &Range<usize>) -> usize {
        let ty = self.weights.weight_type();
        let (first_row, tile) = self.activations.tile(index);
        if !tiles::multiplies(ty, tile.used) {
            return 0;
        }
        let next = (index + 1 < self.activations.tiles()).then(|| self.activations.tile(index + 1).1);
        let second = next.filter(|next| next.rows == tile.rows);
        let both = [tile, second.unwrap_or(tile)];
        let (together, rows) = if second.is_some() { (&both[..], tile.rows) } else { (&both[..1], tile.used) };
        let unit = tiles::Unit::new(token, rows);
        unit.multiply(self.weights, panels.clone(), together, |panel, sums| {
            for (number, (tile, sums)) in together.iter().zip(sums).enumerate() {
                self.store_rows(first_row + number * tile.rows, panel, &sums[..tile.used]);
            }
        });
        together.len()
    }

    fn store_rows(&self, first_row: usize, panel: usize, sums: &[[f32; LANES]]) {
        for (row, sums) in sums.iter().enumerate() {
            self.store(first_row + row, panel * LANES, sums);
        }
    }

    fn store(&self, row: usize, output: usize, sums: &[f32; LANES]) {
        let count = LANES.min(self.weights.outputs() - output);
        let start = row * self.stride + output;
        // SAFETY: one task has this panel, and rows do not overlap as the stride covers the outputs.
        let target = unsafe { self.output.slice(start..start + count) };
        let bias = self.bias.map(|bias| &bias[output..output + count]);
        // A whole panel, which nearly all are, has a length that the compiler knows: no call copies it.
        match <&mut [f32; LANES]>::try_from(&mut *target) {
            Ok(target) => put(target, bias, self.accumulate, sums),
            Err(_) => put(target, bias, self.accumulate, &sums[..count]),
        }
    }
}

/// Replaces `target` by `sums` and what is added to them.
#[inline(always)]
fn put(target: &mut [f32], bias: Option<&[f32]>, accumulate: bool, sums: &[f32]) {
    let pairs = target.iter_mut().zip(sums);
    match (bias, accumulate) {
        (None, false) => pairs.for_each(|(target, sum)| *target = *sum),
        (None, true) => pairs.for_each(|(target, sum)| *target += sum),
        (Some(bias), false) => pairs.zip(bias).for_each(|((target, sum), bias)| *target = sum + bias),
        (Some(bias), true) => pairs.zip(bias).for_each(|((target, sum), bias)| *target += sum + bias),
    }
}
