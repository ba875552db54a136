//! What a request says does not depend on its company.

use super::*;
use proptest::prelude::*;
use spec_core::{Goodput, LengthPolicy, RuleName};
use spec_runtime::{CancelToken, DraftWith};

fn mixture(spec: &HashSpec, kind: usize) -> Box<dyn Drafter> {
    let similar = || Box::new(ModelDrafter::new(HashModel::new(HashSpec { noise: 0.2, ..spec.clone() })));
    match kind {
        0 => similar(),
        1 => Box::new(NgramDrafter::new()),
        _ => Box::new(Chooser::new(vec![Box::new(SuffixDrafter::new()), Box::new(NgramDrafter::new()), similar()])),
    }
}

/// Requests of all kinds; rules that draw have fixed lengths.
fn mixed(index: usize) -> Request {
    let rule = |name: &str| Some(name.parse::<RuleName>().expect("a rule of the table").into());
    let base = request(index, 5 + index * 5 % 40, 40 + index, 4);
    let goodput = || Box::new(Goodput::default()) as Box<dyn LengthPolicy>;
    match index % 8 {
        0 => base,
        1 => Request { sampling: sampled(0.8), ..base },
        2 => Request { sampling: sampled(0.9), rule: rule("rejection"), ..base },
        3 => Request { sampling: sampled(0.7), rule: rule("block"), ..base },
        4 => Request { draft_len: goodput(), ..base },
        5 => Request {
            sampling: SamplingParams { repeat_penalty: 1.2, top_p: 0.9, ..sampled(1.0) },
            draft_len: goodput(),
            ..base
        },
        6 => Request { logprobs: Some(2), ..base },
        _ => Request { sampling: sampled(1.3), choice: 3, ..base },
    }
}

#[test]
fn sixteen_mixed_requests_equal_their_solo_runs() {
    // An unsure target has samples differ, a sure one has drafts stand.
    for (kind, spread) in [(0, 8.0), (1, 8.0), (2, 8.0), (0, 200.0), (2, 200.0)] {
        let spec = HashSpec { order: 3, spread, ..wide() };
        let target = HashModel::new(spec.clone());
        let engine_of = || engine(&target).with_drafter(mixture(&spec, kind));
        let expected: Vec<Completion> = (0..16).map(|index| alone(&mut engine_of(), mixed(index))).collect();
        let mut scheduler = Scheduler::new(engine_of(), SchedulerOptions { prefill_chunk: 16, ..Default::default() });
        let cancels: Vec<CancelToken> = (0..4).map(|_| CancelToken::new()).collect();
        let logs: Vec<Log> = (0..16).map(|index| submit(&mut scheduler, mixed(index))).collect();
        let cancelled: Vec<Log> = cancels
            .iter()
            .enumerate()
            .map(|(index, cancel)| submit(&mut scheduler, Request { cancel: cancel.clone(), ..mixed(index + 2) }))
            .collect();
        for cancel in &cancels {
            for _ in 0..6 {
                scheduler.step();
            }
            cancel.cancel();
        }
        finish(&mut scheduler);
        for (index, (log, expected)) in logs.iter().zip(&expected).enumerate() {
            let got = log.completion();
            let what = format!("request {index}, drafter {kind}");
            assert_eq!((&got.tokens, &got.text), (&expected.tokens, &expected.text), "{what}");
            assert_eq!((&got.logprobs, got.finish), (&expected.logprobs, expected.finish), "{what}");
            let told = log.0.lock();
            assert_eq!(told.emitted.iter().map(|emitted| &*emitted.text).collect::<String>(), got.text, "{what}");
            assert_eq!(told.emitted.iter().all(|emitted| emitted.logprob.is_some()), index % 8 == 6, "{what}");
            let is_weighed = matches!(index % 8, 4 | 5);
            assert!(kind == 1 || is_weighed || got.speculation.drafted > 0, "{what} drafts");
        }
        let drafted: usize = expected.iter().map(|completion| completion.speculation.drafted).sum();
        assert!(drafted > 60, "drafter {kind} drafted {drafted}");
        for (index, log) in cancelled.iter().enumerate() {
            let got = log.completion();
            assert!(expected[index + 2].tokens.starts_with(&got.tokens), "cancelled {index}, drafter {kind}");
        }
        assert_eq!(target.free_blocks(), spec.blocks, "blocks leak");
    }
}

