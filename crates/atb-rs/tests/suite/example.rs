//! The example's own pipeline, on the fake: every wait in it is needed.

#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/matmul_rms_norm.rs"]
mod matmul_rms_norm;

use crate::{fake, open};
use matmul_rms_norm::{expected, run};

fn worst(session: &fake::Session) -> f64 {
    let (runtime, context) = open(session);
    let outcome = run(&context).unwrap();
    drop(context);
    runtime.shutdown().unwrap();
    assert_eq!(session.live(), Vec::<&str>::new());
    let pairs = outcome.normed.iter().zip(expected());
    pairs
        .map(|(got, wanted)| (got.to_f64() - wanted).abs())
        .fold(0.0, |worst, next| if next.is_nan() { f64::INFINITY } else { worst.max(next) })
}

/// Everything late, or everything early but for one of the two streams.
const SCHEDULES: [Option<usize>; 3] = [None, Some(1), Some(2)];

#[test]
fn the_example_computes_what_f64_does_in_every_schedule() {
    for lazy_stream in SCHEDULES {
        let session = fake::start();
        session.with(|state| state.lazy_stream = lazy_stream);
        let worst = worst(&session);
        assert!(worst < 0.01, "{lazy_stream:?}: {worst}");
        assert_eq!(session.calls("aclrtStreamWaitEvent"), 2);
        assert_eq!(session.calls("aclrtSynchronizeEvent"), 1);
    }
}

#[test]
fn without_any_one_of_its_waits_the_example_is_wrong_in_some_schedule() {
    for (function, nth) in [("aclrtStreamWaitEvent", 1), ("aclrtStreamWaitEvent", 2), ("aclrtSynchronizeEvent", 1)] {
        let is_wrong = |&lazy_stream: &Option<usize>| {
            let session = fake::start();
            session.ignore(function, nth);
            session.with(|state| state.lazy_stream = lazy_stream);
            worst(&session) > 0.1
        };
        assert!(SCHEDULES.iter().any(is_wrong), "call {nth} of {function} was not needed");
    }
}

#[test]
fn the_time_between_two_events_is_the_devices() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    // The fake says half a millisecond for each piece of work: product, norm, and the second event.
    assert_eq!(run(&context).unwrap().elapsed, std::time::Duration::from_micros(1500));
}
