//! Streams put passes in order: what has to wait for what is known before it goes wrong.

use std::sync::Arc;

use spec_ascend::AscendStream;
use spec_core::Fixed;
use spec_runtime::{Batch, Engine, Model, ModelDrafter, Request, Stream, Want};
use spec_testing::Letters;
use spec_testing::tiny::TinySpec;

use crate::device::{generate, load, with_device};

/// Kernels begin late, and streams at different speeds.
const LATE: &str = "delay=0..400; seed=7";

#[test]
fn drafter_and_target_on_streams_of_their_own_give_the_text_of_one() {
    with_device(LATE, |device| {
        let streams = [AscendStream::new(device).expect("a stream"), AscendStream::new(device).expect("a stream")];
        let target: Arc<dyn Model> = load(&streams[0], TinySpec::llama());
        let draft: Arc<dyn Model> = load(&streams[1], TinySpec::llama());
        let plain = generate(&target, None, 24).expect("an answer");
        let drafter = ModelDrafter::new(draft).on_stream(Box::new(streams[1].clone()));
        let mut engine = Engine::new(target, Arc::new(Letters(TinySpec::llama().vocab)))
            .with_drafter(Box::new(drafter))
            .on_stream(Box::new(streams[0].clone()));
        let prompt = (0..20).map(|i| i * 7 % 60).collect();
        let request = Request { draft_len: Box::new(Fixed(4)), ..Request::new(prompt, 24) };
        let got = engine.generate(request, &mut |_| {}).expect("an answer");
        assert_eq!(got.tokens, plain.tokens);
        assert!(got.speculation.drafted > 0 && got.speculation.accepted == got.speculation.drafted);
    });
}

#[test]
fn the_drafters_stream_works_while_the_targets_does() {
    // Of a target's pass several of the drafter's are as long.
    let deep = TinySpec { layers: 12, ..TinySpec::llama() };
    let flat = TinySpec { layers: 1, ..TinySpec::llama() };
    with_device("delay=300", |device| {
        let streams = [AscendStream::new(device).expect("a stream"), AscendStream::new(device).expect("a stream")];
        let (target, draft): (Arc<dyn Model>, Arc<dyn Model>) = (load(&streams[0], deep), load(&streams[1], flat));
        let plain = generate(&target, None, 12).expect("an answer");
        let drafter = ModelDrafter::new(draft).on_stream(Box::new(streams[1].clone()));
        let mut engine = Engine::new(target, Arc::new(Letters(deep.vocab)))
            .with_drafter(Box::new(drafter))
            .on_stream(Box::new(streams[0].clone()));
        let prompt = (0..20).map(|i| i * 7 % 60).collect();
        let request = Request { draft_len: Box::new(Fixed(2)), ..Request::new(prompt, 12) };
        let got = engine.generate(request, &mut |_| {}).expect("an answer");
        assert_eq!(got.tokens, plain.tokens);
        assert!(got.speculation.ahead.drafted > 0, "{:?}", got.speculation);
        assert!(got.timings.ahead > std::time::Duration::ZERO);
    });
}

/// Both roles on one model: its cache and the memory of its passes are used from two streams, which is refused where no event puts them in
/// order. The engine's events do between rounds; at once the model works for one of them only, so that nothing is drafted ahead.
#[test]
fn one_model_in_both_roles_is_put_in_order_by_the_engine() {
    with_device(LATE, |device| {
        let streams = [AscendStream::new(device).expect("a stream"), AscendStream::new(device).expect("a stream")];
        let model: Arc<dyn Model> = load(&streams[0], TinySpec::llama());
        let plain = generate(&model, None, 16).expect("an answer");
        let drafter = ModelDrafter::new(Arc::clone(&model)).on_stream(Box::new(streams[1].clone()));
        let mut engine = Engine::new(model, Arc::new(Letters(TinySpec::llama().vocab)))
            .with_drafter(Box::new(drafter))
            .on_stream(Box::new(streams[0].clone()));
        let prompt = (0..20).map(|i| i * 7 % 60).collect();
        let request = Request { draft_len: Box::new(Fixed(3)), ..Request::new(prompt, 16) };
        let got = engine.generate(request, &mut |_| {}).expect("an answer");
        assert_eq!(got.tokens, plain.tokens);
        assert!(got.speculation.accepted > 0 && got.speculation.accepted == got.speculation.drafted);
        assert_eq!(got.speculation.ahead.drafted, 0);
    });
}

#[test]
fn passes_of_a_model_on_two_streams_need_an_event_between_them() {
    with_device(LATE, |device| {
        let streams = [AscendStream::new(device).expect("a stream"), AscendStream::new(device).expect("a stream")];
        let model = load(&streams[0], TinySpec::llama());
        let seq = model.open().expect("room");
        let tokens = [3, 1, 4, 1, 5, 9];
        let pass = |stream: &AscendStream, at: usize| {
            let batch = Batch::chain(seq, &tokens[at..=at], at, at.checked_sub(1).map(|row| row as u32), Want::Logits);
            model.submit(stream, &batch)
        };
        model.reserve(seq, 6).expect("room");
        let first = pass(&streams[0], 0).expect("a pass");
        // Not yet waited for, so that the second stream may overtake it.
        let text = pass(&streams[1], 1).map(drop).expect_err("an order that nothing says").to_string();
        assert!(text.contains("record an event on stream") && text.contains("let stream"), "{text}");
        first.wait().expect("a pass");
        model.settle(seq, &[]).expect("a rollback");

        model.reserve(seq, 6).expect("room");
        let mut passes = vec![pass(&streams[0], 0).expect("a pass")];
        for at in 1..6 {
            let (from, to) = (&streams[(at + 1) % 2], &streams[at % 2]);
            to.wait(&*from.record().expect("an event")).expect("a wait");
            passes.push(pass(to, at).expect("a pass behind an event"));
        }
        let crossing: Vec<Vec<f32>> =
            passes.into_iter().map(|pass| pass.wait().expect("a pass").logits(0).expect("wanted").to_vec()).collect();
        model.settle(seq, &[]).expect("a rollback");
        model.reserve(seq, 6).expect("room");
        for (at, crossing) in crossing.iter().enumerate() {
            let alone = pass(&streams[0], at).expect("a pass").wait().expect("a pass");
            assert_eq!(alone.logits(0).expect("wanted"), crossing, "row {at}");
        }
        model.close(seq);
        assert_eq!(model.free_blocks(), model.total_blocks());
    });
}

#[test]
fn submitting_returns_before_the_pass_is_done() {
    // Each task waits for 3 ms at least, and a pass has some fifty.
    with_device("delay=3000", |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let model = load(&stream, TinySpec::llama());
        let seq = model.open().expect("room");
        model.reserve(seq, 4).expect("room");
        let batch = Batch::chain(seq, &[1, 2, 3, 4], 0, None, Want::Logits);
        let pass = model.submit(&stream, &batch).expect("a pass");
        let event = stream.record().expect("an event");
        assert!(!event.is_done().expect("an answer"), "the pass was done when it was submitted");
        assert!(pass.wait().expect("a pass").logits(3).expect("wanted").iter().all(|logit| logit.is_finite()));
        stream.synchronize().expect("a stream");
        assert!(event.is_done().expect("an answer"));
        model.close(seq);
    });
}
