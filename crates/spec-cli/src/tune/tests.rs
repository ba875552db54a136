//! What `spec tune` expects, against what the engine then does, on a clock that only passes of models move.

use std::path::Path;
use std::sync::Arc;

use spec_core::{LengthPolicy, LengthPolicyName, SamplingParams, Token};
use spec_runtime::{Clock, Completion, Drafter, Engine, Model, ModelDrafter, NgramDrafter, Request};
use spec_testing::{HashModel, HashSpec, Letters, TimedModel, VirtualClock};

use super::*;
use crate::record::tests::run as facts;
use crate::record::{ModelFacts, Recorder, Run};

/// The 4-bit kernels measured on two cores, in passes of one row.
fn target_pass(rows: usize) -> f64 {
    match rows {
        0..=4 => 1.0,
        5..=8 => 1.0 + 0.156 * (rows - 4) as f64 / 4.0,
        _ => 1.156 + 1.014 * (rows - 8) as f64 / 8.0,
    }
}

/// A draft model at a tenth of the target.
fn draft_pass(rows: usize) -> f64 {
    0.1 + 0.005 * (rows - 1) as f64
}

fn spec() -> HashSpec {
    HashSpec { context: 2048, blocks: 512, order: 6, ..HashSpec::default() }
}

/// An engine over a clock; `noise` is how much the draft model differs, and without it n-grams draft.
fn engine(noise: Option<f32>) -> Engine {
    let clock = Arc::new(VirtualClock::default());
    let timed = |spec: HashSpec, cost: fn(usize) -> f64| -> Arc<dyn Model> {
        TimedModel::new(HashModel::new(spec), &clock, move |rows| 50.0 * cost(rows))
    };
    let drafter: Box<dyn Drafter> = match noise {
        Some(noise) => Box::new(ModelDrafter::new(timed(HashSpec { noise, ..spec() }, draft_pass))),
        None => Box::new(NgramDrafter::new()),
    };
    Engine::new(timed(spec(), target_pass), Arc::new(Letters(32)))
        .with_drafter(drafter)
        .with_clock(Arc::clone(&clock) as Arc<dyn Clock>)
}

fn request(text: Token, draft_len: Box<dyn LengthPolicy>) -> Request {
    let sampling = SamplingParams { temperature: 0.7, ..SamplingParams::default() };
    Request { sampling, seed: Some(text.into()), draft_len, ..Request::new(vec![3, 1, 4, text], 400) }
}

fn policy(name: &str) -> Box<dyn LengthPolicy> {
    name.parse::<LengthPolicyName>().expect("a policy").build()
}

const TEXTS: std::ops::Range<Token> = 5..9;

/// Runs all texts under a policy.
fn answers(
    noise: Option<f32>,
    name: &str,
    observe: &dyn Fn() -> Vec<Box<dyn spec_runtime::RoundObserver>>,
) -> Vec<Completion> {
    let mut engine = engine(noise);
    TEXTS
        .map(|text| {
            let request = Request { observers: observe(), ..request(text, policy(name)) };
            engine.generate(request, &mut |_| {}).expect("it runs")
        })
        .collect()
}

fn tokens_per_second(answers: &[Completion]) -> f64 {
    let tokens: usize = answers.iter().map(|answer| answer.completion_tokens - 1).sum();
    tokens as f64 / answers.iter().map(|answer| answer.timings.decode.as_secs_f64()).sum::<f64>()
}

fn record(path: &Path, noise: Option<f32>, name: &str) {
    let recorder = Recorder::create("--record", path, u64::MAX).expect("a record");
    let draft = noise.map(|_| ModelFacts { name: "draft".to_owned(), ..facts().target });
    recorder.run(&Run { draft, length_policy: name.to_owned(), rule: Some("coupled".to_owned()), ..facts() });
    let answers = answers(noise, name, &|| vec![recorder.observer("model")]);
    assert!(answers.iter().all(|answer| answer.speculation.drafted > 0), "it drafted");
}

fn evaluated(paths: &[&Path]) -> Evaluation {
    let records: Vec<Record> = paths.iter().map(|path| record::read(path).expect("a record")).collect();
    let mut evaluations = evaluate(&records);
    assert_eq!(evaluations.len(), 1, "one drafter");
    evaluations.remove(0)
}

