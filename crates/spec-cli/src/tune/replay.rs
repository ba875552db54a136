//! A length policy over recorded texts, at recorded costs.

use std::time::Duration;

use spec_core::{DraftCost, LengthPolicy, Prices, Round, Start};

use super::costs::Costs;
use super::text::{Guess, Text};

/// What a policy came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Course {
    pub(super) tokens: usize,
    pub(super) seconds: f64,
    pub(super) rounds: usize,
    pub(super) drafted: usize,
    pub(super) accepted: usize,
    /// Whether all its rounds are of sizes whose costs were measured, or lie between such.
    pub(super) is_known: bool,
}

impl Course {
    pub(super) fn tokens_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.tokens as f64 / self.seconds } else { 0.0 }
    }

    pub(super) fn acceptance_rate(&self) -> f64 {
        if self.drafted > 0 { self.accepted as f64 / self.drafted as f64 } else { 0.0 }
    }
}

/// Runs a policy over texts of which every guess is known: a new one for each, that learns what passes took before, as in the engine.
pub(super) fn replay(
    texts: &[Text],
    costs: &Costs,
    drafter: DraftCost,
    policy: impl Fn() -> Box<dyn LengthPolicy>,
) -> Course {
    let mut course = Course { is_known: true, ..Course::default() };
    let mut prices = Prices::new(1);
    for text in texts {
        let mut policy = policy();
        if prices.is_known() {
            policy.learn(&prices);
        }
        policy.start(Start { prompt_len: text.prompt_len, drafter });
        let mut rest = &text.guesses[..];
        while !rest.is_empty() {
            // The last token of an answer is the target's own.
            let budget = policy.next().min(rest.len() - 1);
            let (drafted, accepted) = draft(rest, budget);
            let emitted = accepted + 1;
            let asked = budget > 0;
            course.tokens += emitted;
            course.seconds += costs.round(asked, drafted, emitted);
            course.rounds += 1;
            course.drafted += drafted;
            course.accepted += accepted;
            course.is_known &= costs.know(drafted);
            let draft = Duration::from_secs_f64(costs.drafting(asked, drafted));
            let verify = Duration::from_secs_f64(costs.pass.at(1 + drafted));
            prices.enter_pass(1 + drafted, verify);
            policy.observe(&Round { drafted, accepted, emitted, draft, verify, ..Round::default() });
            rest = &rest[emitted..];
        }
    }
    course
}

/// Tokens drafted and accepted of the first of these, within a budget: a drafter goes on behind a wrong guess, not knowing that it is,
/// and ends where it has none.
fn draft(rest: &[Guess], budget: usize) -> (usize, usize) {
    let accepted = rest.iter().take(budget).take_while(|&&guess| guess == Guess::Right).count();
    match rest.get(accepted) {
        Some(Guess::Nothing) => (accepted, accepted),
        _ => (budget, accepted),
    }
}

#[cfg(test)]
mod tests {
    use spec_core::{Additive, Fixed};

    use super::*;

    #[test]
    fn drafts_end_where_the_drafter_has_nothing_and_not_where_it_is_wrong() {
        use Guess::{Nothing, Right, Wrong};
        let text = [Right, Right, Wrong, Right, Nothing];
        let drafts: Vec<_> = [0, 1, 2, 3, 4].iter().map(|&budget| draft(&text, budget)).collect();
        assert_eq!(drafts, [(0, 0), (1, 1), (2, 2), (3, 2), (4, 2)]);
        assert_eq!((draft(&text[3..], 1), draft(&text[4..], 3)), ((1, 1), (0, 0)));
    }

    #[test]
    fn a_replay_emits_every_token_once_and_pays_for_each_round() {
        use Guess::{Right, Wrong};
        let costs = Costs::flat(1.0, 0.25);
        let texts = [Text { prompt_len: 3, guesses: vec![Right, Right, Wrong, Right, Right, Right, Wrong] }];
        let plain = replay(&texts, &costs, DraftCost::Model, || Box::new(Fixed(0)));
        assert_eq!((plain.tokens, plain.rounds, plain.seconds, plain.drafted), (7, 7, 7.0, 0));
        // 2 of 2, then its own; 2 of 2, then its own; the last token alone.
        let two = replay(&texts, &costs, DraftCost::Model, || Box::new(Fixed(2)));
        assert_eq!((two.tokens, two.rounds, two.drafted, two.accepted), (7, 3, 4, 4));
        assert_eq!((two.seconds, two.tokens_per_second()), (4.0, 1.75));
        // Lengths 2, 3: the first round keeps 2 of 2, the second 3 of 3.
        let more = replay(&texts, &costs, DraftCost::Model, || Box::new(Additive::new(2, 8)));
        assert_eq!((more.rounds, more.drafted, more.accepted, more.acceptance_rate()), (2, 5, 5, 1.0));
    }
}
