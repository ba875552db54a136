//! Runs of the engine on a clock that passes alone move, recorded and explained.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spec_core::{DraftCost, DraftTree, LengthPolicy, Origin, RuleName, SamplingParams, Token};
use spec_runtime::{
    Batch, Chooser, Clock, Constraint, DraftContext, Drafter, Emitted, Engine, GenerationId, HostStream, Job, Model,
    ModelDrafter, Request, RuntimeError, Scheduler, SchedulerOptions, TokenSet,
};
use spec_testing::{HashModel, HashSpec, Letters, TimedModel, VirtualClock};

use super::super::diagnosis::{Weight, diagnose};
use super::super::figures::Figures;
use super::super::report;
use crate::record::{self, ModelFacts, Recorder, Run};

/// Milliseconds of a plain pass of the target, the unit of what follows.
const UNIT: f64 = 50.0;

/// Passes of weights that come from memory: a row adds little.
pub(super) fn flat(rows: usize) -> f64 {
    1.0 + 0.03 * (rows - 1) as f64
}

/// Passes in which every row is arithmetic.
pub(super) fn steep(rows: usize) -> f64 {
    1.0 + 0.5 * (rows - 1) as f64
}

/// What is run.
pub(super) struct Scene {
    pub(super) target: HashSpec,
    /// Of a plain pass, by rows.
    pub(super) pass: fn(usize) -> f64,
    /// Every so many passes one takes eight times as long; 0 is never.
    pub(super) stumbles: usize,
    /// The draft model, and what a pass of one row takes of the target's; each further row takes a twentieth of that.
    pub(super) draft: Option<(HashSpec, f64)>,
    /// A drafter without a model.
    pub(super) look_up: Option<LookUp>,
    pub(super) length: fn() -> Box<dyn LengthPolicy>,
    pub(super) prompt: usize,
    pub(super) tokens: usize,
    pub(super) temperature: f32,
    pub(super) rule: Option<&'static str>,
    /// What receiving a token takes.
    pub(super) receiving: f64,
    /// Tokens that may come: those that it divides.
    pub(super) multiples: Option<Token>,
    /// Whether the prompt is answered plain as well, as `spec demo` does.
    pub(super) plain_beside: bool,
    /// At the same time.
    pub(super) requests: usize,
    /// What is told of the run.
    pub(super) told: fn(&mut Run),
}

/// Draws the target's likeliest tokens, whatever is sampled.
#[derive(Clone, Copy)]
pub(super) struct LookUp {
    /// What looking up takes.
    pub(super) takes: f64,
    /// Whether it proposes the right tokens or others.
    pub(super) is_right: bool,
}

impl Scene {
    /// A draft model that fits, at a twentieth of the target's cost.
    pub(super) fn healthy() -> Self {
        Self {
            target: target(),
            pass: flat,
            stumbles: 0,
            draft: Some((HashSpec { noise: 0.02, ..target() }, 0.05)),
            look_up: None,
            length: || Box::new(spec_core::Goodput::default()),
            prompt: 12,
            tokens: 240,
            temperature: 0.0,
            rule: None,
            receiving: 0.0,
            multiples: None,
            plain_beside: false,
            requests: 1,
            told: |_| {},
        }
    }

    /// The names of what limits it, the first first, and what is printed.
    pub(super) fn explain(self) -> (Vec<&'static str>, String) {
        let record = self.record();
        let figures = Figures::of(&record).expect("it came past the first token");
        let findings = diagnose(&figures);
        for finding in &findings {
            assert!(finding.seen.weight == Weight::Bound || !finding.seen.evidence.is_empty());
        }
        let json = report::json(&figures, &findings);
        assert_eq!(json["limits"].as_array().map(Vec::len), Some(findings.len()));
        let names = findings.iter().map(|finding| finding.diagnosis.name).collect();
        (names, report::text(&figures, &findings, record.is_cut))
    }

    fn record(self) -> record::Record {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record.jsonl");
        let recorder = Recorder::create("--record", &path, u64::MAX).expect("a record");
        let clock = Arc::new(VirtualClock::default());
        let target = self.target(&clock);
        let mut engine = self.engine(Arc::clone(&target), &clock);
        if let Some(drafter) = self.drafter(&clock) {
            engine = engine.with_drafter(drafter);
        }
        let mut run = self.run(engine.drafter().unwrap_or("none"));
        (self.told)(&mut run);
        recorder.run(&run);
        let receiver = TimedModel::new(HashModel::new(HashSpec::default()), &clock, {
            let takes = UNIT * self.receiving;
            move |_| takes
        });
        if self.requests > 1 {
            let options = SchedulerOptions { max_running: self.requests, margin: 1, ..SchedulerOptions::default() };
            let mut scheduler = Scheduler::new(engine, options);
            for index in 0..self.requests {
                let request = self.request(index, &recorder, &run.drafter);
                scheduler.submit(Job::new(request, |_| {})).expect("it is taken");
            }
            while scheduler.step() {}
        } else {
            let receive = |_: &Emitted| {
                receiver.submit(&HostStream, &Batch::default()).expect("no pass at all");
            };
            let got = engine.generate(self.request(0, &recorder, &run.drafter), &mut { receive }).expect("an answer");
            if self.plain_beside {
                let mut plain = self.engine(target, &clock);
                let expected =
                    plain.generate(self.request(0, &recorder, &run.drafter), &mut { receive }).expect("an answer");
                if self.rule.is_none() {
                    assert_eq!(got.tokens, expected.tokens, "whatever is recorded, the answer is the target's");
                    assert!(got.speculation.drafted > 0);
                }
            }
        }
        record::read(&path).expect("what was written is read")
    }

