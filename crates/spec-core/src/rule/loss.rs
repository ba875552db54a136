//! What lossy rules forgive, and how much they may.

use alloc::vec::Vec;

use crate::math::ln;
use crate::{DraftTree, Law, NodeId, NodeKind};

/// How much a lossy rule may forgive in one answer, in nats of log ratio.
///
/// The sum is never passed: a token that would pass it closes the budget, and the rule is exact from that token on, to the end of the
/// answer. A budget of 0 is closed from the start.
///
/// ```
/// use spec_core::LossBudget;
///
/// let mut budget = LossBudget::new(1.0);
/// assert!(budget.charge(0.75) && !budget.charge(0.5));
/// assert!(budget.is_closed() && !budget.charge(0.1) && budget.spent() == 0.75);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossBudget {
    most: f64,
    spent: f64,
    is_closed: bool,
}

impl LossBudget {
    /// Everything is forgiven that the rule forgives.
    pub const UNLIMITED: Self = Self { most: f64::INFINITY, spent: 0.0, is_closed: false };

    /// A budget of so many nats; negative ones and NaN count as 0.
    pub fn new(most: f64) -> Self {
        Self { most, spent: 0.0, is_closed: most.is_nan() || most <= 0.0 }
    }

    /// Whether nothing more is forgiven.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What was forgiven, in nats; never more than the budget.
    pub fn spent(&self) -> f64 {
        self.spent
    }

    /// Whether so much can still be forgiven.
    pub fn allows(&self, nats: f64) -> bool {
        !self.is_closed && self.spent + nats <= self.most
    }

    /// Forgives so much, or closes the budget for good where that would pass it. Gives whether it was forgiven.
    pub fn charge(&mut self, nats: f64) -> bool {
        let allowed = self.allows(nats);
        if allowed {
            self.spent += nats
        } else {
            self.is_closed = true
        }
        allowed
    }

    /// Forgives nothing from now on.
    pub fn close(&mut self) {
        self.is_closed = true;
    }
}

/// What a lossy rule forgave in a round; a lossless rule has nothing to forgive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forgiveness {
    /// The accepted nodes that its exact counterpart would have refused, or kept less often; root first.
    pub nodes: Vec<Forgiven>,
    /// Whether the rule judged exactly at the end, because its [`LossBudget`] was closed by then.
    pub turned_exact: bool,
}

/// A node that a lossy rule accepted and its exact counterpart would have refused, or kept less often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forgiven {
    /// The node.
    pub node: NodeId,
    /// By how much, in nats: at temperature 0, where [`Greedy`](crate::Greedy) is the exact rule, `ln p(argmax) - ln p(x)` with p at
    /// temperature 1; above, where [`RejectionRule`](crate::RejectionRule) is, the log of the probability that the rule kept it with
    /// over the one that the exact rule would have kept it with.
    pub log_ratio: f64,
}

/// The budget of a round, and what was taken of it.
pub(super) struct Ledger {
    budget: LossBudget,
    nodes: Vec<Forgiven>,
}

impl Ledger {
    pub(super) fn new(budget: LossBudget) -> Self {
        Self { budget, nodes: Vec::new() }
    }

    /// Nothing is forgiven.
    pub(super) fn exact() -> Self {
        Self::new(LossBudget::new(0.0))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.budget.is_closed()
    }

    /// Closes the budget if so much cannot be forgiven.
    pub(super) fn allow(&mut self, nats: f64) -> bool {
        let allowed = self.budget.allows(nats);
        if !allowed {
            self.budget.close();
        }
        allowed
    }

    /// Forgives a node, or closes the budget.
    pub(super) fn enter(&mut self, node: NodeId, log_ratio: f64) -> bool {
        let allowed = self.budget.charge(log_ratio);
        if allowed {
            self.nodes.push(Forgiven { node, log_ratio });
        }
        allowed
    }

    pub(super) fn finish(self) -> Forgiveness {
        Forgiveness { turned_exact: self.budget.is_closed(), nodes: self.nodes }
    }
}

/// What keeping a node for sure, which has a probability under the law, forgives; `None` where the exact rule keeps it for sure too.
pub(super) fn price(law: &Law<'_>, tree: &DraftTree, node: NodeId) -> Option<f64> {
    let token = tree.node(node).token;
    let p = law.soft_probability(token);
    if law.is_one_hot() {
        // Equal logits differ by nothing, and in the token.
        return (token != law.argmax()).then(|| (ln(law.soft_probability(law.argmax())) - ln(p)).max(0.0));
    }
    let q = drawn_probability(tree, node).unwrap_or(1.0);
    (p < q).then(|| (ln(q) - ln(p)).max(0.0))
}

/// The probability that a node's token was drawn with; `None` where it was not drawn.
pub(super) fn drawn_probability(tree: &DraftTree, node: NodeId) -> Option<f64> {
    match tree.node(node).kind {
        NodeKind::Given(_) => None,
        NodeKind::Sampled(_) => {
            let own = tree.candidates(tree.node(node).parent).find(|&(candidate, _, _)| candidate == node);
            own.map(|(_, _, proposed)| proposed.probability(tree.node(node).token))
        }
    }
}
