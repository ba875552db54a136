//! Failures and cancellation while a block is drafted ahead: what is held goes back, and the next request is right.

use super::*;

/// Runs a request in which `fault` happens at pass `at` of the target or the drafter, then one in which nothing does.
fn with_fault(at: usize, on_target: bool, on_host: bool, fault: Fault, cancel: &CancelToken) -> Option<Completion> {
    let what = format!("{fault:?} at pass {at}, the target's: {on_target}, drafting on the host: {on_host}");
    let spec = HashSpec::default();
    let wanted = plain(&spec, request(40, 3)).tokens;
    let pair = Pair::new(spec.clone(), HashSpec { noise: 0.1, ..spec.clone() }, 0.2);
    let mut engine = pair.engine(false, Box::new(pair.drafter(on_host)));
    let failing = if on_target { &pair.target } else { &pair.draft };
    failing.fail_at(at, fault);
    let first = engine.generate(Request { cancel: cancel.clone(), ..request(40, 3) }, &mut |_| {});
    assert!(failing.passes() > at, "{what}: it came so far");
    pair.nothing_is_held(&what);
    let first = match first {
        Ok(got) => {
            assert!(wanted.starts_with(&got.tokens), "{what}");
            Some(got)
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("it fails at") || message.contains("NaN"), "{what}: {message}");
            None
        }
    };
    failing.fail_at(usize::MAX, Fault::Submit);
    let second = run(&mut engine, request(40, 3));
    assert_eq!(second.tokens, wanted, "{what}: the next request");
    assert!(second.speculation.ahead.used > 0, "{what}");
    pair.nothing_is_held(&what);
    first
}

#[test]
fn a_target_that_fails_ends_the_request_and_nothing_is_held() {
    for on_host in [false, true] {
        for at in 0..8 {
            for fault in [Fault::Submit, Fault::Wait, Fault::NotANumber] {
                let got = with_fault(at, true, on_host, fault.clone(), &CancelToken::new());
                assert!(got.is_none(), "{fault:?} at pass {at} is told");
            }
        }
    }
}

#[test]
fn a_drafter_that_fails_ahead_costs_time_and_no_request() {
    let mut survived = 0;
    for on_host in [false, true] {
        for at in 0..24 {
            for fault in [Fault::Submit, Fault::Wait, Fault::NotANumber] {
                let got = with_fault(at, false, on_host, fault.clone(), &CancelToken::new());
                // A draft that a round waits for is part of the round.
                assert!(at > 2 || got.is_none(), "{fault:?} at pass {at}: the first draft is not made ahead");
                if let Some(got) = got {
                    assert_eq!(got.tokens.len(), 40);
                    survived += 1;
                }
            }
        }
    }
    assert!(survived > 60, "most passes are made ahead: {survived}");
}

#[test]
fn cancelling_at_any_pass_ends_the_generation_and_nothing_is_held() {
    for on_target in [false, true] {
        for at in 0..12 {
            let cancel = CancelToken::new();
            let got = with_fault(at, on_target, false, Fault::Cancel(cancel.clone()), &cancel);
            let got = got.expect("a cancelled request is no error");
            assert_eq!(got.finish, spec_runtime::FinishReason::Cancelled);
        }
    }
}

#[test]
fn a_generation_that_is_let_go_while_something_is_drafted_ahead_leaves_nothing() {
    let spec = HashSpec::default();
    let pair = Pair::new(spec.clone(), spec.clone(), 0.2);
    let mut engine = pair.engine(false, Box::new(pair.drafter(false)));
    for rounds in 1..6 {
        let mut generation = engine.start(request(40, 3)).expect("a legal request");
        for _ in 0..=rounds {
            engine.step(&mut generation, &mut |_| {}).expect("the step succeeds");
        }
        assert!(generation.completion().speculation.ahead.drafted > 0);
        engine.finish(generation);
        pair.nothing_is_held("after each");
    }
}
