//! Draft trees: what a drafter proposes and a target scores in one pass.

use alloc::vec;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::drawn::{DrawnLaw, Draws, Proposed};
use crate::mutant::{self, Mutant};
use crate::{ChoiceKey, Choices, Purpose, Siblings, Token, TreeError};

/// A node of a [`DraftTree`]: its index in insertion order, which is also its row order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// The index, from 0. The node's row of target logits is row `1 + index`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a token that was not drawn came to be. Such nodes are judged one-hot, and may be pruned at any time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// Without randomness (argmax, n-gram, scripted).
    Fixed,
    /// By Gumbel-max with the noise that the target samples with.
    Shared,
}

/// The mark of a node that was drawn from a law through [`Choices`]. Only [`Proposal::propose`](crate::Proposal::propose)
/// makes one, in the step that draws the token and keeps the law.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampled(());

/// What a node is, which decides the law it is judged against and whether it may be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// Proposed as it is; judged one-hot; removable.
    Given(Origin),
    /// Drawn; judged by the law it was drawn from; submitted once drawn.
    Sampled(Sampled),
}

/// One proposed token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Node {
    /// The token proposed.
    pub token: Token,
    /// The node it continues; `None` continues the committed text.
    pub parent: Option<NodeId>,
    /// How it was proposed.
    pub kind: NodeKind,
    /// The drafter's probability of the token, where the proposal keeps it ([`Proposal::Confident`](crate::Proposal)).
    pub confidence: Option<f64>,
}

/// A path of nodes, root first. Draft depths are small, so it rarely allocates.
pub type SmallPath = SmallVec<[NodeId; 16]>;

/// A few tokens; rarely allocates.
pub type SmallTokens = SmallVec<[Token; 16]>;

