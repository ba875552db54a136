//! Many requests on one engine, each as if it were alone.

mod faults;
mod order;
mod prices;
mod texts;
mod together;

use std::sync::Arc;

use parking_lot::Mutex;
use spec_core::{Fixed, SamplingParams, Token};
use spec_runtime::{
    Chooser, Completion, Drafter, Emitted, Engine, FinishReason, Job, JobEvent, Model, ModelDrafter, NgramDrafter,
    Request, RuntimeError, Scheduler, SchedulerOptions, SuffixDrafter,
};
use spec_testing::{HashModel, HashSpec, Letters};

/// What a job was told.
#[derive(Default)]
struct Told {
    started: bool,
    emitted: Vec<Emitted>,
    ended: Option<Result<Completion, RuntimeError>>,
}

/// A job's events, kept.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Told>>);

impl Log {
    fn job(&self, request: Request) -> Job {
        let told = Arc::clone(&self.0);
        Job::new(request, move |event| {
            let mut told = told.lock();
            match event {
                JobEvent::Started { .. } => told.started = true,
                JobEvent::Emitted(emitted) => {
                    assert!(told.ended.is_none(), "nothing comes behind the end");
                    told.emitted.push(emitted.clone());
                }
                JobEvent::Done(completion) => assert!(told.ended.replace(Ok(completion)).is_none(), "one end"),
                JobEvent::Failed(error) => assert!(told.ended.replace(Err(error)).is_none(), "one end"),
                _ => {}
            }
        })
    }

    fn completion(&self) -> Completion {
        match self.0.lock().ended.take() {
            Some(Ok(completion)) => completion,
            other => panic!("it did not complete: {:?}", other.map(|ended| ended.map(|_| ()))),
        }
    }

    fn error(&self) -> String {
        match self.0.lock().ended.take() {
            Some(Err(error)) => error.to_string(),
            other => panic!("it did not fail: {:?}", other.map(|ended| ended.map(|completion| completion.tokens))),
        }
    }

    fn emitted(&self) -> usize {
        self.0.lock().emitted.len()
    }

    fn has_ended(&self) -> bool {
        self.0.lock().ended.is_some()
    }
}

fn wide() -> HashSpec {
    HashSpec { blocks: 512, max_rows: 256, ..HashSpec::default() }
}

fn engine(target: &Arc<HashModel>) -> Engine {
    Engine::new(Arc::clone(target) as Arc<dyn Model>, Arc::new(Letters(target.config().vocab)))
}

fn prompt(index: usize, length: usize) -> Vec<Token> {
    (0..length).map(|i| ((i * 7 + i / 5 + index * 3) % 32) as Token).collect()
}

fn request(index: usize, length: usize, max_tokens: usize, k: usize) -> Request {
    Request {
        draft_len: Box::new(Fixed(k)),
        seed: Some(index as u64),
        ..Request::new(prompt(index, length), max_tokens)
    }
}

fn sampled(temperature: f32) -> SamplingParams {
    SamplingParams { temperature, ..SamplingParams::default() }
}

fn alone(engine: &mut Engine, request: Request) -> Completion {
    engine.generate(request, &mut |_| {}).expect("the generation succeeds")
}

fn submit(scheduler: &mut Scheduler, request: Request) -> Log {
    let log = Log::default();
    scheduler.submit(log.job(request)).expect("the job is taken");
    log
}

/// Rounds until nothing is left.
fn finish(scheduler: &mut Scheduler) -> usize {
    let mut rounds = 1;
    while scheduler.step() {
        rounds += 1;
        assert!(rounds < 20_000, "it never ends");
    }
    rounds
}
