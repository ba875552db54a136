//! What lossy rules forgive, over whole answers.

use super::*;

use spec_core::{AcceptanceRule, Choices, DraftTree, LossBudget, Outcome, Proposal, RuleName, TargetLaws, VerifyError};
use spec_runtime::{RequestRule, SpeculationStats};

fn named(rule: &str) -> Option<RequestRule> {
    Some(rule.parse::<RuleName>().expect("a rule of the table").into())
}

/// An answer with a drafter that is often wrong.
fn answer(rule: &str, temperature: f32, seed: u64, loss_budget: Option<f64>) -> Completion {
    let spec = HashSpec::default();
    let drafter = model_drafter(HashSpec { noise: 0.4, ..spec.clone() });
    let with = Request {
        sampling: sampled(temperature),
        rule: named(rule),
        seed: Some(seed),
        loss_budget,
        draft_width: 1,
        ..request(120, 4)
    };
    let got = run(&mut engine(&HashModel::new(spec)).with_drafter(drafter), with);
    assert!(got.speculation.drafted > 60, "{rule}: {:?}", got.speculation);
    got
}

const LOSSY: [&str; 4] = ["typical", "entropy", "epsilon:0.3", "epsilon-published:0.1"];

#[test]
fn with_a_budget_of_nothing_the_answer_is_the_exact_rules() {
    let greedy = plain(&HashSpec::default(), request(120, 0)).tokens;
    for rule in LOSSY {
        for (temperature, seed) in [(0.0, 7), (0.8, 7), (0.8, 8), (1.2, 9)] {
            let held = answer(rule, temperature, seed, Some(0.0));
            let expected = match temperature {
                0.0 => greedy.clone(),
                _ => answer("rejection", temperature, seed, None).tokens,
            };
            assert_eq!(held.tokens, expected, "{rule}, temperature {temperature}, seed {seed}");
            assert_eq!(held.speculation.forgiven.count, 0);
            let free = answer(rule, temperature, seed, None);
            let is_exact = rule == "entropy" && temperature == 0.0;
            assert_eq!(free.tokens == expected, is_exact, "{rule} is lossy");
            assert_eq!(free.speculation.forgiven.count > 0, !is_exact, "{rule}: {:?}", free.speculation.forgiven);
        }
    }
}

#[test]
fn the_sum_of_an_answer_keeps_within_its_budget_and_uses_it() {
    let mut used = 0;
    for rule in LOSSY {
        for seed in 0..5 {
            let temperature = if rule == "entropy" { 1.0 } else { 0.5 * (seed % 3) as f32 };
            let free = answer(rule, temperature, seed, None).speculation.forgiven;
            for share in [0.1, 0.5, 0.9, 1.1] {
                let budget = free.log_ratio * share;
                let held = answer(rule, temperature, seed, Some(budget)).speculation.forgiven;
                assert!(held.log_ratio <= budget, "{rule}: {held:?} of {budget}");
                if share > 1.0 {
                    assert_eq!(held, free, "{rule}: nothing binds");
                }
                used += usize::from(held.count > 0);
            }
        }
    }
    assert!(used > 40, "{used} of 80 answers forgave something");
}

#[test]
fn tokens_behind_a_stop_are_not_counted_as_forgiven() {
    let spec = HashSpec::default();
    let free = answer("epsilon:0.9", 0.0, 7, None);
    assert!(free.speculation.forgiven.count > 10);
    // Ended anywhere, an answer has forgiven no more than its own tokens.
    let mut counts = Vec::new();
    for length in 1..60 {
        let drafter = model_drafter(HashSpec { noise: 0.4, ..spec.clone() });
        let stop = free.tokens[length];
        let mut with = Request { rule: named("epsilon:0.9"), draft_width: 1, ..request(120, 4) };
        with.stop.end_ids = vec![stop];
        let got = run(&mut engine(&HashModel::new(spec.clone())).with_drafter(drafter), with);
        let SpeculationStats { forgiven, accepted, .. } = got.speculation;
        assert!(forgiven.count <= accepted, "{length}: {forgiven:?} of {accepted}");
        counts.push(forgiven.count);
    }
    assert!(counts.iter().any(|&count| count > 0), "{counts:?}");
}

/// Keeps everything, and counts nothing.
struct Credulous;

impl AcceptanceRule for Credulous {
    fn name(&self) -> &'static str {
        "credulous"
    }

    fn lossless(&self) -> bool {
        false
    }

    fn proposal(&self) -> Proposal<'_> {
        Proposal::Argmax
    }

    fn verify_within(
        &self,
        _: LossBudget,
        _: &DraftTree,
        _: &mut dyn TargetLaws,
        _: &mut dyn Choices,
    ) -> Result<Outcome, VerifyError> {
        unreachable!("it is refused before")
    }
}

#[test]
fn budgets_that_cannot_be_kept_are_refused() {
    let refuse = |with: Request| error(engine(&HashModel::new(HashSpec::default())).generate(with, &mut |_| {}));
    for budget in [-1.0, f64::NAN] {
        let said = refuse(Request { loss_budget: Some(budget), ..request(8, 4) });
        assert!(said.contains("loss_budget") && said.contains("from 0 on"), "{said}");
    }
    let rule = Some(RequestRule::Own(Box::new(Credulous)));
    let said = refuse(Request { loss_budget: Some(1.0), rule, ..request(8, 4) });
    assert!(said.contains("credulous") && said.contains("does not count"), "{said}");
}
