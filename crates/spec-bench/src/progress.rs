//! Lines on standard error that say how far a measurement is.

use std::time::{Duration, Instant};

pub(crate) struct Progress {
    begun: Instant,
    done: usize,
    total: usize,
}

impl Progress {
    /// `total` is the number of runs to come, as far as it is known.
    pub(crate) fn new(total: usize) -> Self {
        Self { begun: Instant::now(), done: 0, total }
    }

    /// Says that a run has ended, and when the last one may.
    pub(crate) fn done(&mut self, what: &str) {
        self.done += 1;
        self.total = self.total.max(self.done);
        let left = left(self.begun.elapsed(), self.done, self.total);
        eprintln!("[{:>4}/{}, {} left] {what}", self.done, self.total, show(left));
    }

    /// Runs that will not happen after all.
    pub(crate) fn skip(&mut self, runs: usize) {
        self.total = self.total.saturating_sub(runs);
    }
}

/// What is left when the runs to come take as long as those so far did.
fn left(elapsed: Duration, done: usize, total: usize) -> Duration {
    elapsed.mul_f64((total - done) as f64 / done.max(1) as f64)
}

fn show(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{left, show};
    use std::time::Duration;

    #[test]
    fn what_is_left_follows_from_what_is_done() {
        assert_eq!(left(Duration::from_secs(30), 3, 12), Duration::from_secs(90));
        assert_eq!(left(Duration::from_secs(30), 12, 12), Duration::ZERO);
    }

    #[test]
    fn times_are_shown_in_a_unit_that_suits_them() {
        let shown = [99, 100, 5999, 9000].map(|seconds| show(Duration::from_secs(seconds)));
        assert_eq!(shown, ["99 s", "2 min", "100 min", "2.5 h"]);
    }
}
