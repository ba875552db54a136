use alloc::vec::Vec;

use super::loss::Ledger;
use super::{accept_key, draw_from_law};
use crate::drawn::Proposed;
use crate::math::ln;
use crate::mutant::{self, Mutant};
use crate::{
    AcceptanceRule, ChoiceKey, Choices, Comparison, DraftTree, Forgiveness, Law, LossBudget, NodeId, Outcome, Proposal,
    Purpose, RejectionReason, Siblings, SmallPath, TargetLaws, Token, VerifyError,
};

/// Keeps a drafted `x` with probability `min(1, p(x) / q(x))`, and replaces a refused one by a draw from the normalised
/// positive part of `p - q` (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318). Lossless in law.
///
/// Several children of a node are tried one after another, each against what the ones before it left of p: Sequoia (arXiv
/// 2402.12374) for children drawn without replacement, SpecInfer (arXiv 2305.09781) for independent ones. Nodes that were not
/// drawn are judged with a one-hot q, which keeps `x` with probability p(x).
///
/// A kept token tells nothing about a later one, so the length of a draft may depend on the tokens drafted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejection {
    /// How drafters draw the children of one node.
    pub siblings: Siblings,
}

impl AcceptanceRule for Rejection {
    fn name(&self) -> &'static str {
        "rejection"
    }

    fn lossless(&self) -> bool {
        true
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Sampled(self.siblings)
    }

    fn verify_within(
        &self,
        _: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        descend(tree, target, choices, SmallPath::new(), &mut Ledger::exact(), |_, _| Ok(1.0))
    }
}

/// The recursive rejection of a tree, behind the path `accepted`. `leniency` of a node multiplies q before the ratio is taken: 1 is
/// exact, less is lossy. It is asked for while the ledger is open, which is told what is forgiven.
pub(super) fn descend(
    tree: &DraftTree,
    target: &mut dyn TargetLaws,
    choices: &mut dyn Choices,
    mut accepted: SmallPath,
    ledger: &mut Ledger,
    leniency: impl Fn(&dyn TargetLaws, Option<NodeId>) -> Result<f64, VerifyError>,
) -> Result<Outcome, VerifyError> {
    loop {
        let node = accepted.last().copied();
        let position = target.position(node);
        let mut candidates = tree.candidates(node).peekable();
        let is_lenient = !ledger.is_closed() && candidates.peek().is_some();
        let mut leniency = if is_lenient { leniency(target, node)? } else { 1.0 };
        let law = target.summarized_law(node)?;
        let mut residual = Residual::whole(&law);
        let mut rejection = None;
        let mut stands = None;
        for (candidate, draw, proposed) in candidates {
            let token = tree.node(candidate).token;
            let (p, q) = (residual.probability(token), proposed.probability(token));
            // A token has been drawn, so q is positive; for a given one it is 1.
            let nats = forgiven(p / q, p / (q * leniency));
            if nats > 0.0 && !ledger.allow(nats) {
                // The candidates before were refused with more leniency: the exact rule would have refused them too.
                leniency = 1.0;
            }
            let choice = key(position, candidate, draw);
            let kept = choices.accept(choice, p / (q * leniency));
            if kept {
                if nats > 0.0 && leniency < 1.0 {
                    ledger.enter(candidate, nats);
                }
                stands = Some(candidate);
                break;
            }
            rejection.get_or_insert_with(|| super::Rejection {
                position,
                token,
                p: Some(p),
                q: Some(q),
                reason: RejectionReason::Chance,
                compared: Comparison::Ratio { u: choices.number(choice), p, q, leniency },
            });
            residual.subtract(&proposed);
        }
        if let Some(candidate) = stands {
            accepted.push(candidate);
            continue;
        }
        let next = residual.draw(position, node, choices);
        return Ok(Outcome { accepted, next, rejection, forgiven: Forgiveness::default() });
    }
}

