//! What is known to have happened before what: the order of work across streams, kept on the host.
//!
//! Every piece of work on a stream has a number, its tick. A stream knows, for every other stream, up to which tick it
//! has waited (by events); the host knows up to which tick each stream is done (by synchronising). Memory remembers who
//! touched it last. From these follows, without asking the device, whether a use is ordered after the earlier ones.
//! These are vector clocks (Mattern, "Virtual Time and Global States of Distributed Systems", 1989).

use std::collections::BTreeMap;

/// For each stream, a tick.
pub(crate) type Clock = BTreeMap<u64, u64>;

/// Work on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) stream: u64,
    pub(crate) tick: u64,
}

/// The last uses of some memory.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    write: Option<Point>,
    /// One for each stream at most.
    reads: Vec<Point>,
}

/// A use that is not known to be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) using: &'static str,
    pub(crate) stream: u64,
}

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Uses {
    /// The first earlier use that `is_over` does not know to be over and that an access would collide with.
    pub(crate) fn conflict(&self, access: Access, is_over: impl Fn(Point) -> bool) -> Option<Conflict> {
        let open = |point: &&Point| !is_over(**point);
        if let Some(point) = self.write.as_ref().filter(open) {
            return Some(Conflict { using: "writing", stream: point.stream });
        }
        match access {
            Access::Read => None,
            Access::Write => {
                self.reads.iter().find(open).map(|point| Conflict { using: "reading", stream: point.stream })
            }
        }
    }

    /// Notes a use that has no conflict.
    pub(crate) fn note(&mut self, access: Access, point: Point) {
        match access {
            Access::Read => {
                self.reads.retain(|earlier| earlier.stream != point.stream);
                self.reads.push(point);
            }
            Access::Write => {
                self.reads.clear();
                self.write = Some(point);
            }
        }
    }
}

/// What the host knows of the streams of a context.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    next_stream: u64,
    /// The last tick given out, by stream.
    issued: Clock,
    /// The last tick that is over, by stream.
    completed: Clock,
    /// What each stream has waited for.
    seen: BTreeMap<u64, Clock>,
}

impl Ledger {
    pub(crate) fn open(&mut self) -> u64 {
        self.next_stream += 1;
        self.next_stream
    }

    /// A destroyed stream has done everything.
    pub(crate) fn close(&mut self, stream: u64) {
        self.completed.insert(stream, u64::MAX);
        self.issued.remove(&stream);
        self.seen.remove(&stream);
    }

    pub(crate) fn issue(&mut self, stream: u64) -> Point {
        let tick = self.issued.entry(stream).or_default();
        *tick += 1;
        Point { stream, tick: *tick }
    }

    /// Everything that work put on the stream now comes after.
    pub(crate) fn now(&self, stream: u64) -> Clock {
        let mut clock = self.seen.get(&stream).cloned().unwrap_or_default();
        clock.insert(stream, self.issued.get(&stream).copied().unwrap_or_default());
        clock
    }

    /// The stream waits for an event that was recorded at `clock`.
    pub(crate) fn wait(&mut self, stream: u64, clock: &Clock) {
        merge(self.seen.entry(stream).or_default(), clock);
    }

    /// What the stream has waited for may not have happened.
    pub(crate) fn doubt(&mut self, stream: u64) {
        self.seen.remove(&stream);
    }

    /// The host has waited for everything up to `clock`.
    pub(crate) fn complete(&mut self, clock: &Clock) {
        merge(&mut self.completed, clock);
    }

    pub(crate) fn is_complete(&self, point: Point) -> bool {
        reaches(&self.completed, point)
    }

    /// Whether work that is put on the stream now comes after a point.
    pub(crate) fn is_before(&self, point: Point, stream: u64) -> bool {
        point.stream == stream
            || self.is_complete(point)
            || self.seen.get(&stream).is_some_and(|seen| reaches(seen, point))
    }
}

fn reaches(clock: &Clock, point: Point) -> bool {
    clock.get(&point.stream).is_some_and(|&tick| tick >= point.tick)
}

fn merge(into: &mut Clock, from: &Clock) {
    for (&stream, &tick) in from {
        let known = into.entry(stream).or_default();
        *known = (*known).max(tick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_comes_after_its_own_work_and_after_what_it_waited_for() {
        let mut ledger = Ledger::default();
        let (one, two, three) = (ledger.open(), ledger.open(), ledger.open());
        let first = ledger.issue(one);
        assert!(ledger.is_before(first, one) && !ledger.is_before(first, two));
        let event = ledger.now(one);
        let second = ledger.issue(one);
        ledger.wait(two, &event);
        assert!(ledger.is_before(first, two) && !ledger.is_before(second, two));
        // What a stream has waited for goes on to those who wait for it.
        let event = ledger.now(two);
        ledger.wait(three, &event);
        assert!(ledger.is_before(first, three) && !ledger.is_before(second, three));
        assert!(!ledger.is_complete(first));
        ledger.complete(&event);
        assert!(ledger.is_complete(first) && !ledger.is_complete(second));
        ledger.close(one);
        assert!(ledger.is_complete(second));
    }

    #[test]
    fn reads_collide_with_writes_and_writes_with_everything() {
        let (mut uses, one, two) = (Uses::default(), Point { stream: 1, tick: 1 }, Point { stream: 2, tick: 1 });
        uses.note(Access::Read, one);
        assert_eq!(uses.conflict(Access::Read, |_| false), None);
        let reading = Conflict { using: "reading", stream: 1 };
        assert_eq!(uses.conflict(Access::Write, |_| false), Some(reading));
        assert_eq!(uses.conflict(Access::Write, |point| point == one), None);
        uses.note(Access::Write, two);
        let writing = Conflict { using: "writing", stream: 2 };
        assert_eq!(uses.conflict(Access::Read, |point| point == one), Some(writing));
    }
}
