//! How many tokens to draft in the next round.

/// Chooses the draft length, round by round.
///
/// Lossless under every rule of this crate: the choice is made before a round's tokens are drawn.
#[doc(alias = "AdaptiveSpecDecode")]
pub trait LengthPolicy: Send {
    /// Tokens to draft in the coming round; 0 means a plain step.
    fn next(&mut self) -> usize;

    /// Learns how the last round went.
    fn observe(&mut self, drafted: usize, accepted: usize);
}

/// The same length in every round.
#[doc(alias = "max_spec_length")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub usize);

impl LengthPolicy for Fixed {
    fn next(&mut self) -> usize {
        self.0
    }

    fn observe(&mut self, _drafted: usize, _accepted: usize) {}
}
