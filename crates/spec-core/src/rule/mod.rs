//! Acceptance rules: which part of a draft stands, and which token follows it.

mod adaptive;
mod block;
mod comparison;
mod follow;
mod loss;
mod lossy;
mod rejection;
mod table;

pub use adaptive::{AdaptiveEpsilon, Tolerance};
pub use block::Block;
pub use comparison::Comparison;
pub use follow::{Coupled, Greedy};
pub use loss::{Forgiven, Forgiveness, LossBudget};
pub use lossy::{Entropy, Epsilon, EpsilonPublished, Typical};
pub use rejection::Rejection as RejectionRule;
pub use table::{RULES, RuleEntry, RuleName};

use crate::drawn::Blocks;
use crate::{ChoiceKey, Choices, DraftTree, Law, NodeId, Proposal, Purpose, SmallPath, TargetLaws, Token, VerifyError};

/// Judges a draft against the target: the target's half of a rule.
pub trait AcceptanceRule: Send + Sync {
    /// The name users choose it by.
    fn name(&self) -> &'static str;

    /// Whether the law of the emitted tokens is the target's, for every drafter.
    fn lossless(&self) -> bool;

    /// How drafters should draw for this rule.
    fn proposal(&self) -> Proposal<'_>;

    /// Whether it judges chains only. To be asked before drafting: a branch must not be dropped once it was drawn.
    fn chains_only(&self) -> bool {
        false
    }

    /// Whether it needs the drafter's probabilities. Drafters that propose without a law, such as n-grams, are then refused.
    fn needs_confidence(&self) -> bool {
        false
    }

    /// Keeps a path of the tree and names the token after it. Laws are formed only along that path.
    ///
    /// # Errors
    /// When a target row on the path has no law, or the rule cannot judge such a tree.
    #[doc(alias = "verify_tokens")]
    fn verify(
        &self,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        self.verify_within(LossBudget::UNLIMITED, tree, target, choices)
    }

    /// Whether [`verify_within`](Self::verify_within) keeps within a budget: every lossless rule does, having nothing to forgive.
    fn keeps_budgets(&self) -> bool {
        self.lossless()
    }

    /// [`verify`](Self::verify), forgiving no more than `budget` has left: behind the token that would pass it the rule is exact. A rule
    /// that forgives nothing has no use for it.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    fn verify_within(
        &self,
        budget: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError>;
}

/// What a round emits: the tokens of the accepted path, then `next`.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The accepted nodes, root first.
    #[doc(alias = "accepted_length")]
    pub accepted: SmallPath,
    /// The corrected token after a rejection, else the bonus token.
    #[doc(alias = "rollback_and_resample")]
    pub next: Token,
    /// Why the path ended above a leaf; `None` when nothing was proposed after it.
    pub rejection: Option<Rejection>,
    /// What a lossy rule forgave.
    pub forgiven: Forgiveness,
}

/// The proposal at which the accepted path ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rejection {
    /// Its absolute position.
    pub position: usize,
    /// The token proposed; the first of several siblings.
    pub token: Token,
    /// The target's probability of it, where the rule formed it.
    #[doc(alias = "target_prob")]
    pub p: Option<f64>,
    /// The drafter's probability of it, where the rule formed it.
    #[doc(alias = "draft_prob")]
    pub q: Option<f64>,
    /// Why it was rejected.
    pub reason: RejectionReason,
    /// What was compared.
    pub compared: Comparison,
}

/// Why a proposal was rejected.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectionReason {
    /// The target's own token is not among the proposed ones.
    TargetDiffers,
    /// The acceptance choice, whose probability comes from p and q, fell against it.
    Chance,
    /// The target's probability is below what the rule tolerates.
    BelowThreshold,
}

/// The key of the choice whether a candidate is accepted.
fn accept_key(position: usize, node: NodeId, draw: u32) -> ChoiceKey {
    ChoiceKey { position, node: Some(node), purpose: Purpose::Accept, draw }
}

/// Draws the token after `node` from the target's law.
fn draw_from_law(
    law: &Law<'_>,
    purpose: Purpose,
    position: usize,
    node: Option<NodeId>,
    choices: &mut dyn Choices,
) -> Token {
    if law.is_one_hot() {
        return law.argmax();
    }
    let key = ChoiceKey { position, node, purpose, draw: 0 };
    let entry = Blocks::of(law.kernels(), law.logits(), law.scale()).draw(law.logits(), &[], key, choices);
    // The maximum has weight 1: only a source that refuses to choose comes to nothing.
    entry.map_or(law.argmax(), |entry| law.kept().map_or(entry as Token, |ids| ids[entry]))
}
