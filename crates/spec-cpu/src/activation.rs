//! Rows of activations in the forms that matrix kernels read.

use crate::kernels::quantize::{self, Source};
use crate::vector::{Nonlinearity, Norm};
use crate::{CpuError, Isa, Pool, SharedSlice};

/// How activations are represented for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivationForm {
    /// f32 as they are.
    Float,
    /// Signed bytes with one f32 scale per 32 inputs.
    Block32,
    /// Signed bytes with one f32 scale per 256 inputs.
    Block256,
}

impl ActivationForm {
    /// Inputs that share a scale.
    #[must_use]
    pub fn block(self) -> usize {
        match self {
            Self::Float => 1,
            Self::Block32 => 32,
            Self::Block256 => 256,
        }
    }
}

/// Rows that a kernel takes at a time where few registers or few rows are left.
pub(crate) const ROW_TILE: usize = 8;
/// Rows that a kernel takes at a time at most.
pub(crate) const MAX_ROW_TILE: usize = 16;

/// How rows are cut into tiles: as many whole ones as there are, then tiles of [`ROW_TILE`], the last of what is left.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    rows: usize,
    /// Rows of a whole tile.
    whole: usize,
    /// Rows in whole tiles, of which the last may be filled up by rows that nobody asked for.
    whole_end: usize,
}

impl Tiles {
    /// With `fills` rows behind the whole tiles become one as well.
    fn new(rows: usize, whole: usize, fills: bool) -> Self {
        let whole_end = if fills { rows.next_multiple_of(whole) } else { rows - rows % whole };
        Self { rows, whole, whole_end }
    }

    /// Rows, and those that fill the last whole tile.
    fn stored(self) -> usize {
        self.rows.max(self.whole_end)
    }

    fn count(self) -> usize {
        self.whole_end / self.whole + self.rows.saturating_sub(self.whole_end).div_ceil(ROW_TILE)
    }

    /// First row and number of rows of the tile that holds `row`.
    #[inline(always)]
    fn of_row(self, row: usize) -> (usize, usize) {
        if row < self.whole_end {
            (row - row % self.whole, self.whole)
        } else {
            let first = row - (row - self.whole_end) % ROW_TILE;
            (first, ROW_TILE.min(self.rows - first))
        }
    }

    /// First row and number of rows of tile `index`.
    fn get(self, index: usize) -> (usize, usize) {
        let whole = self.whole_end / self.whole;
        self.of_row(index.min(whole) * self.whole + index.saturating_sub(whole) * ROW_TILE)
    }
}

/// The codes of 32 consecutive inputs of a row.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Codes(pub(crate) [i8; 32]);

/// A cache line of them: tiles are loaded by lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct CodeLine([Codes; 2]);

impl CodeLine {
    const ZERO: Self = Self([Codes([0; 32]); 2]);

    fn flatten(lines: &[Self]) -> &[Codes] {
        // SAFETY: a line is two items and nothing else.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), 2 * lines.len()) }
    }

    fn flatten_mut(lines: &mut [Self]) -> &mut [Codes] {
        // SAFETY: a line is two items and nothing else.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), 2 * lines.len()) }
    }
}

/// Rows of activations, quantised row by row: no row's bytes depend on another row.
///
/// Values are rounded to the nearest of -127..=127 times the block's scale. A block with a NaN or an infinity gets the scale NaN, so that the
/// row's outputs are NaN. Sums that kernels fold into their results (offsets and minima of weight types) are formed here, once per
/// row.
///
/// Rows lie in tiles, as many rows as the kernels of the instruction set take at a time, interleaved block by block, so that a
/// kernel reads one forward stream; the codes of Block256 by 64 inputs, which are a row of AMX.
#[derive(Debug)]
pub struct QuantizedRows {
    form: ActivationForm,
    inputs: usize,
    tiles: Tiles,
    /// Float form only.
    floats: Vec<f32>,
    /// Per 32 inputs.
    codes: Vec<CodeLine>,
    /// Per block.
    scales: Vec<f32>,
    /// Block32: scale times sum.
    scaled_sums: Vec<f32>,
    /// Block32: -16 times sum, where the accumulator of Q5_0 starts. Block256: -32 times the sum per 16 inputs, for Q6_K.
    starts: Vec<i32>,
    /// Block32: -128 times sum, for Q8_0. Block256: two i16 sums of 32 inputs each per 64, for the minima of Q4_K.
    sums: Vec<i32>,
}

