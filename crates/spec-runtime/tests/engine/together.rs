//! Several generations of one engine: drafting is each one's own, whatever the others do meanwhile.

use super::*;
use spec_runtime::{Generation, RowShare, Turn};

fn step(engine: &mut Engine, generation: &mut Generation) -> bool {
    engine.step(generation, &mut |_| {}).expect("the step succeeds")
}

fn prompt(index: usize, length: usize) -> Vec<Token> {
    (0..length).map(|i| ((i * 7 + index * 3) % 32) as Token).collect()
}

#[test]
fn copies_of_several_generations_are_each_accepted_whole() {
    let spec = HashSpec { blocks: 256, ..HashSpec::default() };
    let draft = HashModel::new(spec.clone());
    let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
    let target = HashModel::new(spec.clone());
    let mut engine = engine(&target).with_drafter(Box::new(drafter));
    // Rounds without drafts and of other lengths in each, so that the drafter's caches end at different places.
    let schedules: [&[usize]; 4] = [&[5], &[3, 0, 0, 3], &[1, 7], &[0, 0, 0, 0, 4]];
    let with = |index: usize| Request {
        prompt: prompt(index, 9 + index),
        sampling: sampled(if index == 2 { 0.9 } else { 0.0 }),
        draft_len: Box::new(Schedule::new(schedules[index])),
        ..request(60 + index, 0)
    };
    let mut open: Vec<_> = (0..4).map(|index| engine.start(with(index)).unwrap()).collect();
    let mut live = [true; 4];
    for round in 0.. {
        for (index, generation) in open.iter_mut().enumerate() {
            // Each rests in a third of the rounds, a different one.
            if live[index] && !(round + index).is_multiple_of(3) {
                live[index] = step(&mut engine, generation);
            }
        }
        if !live.contains(&true) {
            break;
        }
    }
    for (index, generation) in open.into_iter().enumerate() {
        let got = engine.finish(generation);
        assert_eq!(got.tokens, plain(&spec, with(index)).tokens, "generation {index}");
        assert_eq!(got.speculation.accepted, got.speculation.drafted, "generation {index}");
        assert!(got.speculation.drafted > 10, "generation {index}: {:?}", got.speculation);
    }
    assert_eq!((target.free_blocks(), draft.free_blocks()), (256, 256));
}

#[test]
fn a_generation_past_the_drafts_context_takes_nothing_from_its_neighbours() {
    let spec = HashSpec { blocks: 256, ..HashSpec::default() };
    let short = HashSpec { context: 40, ..spec.clone() };
    let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(model_drafter(short));
    let with = |index: usize, length| Request { prompt: prompt(index, length), ..request(24, 4) };
    // One begins where the draft model's context ends, the other has room to spare.
    let mut long = engine.start(with(0, 60)).unwrap();
    let mut near = engine.start(with(1, 8)).unwrap();
    while step(&mut engine, &mut long) | step(&mut engine, &mut near) {}
    let (long, near) = (engine.finish(long), engine.finish(near));
    assert_eq!(long.tokens, plain(&spec, with(0, 60)).tokens);
    assert_eq!(long.speculation.drafted, 0, "nothing rather than rubbish");
    assert_eq!(near.tokens, plain(&spec, with(1, 8)).tokens);
    assert_eq!(near.speculation.accepted, near.speculation.drafted);
    assert!(near.speculation.drafted > 12, "{:?}", near.speculation);
}

#[test]
fn a_prompt_of_several_passes_beside_a_generation_that_drafts_changes_neither() {
    let spec = HashSpec { max_rows: 7, blocks: 256, ..HashSpec::default() };
    let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(model_drafter(spec.clone()));
    let with = |index: usize, length| Request { prompt: prompt(index, length), ..request(30, 5) };
    let mut first = engine.start(with(0, 5)).unwrap();
    for _ in 0..3 {
        assert!(step(&mut engine, &mut first));
    }
    let mut second = engine.start(with(1, 3 * 7 + 2)).unwrap();
    while step(&mut engine, &mut first) | step(&mut engine, &mut second) {}
    for (generation, index, length) in [(first, 0, 5), (second, 1, 3 * 7 + 2)] {
        let got = engine.finish(generation);
        assert_eq!(got.tokens, plain(&spec, with(index, length)).tokens, "prompt of {length}");
        assert_eq!(got.speculation.accepted, got.speculation.drafted, "prompt of {length}");
        assert!(got.speculation.drafted > 10, "prompt of {length}");
    }
}

