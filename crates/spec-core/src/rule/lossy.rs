//! Rules that keep more than they should. Their output does not have the target's law.
//!
//! They judge with p and q at temperature 1 where the temperature is 0, since a one-hot law leaves nothing to be lenient with. A
//! refused token is replaced by the target's argmax at temperature 0, else by a draw from p.
//!
//! They count what they forgive, and are exact once their budget is closed: as `Greedy` at temperature 0, else as `Rejection`.

use super::draw_from_law;
use super::follow::greedily;
use super::loss::{Ledger, drawn_probability, price};
use super::rejection::descend;
use crate::math::exp_negative;
use crate::summary::peak;
use crate::{
    AcceptanceRule, Choices, Comparison, DraftTree, Law, LossBudget, NodeId, Outcome, Proposal, Purpose, Rejection,
    RejectionReason, ScalarScan, Siblings, SmallPath, TargetLaws, VerifyError,
};

/// Typical acceptance: keeps `x` when `p(x) > min(epsilon, delta exp(-H(p)))`, H the entropy (Cai et al., Medusa, arXiv
/// 2401.10774). Lossy: where p is flat, low probabilities pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Typical {
    /// A probability that always passes.
    pub epsilon: f64,
    /// Scales the threshold of uncertain laws.
    pub delta: f64,
}

impl Default for Typical {
    fn default() -> Self {
        Self { epsilon: 0.09, delta: 0.3 }
    }
}

impl AcceptanceRule for Typical {
    fn name(&self) -> &'static str {
        "typical"
    }

    fn lossless(&self) -> bool {
        false
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Sampled(Siblings::Distinct)
    }

    fn keeps_budgets(&self) -> bool {
        true
    }

    fn verify_within(
        &self,
        budget: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        keep(budget, tree, target, choices, |law, _, p| {
            let threshold = self.epsilon.min(self.delta * exp_negative(-law.entropy()));
            Ok(if p > threshold { None } else { Some(Comparison::Threshold { p, threshold }) })
        })
    }
}

/// Keeps `x` when `p(x) >= q(x) - epsilon`: the drafter may be that much surer than the target. Lossy.
///
/// For proposals without a law, q is 1.
#[doc(alias = "epsilon")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epsilon(pub f64);

/// Keeps `x` when `q(x) >= p(x) - epsilon`, as published in the article that this engine started from. Lossy, and the wrong way
/// round for quality: the surer the drafter, the more it passes. With a one-hot drafter it would keep anything, so
/// proposals without a law are refused.
#[doc(alias = "epsilon")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpsilonPublished(pub f64);

/// The tolerance of both when nothing else is said.
pub(super) const EPSILON: f64 = 0.01;

impl Default for Epsilon {
    fn default() -> Self {
        Self(EPSILON)
    }
}

impl Default for EpsilonPublished {
    fn default() -> Self {
        Self(EPSILON)
    }
}

impl AcceptanceRule for Epsilon {
    fn name(&self) -> &'static str {
        "epsilon"
    }

    fn lossless(&self) -> bool {
        false
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Confident
    }

    fn keeps_budgets(&self) -> bool {
        true
    }

    fn verify_within(
        &self,
        budget: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        keep(budget, tree, target, choices, |_, node, p| {
            let q = confidence(tree, node).unwrap_or(1.0);
            Ok(if p >= q - self.0 { None } else { Some(Comparison::Epsilon { p, q, epsilon: self.0 }) })
        })
    }
}

impl AcceptanceRule for EpsilonPublished {
    fn name(&self) -> &'static str {
        "epsilon-published"
    }

    fn lossless(&self) -> bool {
        false
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Confident
    }

    fn needs_confidence(&self) -> bool {
        true
    }

    fn keeps_budgets(&self) -> bool {
        true
    }

    fn verify_within(
        &self,
        budget: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        keep(budget, tree, target, choices, |_, node, p| {
            let q = confidence(tree, node).ok_or(VerifyError::NoConfidence { rule: self.name(), node })?;
            Ok(if q >= p - self.0 { None } else { Some(Comparison::EpsilonPublished { p, q, epsilon: self.0 }) })
        })
    }
}

