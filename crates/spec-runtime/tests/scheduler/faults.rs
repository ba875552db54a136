//! What fails, fails alone.

use super::*;
use spec_core::DraftTree;
use spec_runtime::{Batch, DraftContext, GenerationId, ModelConfig, Pass, Refused, RoundObserver, RoundReport, Stream};

#[test]
fn a_pass_that_fails_is_made_again_for_each_alone() {
    for failing in 0..12 {
        let target = HashModel::new(wide());
        let expected: Vec<_> =
            (0..3).map(|index| alone(&mut engine(&target), request(index, 6 + index, 12, 0)).tokens).collect();
        let target = HashModel::new(wide());
        target.fail_at(failing);
        let mut scheduler = Scheduler::new(engine(&target), SchedulerOptions::default());
        let logs: Vec<Log> = (0..3).map(|index| submit(&mut scheduler, request(index, 6 + index, 12, 0))).collect();
        finish(&mut scheduler);
        for (log, expected) in logs.iter().zip(&expected) {
            assert_eq!(&log.completion().tokens, expected, "pass {failing} fails once");
        }
        assert_eq!(target.free_blocks(), 512);
        assert!(scheduler.status().device_lost.is_none());
    }
}

/// Fails by what it is asked.
struct Broken {
    inner: Arc<HashModel>,
    breaks: fn(&Batch) -> bool,
}

impl Model for Broken {
    fn config(&self) -> &ModelConfig {
        self.inner.config()
    }
    spec_testing::sequences_of!(inner);
    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        if (self.breaks)(batch) {
            return Err(RuntimeError::Device { device: "test".into(), reason: "it burns".into() });
        }
        self.inner.submit(stream, batch)
    }
}

fn over(model: Broken) -> Engine {
    Engine::new(Arc::new(model), Arc::new(Letters(32)))
}

#[test]
fn whoever_fails_alone_too_fails_and_the_others_go_on() {
    let target = HashModel::new(wide());
    // Whoever holds token 31 in its pass breaks it.
    let breaks = |batch: &Batch| batch.rows.iter().any(|row| row.token == 31);
    let model = Broken { inner: Arc::clone(&target), breaks };
    let mut scheduler = Scheduler::new(over(model), SchedulerOptions::default());
    let never_31 = |request: Request| {
        let sampling = SamplingParams { logit_bias: vec![(31, f32::NEG_INFINITY)], ..request.sampling.clone() };
        Request { sampling, ..request }
    };
    let fine = |index: usize| never_31(Request { prompt: vec![1 + index as Token, 2, 3], ..request(index, 3, 20, 0) });
    let good: Vec<Log> = (0..3).map(|index| submit(&mut scheduler, fine(index))).collect();
    let bad = submit(&mut scheduler, Request { prompt: vec![31, 2], ..request(5, 2, 9, 0) });
    finish(&mut scheduler);
    assert!(bad.error().contains("it burns"));
    for (index, log) in good.iter().enumerate() {
        assert_eq!(log.completion().tokens, alone(&mut engine(&target), fine(index)).tokens);
    }
    assert_eq!(target.free_blocks(), 512);
}

#[test]
fn not_a_number_in_a_row_ends_its_request_only() {
    let target = HashModel::new(wide());
    target.spoil(31);
    let mut scheduler = Scheduler::new(engine(&target), SchedulerOptions::default());
    let banned = || SamplingParams { logit_bias: vec![(31, f32::NEG_INFINITY)], ..sampled(0.0) };
    let fine = || Request { sampling: banned(), prompt: vec![1, 2, 3], ..request(0, 3, 20, 0) };
    let good = submit(&mut scheduler, fine());
    let bad = submit(&mut scheduler, Request { prompt: vec![4, 31], ..request(1, 2, 9, 0) });
    finish(&mut scheduler);
    let message = bad.error().to_lowercase();
    assert!(message.contains("nan"), "{message}");
    assert_eq!(good.completion().tokens, alone(&mut engine(&target), fine()).tokens);
    assert_eq!(target.free_blocks(), 512);
}

#[test]
fn a_device_that_fails_again_and_again_is_lost_until_a_pass_succeeds() {
    static BURNS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);
    let breaks = |_: &Batch| BURNS.load(std::sync::atomic::Ordering::Relaxed);
    let target = HashModel::new(wide());
    let mut scheduler = Scheduler::new(over(Broken { inner: target, breaks }), SchedulerOptions::default());
    for round in 0..3 {
        assert!(scheduler.status().device_lost.is_none(), "round {round}");
        let log = submit(&mut scheduler, request(round, 4, 5, 0));
        finish(&mut scheduler);
        assert!(log.error().contains("it burns"));
    }
    assert!(scheduler.status().device_lost.is_some_and(|reason| reason.contains("it burns")));
    let probe = submit(&mut scheduler, request(4, 4, 5, 0));
    let refused = scheduler.submit(Log::default().job(request(5, 4, 5, 0)));
    assert!(matches!(refused, Err(Refused::DeviceLost { .. })), "one at a time");
    BURNS.store(false, std::sync::atomic::Ordering::Relaxed);
    finish(&mut scheduler);
    assert_eq!(probe.completion().tokens.len(), 5);
    assert!(scheduler.status().device_lost.is_none());
}

