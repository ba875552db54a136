use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::{
    AcceptanceRule, Choices, DraftTree, Epsilon, EpsilonPublished, LossBudget, Outcome, Proposal, RuleName, TargetLaws,
    VerifyError,
};

/// How far a tolerance is open, in steps from closed to its maximum; clones turn the same one. What turns it while a generation runs,
/// such as [`LatencyTolerance`](crate::LatencyTolerance), decides between rounds.
#[derive(Clone, Debug, Default)]
pub struct Tolerance(Arc<AtomicU32>);

impl Tolerance {
    /// Steps from closed to the maximum.
    pub const STEPS: u32 = 10;

    /// A step further open, up to the maximum.
    pub fn open(&self) {
        self.0.store((self.step() + 1).min(Self::STEPS), Ordering::Relaxed);
    }

    /// A step back, down to closed.
    pub fn close(&self) {
        self.0.store(self.step().saturating_sub(1), Ordering::Relaxed);
    }

    /// Closes it.
    pub fn shut(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// How many steps it is open.
    pub fn step(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// [`Epsilon`] or [`EpsilonPublished`] with a tolerance between 0 and a maximum that something else sets: the article that this engine
/// started from has it follow the load. Lossy.
#[doc(alias = "compute_epsilon")]
#[derive(Clone, Debug)]
pub struct AdaptiveEpsilon {
    is_published: bool,
    most: f64,
    tolerance: Tolerance,
}

impl AdaptiveEpsilon {
    /// An epsilon rule with its parameter as the maximum, closed at first; `None` for other rules.
    pub fn new(rule: RuleName) -> Option<Self> {
        let is_published = match rule.entry().name {
            "epsilon" => false,
            "epsilon-published" => true,
            _ => return None,
        };
        Some(Self { is_published, most: rule.parameter()?, tolerance: Tolerance::default() })
    }

    /// What sets it.
    pub fn tolerance(&self) -> &Tolerance {
        &self.tolerance
    }

    /// The epsilon that it judges with now.
    pub fn epsilon(&self) -> f64 {
        self.most * f64::from(self.tolerance.step()) / f64::from(Tolerance::STEPS)
    }

    fn now<T>(&self, judge: impl FnOnce(&dyn AcceptanceRule) -> T) -> T {
        match self.is_published {
            false => judge(&Epsilon(self.epsilon())),
            true => judge(&EpsilonPublished(self.epsilon())),
        }
    }
}

impl AcceptanceRule for AdaptiveEpsilon {
    fn name(&self) -> &'static str {
        self.now(|rule| rule.name())
    }

    fn lossless(&self) -> bool {
        false
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Confident
    }

    fn needs_confidence(&self) -> bool {
        self.now(|rule| rule.needs_confidence())
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
        self.now(|rule| rule.verify_within(budget, tree, target, choices))
    }
}