    fn target(&self, clock: &Arc<VirtualClock>) -> Arc<dyn Model> {
        let (pass, stumbles, passes) = (self.pass, self.stumbles, AtomicUsize::new(0));
        TimedModel::new(HashModel::new(self.target.clone()), clock, move |rows| {
            let number = passes.fetch_add(1, Ordering::Relaxed) + 1;
            let slow = stumbles > 0 && number.is_multiple_of(stumbles);
            UNIT * pass(rows) * if slow { 8.0 } else { 1.0 }
        })
    }

    fn engine(&self, target: Arc<dyn Model>, clock: &Arc<VirtualClock>) -> Engine {
        Engine::new(target, Arc::new(Letters(32))).with_clock(Arc::clone(clock) as Arc<dyn Clock>)
    }

    fn drafter(&self, clock: &Arc<VirtualClock>) -> Option<Box<dyn Drafter>> {
        let mut drafters: Vec<Box<dyn Drafter>> = Vec::new();
        if let Some(look_up) = self.look_up {
            let takes = UNIT * look_up.takes;
            let clock = TimedModel::new(HashModel::new(HashSpec::default()), clock, move |_| takes);
            let source = HashModel::new(self.target.clone());
            drafters.push(Box::new(Copies { source, is_right: look_up.is_right, clock }));
        }
        if let Some((spec, cost)) = &self.draft {
            let takes = UNIT * cost;
            let model = TimedModel::new(HashModel::new(spec.clone()), clock, move |rows| {
                takes * (1.0 + 0.05 * (rows - 1) as f64)
            });
            drafters.push(Box::new(ModelDrafter::new(model)));
        }
        let chooser = || Chooser::new(drafters).with_clock(Arc::clone(clock) as Arc<dyn Clock>);
        (self.draft.is_some() || self.look_up.is_some()).then(|| Box::new(chooser()) as Box<dyn Drafter>)
    }

    fn request(&self, index: usize, recorder: &Recorder, drafter: &str) -> Request {
        // No stretch of it comes twice.
        let prompt = (0..self.prompt).map(|at| ((at * at + 5 * at + index * 7) % 29) as Token).collect();
        let form = self.multiples.map(|of| Box::new(Multiples { of }) as Box<dyn Constraint>);
        Request {
            sampling: SamplingParams { temperature: self.temperature, ..SamplingParams::default() },
            seed: Some(7),
            rule: self.rule.map(|name| name.parse::<RuleName>().expect("a rule").into()),
            draft_len: (self.length)(),
            constraint: form,
            observers: vec![recorder.observer(drafter)],
            ..Request::new(prompt, self.tokens)
        }
    }

    fn run(&self, drafter: &str) -> Run {
        let facts = |name: &str| ModelFacts { name: name.to_owned(), ..record::tests::run().target };
        Run {
            target: facts("large"),
            draft: self.draft.as_ref().map(|_| facts("small")),
            drafter: drafter.to_owned(),
            rule: Some(self.rule.unwrap_or(if self.temperature > 0.0 { "coupled" } else { "greedy" }).to_owned()),
            temperature: Some(self.temperature.into()),
            prompt_tokens: Some(self.prompt),
            threads: Some(4),
            cores: 4,
            device: "test".to_owned(),
            shared_vocabulary: self.draft.as_ref().map(|_| 1.0),
            ..record::tests::run()
        }
    }
}

/// A model whose text does not repeat itself, with room.
pub(super) fn target() -> HashSpec {
    HashSpec { context: 2048, blocks: 1024, order: 8, max_rows: 256, ..HashSpec::default() }
}

/// Proposes what a model thinks likeliest, and takes no pass for it.
struct Copies {
    source: Arc<HashModel>,
    is_right: bool,
    clock: Arc<dyn Model>,
}

impl Drafter for Copies {
    fn name(&self) -> &str {
        "copies"
    }

    fn cost(&self) -> DraftCost {
        DraftCost::Free
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        self.clock.submit(&HostStream, &Batch::default())?;
        let mut text = context.tokens.to_vec();
        for _ in 0..context.budget {
            let logits = self.source.logits_of(&text);
            let best = (0..logits.len()).reduce(|best, id| if logits[id] > logits[best] { id } else { best });
            let right = best.expect("a vocabulary") as Token;
            text.push(if self.is_right { right } else { (right + 1) % 32 });
        }
        Ok(DraftTree::chain(&text[context.tokens.len()..], Origin::Fixed))
    }

    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn forget(&mut self, _: GenerationId) {}
}

/// A grammar that allows every `of`-th token.
struct Multiples {
    of: Token,
}

impl Constraint for Multiples {
    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), RuntimeError> {
        (0..allowed.vocab() as Token)
            .filter(|token| token.is_multiple_of(self.of))
            .for_each(|token| allowed.insert(token));
        Ok(())
    }

    fn advance(&mut self, _: Token) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn roll_back(&mut self, _: usize) {}
}
