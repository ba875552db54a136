//! Several generations of one engine: drafting is each one's own, whatever the others do meanwhile.

use super::*;
use spec_runtime::Generation;

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
