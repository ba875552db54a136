//! The rules that decode as without a draft and keep what agrees: equal outputs, not only equal laws.

use alloc::sync::Arc;

use crate::{
    AcceptanceRule, Choices, Comparison, DraftTree, Forgiveness, LossBudget, NodeId, Noise, NoiseScan, Outcome,
    Proposal, Rejection, RejectionReason, SamplingError, SharedNoise, SmallPath, TargetLaws, Token, VerifyError,
};

/// Keeps a proposal while it is the target's argmax. The output is that of greedy decoding, token for token.
///
/// On a tree it follows whichever path the argmax takes (multi-path greedy). It takes the argmax of whatever law it is given; at
/// a temperature above 0 that is not sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greedy;

impl AcceptanceRule for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn lossless(&self) -> bool {
        true
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Argmax
    }

    fn verify_within(
        &self,
        _: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        _: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        greedily(tree, target, SmallPath::new())
    }
}

/// Keeps a proposal while it is the target's own sample under shared noise. The output is that of plain sampling with the same
/// noise, token for token, at any temperature, for any drafter (arXiv 2408.07978).
#[derive(Clone)]
pub struct Coupled {
    noise: Noise,
    scan: Arc<dyn NoiseScan>,
}

impl Coupled {
    /// The rule for one generated text: its noise, and the scan that searches rows with it.
    pub fn new(noise: Noise, scan: Arc<dyn NoiseScan>) -> Self {
        Self { noise, scan }
    }
}

impl core::fmt::Debug for Coupled {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Coupled").field("noise", &self.noise).finish_non_exhaustive()
    }
}

impl AcceptanceRule for Coupled {
    fn name(&self) -> &'static str {
        "coupled"
    }

    fn lossless(&self) -> bool {
        true
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Shared(SharedNoise { noise: self.noise, scan: &*self.scan })
    }

    fn verify_within(
        &self,
        _: LossBudget,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        _: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        let noise = SharedNoise { noise: self.noise, scan: &*self.scan };
        follow(
            tree,
            target,
            SmallPath::new(),
            |target, node| {
                let position = target.position(node);
                Ok(target.law(node)?.sample(&noise, position))
            },
            |target, draft| Comparison::Sample { target, draft },
        )
    }
}

/// The argmax, behind the path `accepted`.
pub(super) fn greedily(
    tree: &DraftTree,
    target: &mut dyn TargetLaws,
    accepted: SmallPath,
) -> Result<Outcome, VerifyError> {
    let compared = |target, draft| Comparison::Argmax { target, draft };
    follow(tree, target, accepted, |target, node| target.argmax(node), compared)
}

/// Decodes as without a draft, and descends the tree behind the path `accepted` for as long as it contains what was decoded. Where
/// nodes came from does not matter: every emitted token is the target's own.
fn follow(
    tree: &DraftTree,
    target: &mut dyn TargetLaws,
    mut accepted: SmallPath,
    pick: impl Fn(&mut dyn TargetLaws, Option<NodeId>) -> Result<Token, SamplingError>,
    compared: impl Fn(Token, Token) -> Comparison,
) -> Result<Outcome, VerifyError> {
    loop {
        let node = accepted.last().copied();
        let position = target.position(node);
        let next = pick(target, node)?;
        if let Some(child) = tree.child_with(node, next) {
            accepted.push(child);
            continue;
        }
        let rejection = tree.children(node).next().map(|child| {
            let token = tree.node(child).token;
            let reason = RejectionReason::TargetDiffers;
            Rejection { position, token, p: None, q: None, reason, compared: compared(next, token) }
        });
        return Ok(Outcome { accepted, next, rejection, forgiven: Forgiveness::default() });
    }
}
