//! What a pass looks like on the device: rows in the order of their sequences, padded to sizes that come again, with slots,
//! block tables, lengths and masks.
//!
//! Attention takes entries of one or more rows that share a block table and a length. A sequence's rows are entries of
//! at most `max_query_rows`, one behind the other: all rows are in the cache before any is attended to, and the mask
//! says what each sees. Rows that fill a pass up belong to entries of their own, which read and write a block that no
//! sequence has.

use std::ops::Range;

use spec_core::Token;
use spec_runtime::kv::{PagedKv, Place};
use spec_runtime::{Row, RuntimeError, SeqId, Want};

use crate::HalfType;
use crate::shape::Shape;

/// Masked scores; the value that ATB's own tests and MindIE use.
const MASKED: f32 = -10_000.0;

/// A pass, for the device.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// A row's token, position and slot; padding has token 0 at position 0.
    pub(crate) tokens: Vec<i32>,
    pub(crate) positions: Vec<i32>,
    pub(crate) slots: Vec<i32>,
    /// Blocks of each entry.
    pub(crate) tables: Vec<i32>,
    /// Blocks in a row of `tables`.
    pub(crate) columns: usize,
    /// Length of each entry's text, its rows included.
    pub(crate) contexts: Vec<i32>,
    /// Rows of each entry.
    pub(crate) rows: Vec<i32>,
    /// Numbers of the rows that are scored, padded.
    pub(crate) scored: Vec<i32>,
    /// For each row of the batch, its place among the scored ones.
    pub(crate) index: Vec<Option<usize>>,
    /// Whether a verdict is enough for every row that is scored.
    pub(crate) verdicts: bool,
    seen: Vec<Seen>,
    /// Columns of ancestors, one row's behind the other's.
    ancestors: Vec<usize>,
}

/// What a row sees.
#[derive(Clone, Debug)]
struct Seen {
    committed: usize,
    position: usize,
    /// In `ancestors`, itself included, root first.
    ancestors: Range<usize>,
}

