//! The drafter's half of a rule: how tokens come out of its law.

use crate::drawn::DrawnLaw;
use crate::{Choices, DraftTree, Law, NodeId, Origin, SharedNoise, Siblings, SmallPath, SmallTokens, TreeError};

/// How draft tokens are taken from the drafter's processed law.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub enum Proposal<'a> {
    /// The most probable tokens.
    Argmax,
    /// The drafter's own sample under the noise that the target samples with; for further children, the runners-up.
    Shared(SharedNoise<'a>),
    /// Drawn through [`Choices`]; the law is kept with the nodes.
    Sampled(Siblings),
    /// As `Sampled` without replacement, and each node keeps the drafter's probability of its token, formed at temperature 1
    /// where the temperature is 0 and the law one-hot.
    Confident,
}

impl Proposal<'_> {
    /// Whether tokens are drawn through [`Choices`]: then no node may be dropped for what it turned out to be.
    pub fn draws(&self) -> bool {
        matches!(self, Self::Sampled(_) | Self::Confident)
    }

    /// Adds `width` children below `parent` to the tree, as the rule wants them, and returns their nodes. They are fewer when the
    /// law has fewer tokens, or when independent draws are equal.
    ///
    /// `law` is the drafter's, after all of its processing; `position` is the absolute position of the tokens proposed. `width`
    /// may depend on anything known before the call, such as the law's maximum or entropy, but a node that was drawn stays
    /// in the tree, whatever it turned out to be: that is what the exactness of `Rejection` and `Block` rests on.
    ///
    /// # Errors
    /// When the parent does not exist, when children were already drawn below it, or when no node id is left.
    pub fn propose(
        &self,
        tree: &mut DraftTree,
        parent: Option<NodeId>,
        law: &Law<'_>,
        width: usize,
        position: usize,
        choices: &mut dyn Choices,
    ) -> Result<SmallPath, TreeError> {
        match self {
            Self::Argmax => push_all(tree, parent, law.top(width), Origin::Fixed),
            Self::Shared(noise) if width == 1 => {
                push_all(tree, parent, SmallTokens::from_slice(&[law.sample(noise, position)]), Origin::Shared)
            }
            Self::Shared(noise) => push_all(tree, parent, law.sample_several(noise, position, width), Origin::Shared),
            Self::Sampled(siblings) => {
                let nodes = tree.draw(parent, DrawnLaw::of(law), *siblings, width, position, choices);
                #[cfg(any(test, feature = "mutants"))]
                if crate::mutant::is_seeded(crate::mutant::Mutant::RecordBeforeFilters) {
                    tree.replace_last_law(DrawnLaw::before_filters(law));
                }
                nodes
            }
            Self::Confident => {
                let nodes = tree.draw(parent, DrawnLaw::of(law), Siblings::Distinct, width, position, choices)?;
                for &node in &nodes {
                    tree.set_confidence(node, law.soft_probability(tree.node(node).token));
                }
                Ok(nodes)
            }
        }
    }
}

/// A token that a sibling carries already is that sibling.
fn push_all(
    tree: &mut DraftTree,
    parent: Option<NodeId>,
    tokens: SmallTokens,
    origin: Origin,
) -> Result<SmallPath, TreeError> {
    let mut nodes = SmallPath::new();
    for token in tokens {
        match tree.push(parent, token, origin) {
            Ok(node) | Err(TreeError::DuplicateSibling { existing: node, .. }) => nodes.push(node),
            Err(error) => return Err(error),
        }
    }
    Ok(nodes)
}