/// The part of [`QuantizedRows`] that holds one tile of rows.
///
/// All slices are ordered by block (of the size that their field in [`QuantizedRows`] names; codes of Block256 by 64 inputs), then by row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile<'a> {
    pub(crate) rows: usize,
    /// Rows that are asked for; the others fill the tile up, and what is computed of them means nothing.
    pub(crate) used: usize,
    /// Blocks of the form's size (inputs, for `Float`).
    pub(crate) blocks: usize,
    pub(crate) floats: &'a [f32],
    pub(crate) codes: &'a [Codes],
    pub(crate) scales: &'a [f32],
    pub(crate) scaled_sums: &'a [f32],
    pub(crate) starts: &'a [i32],
    pub(crate) sums: &'a [i32],
}

impl Tile<'_> {
    /// Whether the slices hold all of `rows` rows of Block256, which is what kernels rely on.
    pub(crate) fn has_super_blocks(&self, rows: usize) -> bool {
        let per_row = self.blocks * rows;
        self.codes.len() == per_row * 8
            && self.scales.len() == per_row
            && self.starts.len() == per_row * 16
            && self.sums.len() == per_row * 4
    }
}

/// Entries per block of each vector in [`QuantizedRows`].
struct Entries {
    floats: usize,
    codes: usize,
    scales: usize,
    scaled_sums: usize,
    starts: usize,
    sums: usize,
}

impl ActivationForm {
    /// Bytes of a row of `inputs` values in this form.
    pub(crate) fn row_bytes(self, inputs: usize) -> usize {
        let Entries { floats, codes, scales, scaled_sums, starts, sums } = self.entries();
        let words = floats + scales + scaled_sums + starts + sums;
        inputs.div_ceil(self.block()) * (words * size_of::<f32>() + codes * size_of::<Codes>())
    }

    fn entries(self) -> Entries {
        match self {
            Self::Float => Entries { floats: 1, codes: 0, scales: 0, scaled_sums: 0, starts: 0, sums: 0 },
            Self::Block32 => Entries { floats: 0, codes: 1, scales: 1, scaled_sums: 1, starts: 1, sums: 1 },
            Self::Block256 => Entries { floats: 0, codes: 8, scales: 1, scaled_sums: 0, starts: 16, sums: 4 },
        }
    }
}

impl QuantizedRows {
    /// An empty buffer for rows of `inputs` values; it grows with the rows put in and is meant to be reused.
    ///
    /// # Errors
    /// [`CpuError::Shape`] when `inputs` is not a positive multiple of the form's block.
    pub fn new(form: ActivationForm, inputs: usize) -> Result<Self, CpuError> {
        let block = form.block();
        if inputs == 0 || !inputs.is_multiple_of(block) {
            let (operation, what) = ("QuantizedRows::new", "inputs (rounded up to the block)");
            let expected = inputs.max(1).next_multiple_of(block);
            return Err(CpuError::Shape { operation, what, expected, found: inputs });
        }
        Ok(Self {
            form,
            inputs,
            tiles: Tiles::new(0, ROW_TILE, false),
            floats: Vec::new(),
            codes: Vec::new(),
            scales: Vec::new(),
            scaled_sums: Vec::new(),
            starts: Vec::new(),
            sums: Vec::new(),
        })
    }

    /// The form of the rows.
    #[must_use]
    pub fn form(&self) -> ActivationForm {
        self.form
    }

