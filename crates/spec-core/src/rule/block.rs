use alloc::vec::Vec;

use super::rejection::{draw_from_weights, excess};
use super::{accept_key, draw_from_law};
use crate::drawn::Proposed;
use crate::{
    AcceptanceRule, Choices, Comparison, DraftTree, Forgiveness, LossBudget, NodeId, Outcome, Proposal, Purpose,
    Rejection, RejectionReason, Siblings, SmallPath, TargetLaws, VerifyError,
};

/// Judges a chain as a whole (Sun et al., arXiv 2403.10444). Lossless in law, and on average never keeps fewer tokens than
/// judging them one by one.
///
/// With `P_0 = 1` and `P_i = min(1, P_{i-1} p(x_i) / q(x_i))`, the longest prefix i stands for which an own choice of
/// probability `h_i` falls well: `h_k = P_k`, before that `h_i = Z / (Z + 1 - P_i)` with Z the sum of the positive part of
/// `P_i p - q` over the next token. What follows is drawn from that positive part, or from p behind a whole chain.
///
/// The choices are looked at from the longest prefix down, which the definition allows and which forms no law that is not
/// needed. Nodes that were not drawn have a one-hot q.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block;

impl AcceptanceRule for Block {
    fn name(&self) -> &'static str {
        "block"
    }

    fn lossless(&self) -> bool {
        true
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Sampled(Siblings::Distinct)
    }

    fn chains_only(&self) -> bool {
        true
    }

    fn verify_within(
        &self,
        _: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        if let Some(node) = tree.first_branch() {
            return Err(VerifyError::Branching { rule: self.name(), node });
        }
        let chain: SmallPath = tree.nodes().map(|(id, _)| id).collect();
        let products = prefix_products(tree, &chain, target)?;

        // The empty prefix always stands, which ends the loop.
        let mut length = products.len() - 1;
        // How the prefix that is one longer fell. Behind a product of 0 nothing can stand.
        let mut fell = Comparison::Prefix { u: None, probability: 0.0 };
        loop {
            let node = length.checked_sub(1).map(|index| chain[index]);
            let position = target.position(node);
            let product = products[length];
            let mut stands = |choices: &mut dyn Choices, probability: f64| {
                let Some(node) = node else { return true };
                let choice = accept_key(position - 1, node, 0);
                let stands = choices.accept(choice, probability);
                if !stands {
                    fell = Comparison::Prefix { u: choices.number(choice), probability };
                }
                stands
            };
            let law = target.summarized_law(node)?;
            let Some(&following) = chain.get(length) else {
                if stands(choices, product) {
                    let next = draw_from_law(&law, Purpose::Bonus, position, node, choices);
                    return Ok(Outcome { accepted: chain, next, rejection: None, forgiven: Forgiveness::default() });
                }
                length -= 1;
                continue;
            };
            let proposed = proposed_at(tree, following);
            let mut weights = law.support_probabilities();
            let total = excess(&law, product, &proposed, &mut weights);
            let short = total + 1.0 - product;
            // 0 / 0: the whole weight of the prefix arrived here, and none of it is owed to other tokens.
            let probability = if short > 0.0 { total / short } else { 1.0 };
            if !stands(choices, probability) {
                length -= 1;
                continue;
            }
            let token = tree.node(following).token;
            let rejection = Rejection {
                position,
                token,
                p: Some(law.probability(token)),
                q: Some(proposed.probability(token)),
                reason: RejectionReason::Chance,
                compared: fell,
            };
            let next = draw_from_weights(&law, &weights, position, node, choices);
            let accepted = SmallPath::from_slice(&chain[..length]);
            return Ok(Outcome { accepted, next, rejection: Some(rejection), forgiven: Forgiveness::default() });
        }
    }
}

/// `P_0 .. P_i`, as far as they are not 0: behind a zero nothing can stand.
fn prefix_products(tree: &DraftTree, chain: &[NodeId], target: &mut dyn TargetLaws) -> Result<Vec<f64>, VerifyError> {
    let mut products = Vec::with_capacity(chain.len() + 1);
    let mut product = 1.0f64;
    products.push(product);
    for &node in chain {
        let token = tree.node(node).token;
        let p = target.summarized_law(tree.node(node).parent)?.probability(token);
        product = (product * p / proposed_at(tree, node).probability(token)).min(1.0);
        if product.is_nan() || product <= 0.0 {
            break;
        }
        products.push(product);
    }
    Ok(products)
}

/// The law of a chain's node.
fn proposed_at(tree: &DraftTree, node: NodeId) -> Proposed<'_> {
    let own = tree.candidates(tree.node(node).parent).find(|&(candidate, _, _)| candidate == node);
    own.map_or(Proposed::OneHot(tree.node(node).token), |(_, _, proposed)| proposed)
}
