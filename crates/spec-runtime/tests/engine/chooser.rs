//! Several drafters in one tree: the text stays, and on a clock that a script moves, what drafting costs and when it comes back.

use super::*;

use spec_core::{DraftCost, DraftTree, Goodput, Origin};
use spec_runtime::{Chooser, Clock, DraftContext, GenerationId, SuffixDrafter};
use spec_testing::{TimedModel, VirtualClock};

/// Milliseconds of a plain pass of the target, the unit of what follows.
const UNIT: f64 = 50.0;

/// The 4-bit kernels measured on two cores: 21.2, 21.2, 24.5, 46 ms for 1, 4, 8, 16 rows.
fn target_pass(rows: usize) -> f64 {
    match rows {
        0..=4 => 1.0,
        5..=8 => 1.0 + 0.156 * (rows - 4) as f64 / 4.0,
        _ => 1.156 + 1.014 * (rows - 8) as f64 / 8.0,
    }
}

/// A small model that the caches hold: what bounds its passes is arithmetic, and each row costs a third of the first.
fn cached_pass(rows: usize) -> f64 {
    1.0 + 0.35 * (rows - 1) as f64
}

/// A draft model at 0.40 of the target's pass, 0.0285 for each further row.
fn draft_pass(rows: usize) -> f64 {
    0.40 + 0.0285 * (rows - 1) as f64
}

/// Proposes, below the committed text, a token that a script names by the number of tokens generated.
struct Oracle {
    right: fn(usize) -> bool,
    answer: Vec<Token>,
}

impl Drafter for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }
    fn cost(&self) -> DraftCost {
        DraftCost::Free
    }
    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let generated = context.tokens.len() - PROMPT.len();
        let rest = self.answer.get(generated..).unwrap_or_default();
        let tokens: Vec<Token> = rest
            .iter()
            .take(context.budget)
            .map(|&token| if (self.right)(generated) { token } else { (token + 1) % 32 })
            .collect();
        Ok(DraftTree::chain(&tokens, Origin::Fixed))
    }
    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }
    fn forget(&mut self, _: GenerationId) {}
}

/// What a run over the clock came to.
struct Course {
    completion: Completion,
    /// Units of a plain pass since the first token, and tokens drafted so far, behind each round, by tokens generated.
    rounds: Vec<(usize, f64, usize)>,
}

impl Course {
    /// Cost of a token over the first `tokens`.
    fn cost(&self, tokens: usize) -> f64 {
        let &(generated, time, _) = self.rounds.iter().find(|round| round.0 >= tokens).expect("it got so far");
        time / (generated - 1) as f64
    }

    /// Tokens from `from` on until the first of three rounds in succession that draft.
    fn back(&self, from: usize) -> usize {
        let drafts: Vec<(usize, bool)> =
            self.rounds.windows(2).map(|pair| (pair[0].0, pair[1].2 > pair[0].2)).filter(|r| r.0 >= from).collect();
        let streak = drafts.windows(3).find(|streak| streak.iter().all(|round| round.1));
        streak.expect("drafting returns")[0].0 - from
    }
}

/// Generates over the clock; `model` is the draft model, whose text is the target's own from a place on when `agrees` says so.
fn course(oracle: Option<Oracle>, model: Option<HashSpec>, tokens: usize) -> Course {
    course_at(target_pass, oracle.into_iter().collect(), model, tokens)
}

/// The same at other costs of the target's passes, with any number of look-ups.
fn course_at(cost: fn(usize) -> f64, oracles: Vec<Oracle>, model: Option<HashSpec>, tokens: usize) -> Course {
    let clock = Arc::new(VirtualClock::default());
    let timed = |spec: HashSpec, cost: fn(usize) -> f64| -> Arc<dyn Model> {
        TimedModel::new(HashModel::new(spec), &clock, move |rows| UNIT * cost(rows))
    };
    let mut drafters: Vec<Box<dyn Drafter>> = Vec::new();
    drafters.extend(oracles.into_iter().map(|oracle| Box::new(oracle) as Box<dyn Drafter>));
    drafters.extend(model.map(|spec| Box::new(ModelDrafter::new(timed(spec, draft_pass))) as Box<dyn Drafter>));
    let chooser = Chooser::new(drafters).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let mut engine = Engine::new(timed(long(), cost), Arc::new(Letters(32)))
        .with_drafter(Box::new(chooser))
        .with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let request = Request { draft_len: Box::new(Goodput::default()), ..request(tokens, 0) };
    let mut generation = engine.start(request).expect("a legal request");
    let mut rounds = Vec::new();
    let mut begun = None;
    loop {
        let goes_on = engine.step(&mut generation, &mut |_| {}).expect("the step succeeds");
        let begun = *begun.get_or_insert_with(|| clock.now());
        let so_far = generation.completion();
        let time = (clock.now() - begun).as_secs_f64() / 0.05;
        rounds.push((so_far.completion_tokens, time, so_far.speculation.drafted));
        if !goes_on {
            return Course { completion: engine.finish(generation), rounds };
        }
    }
}

fn long() -> HashSpec {
    // Fewer tokens than a trial looks at.
    HashSpec { context: 2048, blocks: 256, order: 8, spread: 80.0, ..HashSpec::default() }
}

fn answer(tokens: usize) -> Vec<Token> {
    plain(&long(), request(tokens, 0)).tokens
}

