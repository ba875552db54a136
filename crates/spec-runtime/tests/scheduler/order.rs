//! Who runs first, who waits, who is refused.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spec_runtime::{CancelToken, Clock, Refused, Service};

/// Milliseconds that the test says have passed.
#[derive(Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn one_at_a_time(max_queue: usize) -> (Scheduler, Arc<Hand>) {
    let clock = Arc::new(Hand::default());
    let engine = engine(&HashModel::new(wide())).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let options = SchedulerOptions { max_running: 1, max_queue, ..Default::default() };
    (Scheduler::new(engine, options), clock)
}

#[test]
fn a_full_queue_refuses_with_the_numbers() {
    let (mut scheduler, _) = one_at_a_time(3);
    // One has a place, and waits for nobody.
    let logs: Vec<Log> = (0..4).map(|index| submit(&mut scheduler, request(index, 5, 4, 0))).collect();
    let refuses = |scheduler: &mut Scheduler| {
        let refused = scheduler.submit(Log::default().job(request(9, 5, 4, 0)));
        matches!(refused, Err(Refused::QueueFull { waiting: 3, max: 3 }))
    };
    assert!(refuses(&mut scheduler));
    scheduler.step();
    assert!(refuses(&mut scheduler), "the first runs, and the others wait");
    while !logs[0].has_ended() {
        scheduler.step();
    }
    assert!(scheduler.submit(Log::default().job(request(9, 5, 4, 0))).is_ok(), "the first has left its place");
    finish(&mut scheduler);
    assert!(logs.iter().all(Log::has_ended));
    let totals = scheduler.status().totals;
    assert_eq!((totals.finished.length, totals.finished.refused), (5, 2));
    assert_eq!((totals.prompt_tokens, totals.completion_tokens), (25, 20));
}

#[test]
fn higher_priorities_come_first_and_waiting_outweighs_them() {
    let (mut scheduler, clock) = one_at_a_time(64);
    let at = |scheduler: &mut Scheduler, priority, seconds: u64, index| {
        clock.0.store(seconds * 1000, Ordering::Relaxed);
        let log = Log::default();
        scheduler.submit(Job { priority, ..log.job(request(index, 5, 1, 0)) }).expect("it is taken");
        log
    };
    let logs = [
        at(&mut scheduler, 0, 0, 0),
        at(&mut scheduler, 1, 1, 1),
        at(&mut scheduler, 1, 2, 2),
        // Later than a level of priority counts for.
        at(&mut scheduler, 1, 11, 3),
        at(&mut scheduler, -1, 12, 4),
    ];
    let mut order = Vec::new();
    while order.len() < logs.len() {
        scheduler.step();
        order.extend(
            (0..logs.len()).filter(|index| logs[*index].has_ended() && !order.contains(index)).collect::<Vec<_>>(),
        );
    }
    assert_eq!(order, [1, 2, 0, 3, 4]);
}

#[test]
fn deadlines_fail_what_waits_and_end_what_runs() {
    let (mut scheduler, clock) = one_at_a_time(64);
    let with = |scheduler: &mut Scheduler, index| {
        let log = Log::default();
        let deadline = Some(Duration::from_secs(5));
        scheduler.submit(Job { deadline, ..log.job(request(index, 5, 100, 0)) }).expect("it is taken");
        log
    };
    let (first, second) = (with(&mut scheduler, 0), with(&mut scheduler, 1));
    for _ in 0..10 {
        scheduler.step();
    }
    clock.0.store(5000, Ordering::Relaxed);
    finish(&mut scheduler);
    let got = first.completion();
    assert_eq!((got.finish, got.finish.name(), got.tokens.len()), (FinishReason::Deadline, "deadline", 10));
    let message = second.error();
    assert!(message.contains("deadline of 5s"), "{message}");
    let finished = scheduler.status().totals.finished;
    assert_eq!((finished.deadline, finished.failed), (1, 1));
}

#[test]
fn what_can_never_fit_is_refused_at_once_and_what_fills_the_cache_ends_there() {
    let target = HashModel::new(HashSpec { blocks: 4, block_tokens: 8, ..HashSpec::default() });
    let mut scheduler = Scheduler::new(engine(&target), SchedulerOptions::default());
    let refused = scheduler.submit(Log::default().job(request(0, 32, 4, 0)));
    assert!(matches!(refused, Err(Refused::TooLarge { tokens: 32, capacity: 32 })));
    let bad = scheduler.submit(Log::default().job(Request::new(vec![77], 4))).expect_err("no such token").to_string();
    assert!(bad.contains("77"), "{bad}");
    let log = submit(&mut scheduler, request(0, 20, 100, 0));
    finish(&mut scheduler);
    let got = log.completion();
    assert_eq!((got.finish, got.completion_tokens), (FinishReason::Length, 13), "the last token is not fed");
    assert_eq!(target.free_blocks(), 4);
}

#[test]
fn a_storm_of_cancels_leaves_nothing_behind_and_nobody_else_notices() {
    let spec = wide();
    let (target, draft) = (HashModel::new(spec.clone()), HashModel::new(spec.clone()));
    let drafter = Box::new(ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>));
    let mut scheduler = Scheduler::new(engine(&target).with_drafter(drafter), SchedulerOptions::default());
    let calm = submit(&mut scheduler, request(99, 9, 120, 4));
    let mut open = Vec::new();
    for index in 0..50 {
        let cancel = CancelToken::new();
        let asked = Request { cancel: cancel.clone(), ..request(index, 3 + index % 30, 400, 3) };
        open.push((submit(&mut scheduler, asked), cancel));
        scheduler.step();
        // Some before they have a place, some in their prompt, some later.
        if let Some((_, cancel)) = open.get(index / 2 + index % 7) {
            cancel.cancel();
        }
    }
    open.iter().for_each(|(_, cancel)| cancel.cancel());
    finish(&mut scheduler);
    assert!(open.iter().all(|(log, _)| log.completion().finish == FinishReason::Cancelled));
    let got = calm.completion();
    assert_eq!(got.tokens, alone(&mut engine(&target), request(99, 9, 120, 0)).tokens);
    assert_eq!(got.speculation.accepted, got.speculation.drafted, "its draft state is its own");
    assert_eq!((target.free_blocks(), draft.free_blocks()), (512, 512));
    let status = scheduler.status();
    assert_eq!((status.running, status.queued, status.totals.finished.cancelled), (0, 0, 50));
}

#[test]
fn a_service_serves_from_any_thread_drains_and_stops() {
    let target = HashModel::new(wide());
    let service = Service::start(Scheduler::new(engine(&target), SchedulerOptions::default())).expect("a thread");
    let logs: Vec<Log> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..6)
            .map(|index| {
                let service = &service;
                scope.spawn(move || {
                    let log = Log::default();
                    service.submit(log.job(request(index, 6, 20, 0))).expect("it is taken");
                    log
                })
            })
            .collect();
        asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let endless = Log::default();
    service.submit(endless.job(request(7, 6, 480, 0))).expect("it is taken");
    service.drain();
    assert!(matches!(service.submit(Log::default().job(request(8, 6, 4, 0))), Err(Refused::Stopping)));
    while !logs.iter().all(Log::has_ended) {
        std::thread::yield_now();
    }
    service.stop();
    for (index, log) in logs.iter().enumerate() {
        assert_eq!(log.completion().tokens, alone(&mut engine(&target), request(index, 6, 20, 0)).tokens);
    }
    let got = endless.completion();
    assert!(matches!(got.finish, FinishReason::Cancelled | FinishReason::Length));
    assert_eq!(target.free_blocks(), 512);
}
