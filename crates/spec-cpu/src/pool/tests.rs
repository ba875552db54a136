use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;

fn counts(pool: &Pool, tasks: usize) -> Vec<usize> {
    let seen: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    pool.run(tasks, |index| {
        seen[index].fetch_add(1, Ordering::Relaxed);
    });
    seen.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn every_task_runs_exactly_once_also_on_more_threads_than_cores() {
    for threads in [0, 1, 2, 3, 16] {
        let pool = Pool::new(threads).expect("threads");
        for tasks in [0, 1, 2, 7, 100] {
            for _ in 0..50 {
                assert_eq!(counts(&pool, tasks), vec![1; tasks], "{threads} threads");
            }
        }
    }
}

#[test]
fn a_thread_goes_through_its_share_in_order_and_others_take_the_end() {
    let range = TaskRange::default();
    assert_eq!((range.take_first(), range.take_last()), (None, None));
    range.set(3..8);
    let taken = [range.take_first(), range.take_last(), range.take_last(), range.take_first(), range.take_last()];
    assert_eq!(taken, [Some(3), Some(7), Some(6), Some(4), Some(5)]);
    assert_eq!((range.take_first(), range.take_last()), (None, None));

    // A thread that has nothing of its own to do helps: the first task waits for all others.
    let pool = Pool::new(2).expect("threads");
    let done = AtomicUsize::new(0);
    let deadline = Instant::now() + Duration::from_secs(20);
    pool.run(10, |index| {
        while index == 0 && done.load(Ordering::SeqCst) < 9 {
            assert!(Instant::now() < deadline, "nobody takes the end of a share");
            std::thread::yield_now();
        }
        done.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(done.into_inner(), 10);
}

#[test]
fn regions_see_the_writes_of_the_region_before() {
    let pool = Pool::new(3).expect("threads");
    let mut data = vec![0_u64; 1000];
    for round in 0..500 {
        pool.run_chunks(&mut data, 37, |_, chunk| {
            for value in chunk {
                assert_eq!(*value, round);
                *value += 1;
            }
        });
    }
    assert!(data.iter().all(|&value| value == 500));
}

#[test]
fn sleeping_workers_wake_for_the_next_region() {
    let pool = Pool::new(2).expect("threads");
    for _ in 0..5 {
        // On a busy machine the worker may be late to find that it is idle.
        let deadline = Instant::now() + Duration::from_secs(20);
        while pool.shared.sleepers.load(Ordering::SeqCst) != 1 {
            assert!(Instant::now() < deadline, "an idle worker sleeps");
            std::thread::sleep(SPIN + YIELD);
        }
        // Each task waits for the other: it takes two threads to finish.
        let arrived = AtomicUsize::new(0);
        pool.run(2, |_| {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < 2 {
                assert!(Instant::now() < deadline, "the worker never came");
                std::thread::yield_now();
            }
        });
    }
}

#[test]
fn a_panic_in_any_task_reaches_the_caller_and_the_pool_survives() {
    let pool = Pool::new(4).expect("threads");
    for guilty in 0..20 {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(20, |index| assert_ne!(index, guilty, "task refuses"));
        }));
        let payload = outcome.expect_err("the panic must surface");
        let text = payload.downcast_ref::<String>().expect("a formatted message");
        assert!(text.contains("task refuses"), "{text}");
        assert_eq!(counts(&pool, 20), vec![1; 20]);
    }
}

#[test]
fn nested_and_concurrent_regions_run_inline() {
    let pool = Pool::new(2).expect("threads");
    let total = AtomicUsize::new(0);
    pool.run(8, |_| {
        pool.run(8, |_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(total.load(Ordering::Relaxed), 64);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert_eq!(counts(&pool, 9), vec![1; 9]);
                }
            });
        }
    });
}

#[test]
fn a_part_outside_the_slice_is_refused() {
    let mut data = [0; 4];
    let shared = SharedSlice::new(&mut data);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the only part alive.
        unsafe { shared.slice(2..5) }.len()
    }));
    assert!(outcome.is_err());
}
