//! Every limit is met in a run of the real engine, and named first there.

mod documents;
mod stage;

use std::collections::BTreeSet;

use spec_core::Fixed;
use spec_testing::HashSpec;

use super::diagnosis::DIAGNOSES;
use stage::{LookUp, Scene, steep, target};

/// A draft model that says what the target says, but for a share of another's logits.
fn like(noise: f32) -> HashSpec {
    HashSpec { noise, ..target() }
}

/// One that is sure of its text: a draft model that costs much is tried the less, the less sure the target is.
fn sure(noise: f32) -> HashSpec {
    HashSpec { noise, spread: 80.0, ..target() }
}

fn foreign() -> HashSpec {
    HashSpec { seed: 99, ..target() }
}

/// What limits a run, and a run that it limits more than anything else does.
fn scenes() -> Vec<(&'static str, Scene)> {
    let healthy = Scene::healthy;
    let fixed = |length: fn() -> Box<dyn spec_core::LengthPolicy>| Scene { length, plain_beside: true, ..healthy() };
    let four = || fixed(|| Box::new(Fixed(4)));
    let look_up = |takes: f64, is_right: bool| Some(LookUp { takes, is_right });
    vec![
        ("memory-bound", healthy()),
        ("memory-bound", Scene { temperature: 0.8, ..healthy() }),
        ("draft-too-large", Scene { draft: Some((like(0.1), 0.8)), ..four() }),
        ("draft-too-large", Scene { target: sure(0.0), draft: Some((sure(0.1), 0.8)), tokens: 900, ..healthy() }),
        ("no-acceptance", Scene { draft: Some((foreign(), 0.1)), ..four() }),
        (
            "foreign-vocabulary",
            Scene { draft: Some((foreign(), 0.1)), told: |run| run.shared_vocabulary = Some(0.4), ..four() },
        ),
        (
            "base-and-instruct",
            Scene {
                draft: Some((foreign(), 0.1)),
                told: |run| run.target.name = "Large 2.5 Instruct".into(),
                ..four()
            },
        ),
        ("unlike-target", Scene { draft: Some((like(0.5), 0.1)), ..four() }),
        ("high-temperature", Scene { draft: None, look_up: look_up(0.001, true), temperature: 2.5, ..four() }),
        ("draft-too-long", Scene { draft: Some((like(0.12), 0.1)), ..fixed(|| Box::new(Fixed(14))) }),
        ("draft-too-short", fixed(|| Box::new(Fixed(1)))),
        ("verification-not-flat", Scene { pass: steep, ..fixed(|| Box::new(Fixed(8))) }),
        ("busy-machine", Scene { stumbles: 7, ..healthy() }),
        ("draft-catches-up", Scene { prompt: 1200, tokens: 160, draft: Some((like(0.02), 0.25)), ..healthy() }),
        ("slow-look-up", Scene { draft: None, look_up: look_up(1.2, true), ..four() }),
        ("round-overhead", Scene { receiving: 0.1, ..healthy() }),
        ("long-prompt", Scene { prompt: 1200, tokens: 12, ..healthy() }),
        ("speculation-off", Scene { draft: None, ..healthy() }),
        ("speculation-off", Scene { told: |run| run.length_policy = "fixed:0".into(), ..fixed_at_nothing() }),
        ("nothing-to-copy", Scene { draft: None, look_up: look_up(0.0, false), ..healthy() }),
        ("drafting-rests", Scene { draft: Some((foreign(), 0.1)), tokens: 120, ..healthy() }),
        ("short-answer", Scene { tokens: 10, ..healthy() }),
        ("forbidden-drafts", Scene { multiples: Some(8), ..four() }),
        ("lossy-rule", Scene { rule: Some("typical"), ..healthy() }),
        ("shared-passes", Scene { pass: steep, requests: 8, ..healthy() }),
        ("preempted", Scene { target: HashSpec { blocks: 24, ..target() }, requests: 6, tokens: 100, ..four() }),
    ]
}

fn fixed_at_nothing() -> Scene {
    Scene { length: || Box::new(Fixed(0)), ..Scene::healthy() }
}

/// Those that need a machine of their own, and are met by the binary: `tests/cli/explain.rs`.
const OF_THE_MACHINE: [&str; 5] =
    ["slow-kernels", "too-few-threads", "too-many-threads", "draft-loading", "memory-nearly-full"];

#[test]
fn every_limit_is_named_first_where_it_is_the_greatest() {
    let mut wrong = Vec::new();
    for (expected, scene) in scenes() {
        let (names, text) = scene.explain();
        println!("{expected}: {names:?}\n{text}");
        if names.first() != Some(&expected) {
            wrong.push(format!("{expected}: {names:?}\n{text}"));
        }
        assert!(names.len() <= 3, "{names:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_diagnosis_is_met_in_a_run() {
    let met: BTreeSet<&str> = scenes().iter().map(|(name, _)| *name).chain(OF_THE_MACHINE).collect();
    let named: BTreeSet<&str> = DIAGNOSES.iter().map(|diagnosis| diagnosis.name).collect();
    assert_eq!(named.len(), DIAGNOSES.len(), "no two have one name");
    assert_eq!(met, named);
}

#[test]
fn a_run_that_is_well_set_is_told_what_bounds_it_and_nothing_else() {
    let (names, text) = Scene::healthy().explain();
    assert_eq!(names, ["memory-bound"], "{text}");
    assert!(text.contains("GB/s") && text.contains("times as fast"), "{text}");
}

#[test]
fn the_same_drafts_are_not_blamed_on_the_temperature_where_there_is_none() {
    let scene = |temperature| Scene {
        draft: None,
        look_up: Some(LookUp { takes: 0.001, is_right: true }),
        temperature,
        length: || Box::new(Fixed(4)),
        ..Scene::healthy()
    };
    assert!(scene(2.5).explain().0.contains(&"high-temperature"));
    assert!(!scene(0.0).explain().0.contains(&"high-temperature"));
}