/// A tree of proposed tokens. A chain is a tree with one branch.
///
/// Nodes are given ([`push`](Self::push)) or drawn ([`Proposal::propose`](crate::Proposal::propose)). The tree keeps the laws of
/// drawn nodes, and removes no node that was drawn. Parents precede their children in insertion order, so every prefix of the nodes is itself a tree.
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
#[derive(Default, Clone, Debug, PartialEq)]
pub struct DraftTree {
    nodes: Vec<Node>,
    depths: Vec<u32>,
    draws: Vec<Draws>,
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
            tree.nodes.push(Node { token, parent, kind: NodeKind::Given(origin), confidence: None });
            tree.depths.push(index + 1);
        }
        tree
    }

    /// Appends a given node below `parent` (`None`: below the committed text).
    ///
    /// # Errors
    /// When the parent does not exist, when a sibling already carries the token, when children were already drawn below the
    /// parent, or when no node id is left.
    pub fn push(&mut self, parent: Option<NodeId>, token: Token, origin: Origin) -> Result<NodeId, TreeError> {
        self.check_parent(parent)?;
        if let Some(existing) = self.child_with(parent, token) {
            return Err(TreeError::DuplicateSibling { token, existing });
        }
        self.append(parent, token, NodeKind::Given(origin))
    }

    /// Draws up to `width` children of `parent` from `law`, and keeps the law.
    pub(crate) fn draw(
        &mut self,
        parent: Option<NodeId>,
        law: DrawnLaw,
        siblings: Siblings,
        width: usize,
        position: usize,
        choices: &mut dyn Choices,
    ) -> Result<SmallPath, TreeError> {
        self.check_parent(parent)?;
        // Entries of the law that no further draw may come to.
        let mut excluded: SmallVec<[usize; 4]> = SmallVec::new();
        if siblings == Siblings::Distinct {
            excluded.extend(self.children(parent).filter_map(|given| law.index(self.node(given).token)));
        }
        let mut nodes = SmallVec::new();
        for draw in 0..width as u32 {
            let purpose = if draw == 0 { Purpose::Draft } else { Purpose::Sibling };
            let key = ChoiceKey { position, node: parent, purpose, draw };
            let Some((entry, token)) = law.draw(&excluded, key, choices) else { break };
            let withheld = mutant::is_seeded(Mutant::WithheldByOwnProbability)
                || draw > 0 && mutant::is_seeded(Mutant::WithheldSibling);
            if withheld && law.probability(token) < 0.2 {
                break;
            }
            if siblings == Siblings::Distinct {
                excluded.push(entry);
            }
            nodes.push(match self.child_with(parent, token) {
                Some(existing) => existing,
                None => self.append(parent, token, NodeKind::Sampled(Sampled(())))?,
            });
        }
        let mut distinct = SmallPath::new();
        for &node in &nodes {
            if !distinct.contains(&node) {
                distinct.push(node);
            }
        }
        if !nodes.is_empty() {
            self.draws.push(Draws { parent, siblings, law, nodes });
        }
        Ok(distinct)
    }

    pub(crate) fn set_confidence(&mut self, node: NodeId, confidence: f64) {
        self.nodes[node.index()].confidence = Some(confidence);
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn replace_last_law(&mut self, law: DrawnLaw) {
        if let Some(draws) = self.draws.last_mut() {
            draws.law = law;
        }
    }

    /// What was proposed below `parent`, in the order of judgement, each with the law it was proposed from: first the given
    /// children, then the draws. The number is the draw's, and tells apart draws that came to the same node.
    pub(crate) fn candidates(&self, parent: Option<NodeId>) -> impl Iterator<Item = (NodeId, u32, Proposed<'_>)> {
        let draws = self.draws.iter().find(|draws| draws.parent == parent);
        let given = self.children(parent).filter(|&node| matches!(self.node(node).kind, NodeKind::Given(_)));
        let given = given.map(|node| (node, 0, Proposed::OneHot(self.node(node).token)));
        let drawn = draws.into_iter().flat_map(move |draws| {
            let distinct = draws.siblings == Siblings::Distinct;
            let mut excluded = SmallTokens::new();
            if distinct {
                let given = self.children(parent).filter(|&node| matches!(self.node(node).kind, NodeKind::Given(_)));
                excluded.extend(given.map(|node| self.node(node).token));
            }
            (1u32..).zip(&draws.nodes).map(move |(draw, &node)| {
                let mass = if mutant::is_seeded(Mutant::SiblingLawNotNormalised) {
                    1.0
                } else {
                    draws.law.mass_without(&excluded)
                };
                let proposed = Proposed::Drawn { law: &draws.law, excluded: excluded.clone(), mass };
                if distinct {
                    excluded.push(self.node(node).token);
                }
                (node, draw, proposed)
            })
        });
        given.chain(drawn)
    }

    fn check_parent(&self, parent: Option<NodeId>) -> Result<(), TreeError> {
        let nodes = self.nodes.len();
        match parent {
            Some(parent) if parent.index() >= nodes => Err(TreeError::UnknownParent { parent, nodes }),
            _ if self.draws.iter().any(|draws| draws.parent == parent) => Err(TreeError::AlreadyDrawn { parent }),
            _ => Ok(()),
        }
    }

    fn append(&mut self, parent: Option<NodeId>, token: Token, kind: NodeKind) -> Result<NodeId, TreeError> {
        let nodes = self.nodes.len();
        let id = u32::try_from(nodes).map_err(|_| TreeError::TooLarge { nodes })?;
        self.depths.push(parent.map_or(0, |parent| self.depths[parent.index()]) + 1);
        self.nodes.push(Node { token, parent, kind, confidence: None });
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

    /// Forgets the whole draft and keeps the memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.depths.clear();
        self.draws.clear();
    }

    /// Keeps the first `nodes` nodes in insertion order; does nothing when there are no more than that.
    ///
    /// # Errors
    /// [`TreeError::Drawn`] when a node that would go was drawn; the tree is as it was then.
    pub fn truncate(&mut self, nodes: usize) -> Result<(), TreeError> {
        let drawn = self.draws.iter().flat_map(|draws| &draws.nodes);
        if let Some(&node) = drawn.filter(|node| node.index() >= nodes).min() {
            return Err(TreeError::Drawn { node });
        }
        self.nodes.truncate(nodes);
        self.depths.truncate(nodes);
        Ok(())
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
        self.first_branch().is_none()
    }

    /// The first node that does not continue the one before it.
    pub(crate) fn first_branch(&self) -> Option<NodeId> {
        self.nodes().find(|(id, node)| node.parent != id.0.checked_sub(1).map(NodeId)).map(|(id, _)| id)
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