#[test]
fn copies_of_sixteen_generations_are_each_accepted_whole() {
    let spec = wide();
    let (target, draft) = (HashModel::new(spec.clone()), HashModel::new(spec.clone()));
    let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
    let mut scheduler = Scheduler::new(engine(&target).with_drafter(Box::new(drafter)), SchedulerOptions::default());
    let of = |index: usize| Request {
        sampling: sampled(if index.is_multiple_of(2) { 0.0 } else { 0.8 }),
        ..request(index, 9 + index, 50, 1 + index % 6)
    };
    let logs: Vec<Log> = (0..16).map(|index| submit(&mut scheduler, of(index))).collect();
    finish(&mut scheduler);
    for (index, log) in logs.iter().enumerate() {
        let got = log.completion();
        assert_eq!(got.tokens, alone(&mut engine(&target), of(index)).tokens, "request {index}");
        assert_eq!(got.speculation.accepted, got.speculation.drafted, "request {index}");
        assert!(got.speculation.drafted >= 20, "request {index}: {:?}", got.speculation);
    }
    assert_eq!((target.free_blocks(), draft.free_blocks()), (512, 512));
}

#[test]
fn a_prompt_of_several_chunks_lets_others_go_on() {
    let spec = wide();
    let target = HashModel::new(spec.clone());
    let drafter = Box::new(ModelDrafter::new(HashModel::new(spec.clone())));
    let options = SchedulerOptions { prefill_chunk: 8, ..Default::default() };
    let mut scheduler = Scheduler::new(engine(&target).with_drafter(drafter), options);
    let first = submit(&mut scheduler, request(0, 6, 60, 5));
    for _ in 0..2 {
        scheduler.step();
    }
    let second = submit(&mut scheduler, request(1, 3 * 8 + 2, 30, 5));
    let mut rounds = 0;
    while second.emitted() == 0 {
        let before = (first.emitted(), target.rows());
        assert!(scheduler.step());
        assert!(first.emitted() > before.0, "whoever decodes has a token in every round");
        assert!(target.rows() - before.1 <= 8 + 1 + 5, "and no pass is longer than the chunk allows");
        rounds += 1;
    }
    assert_eq!(rounds, 4, "26 tokens in chunks of eight");
    finish(&mut scheduler);
    for (log, expected) in [(first, request(0, 6, 60, 5)), (second, request(1, 26, 30, 5))] {
        let got = log.completion();
        assert_eq!(got.tokens, alone(&mut engine(&target), expected).tokens);
        assert_eq!(got.speculation.accepted, got.speculation.drafted);
        assert!(got.speculation.drafted > 10);
    }
}

#[test]
fn jobs_that_give_their_place_up_say_what_they_would_have_said() {
    // Room for three texts at their full length, and not for six.
    let spec = HashSpec { blocks: 20, block_tokens: 8, max_rows: 128, order: 4, ..HashSpec::default() };
    let target = HashModel::new(spec.clone());
    let draft = HashModel::new(HashSpec { noise: 0.2, blocks: 512, ..spec.clone() });
    let drafter = || Box::new(ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>));
    let of = |index: usize| {
        let rule = (index % 3 == 2).then(|| "rejection".parse::<RuleName>().expect("a rule of the table").into());
        let sampling = sampled(if index.is_multiple_of(3) { 0.0 } else { 0.8 });
        Request { rule, sampling, ..request(index, 10, 40, 3) }
    };
    let expected: Vec<Completion> =
        (0..6).map(|index| alone(&mut engine(&target).with_drafter(drafter()), of(index))).collect();
    let options = SchedulerOptions { margin: 1, ..Default::default() };
    let mut scheduler = Scheduler::new(engine(&target).with_drafter(drafter()), options);
    let logs: Vec<Log> = (0..6).map(|index| submit(&mut scheduler, of(index))).collect();
    finish(&mut scheduler);
    let mut preempted = 0;
    for (index, (log, expected)) in logs.iter().zip(&expected).enumerate() {
        let got = log.completion();
        assert_eq!(got.tokens, expected.tokens, "request {index}, preempted {} times", got.preempted);
        assert!(got.speculation.drafted > 0);
        preempted += got.preempted;
        assert!(index > 0 || got.preempted == 0, "the first gives way to nobody");
    }
    assert!(preempted > 0, "somebody had to give way");
    assert_eq!(scheduler.status().totals.preempted, preempted);
    assert_eq!((target.free_blocks(), draft.free_blocks()), (20, 512));
}

