//! Which positions each row of a pass sees, and where they are; the same for all layers.

use std::ops::Range;

use spec_runtime::kv::{PagedKv, Place};
use spec_runtime::{Row, RuntimeError, SeqId};

/// Neighbouring rows of one sequence.
#[derive(Debug)]
pub(super) struct Run {
    seq: SeqId,
    /// Rows of the pass.
    pub(super) rows: Range<usize>,
    /// The sequence's blocks, in [`AttentionPlan::blocks`].
    pub(super) blocks: Range<usize>,
    /// Tokens committed before the pass.
    pub(super) committed: usize,
}

/// What attention knows of one row.
#[derive(Debug)]
pub(super) struct PlannedRow {
    pub(super) position: usize,
    /// Slots of the row's ancestors and of the row itself, root first, in [`AttentionPlan::slots`]; `None` if they
    /// lie where committed tokens would.
    pub(super) ancestors: Option<Range<usize>>,
}

/// The rows of a pass as attention sees them. Reused from pass to pass.
#[derive(Debug, Default)]
pub(crate) struct AttentionPlan {
    pub(super) runs: Vec<Run>,
    pub(super) rows: Vec<PlannedRow>,
    pub(super) blocks: Vec<u32>,
    slots: Vec<u32>,
    /// Positions that the rows see, summed.
    pub(super) positions: usize,
}

impl AttentionPlan {
    /// Describes `rows`, which `pages` has placed at `places`.
    pub(crate) fn build(&mut self, pages: &PagedKv, rows: &[Row], places: &[Place]) -> Result<(), RuntimeError> {
        self.runs.clear();
        self.rows.clear();
        self.blocks.clear();
        self.slots.clear();
        self.positions = 0;
        for (index, (row, place)) in rows.iter().zip(places).enumerate() {
            if self.runs.last().is_none_or(|run| run.seq != row.seq) {
                let first = self.blocks.len();
                self.blocks.extend_from_slice(pages.blocks(row.seq)?);
                let (blocks, committed) = (first..self.blocks.len(), pages.committed(row.seq)?);
                self.runs.push(Run { seq: row.seq, rows: index..index, blocks, committed });
            }
            let run = self.runs.len() - 1;
            self.runs[run].rows.end = index + 1;
            // A path of `n + 1` increasing row numbers that ends in row `n` is rows 0 to n.
            let chain = self.runs[run].committed + place.row as usize == row.position;
            let ancestors = if chain {
                None
            } else {
                let first = self.slots.len();
                for number in pages.path(row.seq, place.row)? {
                    self.slots.push(pages.row_slot(row.seq, number)? as u32);
                }
                Some(first..self.slots.len())
            };
            self.positions += row.position + 1;
            self.rows.push(PlannedRow { position: row.position, ancestors });
        }
        Ok(())
    }

    /// Slots of the ancestors of `row`, itself included; empty if they lie where committed tokens would.
    pub(super) fn ancestors(&self, row: usize) -> &[u32] {
        self.rows[row].ancestors.clone().map_or(&[], |range| &self.slots[range])
    }
}
