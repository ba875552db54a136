//! Faults that engines really had, seeded into the shipped code one at a time, so that the proofs show that they see them.
//! Outside of tests the switch is a constant and the faults are not compiled. The feature `mutants` is for tests of other crates.
#![cfg_attr(not(feature = "mutants"), allow(unreachable_pub))]

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// q is recorded before top-k, top-p and min-p, the token drawn after them.
    #[cfg(any(test, feature = "mutants"))]
    RecordBeforeFilters,
    /// The acceptance choices of siblings share a key.
    SharedAcceptKey,
    /// The residual is not normalised before the next sibling is judged by it.
    ResidualNotNormalised,
    /// A sibling drawn without replacement is judged by q itself.
    SiblingLawNotNormalised,
    /// A drawn sibling, but not the first token, is withheld when its own probability is low.
    WithheldSibling,
    /// A drawn token is withheld when its own probability is low.
    WithheldByOwnProbability,
    /// Keys lack the round: neither the committed length is in them nor the node, whose number in a chain tells the round.
    KeyWithoutRound,
}

#[cfg(not(any(test, feature = "mutants")))]
#[inline(always)]
pub(crate) fn is_seeded(_: Mutant) -> bool {
    false
}

#[cfg(any(test, feature = "mutants"))]
std::thread_local! {
    static SEEDED: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

#[cfg(any(test, feature = "mutants"))]
pub(crate) fn is_seeded(mutant: Mutant) -> bool {
    SEEDED.get() == Some(mutant)
}

/// Runs `work` on this thread with the fault in place.
#[cfg(any(test, feature = "mutants"))]
pub fn with<T>(mutant: Mutant, work: impl FnOnce() -> T) -> T {
    SEEDED.set(Some(mutant));
    let result = work();
    SEEDED.set(None);
    result
}