/// Keeps `x` with probability `p(x) / (t q(x))`, `t = min(theta, exp(-alpha H))`, H the entropy in nats of the row as the model
/// gave it (the rule of vllm-ascend). As t never exceeds theta, it is only ever looser than [`RejectionRule`](crate::RejectionRule),
/// most of all where the target is unsure. Lossy. At temperature 0 both laws are one-hot, and it equals greedy decoding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropy {
    /// How fast t falls with the entropy.
    pub alpha: f64,
    /// The greatest t.
    pub theta: f64,
}

impl Default for Entropy {
    fn default() -> Self {
        Self { alpha: 0.4, theta: 0.95 }
    }
}

impl AcceptanceRule for Entropy {
    fn name(&self) -> &'static str {
        "entropy"
    }

    fn lossless(&self) -> bool {
        false
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Sampled(Siblings::Distinct)
    }

    fn keeps_budgets(&self) -> bool {
        true
    }

    fn verify_within(
        &self,
        budget: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        let mut ledger = Ledger::new(budget);
        let outcome = descend(tree, target, choices, SmallPath::new(), &mut ledger, |target, node| {
            let row = target.unprocessed(node)?;
            let law = Law::new(&ScalarScan, row, None, peak(&ScalarScan, row)?, Some(1.0), row.len());
            Ok(self.theta.min(exp_negative(-self.alpha * law.entropy())))
        })?;
        Ok(Outcome { forgiven: ledger.finish(), ..outcome })
    }
}

/// Descends into the first child that the test, given its p, has nothing against. A token without a probability, such as one that a
/// constraint or a filter leaves out, is never kept.
fn keep(
    budget: LossBudget,
    tree: &DraftTree,
    target: &mut dyn TargetLaws,
    choices: &mut dyn Choices,
    test: impl Fn(&Law<'_>, NodeId, f64) -> Result<Option<Comparison>, VerifyError>,
) -> Result<Outcome, VerifyError> {
    let mut ledger = Ledger::new(budget);
    let mut accepted = SmallPath::new();
    loop {
        let node = accepted.last().copied();
        let position = target.position(node);
        let law = target.summarized_law(node)?;
        let is_greedy = law.is_one_hot();
        let mut rejection = None;
        let mut stands = None;
        for child in tree.children(node).take_while(|_| !ledger.is_closed()) {
            let token = tree.node(child).token;
            let p = law.soft_probability(token);
            let impossible = Comparison::Threshold { p, threshold: 0.0 };
            let Some(compared) = test(&law, child, p)?.or((p <= 0.0).then_some(impossible)) else {
                stands = Some(child);
                break;
            };
            rejection.get_or_insert(Rejection {
                position,
                token,
                p: Some(p),
                q: confidence(tree, child),
                reason: RejectionReason::BelowThreshold,
                compared,
            });
        }
        if let Some(child) = stands
            && price(&law, tree, child).is_none_or(|nats| ledger.enter(child, nats))
        {
            accepted.push(child);
            continue;
        }
        if ledger.is_closed() {
            let outcome = match is_greedy {
                true => greedily(tree, target, accepted),
                false => descend(tree, target, choices, accepted, &mut Ledger::exact(), |_, _| Ok(1.0)),
            };
            return Ok(Outcome { forgiven: ledger.finish(), ..outcome? });
        }
        let purpose = if rejection.is_some() { Purpose::Resample } else { Purpose::Bonus };
        // At temperature 0 the law is one-hot, and the draw is its argmax.
        let next = draw_from_law(&law, purpose, position, node, choices);
        return Ok(Outcome { accepted, next, rejection, forgiven: ledger.finish() });
    }
}

/// The drafter's probability of a node's token, where it says one.
fn confidence(tree: &DraftTree, node: NodeId) -> Option<f64> {
    tree.node(node).confidence.or_else(|| drawn_probability(tree, node))
}