    /// Values per row.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Rows held.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tiles.rows
    }

    /// Replaces the content by `rows` rows of `values` (row-major, `rows` x `inputs`).
    ///
    /// # Errors
    /// [`CpuError::Shape`] when `values` has another length.
    pub fn quantize(&mut self, isa: Isa, pool: &Pool, rows: usize, values: &[f32]) -> Result<(), CpuError> {
        self.expect("QuantizedRows::quantize", "values", rows * self.inputs, values.len())?;
        self.fill(isa, pool, rows, Source::Plain { values });
        Ok(())
    }

    /// Replaces the content by `rows` rows of `values`, each normed as [`crate::vector::norm`] does.
    ///
    /// # Errors
    /// [`CpuError::Shape`] when `values` is not `rows` x `inputs` or the norm not `inputs` wide.
    pub fn quantize_norm(
        &mut self,
        isa: Isa,
        pool: &Pool,
        rows: usize,
        values: &[f32],
        norm: Norm<'_>,
    ) -> Result<(), CpuError> {
        let operation = "QuantizedRows::quantize_norm";
        self.expect(operation, "values", rows * self.inputs, values.len())?;
        self.expect(operation, "columns of the norm", self.inputs, norm.width())?;
        if let Norm::Layer { bias, .. } = norm {
            self.expect(operation, "biases of the norm", self.inputs, bias.len())?;
        }
        self.fill(isa, pool, rows, Source::Norm { values, norm });
        Ok(())
    }

    /// Replaces the content by `rows` rows of `function` of each value, as [`crate::vector::activated`] computes it.
    ///
    /// # Errors
    /// [`CpuError::Shape`] when `values` is not `rows` x `inputs`.
    pub fn quantize_activated(
        &mut self,
        isa: Isa,
        pool: &Pool,
        rows: usize,
        function: Nonlinearity,
        values: &[f32],
    ) -> Result<(), CpuError> {
        self.expect("QuantizedRows::quantize_activated", "values", rows * self.inputs, values.len())?;
        self.fill(isa, pool, rows, Source::Activated { function, values });
        Ok(())
    }

    /// Replaces the content by `rows` rows of `function` of `gate`, times `up`, as [`crate::vector::gated`] computes it.
    ///
    /// # Errors
    /// [`CpuError::Shape`] when `gate` or `up` is not `rows` x `inputs`.
    pub fn quantize_gated(
        &mut self,
        isa: Isa,
        pool: &Pool,
        rows: usize,
        function: Nonlinearity,
        (gate, up): (&[f32], &[f32]),
    ) -> Result<(), CpuError> {
        let operation = "QuantizedRows::quantize_gated";
        self.expect(operation, "gate values", rows * self.inputs, gate.len())?;
        self.expect(operation, "up values", rows * self.inputs, up.len())?;
        self.fill(isa, pool, rows, Source::Gated { function, gate, up });
        Ok(())
    }

    fn expect(
        &self,
        operation: &'static str,
        what: &'static str,
        expected: usize,
        found: usize,
    ) -> Result<(), CpuError> {
        if expected == found {
            return Ok(());
        }
        Err(CpuError::Shape { operation, what, expected, found })
    }

    fn fill(&mut self, isa: Isa, pool: &Pool, rows: usize, source: Source<'_>) {
        let (inputs, blocks, entries) = (self.inputs, self.inputs / self.form.block(), self.form.entries());
        let fills = self.form == ActivationForm::Block256 && isa.fills_tile(rows);
        self.tiles = Tiles::new(rows, isa.row_tile(), fills);
        let total = self.tiles.stored() * blocks;
        self.floats.resize(total * entries.floats, 0.0);
        self.codes.resize((total * entries.codes).div_ceil(2), CodeLine::ZERO);
        self.scales.resize(total * entries.scales, 0.0);
        self.scaled_sums.resize(total * entries.scaled_sums, 0.0);
        self.starts.resize(total * entries.starts, 0);
        self.sums.resize(total * entries.sums, 0);

        let target = Target {
            blocks,
            tiles: self.tiles,
            floats: SharedSlice::new(&mut self.floats),
            codes: SharedSlice::new(CodeLine::flatten_mut(&mut self.codes)),
            scales: SharedSlice::new(&mut self.scales),
            scaled_sums: SharedSlice::new(&mut self.scaled_sums),
            starts: SharedSlice::new(&mut self.starts),
            sums: SharedSlice::new(&mut self.sums),
        };
        // A region costs about a microsecond, in which one thread quantises some thousand values.
        const TASK_VALUES: usize = 2048;
        let per_block = self.form.block();
        // A norm needs its whole row; other rows may be cut.
        let cut = if matches!(source, Source::Norm { .. }) { inputs } else { TASK_VALUES };
        let task_blocks = (cut / per_block).clamp(1, blocks);
        let task_inputs = task_blocks * per_block;
        let tasks_per_row = blocks.div_ceil(task_blocks);
        let form = self.form;
        let task = |index: usize| {
            let (row, start) = (index / tasks_per_row, index % tasks_per_row * task_inputs);
            let range = start..inputs.min(start + task_inputs);
            quantize::run(isa, form, &source, row, inputs, range, &target);
        };
        let tasks = rows * tasks_per_row;
        if rows * inputs <= 2 * TASK_VALUES {
            (0..tasks).for_each(task);
        } else {
            pool.run(tasks, task);
        }
    }

    /// Tiles that the rows are cut into.
    pub(crate) fn tiles(&self) -> usize {
        self.tiles.count()
    }

    /// Tile `index`, and its first row.
    pub(crate) fn tile(&self, index: usize) -> (usize, Tile<'_>) {
        let (blocks, entries) = (self.inputs / self.form.block(), self.form.entries());
        let (first, rows) = self.tiles.get(index);
        fn part<T>(all: &[T], first: usize, rows: usize, per_row: usize) -> &[T] {
            &all[first * per_row..(first + rows) * per_row]
        }
        let tile = Tile {
            rows,
            used: rows.min(self.tiles.rows - first),
            blocks,
            floats: part(&self.floats, first, rows, blocks * entries.floats),
            codes: part(CodeLine::flatten(&self.codes), first, rows, blocks * entries.codes),
            scales: part(&self.scales, first, rows, blocks * entries.scales),
            scaled_sums: part(&self.scaled_sums, first, rows, blocks * entries.scaled_sums),
            starts: part(&self.starts, first, rows, blocks * entries.starts),
            sums: part(&self.sums, first, rows, blocks * entries.sums),
        };
        (first, tile)
    }
}

