//! Draft trees: what a drafter proposes and a target scores in one pass.

use alloc::vec;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::{Token, TreeError};

/// A node of a [`DraftTree`]: its index in insertion order, which is also its row order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// The index, from 0. The node's row of target logits is row `1 + index`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a draft token came to be, which decides what law it may be judged against.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// Without randomness (argmax, n-gram, scripted): its proposal law is one-hot.
    Fixed,
    /// By Gumbel-max with the noise that the target samples with.
    Shared,
}

/// One proposed token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// The token proposed.
    pub token: Token,
    /// The node it continues; `None` continues the committed text.
    pub parent: Option<NodeId>,
    /// How it was proposed.
    pub origin: Origin,
}

/// A path of nodes, root first. Draft depths are small, so it rarely allocates.
pub type SmallPath = SmallVec<[NodeId; 16]>;

/// A tree of proposed tokens. A chain is a tree with one branch.
///
/// Parents precede their children in insertion order, so every prefix of the nodes is itself a tree.
///
/// ```
/// use spec_core::{DraftTree, Origin};
///
/// let mut tree = DraftTree::chain(&[5, 7], Origin::Fixed);
/// let first = tree.children(None).next();
/// tree.push(first, 9, Origin::Fixed)?;
/// assert_eq!(tree.len(), 3);
/// assert_eq!(tree.height(), 2);
/// assert!(!tree.is_chain());
/// # Ok::<(), spec_core::TreeError>(())
/// ```
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct DraftTree {
    nodes: Vec<Node>,
    depths: Vec<u32>,
}

impl DraftTree {
    /// An empty tree: a round without a draft.
    pub fn new() -> Self {
        Self::default()
    }

    /// A chain of `tokens`, each continuing the one before it.
    pub fn chain(tokens: &[Token], origin: Origin) -> Self {
        let mut tree = Self::new();
        for (index, &token) in (0u32..).zip(tokens) {
            let parent = index.checked_sub(1).map(NodeId);
            tree.nodes.push(Node { token, parent, origin });
            tree.depths.push(index + 1);
        }
        tree
    }

    /// Appends a node below `parent` (`None`: below the committed text).
    ///
    /// # Errors
    /// When the parent does not exist, when a sibling already carries the token, or when no node id is left.
    pub fn push(&mut self, parent: Option<NodeId>, token: Token, origin: Origin) -> Result<NodeId, TreeError> {
        let nodes = self.nodes.len();
        if let Some(parent) = parent
            && parent.index() >= nodes
        {
            return Err(TreeError::UnknownParent { parent, nodes });
        }
        if let Some(existing) = self.child_with(parent, token) {
            return Err(TreeError::DuplicateSibling { token, existing });
        }
        let id = u32::try_from(nodes).map_err(|_| TreeError::TooLarge { nodes })?;
        self.depths.push(parent.map_or(0, |parent| self.depths[parent.index()]) + 1);
        self.nodes.push(Node { token, parent, origin });
        Ok(NodeId(id))
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is proposed.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Removes all nodes and keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Keeps the first `nodes` nodes in insertion order; does nothing when there are no more than that.
    pub fn truncate(&mut self, nodes: usize) {
        self.nodes.truncate(nodes);
        self.depths.truncate(nodes);
    }

    /// The node `id`.
    ///
    /// # Panics
    /// When `id` belongs to another tree, or to nodes removed since, and is not below [`len`](Self::len).
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All nodes in insertion order, which is row order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0u32..).map(NodeId).zip(&self.nodes)
    }

    /// The children of `parent` (`None`: of the committed text) in insertion order.
    pub fn children(&self, parent: Option<NodeId>) -> impl Iterator<Item = NodeId> {
        let first = parent.map_or(0, |parent| parent.index() + 1);
        self.nodes().skip(first).filter(move |(_, node)| node.parent == parent).map(|(id, _)| id)
    }

    /// The child of `parent` that carries `token`; there is at most one.
    pub fn child_with(&self, parent: Option<NodeId>, token: Token) -> Option<NodeId> {
        self.children(parent).find(|&id| self.node(id).token == token)
    }

    /// Distance from the committed text: 1 for a child of the root. A node's position is that of the root row plus its depth.
    ///
    /// # Panics
    /// As [`node`](Self::node).
    pub fn depth(&self, id: NodeId) -> usize {
        self.depths[id.index()] as usize
    }

    /// The nodes from the root down to `id`, `id` included.
    ///
    /// # Panics
    /// As [`node`](Self::node).
    pub fn path(&self, id: NodeId) -> SmallPath {
        let mut path = SmallPath::with_capacity(self.depth(id));
        let mut next = Some(id);
        while let Some(id) = next {
            path.push(id);
            next = self.node(id).parent;
        }
        path.reverse();
        path
    }

    /// Whether every node continues the one before it. The empty tree is a chain.
    pub fn is_chain(&self) -> bool {
        self.nodes().all(|(id, node)| node.parent == id.0.checked_sub(1).map(NodeId))
    }

    /// The greatest depth; 0 when empty.
    pub fn height(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(0) as usize
    }

    /// Who sees whom: row-major `len x len`, true where the column's node is the row's node or one of its ancestors.
    pub fn ancestor_mask(&self) -> Vec<bool> {
        let nodes = self.len();
        let mut mask = vec![false; nodes * nodes];
        for (id, node) in self.nodes() {
            let row = id.index() * nodes;
            if let Some(parent) = node.parent {
                let above = parent.index() * nodes;
                mask.copy_within(above..above + nodes, row);
            }
            mask[row + id.index()] = true;
        }
        mask
    }
}
