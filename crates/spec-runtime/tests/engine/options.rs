//! Everything that a request can ask for, with and without speculation.

use spec_core::Goodput;
use spec_runtime::{Chooser, SuffixDrafter};

use super::*;

/// What a row changes in a request, and what shows that it did something.
struct Asked {
    name: &'static str,
    /// The second is the answer to a request that asks for nothing.
    change: fn(&mut Request, &Completion),
    /// Whether the answer differs from that of a request without it, greedy and sampled.
    shows: [bool; 2],
}

const ASKED: &[Asked] = &[
    Asked { name: "nothing", change: |_, _| {}, shows: [false; 2] },
    Asked { name: "logprobs", change: |request, _| request.logprobs = Some(4), shows: [false; 2] },
    Asked { name: "top-k", change: |request, _| request.sampling.top_k = 3, shows: [false, true] },
    Asked { name: "top-p", change: |request, _| request.sampling.top_p = 0.5, shows: [false, true] },
    Asked { name: "min-p", change: |request, _| request.sampling.min_p = 0.4, shows: [false, true] },
    Asked { name: "repeat penalty", change: |request, _| request.sampling.repeat_penalty = 1.3, shows: [true; 2] },
    Asked { name: "presence penalty", change: |request, _| request.sampling.presence_penalty = 1.5, shows: [true; 2] },
    Asked {
        name: "frequency penalty",
        change: |request, _| request.sampling.frequency_penalty = 0.4,
        shows: [true; 2],
    },
    Asked {
        name: "penalty window",
        change: |request, _| {
            request.sampling.presence_penalty = 3.0;
            request.sampling.penalty_window = 5;
        },
        shows: [true; 2],
    },
    Asked {
        name: "logit bias",
        change: |request, _| request.sampling.logit_bias = vec![(7, 2.0), (9, -3.0)],
        shows: [true; 2],
    },
    Asked {
        name: "banned tokens",
        change: |request, _| request.sampling.logit_bias = (0..16).map(|token| (token, f32::NEG_INFINITY)).collect(),
        shows: [true; 2],
    },
    Asked {
        name: "end id",
        change: |request, bare| {
            let first = |token: &&Token| bare.tokens.iter().position(|other| other == *token);
            request.stop.end_ids = bare.tokens.iter().max_by_key(first).copied().into_iter().collect();
        },
        shows: [true; 2],
    },
    Asked {
        name: "stop texts",
        change: |request, bare| request.stop.texts = vec!["never said".into(), bare.text[50..53].into()],
        shows: [true; 2],
    },
    Asked { name: "choice", change: |request, _| request.choice = 2, shows: [false, true] },
    Asked { name: "width 1", change: |request, _| request.draft_width = 1, shows: [false; 2] },
    Asked {
        name: "all of it",
        change: |request, _| {
            request.sampling.top_k = 20;
            request.sampling.top_p = 0.95;
            request.sampling.min_p = 0.02;
            request.sampling.repeat_penalty = 1.1;
            request.sampling.presence_penalty = 0.3;
            request.sampling.frequency_penalty = 0.2;
            request.sampling.penalty_window = 40;
            request.sampling.logit_bias = vec![(3, 1.5), (4, f32::NEG_INFINITY)];
            request.stop.texts = vec!["zzz".into()];
            request.logprobs = Some(2);
        },
        shows: [true; 2],
    },
];

fn every_drafter(spec: &HashSpec) -> Vec<(&'static str, Box<dyn Drafter>)> {
    let mut all = drafters(spec);
    all.push((
        "auto",
        Box::new(Chooser::new(vec![
            Box::new(SuffixDrafter::new()),
            Box::new(NgramDrafter::new()),
            model_drafter(HashSpec { noise: 0.3, ..spec.clone() }),
        ])),
    ));
    all
}

#[test]
fn whatever_a_request_asks_for_is_the_same_with_and_without_speculation() {
    let spec = HashSpec { order: 6, spread: 40.0, ..HashSpec::default() };
    let mut drafted = std::collections::BTreeMap::new();
    for asked in ASKED {
        for (temperature, shows) in [0.0, 0.9].into_iter().zip(asked.shows) {
            let bare = plain(&spec, Request { sampling: sampled(temperature), ..request(90, 5) });
            let with = |k| {
                let mut request = Request { sampling: sampled(temperature), logprobs: Some(1), ..request(90, k) };
                (asked.change)(&mut request, &bare);
                request
            };
            let expected = plain(&spec, with(5));
            assert_eq!(expected.text != bare.text, shows, "{} at {temperature} does something", asked.name);
            for (name, drafter) in every_drafter(&spec) {
                let what = format!("{} at {temperature}, {name}", asked.name);
                let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(drafter);
                let mut streamed = String::new();
                let mut request = with(5);
                if name == "auto" {
                    request.draft_len = Box::new(Goodput::new(8));
                }
                let got = engine.generate(request, &mut |emitted| streamed.push_str(&emitted.text)).expect("an answer");
                assert_eq!(
                    (&got.tokens, &got.text, got.finish),
                    (&expected.tokens, &expected.text, expected.finish),
                    "{what}"
                );
                assert_eq!(streamed, expected.text, "{what}");
                assert_eq!(got.completion_tokens, expected.completion_tokens, "{what}");
                assert!(got.logprobs == expected.logprobs && got.logprobs.is_some(), "{what}: log-probabilities");
                assert!(got.speculation.drafted > 0 || name == "ngram", "{what}: nothing was drafted");
                *drafted.entry(name).or_insert(0) += got.speculation.drafted;
            }
        }
    }
    assert!(drafted.values().all(|&count| count > 20), "{drafted:?}");
}
