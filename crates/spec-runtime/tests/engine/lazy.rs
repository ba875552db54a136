//! Draft models that are loaded once the target's first token is out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use spec_runtime::{Chooser, Clock, LazyModel, SuffixDrafter};

use super::*;

/// What happens, in its order: tokens by number, and loading.
type Log = Arc<Mutex<Vec<String>>>;

fn lazy(spec: &HashSpec, log: &Log, clock: &Arc<Hands>) -> LazyModel {
    let (model, log, clock) = (HashModel::new(spec.clone()), Arc::clone(log), Arc::clone(clock));
    LazyModel::new(model.config().clone(), move || {
        log.lock().expect("one thread").push("load".into());
        clock.0.fetch_add(700, Ordering::Relaxed);
        Ok(model)
    })
}

/// A clock that only its owner moves, in milliseconds.
#[derive(Default)]
struct Hands(AtomicUsize);

impl Clock for Hands {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed) as u64)
    }
}

#[test]
fn a_draft_model_is_loaded_behind_the_first_token_and_once() {
    let spec = HashSpec::default();
    for several in [false, true] {
        let (log, clock) = (Log::default(), Arc::new(Hands::default()));
        let drafter = ModelDrafter::new(Arc::new(lazy(&spec, &log, &clock))).with_shortlist();
        let drafter: Box<dyn Drafter> = match several {
            true => Box::new(Chooser::new(vec![Box::new(SuffixDrafter::new()), Box::new(drafter)])),
            false => Box::new(drafter),
        };
        let mut engine = engine(&HashModel::new(spec.clone()))
            .with_clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .with_drafter(drafter);
        let mut generate = |max_tokens, k| {
            log.lock().expect("one thread").clear();
            let got = engine
                .generate(request(max_tokens, k), &mut |emitted| {
                    clock.0.fetch_add(10, Ordering::Relaxed);
                    log.lock().expect("one thread").push(emitted.token.to_string());
                })
                .expect("an answer");
            (got, log.lock().expect("one thread").clone())
        };
        // One token asks for no draft, and neither does a draft length of 0: nothing is loaded for them.
        for (max_tokens, k) in [(1, 4), (40, 0)] {
            assert!(!generate(max_tokens, k).1.contains(&"load".to_owned()), "{max_tokens} tokens, k {k}");
        }
        let (got, events) = generate(40, 4);
        assert_eq!(events[1], "load", "{events:?}");
        assert_eq!(events.len(), 41, "loaded once");
        assert_eq!(got.tokens, plain(&spec, request(40, 4)).tokens);
        assert!(got.speculation.drafted > 30, "{:?}", got.speculation);
        let timings = got.timings;
        assert_eq!(timings.preparation, Duration::from_millis(700));
        // Of the 40 tokens 39 are timed, ten milliseconds each; loading is no part of it, nor of drafting.
        assert_eq!((timings.decode, timings.draft), (Duration::from_millis(390), Duration::ZERO));
        let (again, events) = generate(40, 4);
        assert_eq!((again.timings.preparation, events.len()), (Duration::ZERO, 40), "it is there");
    }
}

#[test]
fn a_draft_model_that_cannot_be_loaded_is_an_error_each_time() {
    let spec = HashSpec::default();
    let config = HashModel::new(spec.clone()).config().clone();
    let model = LazyModel::new(config, || {
        Err(RuntimeError::Device { device: "draft.gguf".into(), reason: "no memory".into() })
    });
    let target = HashModel::new(spec.clone());
    let mut engine = engine(&target).with_drafter(Box::new(ModelDrafter::new(Arc::new(model))));
    let mut tokens = 0;
    let message = error(engine.generate(request(20, 4), &mut |_| tokens += 1));
    assert!(message.contains("draft.gguf: no memory"), "{message}");
    assert_eq!(tokens, 1, "the first token is out");
    let message = error(engine.generate(request(20, 4), &mut |_| {}));
    assert!(message.contains("could not be loaded"), "{message}");
    assert_eq!(target.free_blocks(), spec.blocks, "blocks leak");
    run(&mut engine, request(20, 0));
}

#[test]
fn threads_that_need_a_model_at_once_load_it_once() {
    let loads = Arc::new(AtomicUsize::new(0));
    let model = HashModel::new(HashSpec::default());
    let (config, counted) = (model.config().clone(), Arc::clone(&loads));
    let lazy = LazyModel::new(config, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        Ok(model)
    });
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                let seq = lazy.open().expect("a sequence");
                assert_eq!(lazy.kv_len(seq).expect("it is open"), 0);
                lazy.close(seq);
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 1);
}