#[test]
fn drafters_that_never_help_cost_little() {
    let wrong = || Oracle { right: |_| false, answer: answer(600) };
    let foreign = || HashSpec { seed: 99, ..long() };
    for (oracle, model) in [(Some(wrong()), None), (None, Some(foreign())), (Some(wrong()), Some(foreign()))] {
        let what = format!("oracle {}, model {}", oracle.is_some(), model.is_some());
        let got = course(oracle, model, 520);
        assert_eq!(got.completion.tokens, answer(520), "{what}");
        assert!(got.completion.speculation.drafted > 4, "{what}: it was tried");
        let (early, all) = (got.cost(128), got.cost(512));
        assert!(early <= 1.06, "{what}: {early} a token over the first 128");
        assert!(all <= 1.03, "{what}: {all} a token over 512");
    }
}

#[test]
fn look_ups_that_never_help_cost_little_where_rows_are_dear() {
    let wrong = || Oracle { right: |_| false, answer: answer(600) };
    let got = course_at(cached_pass, vec![wrong(), wrong()], None, 520);
    assert_eq!(got.completion.tokens, answer(520));
    let drafted = got.completion.speculation.drafted;
    assert!((1..=8).contains(&drafted), "rows for what was hoped, and none once it was seen: {drafted}");
    assert!(got.cost(128) <= 1.06 && got.cost(512) <= 1.03, "{}, {} a token", got.cost(128), got.cost(512));
}

#[test]
fn look_ups_that_help_pay_where_rows_are_dear() {
    let got = course_at(cached_pass, vec![Oracle { right: |_| true, answer: answer(400) }], None, 400);
    assert_eq!(got.completion.tokens, answer(400));
    assert!(got.cost(390) < 0.5, "{} a token", got.cost(390));
}

#[test]
fn a_free_drafter_is_back_within_32_tokens_of_beginning_to_help() {
    for (right, from) in [
        ((|at| at >= 20) as fn(usize) -> bool, 20),
        (|at| at >= 100, 100),
        (|at| at >= 333, 333),
        (|at| !(20..300).contains(&at), 300),
    ] {
        let foreign = HashSpec { seed: 99, ..long() };
        let got = course(Some(Oracle { right, answer: answer(600) }), Some(foreign), 600);
        assert_eq!(got.completion.tokens, answer(600));
        assert!(got.back(from) <= 32, "from {from}: back after {}", got.back(from));
        assert!(got.cost(590) < 0.9, "from {from}: {} a token", got.cost(590));
    }
}

#[test]
fn free_drafters_that_suffice_leave_the_model_alone() {
    let got = course(Some(Oracle { right: |_| true, answer: answer(400) }), Some(long()), 400);
    assert_eq!(got.completion.tokens, answer(400));
    // The oracle alone, at the best number of rows: eight tokens for 1.16 passes.
    assert!(got.cost(390) < 0.22, "{} a token", got.cost(390));
}

#[test]
fn a_model_that_helps_is_used_and_pays() {
    let got = course(None, Some(HashSpec { noise: 0.02, ..long() }), 300);
    assert_eq!(got.completion.tokens, answer(300));
    assert!(got.cost(290) < 0.75, "{} a token", got.cost(290));
    let alone =
        course(Some(Oracle { right: |_| false, answer: answer(300) }), Some(HashSpec { noise: 0.02, ..long() }), 300);
    assert!(alone.cost(290) < 0.8, "a useless companion takes little: {} a token", alone.cost(290));
}

#[test]
fn any_mixture_of_drafters_gives_the_text_of_none() {
    let spec = HashSpec { order: 3, ..HashSpec::default() };
    for sampling in [sampled(0.0), sampled(0.7), SamplingParams { top_p: 0.9, repeat_penalty: 1.2, ..sampled(0.9) }] {
        for rule in [None, Some("rejection"), Some("block")] {
            let mixture = |alone: bool| {
                let mut drafters: Vec<Box<dyn Drafter>> =
                    vec![Box::new(SuffixDrafter::new()), Box::new(NgramDrafter::new())];
                if !alone {
                    drafters.push(model_drafter(HashSpec { noise: 0.3, ..spec.clone() }));
                    drafters.push(model_drafter(HashSpec { noise: 0.1, ..spec.clone() }));
                }
                Box::new(Chooser::new(drafters))
            };
            for alone in [true, false] {
                let with = |draft_len: Box<dyn LengthPolicy>| Request {
                    sampling: sampling.clone(),
                    draft_len,
                    rule: rule.map(|rule| rule.parse::<spec_core::RuleName>().expect("a rule of the table").into()),
                    ..request(300, 0)
                };
                let target = HashModel::new(spec.clone());
                let mut engine = engine(&target).with_drafter(mixture(alone));
                for draft_len in [Box::new(Goodput::new(16)) as Box<dyn LengthPolicy>, Box::new(spec_core::Fixed(5))] {
                    let got = run(&mut engine, with(draft_len));
                    assert!(got.speculation.drafted > 0, "{rule:?}, {sampling:?}: {:?}", got.speculation);
                    if rule.is_none() || sampling.is_greedy() {
                        assert_eq!(got.tokens, plain(&spec, with(Box::new(spec_core::Fixed(0)))).tokens, "{rule:?}");
                    }
                    assert_eq!(target.free_blocks(), spec.blocks);
                }
            }
        }
    }
}

#[test]
fn the_drafters_second_choices_are_branches_and_pay() {
    // A drafter that is often wrong in its first choice and right in its second.
    let spec = HashSpec { noise: 0.25, ..long() };
    let got = course(None, Some(spec), 400);
    assert_eq!(got.completion.tokens, answer(400));
    let stats = &got.completion.speculation;
    assert!(stats.by_position[0].drafted > stats.drafted_rounds, "more than one child: {stats:?}");
}
