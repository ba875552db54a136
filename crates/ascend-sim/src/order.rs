//! What happens before what, by vector clocks (Fidge 1988, Mattern 1989), so that a missing wait is found whether or not
//! it did harm in this run.
//!
//! Streams and the host are actors. Each counts its steps; a moment says of every actor up to which step it
//! is known to be done. Queuing hands the host's moment to the task, an event hands a stream's moment on, synchronising
//! hands it to the host. Two accesses to the same bytes, one of them a write, are in order when the later one's moment
//! contains the earlier one's step.

use std::collections::BTreeMap;
use std::ops::Range;

/// A stream, or the host.
pub(crate) type Actor = usize;

/// Steps of actors that are known to be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment(BTreeMap<Actor, u64>);

impl Moment {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn merge(&mut self, other: &Moment) {
        for (&actor, &step) in &other.0 {
            let mine = self.0.entry(actor).or_default();
            *mine = (*mine).max(step);
        }
    }

    /// One more step of an actor.
    pub(crate) fn advance(&mut self, actor: Actor) -> u64 {
        let step = self.0.entry(actor).or_default();
        *step += 1;
        *step
    }

    fn contains(&self, actor: Actor, step: u64) -> bool {
        self.0.get(&actor).is_some_and(|known| *known >= step)
    }
}

/// How bytes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Read,
    Write,
    /// Some of them are written, others left alone, as a cache's slots are; two of these do not conflict.
    Scatter,
}

impl Usage {
    fn conflicts(self, other: Usage) -> bool {
        !matches!((self, other), (Usage::Read, Usage::Read) | (Usage::Scatter, Usage::Scatter))
    }
}

/// An access to bytes of device memory, before it happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) address: usize,
    pub(crate) len: usize,
    pub(crate) usage: Usage,
}

#[derive(Clone, Debug)]
struct Past {
    bytes: Range<usize>,
    usage: Usage,
    actor: Actor,
    step: u64,
    name: String,
}

/// Accesses to one allocation that later ones have to be in order with.
#[derive(Debug, Default)]
pub(crate) struct History(Vec<Past>);

impl History {
    /// Adds an access, and returns the names of earlier ones that it races with.
    pub(crate) fn add(
        &mut self,
        bytes: Range<usize>,
        usage: Usage,
        (actor, step): (Actor, u64),
        moment: &Moment,
        name: &str,
    ) -> Vec<String> {
        let mut races = Vec::new();
        self.0.retain(|past| {
            if past.bytes.start >= bytes.end || bytes.start >= past.bytes.end {
                return true;
            }
            let ordered = past.actor == actor || moment.contains(past.actor, past.step);
            if !ordered && usage.conflicts(past.usage) {
                races.push(past.name.clone());
            }
            let covered = bytes.start <= past.bytes.start && past.bytes.end <= bytes.end;
            // What is in order with this access, and at most as strong, is implied by it from now on.
            let implied = ordered && covered && (usage == Usage::Write || usage == past.usage);
            // A race is reported once.
            !(implied || !ordered && covered && usage == Usage::Write)
        });
        self.0.push(Past { bytes, usage, actor, step, name: name.to_owned() });
        races
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: Actor = 1;
    const READER: Actor = 2;

    fn written() -> (History, Moment) {
        let (mut history, mut writer) = (History::default(), Moment::default());
        let step = writer.advance(WRITER);
        assert!(history.add(0..64, Usage::Write, (WRITER, step), &writer.clone(), "write").is_empty());
        (history, writer)
    }

    #[test]
    fn a_read_that_knows_of_the_write_is_in_order() {
        let (mut history, writer) = written();
        let mut reader = Moment::default();
        reader.merge(&writer);
        let step = reader.advance(READER);
        assert!(history.add(8..16, Usage::Read, (READER, step), &reader, "read").is_empty());
    }

    #[test]
    fn a_read_that_does_not_know_of_the_write_races_where_they_overlap() {
        let (mut history, _) = written();
        let mut reader = Moment::default();
        let step = reader.advance(READER);
        assert!(history.add(64..96, Usage::Read, (READER, step), &reader, "beside").is_empty());
        assert_eq!(history.add(63..96, Usage::Read, (READER, step), &reader, "over"), ["write"]);
    }

    #[test]
    fn knowing_of_an_earlier_step_is_not_knowing_of_a_later_one() {
        let (mut history, writer) = written();
        let mut reader = Moment::default();
        reader.merge(&writer);
        let mut writer = writer;
        let step = writer.advance(WRITER);
        history.add(0..64, Usage::Write, (WRITER, step), &writer, "second write");
        let step = reader.advance(READER);
        assert_eq!(history.add(0..8, Usage::Read, (READER, step), &reader, "read"), ["second write"]);
    }

    #[test]
    fn scattered_writes_of_one_cache_conflict_with_reads_only() {
        let mut history = History::default();
        let mut one = Moment::default();
        let step = one.advance(WRITER);
        history.add(0..64, Usage::Scatter, (WRITER, step), &one, "scatter");
        let mut other = Moment::default();
        let step = other.advance(READER);
        assert!(history.add(0..64, Usage::Scatter, (READER, step), &other, "scatter too").is_empty());
        assert_eq!(history.add(0..64, Usage::Read, (READER, step), &other, "read"), ["scatter"]);
    }
}