impl Layout {
    /// Lays out placed rows.
    pub(crate) fn new(shape: &Shape, pages: &PagedKv, rows: &[Row], places: &[Place]) -> Result<Self, RuntimeError> {
        let verdicts = rows.iter().all(|row| matches!(row.want, Want::Nothing | Want::Verdict));
        let mut layout = Self { index: vec![None; rows.len()], verdicts, ..Self::default() };
        // Rows by sequence, in the order of the first row of each.
        let mut sequences: Vec<(SeqId, Vec<usize>)> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            match sequences.iter_mut().find(|(seq, _)| *seq == row.seq) {
                Some((_, own)) => own.push(at),
                None => sequences.push((row.seq, vec![at])),
            }
        }
        let mut tables: Vec<Vec<i32>> = Vec::new();
        for (seq, own) in &sequences {
            let (committed, blocks) = (pages.committed(*seq)?, pages.blocks(*seq)?);
            for entry in own.chunks(shape.max_query_rows) {
                for &at in entry {
                    let (row, place) = (&rows[at], places[at]);
                    if row.want != Want::Nothing {
                        layout.index[at] = Some(layout.scored.len());
                        layout.scored.push(layout.tokens.len() as i32);
                    }
                    layout.push(row.token, row.position, place.slot);
                    let start = layout.ancestors.len();
                    let path = pages.path(*seq, place.row)?;
                    layout.ancestors.extend(path.iter().map(|&number| committed + number as usize));
                    let ancestors = start..layout.ancestors.len();
                    layout.seen.push(Seen { committed, position: row.position, ancestors });
                }
                // Rows of a reservation are numbered as they are placed, so that the last has the largest slot.
                let last = entry.last().map_or(0, |&at| places[at].row as usize);
                let context = committed + last + 1;
                layout.contexts.push(context as i32);
                layout.rows.push(entry.len() as i32);
                let used = context.div_ceil(shape.block_tokens);
                tables.push(blocks.iter().take(used).map(|&block| block as i32).collect());
            }
        }
        layout.pad(shape, &mut tables);
        let longest = tables.iter().map(Vec::len).max().unwrap_or(1).max(1);
        layout.columns = longest.next_power_of_two();
        let scratch = shape.kv_blocks as i32;
        for table in tables {
            let rest = layout.columns - table.len();
            layout.tables.extend(table);
            layout.tables.extend(std::iter::repeat_n(scratch, rest));
        }
        let scored = layout.scored.len();
        if scored > 0 {
            layout.scored.resize(scored.next_power_of_two(), 0);
        }
        Ok(layout)
    }

    fn push(&mut self, token: Token, position: usize, slot: usize) {
        // Vocabularies, contexts and slots were checked to fit when the model was loaded.
        self.tokens.push(token as i32);
        self.positions.push(position as i32);
        self.slots.push(slot as i32);
    }

    /// Fills up to a power of two.
    fn pad(&mut self, shape: &Shape, tables: &mut Vec<Vec<i32>>) {
        let missing = self.tokens.len().next_power_of_two() - self.tokens.len();
        let first = shape.kv_blocks * shape.block_tokens;
        for at in 0..missing {
            self.push(0, 0, first + at % shape.block_tokens);
            let start = self.ancestors.len();
            self.ancestors.push(0);
            self.seen.push(Seen { committed: 0, position: 0, ancestors: start..start + 1 });
        }
        let mut left = missing;
        while left > 0 {
            let count = left.min(shape.max_query_rows);
            self.contexts.push(count as i32);
            self.rows.push(count as i32);
            tables.push(vec![shape.kv_blocks as i32; count.div_ceil(shape.block_tokens)]);
            left -= count;
        }
    }

    /// Rows on the device, padding included.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn entries(&self) -> usize {
        self.contexts.len()
    }

    /// Columns of the mask.
    pub(crate) fn width(&self, shape: &Shape) -> usize {
        self.columns * shape.block_tokens
    }

    /// Writes the additive mask, `[rows, width]`; with a window, rows see its newest positions only.
    pub(crate) fn write_mask(&self, dtype: HalfType, window: Option<usize>, width: usize, mask: &mut [u16]) {
        let mut values = [0; 2];
        dtype.encode(&[0.0, MASKED], &mut values);
        let [kept, dropped] = values;
        for (seen, row) in self.seen.iter().zip(mask.chunks_exact_mut(width)) {
            row.fill(dropped);
            let first = window.map_or(0, |window| (seen.position + 1).saturating_sub(window));
            if first < seen.committed {
                row[first..seen.committed].fill(kept);
            }
            for (depth, &column) in self.ancestors[seen.ancestors.clone()].iter().enumerate() {
                if seen.committed + depth >= first {
                    row[column] = kept;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadOptions;
    use atb_rs::{Chip, mask};
    use spec_runtime::Batch;
    use spec_testing::tiny::{self, TinySpec};

    fn shape() -> Shape {
        let bytes = tiny::gguf(TinySpec::llama());
        let checkpoint = spec_model::Checkpoint::from_bytes(bytes, "tiny.gguf").expect("a legal file");
        let mut options = LoadOptions::default();
        (options.block_tokens, options.kv_blocks) = (Some(16), Some(8));
        Shape::new(&checkpoint, Chip::A2, &options).expect("a llama")
    }

    fn pages() -> PagedKv {
        PagedKv::new(8, 16, 128)
    }

    /// A sequence with so many committed tokens.
    fn committed(pages: &mut PagedKv, tokens: usize) -> SeqId {
        let seq = pages.open();
        pages.reserve(seq, tokens).expect("room");
        let batch = Batch::chain(seq, &vec![1; tokens], 0, None, Want::Nothing);
        pages.append(&batch.rows).expect("legal rows");
        pages.settle(seq, &(0..tokens as u32).collect::<Vec<_>>()).expect("a chain");
        seq
    }

    fn lay_out(pages: &mut PagedKv, rows: &[Row]) -> Layout {
        let places = pages.append(rows).expect("legal rows");
        Layout::new(&shape(), pages, rows, &places).expect("open sequences")
    }

    /// Columns that each row sees.
    fn seen(layout: &Layout, window: Option<usize>) -> Vec<Vec<usize>> {
        let width = layout.width(&shape());
        let mut mask = vec![7; layout.len() * width];
        layout.write_mask(HalfType::F16, window, width, &mut mask);
        assert!(mask.iter().all(|&bits| bits == 0 || bits == half::f16::from_f32(MASKED).to_bits()));
        mask.chunks(width).map(|row| (0..width).filter(|&column| row[column] == 0).collect()).collect()
    }

    #[test]
    fn more_rows_than_an_entry_takes_are_several_entries_of_one_sequence() {
        let mut pages = pages();
        let seq = committed(&mut pages, 3);
        pages.reserve(seq, 20).expect("room");
        let layout = lay_out(&mut pages, &Batch::chain(seq, &[5; 20], 3, None, Want::Logits).rows);
        // Sixteen, the other four, and twelve rows of padding.
        assert_eq!((&layout.rows[..], &layout.contexts[..]), (&[16, 4, 12][..], &[19, 23, 12][..]));
        assert_eq!((layout.len(), layout.columns), (32, 2));
        assert_eq!(layout.tables, [0, 1, 0, 1, 8, 8]);
        assert_eq!(layout.slots[..20], (3..23).collect::<Vec<_>>());
        assert!(layout.slots[20..].iter().all(|slot| (128..144).contains(slot)), "padding writes where nobody reads");
        assert_eq!(layout.scored, [19]);
        assert_eq!(layout.index[19], Some(0));
        let seen = seen(&layout, None);
        for (row, seen) in seen.iter().enumerate() {
            let end = if row < 20 { row + 4 } else { 1 };
            assert!(seen.iter().copied().eq(0..end), "row {row} sees {seen:?}");
        }
    }

    #[test]
    fn a_tree_is_masked_as_its_parents_say_and_its_branches_share_positions() {
        let mut pages = pages();
        let seq = committed(&mut pages, 5);
        pages.reserve(seq, 8).expect("room");
        let parents = [None, Some(0), Some(0), Some(1), None, Some(4), Some(2), Some(6)];
        let depth = |mut row: usize| {
            let mut depth = 0;
            while let Some(parent) = parents[row] {
                (row, depth) = (parent, depth + 1);
            }
            depth
        };
        let row = |(at, parent): (usize, &Option<usize>)| Row {
            seq,
            token: 9,
            position: 5 + depth(at),
            parent: parent.map(|parent| parent as u32),
            want: Want::Logits,
        };
        let rows: Vec<Row> = parents.iter().enumerate().map(row).collect();
        let layout = lay_out(&mut pages, &rows);
        assert_eq!((&layout.rows[..], &layout.contexts[..]), (&[8][..], &[13][..]));
        assert_eq!(layout.positions, [5, 6, 6, 7, 5, 6, 7, 8]);
        let width = layout.width(&shape());
        let expected = mask::tree(&parents, 13, width);
        let expected: Vec<Vec<usize>> =
            expected.chunks(width).map(|row| (0..width).filter(|&column| row[column] == 0.0).collect()).collect();
        assert_eq!(seen(&layout, None), expected);
        // Two positions back, whatever slots they lie in: row 7 at position 8 sees row 6, and itself.
        assert_eq!(seen(&layout, Some(2))[7], [11, 12]);
        assert_eq!(seen(&layout, Some(3))[1], [4, 5, 6]);
    }

    #[test]
    fn rows_are_put_together_by_sequence_and_found_again() {
        let mut pages = pages();
        let seqs = [committed(&mut pages, 2), committed(&mut pages, 17)];
        let mut rows = Vec::new();
        for seq in seqs {
            pages.reserve(seq, 2).expect("room");
        }
        for at in 0..2 {
            for (seq, start) in seqs.into_iter().zip([2, 17]) {
                let parent = (at == 1).then_some(0);
                let want = if at == 1 { Want::Logits } else { Want::Nothing };
                rows.push(Row { seq, token: 10 * at + start as u32, position: start + at as usize, parent, want });
            }
        }
        let layout = lay_out(&mut pages, &rows);
        assert_eq!(layout.tokens, [2, 12, 17, 27]);
        assert_eq!((&layout.rows[..], &layout.contexts[..]), (&[2, 2][..], &[4, 19][..]));
        assert_eq!(layout.scored, [1, 3]);
        assert_eq!(layout.index, [None, None, Some(0), Some(1)]);
        assert_eq!(layout.tables, [0, 8, 1, 2]);
    }
}
