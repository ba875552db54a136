//! Attention masks, as numbers for the host to upload.
//!
//! Kernels differ in what a mask holds ([`MaskValues`]); a wrong one is not refused by ATB, and gives infinities.

use crate::tensor::MaskValues;

/// What an element holds where a position is seen and where it is not.
fn element(values: MaskValues, is_seen: bool) -> f32 {
    match (values, is_seen) {
        (_, true) => 0.0,
        (MaskValues::Additive, false) => -10_000.0,
        (MaskValues::Indicator, false) => 1.0,
    }
}

/// A causal mask, [size, size]: row i sees columns 0 to i.
pub fn triangle(size: usize, values: MaskValues) -> Vec<f32> {
    let at = |index: usize| element(values, index % size <= index / size);
    (0..size * size).map(at).collect()
}

/// The mask of a verification of chains, [sum of `rows`, `width`], additive: the last row of a sequence sees its whole
/// context, each one before it a position less.
///
/// `contexts` count this step's rows too, as PagedAttention takes them.
pub fn chains(rows: &[usize], contexts: &[usize], width: usize) -> Vec<f32> {
    let sequences = rows.iter().zip(contexts);
    let mut mask = Vec::with_capacity(rows.iter().sum::<usize>() * width);
    for (&count, &context) in sequences {
        for row in 0..count {
            let end = (context + row + 1).saturating_sub(count);
            mask.extend((0..width).map(|column| element(MaskValues::Additive, column < end)));
        }
    }
    mask
}

/// The rows of one sequence in a verification of a tree, [number of nodes, `width`], additive. `parents[i]` is the node
/// before node `i`, which has to be smaller, or `None` after the committed text; node `i` lies at position `context -
/// number of nodes + i`, and sees the committed text, its ancestors and itself.
pub fn tree(parents: &[Option<usize>], context: usize, width: usize) -> Vec<f32> {
    let committed = context.saturating_sub(parents.len());
    let mut mask = vec![element(MaskValues::Additive, false); parents.len() * width];
    for node in 0..parents.len() {
        let row = &mut mask[node * width..][..width];
        let seen = element(MaskValues::Additive, true);
        row[..committed.min(width)].fill(seen);
        let mut ancestor = Some(node);
        while let Some(at) = ancestor {
            if let Some(column) = row.get_mut(committed + at) {
                *column = seen;
            }
            ancestor = parents[at].filter(|&parent| parent < at);
        }
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: f32 = -10_000.0;

    #[test]
    fn a_chain_is_a_tree_without_branches_and_a_triangle_without_history() {
        assert_eq!(chains(&[3], &[5], 6), tree(&[None, Some(0), Some(1)], 5, 6));
        assert_eq!(chains(&[4], &[4], 4), triangle(4, MaskValues::Additive));
        assert_eq!(triangle(2, MaskValues::Indicator), [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(chains(&[1, 2], &[2, 3], 3), [0.0, 0.0, X, 0.0, 0.0, X, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_node_sees_the_text_its_ancestors_and_itself() {
        let rows = tree(&[None, Some(0), Some(0)], 4, 4);
        assert_eq!(rows, [0.0, 0.0, X, X, 0.0, 0.0, 0.0, X, 0.0, 0.0, X, 0.0]);
    }
}
