//! What rounds cost by their size, from the times that a record has.

use std::collections::BTreeMap;

use spec_figures::median;

use crate::record::{RequestRecord, Round};

/// Seconds by a count: medians of what was measured, made to rise, with lines between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Curve {
    /// Count, seconds, measurements; counts ascend, and seconds do not fall.
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) count: usize,
    pub(super) seconds: f64,
    /// Rounds behind it.
    pub(super) rounds: usize,
}

impl Curve {
    fn of(measured: BTreeMap<usize, Vec<f64>>) -> Self {
        let mut points: Vec<Point> = measured
            .into_iter()
            .filter_map(|(count, seconds)| Some(Point { count, rounds: seconds.len(), seconds: median(&seconds)? }))
            .collect();
        // Neighbours that fall are as far apart as their noise: each takes the mean of both (pool adjacent violators).
        let mut pools: Vec<(f64, f64, usize)> = Vec::new();
        for point in &points {
            pools.push((point.seconds, point.rounds as f64, 1));
            while let [.., before, last] = &pools[..]
                && before.0 > last.0
            {
                let (weight, len) = (before.1 + last.1, before.2 + last.2);
                let mean = (before.0 * before.1 + last.0 * last.1) / weight;
                pools.truncate(pools.len() - 2);
                pools.push((mean, weight, len));
            }
        }
        let risen = pools.iter().flat_map(|&(seconds, _, len)| std::iter::repeat_n(seconds, len));
        points.iter_mut().zip(risen).for_each(|(point, seconds)| point.seconds = seconds);
        Self { points }
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Whether a count lies within what was measured.
    pub(super) fn knows(&self, count: usize) -> bool {
        self.points.first().is_some_and(|least| least.count <= count)
            && self.points.last().is_some_and(|most| count <= most.count)
    }

    /// Seconds of a count: on the line between its neighbours, or on that through the last two.
    pub(super) fn at(&self, count: usize) -> f64 {
        let above = self.points.iter().position(|point| point.count >= count).unwrap_or(self.points.len());
        let (low, high) = match (&self.points[..], above) {
            ([], _) => return 0.0,
            ([only], _) => return only.seconds,
            (points, 0) => (points[0], points[1]),
            (points, above) if above == points.len() => (points[above - 2], points[above - 1]),
            (points, above) => (points[above - 1], points[above]),
        };
        let share = (count as f64 - low.count as f64) / (high.count - low.count) as f64;
        (low.seconds + share * (high.seconds - low.seconds)).max(0.0)
    }
}

/// What rounds cost.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Costs {
    /// Of a pass of the target, by its rows.
    pub(super) pass: Curve,
    /// Of a draft that the target waits for, by its tokens; 0 is having been asked in vain.
    pub(super) draft: Curve,
    /// Of judging and emitting a token.
    pub(super) sample: f64,
    /// Of settling the caches, a round.
    pub(super) rollback: f64,
}

impl Costs {
    /// Passes are priced by all records of one target, drafts by those of one drafter.
    pub(super) fn of<'a>(
        passes: impl Iterator<Item = &'a RequestRecord>,
        drafts: impl Iterator<Item = &'a RequestRecord> + Clone,
    ) -> Self {
        let mut pass: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for round in passes.flat_map(decoding) {
            pass.entry(round.rows()).or_default().push(round.seconds.pass());
        }
        let mut draft: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for round in drafts.clone().flat_map(decoding).filter(|round| round.budget > 0 && !round.forced) {
            draft.entry(round.drafted()).or_default().push(round.seconds.draft + round.seconds.late);
        }
        let (mut sample, mut emitted, mut rollback, mut rounds) = (0.0, 0, 0.0, 0);
        for round in drafts.flat_map(decoding) {
            sample += round.seconds.sample;
            emitted += round.emitted;
            rollback += round.seconds.rollback;
            rounds += 1;
        }
        Self {
            pass: Curve::of(pass),
            draft: Curve::of(draft),
            sample: sample / f64::from(u32::try_from(emitted.max(1)).unwrap_or(u32::MAX)),
            rollback: rollback / f64::from(rounds.max(1)),
        }
    }

    /// A pass that always takes as long, and drafts that take as long for each token.
    #[cfg(test)]
    pub(super) fn flat(pass: f64, token: f64) -> Self {
        let curve =
            |points: &[(usize, f64)]| Curve::of(points.iter().map(|&(count, time)| (count, vec![time])).collect());
        let draft = curve(&[(0, 0.0), (8, 8.0 * token)]);
        Self { pass: curve(&[(1, pass), (9, pass)]), draft, sample: 0.0, rollback: 0.0 }
    }

    /// A round of so many drafted tokens that emits so many; `asked` says whether the drafter had been.
    pub(super) fn round(&self, asked: bool, drafted: usize, emitted: usize) -> f64 {
        self.drafting(asked, drafted) + self.pass.at(1 + drafted) + self.sample * emitted as f64 + self.rollback
    }

    /// What its drafting takes.
    pub(super) fn drafting(&self, asked: bool, drafted: usize) -> f64 {
        if asked { self.draft.at(drafted) } else { 0.0 }
    }

    /// Whether rounds of such drafts were measured, or longer and shorter ones.
    pub(super) fn know(&self, drafted: usize) -> bool {
        self.pass.knows(1 + drafted) && (drafted == 0 || self.draft.knows(drafted))
    }

    /// The longest draft of which the costs are known.
    pub(super) fn longest_known(&self) -> usize {
        let rows = self.pass.points().last().map_or(0, |point| point.count);
        let draft = self.draft.points().last().map_or(0, |point| point.count);
        rows.saturating_sub(1).min(draft)
    }
}

/// Rounds behind the prompt that decoded and read no more than the last token.
fn decoding(request: &RequestRecord) -> impl Iterator<Item = &Round> + Clone {
    request.rounds.iter().filter(|round| round.round > 0 && round.read == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(usize, &[f64])]) -> Curve {
        Curve::of(points.iter().map(|&(count, seconds)| (count, seconds.to_vec())).collect())
    }

    #[test]
    fn a_curve_goes_through_medians_and_on_lines_between_and_beyond_them() {
        let curve = curve(&[(1, &[1.0, 9.0, 2.0]), (3, &[4.0, 4.0]), (5, &[4.0, 6.0])]);
        let at: Vec<f64> = (0..8).map(|count| curve.at(count)).collect();
        assert_eq!(at, [1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 5.5, 6.0]);
        assert_eq!([0, 1, 4, 5, 6].map(|count| curve.knows(count)), [false, true, true, true, false]);
        assert_eq!((Curve::default().at(3), Curve::default().knows(0)), (0.0, false));
        assert_eq!(self::curve(&[(4, &[2.0])]).at(9), 2.0);
    }

    #[test]
    fn what_falls_by_chance_is_levelled_by_its_weight() {
        let curve = curve(&[(1, &[1.0]), (2, &[4.0, 4.0, 4.0]), (3, &[2.0]), (4, &[8.0])]);
        assert_eq!([1, 2, 3, 4].map(|count| curve.at(count)), [1.0, 3.5, 3.5, 8.0]);
    }
}