/// Panics for one generation's text.
struct Panicking(NgramDrafter);

impl Drafter for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }
    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        assert!(context.tokens[0] != 30, "this text it cannot bear");
        self.0.draft(context)
    }
    fn observe(&mut self, generation: GenerationId, tokens: &[Token], accepted: usize) -> Result<(), RuntimeError> {
        self.0.observe(generation, tokens, accepted)
    }
    fn forget(&mut self, generation: GenerationId) {
        self.0.forget(generation);
    }
}

#[test]
fn drafters_and_receivers_that_panic_end_their_own_job() {
    let target = HashModel::new(HashSpec { order: 2, ..wide() });
    let drafter = Box::new(Panicking(NgramDrafter::new()));
    let mut scheduler = Scheduler::new(engine(&target).with_drafter(drafter), SchedulerOptions::default());
    let good = submit(&mut scheduler, request(0, 12, 80, 4));
    let bad = submit(&mut scheduler, Request { prompt: vec![30, 1, 2], ..request(1, 3, 20, 4) });
    let mut seen = 0;
    let deaf = Job::new(request(2, 12, 20, 4), move |event| {
        if let JobEvent::Emitted(_) = event {
            seen += 1;
            assert!(seen < 3, "it has heard enough");
        }
    });
    scheduler.submit(deaf).expect("it is taken");
    finish(&mut scheduler);
    let message = bad.error();
    assert!(message.contains("the drafter panicked") && message.contains("cannot bear"), "{message}");
    let got = good.completion();
    assert_eq!(got.tokens, alone(&mut engine(&target), request(0, 12, 80, 0)).tokens);
    assert!(got.speculation.drafted > 0);
    assert_eq!(scheduler.status().totals.finished.failed, 2);
    assert_eq!(target.free_blocks(), 512);
}

/// Panics when all is over.
struct Late;

impl RoundObserver for Late {
    fn round(&mut self, _: &RoundReport<'_>) {}
    fn ended(&mut self, _: &Completion) {
        panic!("too late to matter");
    }
}

/// The same.
struct Clinging(NgramDrafter);

impl Drafter for Clinging {
    fn name(&self) -> &str {
        "clinging"
    }
    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        self.0.draft(context)
    }
    fn observe(&mut self, generation: GenerationId, tokens: &[Token], accepted: usize) -> Result<(), RuntimeError> {
        self.0.observe(generation, tokens, accepted)
    }
    fn forget(&mut self, _: GenerationId) {
        panic!("it cannot let go");
    }
}

#[test]
fn panics_behind_the_end_of_an_answer_harm_nobody() {
    let target = HashModel::new(HashSpec { order: 2, ..wide() });
    let drafter = Box::new(Clinging(NgramDrafter::new()));
    let mut scheduler = Scheduler::new(engine(&target).with_drafter(drafter), SchedulerOptions::default());
    let observed = |index: usize| Request { observers: vec![Box::new(Late)], ..request(index, 12, 20 + 30 * index, 4) };
    let logs: Vec<Log> = (0..3).map(|index| submit(&mut scheduler, observed(index))).collect();
    finish(&mut scheduler);
    for (index, log) in logs.iter().enumerate() {
        let expected = alone(&mut engine(&target), request(index, 12, 20 + 30 * index, 0));
        assert_eq!(log.completion().tokens, expected.tokens, "request {index}");
    }
    assert_eq!((scheduler.status().totals.finished.failed, target.free_blocks()), (0, 512));
}

/// Never has anything to propose.
struct Silent;

impl Drafter for Silent {
    fn name(&self) -> &str {
        "silent"
    }
    fn draft(&mut self, _: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        Ok(DraftTree::new())
    }
    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }
    fn forget(&mut self, _: GenerationId) {}
}

#[test]
fn every_round_brings_a_token_whether_anything_is_drafted_or_not() {
    let target = HashModel::new(wide());
    let mut scheduler = Scheduler::new(engine(&target).with_drafter(Box::new(Silent)), SchedulerOptions::default());
    let logs: Vec<Log> = (0..4).map(|index| submit(&mut scheduler, request(index, 5, 25, 5))).collect();
    for round in 1..=25 {
        scheduler.step();
        assert!(logs.iter().all(|log| log.emitted() == round), "round {round}");
    }
    assert_eq!(target.passes(), 25, "one pass serves them all");
    assert!(logs.iter().all(Log::has_ended));
}