/// The log ratio of two acceptance probabilities, the exact and the lenient one; 0 for a token that is never accepted.
fn forgiven(exact: f64, lenient: f64) -> f64 {
    if exact > 0.0 && exact < 1.0 { ln(lenient.min(1.0) / exact).max(0.0) } else { 0.0 }
}

fn key(position: usize, candidate: NodeId, draw: u32) -> ChoiceKey {
    if mutant::is_seeded(Mutant::SharedAcceptKey) {
        return ChoiceKey { position, node: None, purpose: Purpose::Accept, draw: 0 };
    }
    accept_key(position, candidate, draw)
}

/// What is left of the target's law after some candidates were refused. Its probabilities are formed at the first refusal.
pub(super) struct Residual<'l, 'a> {
    law: &'l Law<'a>,
    /// In the order of the law's support; they add up to 1.
    rest: Option<Vec<f64>>,
}

impl<'l, 'a> Residual<'l, 'a> {
    pub(super) fn whole(law: &'l Law<'a>) -> Self {
        Self { law, rest: None }
    }

    fn probability(&self, token: Token) -> f64 {
        let Some(rest) = &self.rest else { return self.law.probability(token) };
        let index = match self.law.support() {
            Some(ids) => ids.iter().position(|&id| id == token),
            None => Some(token as usize),
        };
        index.and_then(|index| rest.get(index)).copied().unwrap_or(0.0)
    }

    /// The positive part of what is left less the law of a refused candidate, normalised.
    fn subtract(&mut self, proposed: &Proposed<'_>) {
        let before = self.rest.take().unwrap_or_else(|| self.law.support_probabilities());
        let mut rest = before.clone();
        let total = excess(self.law, 1.0, proposed, &mut rest);
        self.rest = Some(if total > 0.0 {
            if !mutant::is_seeded(Mutant::ResidualNotNormalised) {
                rest.iter_mut().for_each(|probability| *probability /= total);
            }
            rest
        } else {
            // Refused although p <= q everywhere, which rounding alone brings about, with a probability near 2^-53.
            before
        });
    }

    /// Draws the token after `node`.
    fn draw(&self, position: usize, node: Option<NodeId>, choices: &mut dyn Choices) -> Token {
        let Some(rest) = &self.rest else {
            return draw_from_law(self.law, Purpose::Bonus, position, node, choices);
        };
        draw_from_weights(self.law, rest, position, node, choices)
    }
}

/// Draws a replacement by weights in the order of the law's support.
pub(super) fn draw_from_weights(
    law: &Law<'_>,
    weights: &[f64],
    position: usize,
    node: Option<NodeId>,
    choices: &mut dyn Choices,
) -> Token {
    let key = ChoiceKey { position, node, purpose: Purpose::Resample, draw: 0 };
    match choices.draw(key, weights) {
        Some(index) => law.support().map_or(index as Token, |ids| ids[index]),
        None => law.argmax(),
    }
}

/// Turns p, in the order of the law's support, into the positive part of `scale * p - q`, and adds it up.
pub(super) fn excess(law: &Law<'_>, scale: f64, proposed: &Proposed<'_>, p: &mut [f64]) -> f64 {
    let clip = |p: &mut f64, q: f64| {
        let over = scale * *p - q;
        *p = if over > 0.0 { over } else { 0.0 };
    };
    match (law.support(), proposed) {
        // Two whole rows: no look-ups.
        (None, Proposed::Drawn { law: drawn, excluded, mass }) if drawn.ids.is_none() && excluded.is_empty() => {
            p.iter_mut().zip(drawn.probabilities(law.kernels())).for_each(|(p, q)| clip(p, q / mass));
        }
        (None, _) => p.iter_mut().zip(0..).for_each(|(p, token)| clip(p, proposed.probability(token))),
        (Some(ids), _) => p.iter_mut().zip(ids).for_each(|(p, &token)| clip(p, proposed.probability(token))),
    }
    p.iter().sum()
}