/// Where quantisation writes. Every (row, block) has entries of its own, so that tasks which split the rows and blocks write
/// disjoint items.
pub(crate) struct Target<'a> {
    blocks: usize,
    tiles: Tiles,
    pub(crate) floats: SharedSlice<'a, f32>,
    pub(crate) codes: SharedSlice<'a, Codes>,
    pub(crate) scales: SharedSlice<'a, f32>,
    pub(crate) scaled_sums: SharedSlice<'a, f32>,
    pub(crate) starts: SharedSlice<'a, i32>,
    pub(crate) sums: SharedSlice<'a, i32>,
}

impl Target<'_> {
    /// Where the entries of `row` are: found once per row, since cutting rows into tiles takes divisions.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> RowEntries {
        let (first, tile_rows) = self.tiles.of_row(row);
        RowEntries { before: first * self.blocks, tile_rows, in_tile: row - first }
    }
}

/// Where the entries of a row are in the vectors of a [`Target`].
#[derive(Clone, Copy)]
pub(crate) struct RowEntries {
    /// Blocks of the tiles before the row's.
    before: usize,
    tile_rows: usize,
    in_tile: usize,
}

impl RowEntries {
    /// Index of entry `entry`, counted over the whole row, in a vector with `per_block` entries per block of a row.
    #[inline(always)]
    pub(crate) fn index(self, entry: usize, per_block: usize) -> usize {
        self.before * per_block + entry * self.tile_rows + self.in_tile
    }

    /// Index of the codes of inputs `32 * entry ..` of a row of Block256.
    #[inline(always)]
    pub(crate) fn codes_of_256(self, entry: usize) -> usize {
        2 * self.index(entry / 2, 4) + entry % 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_tile() {
        for (whole, fills) in [(4, false), (ROW_TILE, false), (MAX_ROW_TILE, false), (MAX_ROW_TILE, true)] {
            for rows in 1..70 {
                let tiles = Tiles::new(rows, whole, fills);
                let mut next = 0;
                for index in 0..tiles.count() {
                    let (first, count) = tiles.get(index);
                    assert!(first == next && (count == whole || (1..=ROW_TILE).contains(&count)), "{tiles:?}: {index}");
                    (first..first + count).for_each(|row| assert_eq!(tiles.of_row(row), (first, count)));
                    assert!(first < rows, "{tiles:?}: tile {index} has no row");
                    next = first + count;
                }
                assert_eq!(tiles.stored(), next, "{tiles:?}");
                assert_eq!(next, if fills { rows.next_multiple_of(whole) } else { rows }, "{tiles:?}");
            }
        }
    }
}