/// All generations of an engine, round after round in shared passes.
fn run_all(engine: &mut Engine, requests: Vec<Request>) -> Vec<Result<Completion, RuntimeError>> {
    let most = 64;
    let mut open: Vec<Generation> =
        requests.into_iter().map(|request| engine.start(request).expect("it starts")).collect();
    let mut ends: Vec<Option<Result<(), RuntimeError>>> = open.iter().map(|_| None).collect();
    while ends.iter().any(Option::is_none) {
        let mut sinks: Vec<_> = open.iter().map(|_| |_: &spec_runtime::Emitted| {}).collect();
        let live = open.iter_mut().zip(&mut sinks).zip(&mut ends).filter(|(_, end)| end.is_none());
        let (mut turns, mut of): (Vec<_>, Vec<_>) =
            live.map(|((generation, sink), end)| (Turn { generation, sink }, end)).unzip();
        let share = RowShare { most, beside: most, catches: true };
        for (end, result) in of.iter_mut().zip(engine.step_all(&mut turns, &share)) {
            match result {
                Ok(true) => {}
                Ok(false) => **end = Some(Ok(())),
                Err(error) => **end = Some(Err(error)),
            }
        }
    }
    let ended = open.into_iter().zip(ends).map(|(generation, end)| {
        let completion = engine.finish(generation);
        end.expect("the loop ends when all have").map(|()| completion)
    });
    ended.collect()
}

#[test]
fn generations_read_and_draft_in_passes_of_the_draft_model_that_they_share() {
    let spec = HashSpec { blocks: 256, ..HashSpec::default() };
    let requests = |count: usize| -> Vec<Request> {
        let sampled = |index: usize| sampled(if index % 2 == 1 { 0.9 } else { 0.0 });
        let with = |index| Request { prompt: prompt(index, 9), sampling: sampled(index), ..request(40, 4) };
        (0..count).map(with).collect()
    };
    let passes = |count: usize| {
        let draft = HashModel::new(spec.clone());
        let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
        let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(Box::new(drafter));
        for (index, (got, alone)) in run_all(&mut engine, requests(count)).into_iter().zip(requests(count)).enumerate()
        {
            let got = got.unwrap();
            assert_eq!(got.tokens, plain(&spec, alone).tokens, "generation {index}");
            assert_eq!(got.speculation.accepted, got.speculation.drafted, "generation {index}");
            assert!(got.speculation.drafted > 20, "generation {index}: {:?}", got.speculation);
        }
        assert_eq!(draft.free_blocks(), 256);
        draft.passes()
    };
    let alone = passes(1);
    assert_eq!(passes(6), alone, "as many passes for six as for one");
}

#[test]
fn a_draft_pass_that_fails_is_tried_again_for_each_alone() {
    let spec = HashSpec { blocks: 256, ..HashSpec::default() };
    let draft = HashModel::new(spec.clone());
    let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
    let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(Box::new(drafter));
    let with = |index: usize| Request { prompt: prompt(index, 9), ..request(30, 4) };
    // The third pass of all, then the first that is tried alone.
    draft.fail_in(2..4);
    let got = run_all(&mut engine, (0..3).map(with).collect());
    let failed: Vec<usize> = (0..3).filter(|&index| got[index].is_err()).collect();
    assert_eq!(failed, [0], "the one whose own pass fails");
    for index in [1, 2] {
        let got = got[index].as_ref().unwrap();
        assert_eq!(got.tokens, plain(&spec, with(index)).tokens, "generation {index}");
        assert!(got.speculation.drafted > 10, "generation {index}");
    }
    assert_eq!(draft.free_blocks(), 256);
}

#[test]
fn a_draft_model_reads_a_long_text_by_and_by_where_others_wait() {
    let spec = HashSpec { blocks: 256, ..HashSpec::default() };
    let draft = HashModel::new(spec.clone());
    let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
    let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(Box::new(drafter));
    // The first goes on for longer than the second reads.
    let with = |index: usize, length| Request {
        prompt: prompt(index, length),
        ..request(if index == 0 { 300 } else { 60 }, 4)
    };
    let mut open = [engine.start(with(0, 9)).unwrap(), engine.start(with(1, 200)).unwrap()];
    let mut most_read = 0;
    let mut live = true;
    while live {
        let before = draft.rows();
        let mut sinks = [|_: &spec_runtime::Emitted| {}; 2];
        let mut turns: Vec<_> =
            open.iter_mut().zip(&mut sinks).map(|(generation, sink)| Turn { generation, sink }).collect();
        let share = RowShare { most: 64, beside: 16, catches: false };
        live = engine.step_all(&mut turns, &share).into_iter().any(|goes_on| goes_on.unwrap());
        most_read = most_read.max(draft.rows() - before);
    }
    // 8 of each, and the share of the first pass and the drafts of both.
    assert!(most_read <= 16 + 2 * 32 + 8, "{most_read} rows in one round");
    for (generation, (index, length)) in open.into_iter().zip([(0, 9), (1, 200)]) {
        let got = engine.finish(generation);
        assert_eq!(got.tokens, plain(&spec, with(index, length)).tokens, "prompt of {length}");
        assert_eq!(got.speculation.accepted, got.speculation.drafted, "prompt of {length}");
        assert!(got.speculation.drafted > 10, "prompt of {length}: {:?}", got.speculation);
    }
}
