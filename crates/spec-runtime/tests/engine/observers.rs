//! Observers see what happened, and change nothing.

use std::sync::{Arc, Mutex};

use spec_runtime::{RoundObserver, RoundReport};

use super::*;

/// Keeps of each round its text and tokens, what was drafted, and its times in order.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

struct Note {
    round: usize,
    text: Vec<Token>,
    emitted: Vec<Token>,
    drafted: usize,
    accepted: usize,
    times: [std::time::Duration; 6],
    rows: usize,
}

impl RoundObserver for Notes {
    fn round(&mut self, report: &RoundReport<'_>) {
        let times = report.times;
        let rows = (0..=report.tree.len()).filter(|&row| !report.rows.row(row).is_empty()).count();
        self.0.lock().expect("one thread").push(Note {
            round: report.round,
            text: report.text.to_vec(),
            emitted: report.emitted.to_vec(),
            drafted: report.tree.len(),
            accepted: report.accepted,
            times: [times.begun, times.drafted, times.submitted, times.passed, times.sampled, times.settled],
            rows,
        });
    }

    fn reads_rows(&self) -> bool {
        true
    }
}

#[test]
fn rounds_told_to_an_observer_make_up_the_generation() {
    let spec = HashSpec::default();
    let unseen = run(&mut engine(&HashModel::new(spec.clone())), request(40, 5));
    for (name, drafter) in drafters(&spec) {
        let notes = Notes::default();
        let observers: Vec<Box<dyn RoundObserver>> = vec![Box::new(notes.clone())];
        let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(drafter);
        let seen = run(&mut engine, Request { observers, ..request(40, 5) });
        assert_eq!(seen.tokens, unseen.tokens, "{name}");

        let notes = notes.0.lock().expect("one thread");
        let mut text = PROMPT.to_vec();
        for (index, note) in notes.iter().enumerate() {
            assert_eq!(note.round, index, "{name}");
            assert_eq!(note.text, text, "{name}");
            assert!(note.times.is_sorted(), "{name}: {:?}", note.times);
            assert_eq!(note.rows, 1 + note.drafted, "{name}: it asked for all rows");
            text.extend(&note.emitted);
        }
        assert_eq!(text[PROMPT.len()..], seen.tokens, "{name}");
        assert_eq!(notes.len() - 1, seen.speculation.rounds, "{name}");
        assert_eq!(notes.iter().map(|note| note.drafted).sum::<usize>(), seen.speculation.drafted, "{name}");
        assert_eq!(notes.iter().map(|note| note.accepted).sum::<usize>(), seen.speculation.accepted, "{name}");
        assert!(seen.speculation.drafted > 0, "{name}");
    }
}

/// Keeps what generations came to.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<Completion>>>);

impl RoundObserver for Ends {
    fn round(&mut self, _: &RoundReport<'_>) {}

    fn ended(&mut self, completion: &Completion) {
        self.0.lock().expect("one thread").push(completion.clone());
    }
}

#[test]
fn observers_hear_once_what_a_generation_came_to_and_nothing_of_one_that_fails() {
    let ends = Ends::default();
    let observed = || Request { observers: vec![Box::new(ends.clone())], ..request(20, 3) };
    let target = HashModel::new(HashSpec::default());
    let mut engine = engine(&target).with_drafter(model_drafter(HashSpec { noise: 0.3, ..HashSpec::default() }));
    let alone = run(&mut engine, observed());
    let mut text = spec_runtime::Session::new();
    let kept = text.generate(&mut engine, observed(), &mut |_| {}).expect("the generation succeeds");
    assert_eq!(*ends.0.lock().expect("one thread"), [alone, kept]);

    target.fail_in(target.passes() + 2..usize::MAX);
    error(engine.generate(observed(), &mut |_| {}));
    assert_eq!(ends.0.lock().expect("one thread").len(), 2);
}