#[test]
fn what_is_expected_of_a_setting_is_what_the_engine_then_does() {
    /// How far an expectation may be off, as a share: catching up after rounds without a draft, and texts that are not those of the
    /// record's rounds, are not in it.
    const TOLERANCE: f64 = 0.06;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rounds.jsonl");
    let mut best = Vec::new();
    for noise in [0.02, 0.1, 0.5] {
        record(&path, Some(noise), "survey:8");
        let evaluation = evaluated(&[&path]);
        assert!(evaluation.notes.is_empty(), "{:?}", evaluation.notes);
        let plain = tokens_per_second(&answers(Some(noise), "fixed:0", &Vec::new));
        for setting in &evaluation.settings {
            let actual = tokens_per_second(&answers(Some(noise), &setting.name, &Vec::new));
            let (expected, speedup) = (setting.tokens_per_second, setting.speedup.expect("plain rounds were recorded"));
            let off = |expected: f64, actual: f64| (expected / actual - 1.0).abs();
            let what = format!("noise {noise}, {}: {expected:.2} expected, {actual:.2} came", setting.name);
            assert!(setting.is_known, "{what}");
            assert!(off(expected, actual) <= TOLERANCE, "{what}");
            assert!(off(speedup, actual / plain) <= TOLERANCE, "{what}: {speedup:.2} times plain");
        }
        let recorded = evaluation.recorded;
        let replayed = recorded.replayed.expect("a policy of the table");
        assert!((replayed / recorded.tokens_per_second - 1.0).abs() <= TOLERANCE, "{recorded:?}");
        let setting = evaluation.best().expect("costs are known");
        let actual = tokens_per_second(&answers(Some(noise), &setting.name, &Vec::new));
        best.push((setting.name.clone(), actual / plain));
    }
    assert!(best[0].1 > 1.5 && best[1].1 > 1.0, "what is recommended pays: {best:?}");
    assert!(best[0].1 > best[1].1 && best[1].1 > best[2].1, "and the less, the more the draft model differs: {best:?}");
}

#[test]
fn a_record_says_what_it_cannot_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fixed, plain) = (folder.path().join("fixed.jsonl"), folder.path().join("plain.jsonl"));
    record(&fixed, Some(0.1), "fixed:4");
    let mut record = record::read(&fixed).expect("a record");
    // The last rounds of an answer have no room for four.
    record.requests.iter_mut().for_each(|request| request.rounds.retain(|round| round.round == 0 || round.budget == 4));
    let alone = evaluate(&[record]).remove(0);
    assert!(alone.notes.iter().any(|note| note.contains("no plain round")), "{:?}", alone.notes);
    assert!(alone.notes.iter().any(|note| note.contains("up to 4 drafted tokens")), "{:?}", alone.notes);
    assert!(alone.settings.iter().all(|setting| setting.speedup.is_none()));
    assert!(!alone.settings[8].is_known, "eight tokens were never drafted");
    assert!(alone.open > 0.0, "what follows a whole draft is not known");

    // A plain record of the same target has the price that is missing.
    let recorder = Recorder::create("--record", &plain, u64::MAX).expect("a record");
    recorder.run(&facts());
    answers(Some(0.1), "fixed:0", &|| vec![recorder.observer("none")]);
    let both = evaluated(&[&fixed, &plain]);
    assert!(!both.notes.iter().any(|note| note.contains("no plain round")), "{:?}", both.notes);
    assert!(both.settings[4].speedup.is_some_and(|speedup| speedup > 1.0), "{:?}", both.settings[4]);
}

#[test]
fn survival_counts_those_that_could_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rounds.jsonl");
    record(&path, Some(0.1), "survey:8");
    let depths = evaluated(&[&path]).survival;
    assert_eq!(depths.len(), 8);
    let record = record::read(&path).expect("a record");
    let rounds: Vec<_> = record.requests.iter().flat_map(|request| &request.rounds).filter(|r| r.budget > 0).collect();
    // A model drafts as much as it may: whoever was right so far and may go on comes to the next depth.
    for (index, depth) in depths.iter().enumerate() {
        let reached = rounds.iter().filter(|r| r.accepted >= index && r.budget > index && r.emitted > index);
        let kept = rounds.iter().filter(|r| r.accepted > index).count();
        assert_eq!((depth.reached, depth.kept), (reached.count(), kept), "depth {}", index + 1);
    }
    assert!(depths.windows(2).all(|pair| pair[0].survival >= pair[1].survival));
    // Counting a draft that was cut short as one that failed would say less.
    let naive = rounds.iter().filter(|r| r.accepted >= 8).count() as f64 / rounds.len() as f64;
    assert!(depths[7].survival > 1.2 * naive, "{} beside {naive}", depths[7].survival);
}

#[test]
fn look_ups_that_find_nothing_cost_a_plain_round() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rounds.jsonl");
    record(&path, None, "survey:8");
    let evaluation = evaluated(&[&path]);
    let expected = evaluation.settings.iter().find(|setting| setting.name == "fixed:8").expect("a setting");
    let actual = tokens_per_second(&answers(None, "fixed:8", &Vec::new));
    assert!((expected.tokens_per_second / actual - 1.0).abs() <= 0.1, "{expected:?}: {actual:.2} came");
    assert!(expected.tokens_per_round < 3.0, "{expected:?}");
    let mut text = String::new();
    table(&mut text, &evaluation).expect("text");
    assert!(text.contains("recommended: --") && text.contains("fixed:8"), "{text}");
    assert!(object(&evaluation)["recommended"]["flags"].is_string());
}
