//! Acceptance rules: which part of a draft stands, and which token follows it.

use alloc::sync::Arc;

use crate::{
    Choices, DraftTree, Law, Noise, NoiseScan, Origin, SharedNoise, SmallPath, TargetLaws, Token, VerifyError,
};

/// How a draft token is drawn from the drafter's processed law: the drafter's half of a rule.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub enum Proposal<'a> {
    /// The most probable token.
    Argmax,
    /// The drafter's own sample under the noise that the target samples with.
    Shared(SharedNoise<'a>),
}

impl Proposal<'_> {
    /// Draws the token at absolute `position`.
    pub fn pick(&self, law: &Law<'_>, position: usize) -> Token {
        match self {
            Self::Argmax => law.argmax(),
            Self::Shared(noise) => law.sample(noise, position),
        }
    }

    /// The origin of nodes drawn so.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Argmax => Origin::Fixed,
            Self::Shared(_) => Origin::Shared,
        }
    }
}

/// Judges a draft against the target: the target's half of a rule.
pub trait AcceptanceRule: Send + Sync {
    /// The name users choose it by.
    fn name(&self) -> &'static str;

    /// Whether the law of the emitted tokens is the target's, for every drafter.
    fn lossless(&self) -> bool;

    /// How drafters should draw for this rule.
    fn proposal(&self) -> Proposal<'_>;

    /// Keeps a path of the tree and names the token after it. Laws are formed only along that path.
    ///
    /// # Errors
    /// When a target row on the path has no law.
    #[doc(alias = "verify_tokens")]
    fn verify(
        &self,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        choices: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError>;
}

/// What a round emits: the tokens of the accepted path, then `next`.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The accepted nodes, root first.
    pub accepted: SmallPath,
    /// The corrected token after a rejection, else the bonus token.
    #[doc(alias = "rollback_and_resample")]
    pub next: Token,
    /// Why the path ended above a leaf; `None` when nothing was proposed after it.
    pub rejection: Option<Rejection>,
}

/// The proposal at which the accepted path ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rejection {
    /// Its absolute position.
    pub position: usize,
    /// The token proposed; the first of several siblings.
    pub token: Token,
    /// The target's probability of it, where the rule formed it.
    pub p: Option<f64>,
    /// The drafter's probability of it, where the rule formed it.
    pub q: Option<f64>,
    /// Why it was rejected.
    pub reason: RejectionReason,
}

/// Why a proposal was rejected.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectionReason {
    /// The target's own token is not among the proposed ones.
    TargetDiffers,
}

/// Keeps a proposal while it is the target's argmax. The output is that of greedy decoding, token for token.
///
/// It takes the argmax of whatever law it is given; at a temperature above 0 that is not sampling.
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

    fn verify(
        &self,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        _: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        follow(tree, target, self.proposal())
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

    fn verify(
        &self,
        tree: &DraftTree,
        target: &mut dyn TargetLaws,
        _: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        follow(tree, target, self.proposal())
    }
}

/// Decodes as without a draft, and descends the tree for as long as it contains what was decoded. Where nodes came from does
/// not matter: every emitted token is the target's own.
fn follow(tree: &DraftTree, target: &mut dyn TargetLaws, pick: Proposal<'_>) -> Result<Outcome, VerifyError> {
    let mut accepted = SmallPath::new();
    loop {
        let node = accepted.last().copied();
        let position = target.position(node);
        let next = pick.pick(&target.law(node)?, position);
        if let Some(child) = tree.child_with(node, next) {
            accepted.push(child);
            continue;
        }
        let rejection = tree.children(node).next().map(|child| Rejection {
            position,
            token: tree.node(child).token,
            p: None,
            q: None,
            reason: RejectionReason::TargetDiffers,
        });
        return Ok(Outcome { accepted, next, rejection });
    }
}
