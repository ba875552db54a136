//! What rounds decided, in the log.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use spec_core::{NodeId, Token};
use tracing::{debug, info, trace};

use crate::{GenerationId, RoundObserver, RoundReport, RuntimeError, TokenText};

/// The target of the events of a [`DecisionLog`], by which filters name them.
pub const DECISIONS: &str = "spec::decode";

/// How much a [`DecisionLog`] tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DecisionDetail {
    /// When a request begins and ends: level INFO.
    Requests,
    /// What every round came to, and where it was rolled back, too: level DEBUG.
    Rounds,
    /// What became of every token, too, and by which comparison: level TRACE.
    Tokens,
}

impl DecisionDetail {
    /// Reads a value of `SPEC_DECODE_DEBUG`: 0 is `None`, 1 to 3 are the details in their order.
    ///
    /// # Errors
    /// [`RuntimeError::BadRequest`] for anything else.
    pub fn from_digit(value: &str) -> Result<Option<Self>, RuntimeError> {
        match value {
            "0" => Ok(None),
            "1" => Ok(Some(Self::Requests)),
            "2" => Ok(Some(Self::Rounds)),
            "3" => Ok(Some(Self::Tokens)),
            _ => Err(RuntimeError::BadRequest {
                field: "SPEC_DECODE_DEBUG",
                reason: format!(
                    "it is {value:?}; give 0 for nothing, 1 for requests, 2 for rounds too, 3 for tokens too"
                ),
            }),
        }
    }
}

/// Writes what the rounds of one generation decided as events of [`tracing`] with the target [`DECISIONS`].
///
/// Every event has the field `request`. Those of rounds have `round`; those of tokens `position`, which counts the draft's tokens from
/// 1, `at`, which counts the text's from 0, `token` and `text`. Why a token was rejected is the message of its event:
/// [`Comparison`](spec_core::Comparison) as text.
pub struct DecisionLog {
    detail: DecisionDetail,
    text: Arc<dyn TokenText>,
    /// What has happened so far, once anything has.
    sums: Option<Sums>,
}

#[derive(Default)]
struct Sums {
    request: u64,
    tokens: usize,
    rounds: usize,
    drafted: usize,
    accepted: usize,
    begun: Duration,
    settled: Duration,
}

impl DecisionLog {
    /// A log for one generation over a vocabulary.
    pub fn new(detail: DecisionDetail, text: Arc<dyn TokenText>) -> Self {
        Self { detail, text, sums: None }
    }

    /// What a token adds to the text, or what it is called where it adds nothing.
    fn shown(&self, token: Token) -> String {
        if (token as usize) >= self.text.vocab() {
            return String::new();
        }
        let bytes = self.text.bytes(token);
        if bytes.is_empty() {
            self.text.label(token).into_owned()
        } else {
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }

    fn round_done(&self, report: &RoundReport<'_>) {
        let (request, round) = (report.generation.0, report.round);
        let (drafted, accepted, emitted) = (report.tree.len(), report.accepted, report.emitted.len());
        let times = &report.times;
        debug!(
            target: DECISIONS,
            request,
            round,
            at = report.text.len(),
            budget = report.budget,
            forced = report.forced,
            rows = report.read + drafted + report.company,
            draft_ms = millis(times.drafted.saturating_sub(times.begun)),
            verify_ms = millis(times.passed.saturating_sub(times.submitted)),
            "{accepted} of {drafted} accepted, {emitted} emitted"
        );
        if rejected_node(report).is_some() {
            let position = accepted + 1;
            let at = report.text.len() + accepted;
            let dropped = drafted - accepted;
            debug!(target: DECISIONS, request, round, at, dropped, "rollback at position {position}");
        }
    }

    fn tokens_judged(&self, report: &RoundReport<'_>) {
        let rejected = rejected_node(report);
        let kept = &report.outcome.accepted[..report.accepted];
        for (id, node) in report.tree.nodes() {
            let position = report.tree.depth(id);
            match report.outcome.rejection {
                _ if kept.contains(&id) => self.token(report, position, node.token, "accepted"),
                Some(rejection) if rejected == Some(id) => {
                    self.token(report, position, node.token, rejection.compared);
                }
                _ => self.token(report, position, node.token, "dropped"),
            }
        }
        // A stop may have ended the answer within the draft.
        if let Some(&own) = report.emitted.get(report.accepted) {
            let role = if rejected.is_some() { "corrected" } else { "bonus" };
            self.token(report, report.accepted + 1, own, if report.round == 0 { "first" } else { role });
        }
    }

    fn token(&self, report: &RoundReport<'_>, position: usize, token: Token, message: impl Display) {
        trace!(
            target: DECISIONS,
            request = report.generation.0,
            round = report.round,
            position,
            at = report.text.len() + position - 1,
            token,
            text = self.shown(token),
            "{message}"
        );
    }
}

impl RoundObserver for DecisionLog {
    fn round(&mut self, report: &RoundReport<'_>) {
        let GenerationId(request) = report.generation;
        let sums = self.sums.get_or_insert_with(|| {
            info!(target: DECISIONS, request, prompt_tokens = report.text.len(), read = report.read, "request begins");
            Sums { request, begun: report.times.begun, ..Sums::default() }
        });
        sums.tokens += report.emitted.len();
        sums.rounds = report.round;
        sums.drafted += report.tree.len();
        sums.accepted += report.accepted;
        sums.settled = report.times.settled;
        if self.detail >= DecisionDetail::Tokens {
            self.tokens_judged(report);
        }
        if self.detail >= DecisionDetail::Rounds && report.round > 0 {
            self.round_done(report);
        }
    }
}

/// A generation takes its observers along when it ends, however it does.
impl Drop for DecisionLog {
    fn drop(&mut self) {
        let Some(Sums { request, tokens, rounds, drafted, accepted, begun, settled }) = self.sums else { return };
        let ms = millis(settled.saturating_sub(begun));
        info!(
            target: DECISIONS,
            request, tokens, rounds, drafted, accepted, ms,
            "request ends: {accepted} of {drafted} draft tokens accepted in {rounds} rounds"
        );
    }
}

/// The proposal at which the block was rolled back; `None` when it ended by itself, or by a stop before that.
fn rejected_node(report: &RoundReport<'_>) -> Option<NodeId> {
    let rejection = report.outcome.rejection.filter(|_| report.emitted.len() > report.outcome.accepted.len())?;
    report.tree.child_with(report.outcome.accepted.last().copied(), rejection.token)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
