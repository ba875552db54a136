//! In company rows are dear, and drafts are made where they pay: on a clock that passes move.

use super::*;

use spec_core::{DraftTree, Goodput, Origin};
use spec_runtime::{Clock, DraftContext, DraftWith, GenerationId};
use spec_testing::{TimedModel, VirtualClock};

/// Milliseconds of a pass of a 4-bit model on two cores: the first rows share the reading of the weights, later ones add arithmetic.
fn pass(rows: usize) -> f64 {
    const FIRST: [f64; 8] = [42.0, 43.0, 44.0, 45.0, 47.0, 49.0, 51.0, 54.0];
    match rows {
        0..=8 => FIRST[rows.saturating_sub(1)],
        9..=16 => 54.0 + 42.0 / 8.0 * (rows - 8) as f64,
        _ => 96.0 + 6.0 * (rows - 16) as f64,
    }
}

fn draft_pass(rows: usize) -> f64 {
    16.0 + 0.6 * (rows - 1) as f64
}

fn text() -> HashSpec {
    HashSpec { order: 8, spread: 80.0, context: 512, blocks: 1024, ..wide() }
}

/// Knows the answer, and says something else in a share of the places.
struct Oracle {
    model: Arc<HashModel>,
    acceptance: f64,
}

impl Drafter for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }
    fn cost(&self) -> spec_core::DraftCost {
        spec_core::DraftCost::Free
    }
    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let mut tokens = context.tokens.to_vec();
        for _ in 0..context.budget {
            let logits = self.model.logits_of(&tokens);
            let best = (0..logits.len()).reduce(|best, id| if logits[id] > logits[best] { id } else { best });
            let right = best.expect("a vocabulary") as Token;
            let place = (context.generation.0 << 20 | tokens.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let dice = ((place ^ place >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / (1u64 << 24) as f64;
            tokens.push(if dice < self.acceptance { right } else { (right + 1) % 32 });
        }
        Ok(DraftTree::chain(&tokens[context.tokens.len()..], Origin::Fixed))
    }
    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }
    fn forget(&mut self, _: GenerationId) {}
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Alone,
    Chosen,
    Model,
}

struct Course {
    answers: Vec<Vec<Token>>,
    drafted: usize,
    accepted: usize,
    milliseconds: f64,
}

impl Course {
    fn rate(&self) -> f64 {
        self.answers.iter().map(Vec::len).sum::<usize>() as f64 / self.milliseconds
    }
}

/// So many requests of `tokens` each at a time, over the clock. The share of a model is that of another's logits in its own.
fn course(kind: Kind, share: f64, requests: usize, tokens: usize, draft_with: DraftWith) -> Course {
    let clock = Arc::new(VirtualClock::default());
    let timed = |spec: HashSpec, cost: fn(usize) -> f64| -> Arc<dyn Model> {
        TimedModel::new(HashModel::new(spec), &clock, cost)
    };
    let oracle = || Box::new(Oracle { model: HashModel::new(text()), acceptance: share }) as Box<dyn Drafter>;
    let time = || Arc::clone(&clock) as Arc<dyn Clock>;
    let drafter: Box<dyn Drafter> = match kind {
        Kind::Alone => oracle(),
        Kind::Chosen => Box::new(Chooser::new(vec![oracle()]).with_clock(time())),
        Kind::Model => {
            let model = timed(HashSpec { noise: share as f32, ..text() }, draft_pass);
            Box::new(Chooser::new(vec![Box::new(ModelDrafter::new(model))]).with_clock(time()))
        }
    };
    let engine = Engine::new(timed(text(), pass), Arc::new(Letters(32))).with_drafter(drafter).with_clock(time());
    let mut scheduler = Scheduler::new(engine, SchedulerOptions::default());
    let of = |index: usize| Request {
        draft_len: Box::new(Goodput::default()),
        draft_with: draft_with.clone(),
        ..Request::new(prompt(index, 6), tokens)
    };
    let logs: Vec<Log> = (0..requests).map(|index| submit(&mut scheduler, of(index))).collect();
    finish(&mut scheduler);
    let completions: Vec<Completion> = logs.iter().map(Log::completion).collect();
    let sum = |of: fn(&Completion) -> usize| completions.iter().map(of).sum();
    Course {
        drafted: sum(|completion| completion.speculation.drafted),
        accepted: sum(|completion| completion.speculation.accepted),
        answers: completions.into_iter().map(|completion| completion.tokens).collect(),
        milliseconds: clock.now().as_secs_f64() * 1e3,
    }
}

#[test]
fn speculation_loses_in_no_company() {
    let mut failures = Vec::new();
    for (kind, shares) in
        [(Kind::Alone, [0.1, 0.5, 0.9]), (Kind::Chosen, [0.1, 0.5, 0.9]), (Kind::Model, [0.5, 0.15, 0.02])]
    {
        for share in shares {
            for requests in [1, 2, 4, 8, 16] {
                let plain = course(kind, share, requests, 200, DraftWith::Nothing);
                let got = course(kind, share, requests, 200, DraftWith::All);
                assert_eq!(got.answers, plain.answers, "{kind:?} {share}, {requests} requests");
                let gain = got.rate() / plain.rate();
                let row = format!("{kind:?} {share}, {requests}: {gain:.3}, {} of {}", got.accepted, got.drafted);
                println!("{row}");
                if gain < 0.97 || (got.drafted == 0 && requests == 1) {
                    failures.push(row);
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn eight_generations_draft_what_is_nearly_certain_and_little_else() {
    for kind in [Kind::Alone, Kind::Chosen] {
        let drafts = |acceptance| {
            let got = course(kind, acceptance, 8, 400, DraftWith::All);
            got.drafted as f64 / got.answers.iter().map(Vec::len).sum::<usize>() as f64
        };
        let (unlikely, likely) = (drafts(0.3), drafts(0.98));
        println!("{kind:?}: {unlikely} and {likely} drafted a token");
        assert!(unlikely < 0.06, "{kind:?}: little else: {unlikely} a token");
        assert!(likely > 0.2, "{kind:?}: a row that adds 5 ms to 54 ms is worth it: {likely} a token");
    }
}
