//! How far a draft model's draft grows: which nodes a pass looks behind, and when no further pass is worth its time.

use spec_core::{DraftTree, Law, NodeId, Token, TreeError};

use super::{Class, Worth};

/// Nodes that one pass looks behind at most, and children proposed below one: passes of a few rows cost little more than one.
pub(super) const BEAM: usize = 4;
pub(super) const CHILDREN: usize = 3;
/// Rows that a draft may take in the drafter's cache when it grows a tree.
pub(super) const TREE_ROWS: usize = 32;
/// What a row adds to a pass of the draft model, as a share of the pass.
const ROW: f64 = 0.04;
/// Nodes that the target's pass is expected to have room for.
const ROWS: usize = 7;

/// Classes of the likeliest token by its probability, of further ones by theirs, and of drawn tokens by the greatest probability:
/// what may be looked at before a draw.
const FIRST: u8 = 0;
const FURTHER: u8 = 16;
const DRAWN: u8 = 32;
const BOUNDS: [f64; 15] = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.995];

fn class(base: u8, probability: f64) -> Class {
    let bucket = BOUNDS.partition_point(|&bound| bound <= probability);
    // On seven prompts a 1.5B model accepted what a 0.5B was so sure of about as often as it was sure.
    Class { index: base + bucket as u8, prior: probability.clamp(0.01, 0.98) }
}

/// The class of a node that nothing is known of.
pub(super) const UNKNOWN: Class = Class { index: DRAWN, prior: 0.5 };

/// What decides how far a draft goes.
pub(super) struct Limits<'a> {
    pub(super) worth: Option<Worth<'a>>,
    /// Greatest depth of a node.
    pub(super) depth: usize,
    /// Children of a node.
    pub(super) width: usize,
    /// Whether tokens are drawn, after which none may be dropped for what it is.
    pub(super) drawn: bool,
    pub(super) end_ids: &'a [Token],
}

impl Limits<'_> {
    /// Rows that a draft takes at most in a model whose passes carry `max_rows`.
    pub(super) fn rows(&self, max_rows: usize) -> usize {
        if self.worth.is_some() { TREE_ROWS.min(max_rows) } else { self.depth - 1 }
    }
}

/// A tree that grows, and what is expected of its nodes.
#[derive(Default)]
pub(super) struct Growing {
    pub(super) tree: DraftTree,
    pub(super) classes: Vec<Class>,
    /// Probability that a node and all above it are accepted.
    survival: Vec<f64>,
    /// Whether a pass has looked behind a node.
    looked: Vec<bool>,
    /// The node's row in the block that is open, once it has one.
    pub(super) rows: Vec<Option<u32>>,
}

impl Growing {
    pub(super) fn weigh(
        &mut self,
        limits: &Limits<'_>,
        law: &Law<'_>,
        greatest: Option<f64>,
        parent: Option<NodeId>,
        nodes: &[NodeId],
    ) {
        for (rank, &node) in nodes.iter().enumerate() {
            self.rows.push(None);
            self.looked.push(false);
            let class = match greatest {
                None => UNKNOWN,
                Some(greatest) if limits.drawn => class(DRAWN, greatest),
                Some(_) => {
                    let own = law.soft_probability(self.tree.node(node).token);
                    class(if rank == 0 { FIRST } else { FURTHER }, own)
                }
            };
            let above = parent.map_or(1.0, |parent| self.survival[parent.index()]);
            self.survival.push(above * limits.worth.map_or(1.0, |worth| worth.odds.expect(class)));
            self.classes.push(class);
        }
    }

    /// The nodes that the next pass looks behind, of at most `room`; `passes` were made so far.
    pub(super) fn worth_looking_behind(&self, limits: &Limits<'_>, room: usize, passes: usize) -> Vec<NodeId> {
        let open = |&(id, node): &(NodeId, &spec_core::Node)| {
            !self.looked[id.index()] && self.tree.depth(id) < limits.depth && !limits.end_ids.contains(&node.token)
        };
        let open = self.tree.nodes().filter(open).map(|(id, _)| id);
        let Some(worth) = &limits.worth else {
            // A chain: its last node, until it is long enough.
            return open.filter(|node| node.index() + 1 == self.tree.len()).take(room).collect();
        };
        let mut candidates: Vec<NodeId> = open.collect();
        candidates.sort_by(|a, b| self.survival[b.index()].total_cmp(&self.survival[a.index()]));
        candidates.truncate(if limits.width == 1 { 1 } else { BEAM }.min(room));
        let first = usize::from(if limits.drawn { DRAWN } else { FIRST });
        let next = worth.odds.expect_any(first..first + 16, 0.75);
        // What the round has so far: the likeliest nodes, in a pass of as many rows.
        let mut survival = self.survival.clone();
        survival.sort_by(|a, b| b.total_cmp(a));
        survival.truncate(ROWS);
        let tokens = worth.tokens + survival.iter().sum::<f64>();
        let drafting = passes as f64 * worth.pass;
        let rate = tokens / (worth.seconds + drafting + worth.row * survival.len() as f64);
        let gain = |node: &NodeId| self.survival[node.index()] * next - rate * worth.row;
        candidates.retain(|node| gain(node) > rate * worth.pass * ROW);
        let total: f64 = candidates.iter().map(gain).sum();
        let price = rate * worth.pass * (1.0 + ROW * candidates.len().saturating_sub(1) as f64);
        if total > price { candidates } else { Vec::new() }
    }

    pub(super) fn mark_looked_behind(&mut self, nodes: &[NodeId]) {
        nodes.iter().for_each(|node| self.looked[node.index()] = true);
    }

    /// Keeps the first `nodes` nodes.
    pub(super) fn truncate(&mut self, nodes: usize) -> Result<(), TreeError> {
        self.tree.truncate(nodes)?;
        self.classes.truncate(nodes);
        self.survival.truncate(nodes);
        self.looked.truncate(nodes);
        self.rows.truncate(nodes);
        // What lay behind the last ones is gone: they can be looked behind again.
        let parents: Vec<NodeId> = self.tree.nodes().filter_map(|(_, node)| node.parent).collect();
        for (index, (id, _)) in self.tree.nodes().enumerate() {
            self.looked[index] &= parents.contains(&id);
        }
        Ok(())
    }
}
