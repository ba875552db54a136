//! Whether what the engine emits has the law that it should: the running build, on the models at hand.
//!
//! Every emitted token is held against the law that plain decoding would have drawn it from, given the text before it. Tokens in the
//! order of that law's probabilities cut \[0, 1) into pieces; a number drawn evenly from the piece of the token that was emitted is
//! uniform and independent of all numbers before it, whatever the texts are, if and only if tokens come from their laws (Rosenblatt's
//! transform, randomised because tokens are discrete). So texts of any kind add to one statistic, and nothing has to be drawn twice from
//! the same context.
//!
//! What is told apart has to be known before the token is: how sure the target is, what a drafter would guess from the text alone, or
//! that a new round begins behind a rejection. Whether the token was accepted must not be: acceptance selects, and the law of accepted
//! tokens is not the target's even where that of all is.
//!
//! - [`Audit`] runs texts and reads the laws by passes of its own, one row each and no draft: [`PlainLaws`].
//! - [`Evidence`] counts, and [`Evidence::verdict`] tests: several questions, corrected for their number by Holm's method.
//! - [`ShadowAudit`] does the same beside requests that a service answers, and may be looked at any number of times: [`Wealth`].

mod chances;
mod distance;
mod evidence;
mod judge;
mod plain;
mod run;
mod shadow;
#[cfg(test)]
mod tests;
mod wealth;

pub use distance::{Distance, Estimate};
pub use evidence::{Evidence, Question, Verdict};
pub use judge::{Beliefs, Judge, Judged, Place};
pub use plain::{Guesses, PlainLaws};
pub use run::Audit;
pub use shadow::{ShadowAudit, ShadowStatus};
pub use wealth::Wealth;