#[test]
fn a_job_goes_on_in_the_room_of_one_that_ended_in_the_same_round() {
    // The last block is wanted in the round of the other's last token.
    let target = HashModel::new(HashSpec { blocks: 4, block_tokens: 8, ..wide() });
    let options = SchedulerOptions { margin: 1, ..Default::default() };
    let mut scheduler = Scheduler::new(engine(&target), options);
    let of = [request(0, 9, 8, 0), request(1, 10, 12, 0)];
    let logs = of.map(|request| submit(&mut scheduler, request));
    finish(&mut scheduler);
    let [first, second] = logs.map(|log| log.completion());
    assert_eq!((first.completion_tokens, second.completion_tokens), (8, 12));
    assert_eq!(second.preempted, 0, "nobody had to give way");
}

#[test]
fn a_request_chooses_its_drafter() {
    let spec = HashSpec { order: 2, ..wide() };
    let target = HashModel::new(spec.clone());
    let draft = HashModel::new(spec.clone());
    let chooser = Chooser::new(vec![
        Box::new(SuffixDrafter::new()),
        Box::new(ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>)),
    ]);
    let mut scheduler = Scheduler::new(engine(&target).with_drafter(Box::new(chooser)), SchedulerOptions::default());
    let with = |draft_with| Request { draft_with, ..request(1, 12, 60, 4) };
    let only = |name: &str| DraftWith::Only(name.into());
    let plain = submit(&mut scheduler, with(DraftWith::Nothing));
    let suffix = submit(&mut scheduler, with(only("suffix")));
    finish(&mut scheduler);
    assert_eq!(draft.passes(), 0, "nobody asked for the model");
    let plain = plain.completion();
    assert_eq!(plain.speculation.drafted, 0);
    let suffix = suffix.completion();
    assert!(suffix.speculation.drafted > 0);
    let model = submit(&mut scheduler, with(only("model")));
    finish(&mut scheduler);
    let model = model.completion();
    assert_eq!(model.speculation.accepted, model.speculation.drafted);
    assert!(draft.passes() > 0 && model.speculation.drafted > 20);
    assert_eq!([&suffix.tokens, &model.tokens], [&plain.tokens; 2]);
    let refused = scheduler.submit(Log::default().job(with(only("oracle")))).expect_err("there is none").to_string();
    assert!(refused.contains("oracle") && refused.contains("suffix, model"), "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn any_arrivals_priorities_and_cancels_leave_every_answer_as_it_is(
        jobs in prop::collection::vec((0usize..30, 1usize..60, 1usize..40, 0usize..6, -2i32..3, prop::option::weighted(0.2, 0usize..40)), 1..12),
        blocks in 14usize..40,
        rows in 6usize..40,
        chunk in 1usize..20,
    ) {
        let spec = HashSpec { blocks, block_tokens: 8, max_rows: rows, order: 3, ..HashSpec::default() };
        let target = HashModel::new(spec.clone());
        let draft = HashModel::new(HashSpec { noise: 0.2, ..spec.clone() });
        let chooser = Chooser::new(vec![
            Box::new(NgramDrafter::new()),
            Box::new(ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>)),
        ]);
        let options = SchedulerOptions { prefill_chunk: chunk, margin: 4, max_running: 6, ..Default::default() };
        let mut scheduler = Scheduler::new(engine(&target).with_drafter(Box::new(chooser)), options);
        let of = |index: usize, length, tokens, k| {
            let temperature = if index.is_multiple_of(2) { 0.0 } else { 0.8 };
            Request { sampling: sampled(temperature), ..request(index, length, tokens, k) }
        };
        let mut open = Vec::new();
        for round in 0usize.. {
            for (index, &(arrives, length, tokens, k, priority, cancel)) in jobs.iter().enumerate() {
                if arrives == round {
                    let token = CancelToken::new();
                    let log = Log::default();
                    let request = Request { cancel: token.clone(), ..of(index, length, tokens, k) };
                    scheduler.submit(Job { priority, ..log.job(request) }).expect("it is taken");
                    open.push((index, log, token, cancel.map(|after| round + after)));
                }
            }
            open.iter().filter(|job| job.3 == Some(round)).for_each(|job| job.2.cancel());
            let goes_on = scheduler.step();
            if !goes_on && round > 30 {
                break;
            }
            prop_assert!(round < 5000, "it never ends");
        }
        for (index, log, ..) in open {
            let (_, length, tokens, ..) = jobs[index];
            let got = log.completion();
            let expected = alone(&mut engine(&target), of(index, length, tokens, 0));
            if got.finish == FinishReason::Cancelled {
                prop_assert!(expected.tokens.starts_with(&got.tokens));
            } else {
                prop_assert_eq!(&got.tokens, &expected.tokens, "job {}, preempted {}", index, got.preempted);
            }
        }
        prop_assert_eq!((target.free_blocks(), draft.free_blocks()), (blocks, blocks));
    }
}
