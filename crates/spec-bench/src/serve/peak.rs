//! The most requests a second that are served in time: clients come by chance at a rate, which is raised until too many wait
//! too long.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use spec_figures::Percentiles;

use super::client::{Client, Mode};
use super::dialogues::Dialogues;
use crate::arrivals::{Chance, poisson};
use crate::asking::{CHAT, Ending, ask};
use crate::http::Endpoint;
use crate::progress::Progress;

/// The rate is raised by this until it is too much, and then the gap is halved this often.
const RAISE: f64 = 1.5;
const HALVINGS: usize = 3;
/// Beyond it something else than the server is being measured.
const MOST_TRIALS: usize = 24;

/// What is still in time, and how a rate is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Seconds that 95 % of clients wait at most for the first text, and for all of it.
    pub(super) first: f64,
    pub(super) whole: f64,
    pub(super) trial: Duration,
    pub(super) start: f64,
    pub(super) max_tokens: usize,
}

/// One rate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trial {
    pub(super) mode: Mode,
    /// Clients a second.
    pub(super) rate: f64,
    pub(super) clients: usize,
    /// Refused for want of room: they never had an answer, and count as too late.
    pub(super) refused: usize,
    /// Seconds; `None` where nobody was answered.
    pub(super) first: Option<Percentiles>,
    pub(super) whole: Option<Percentiles>,
    pub(super) in_time: bool,
}

/// Both modes' trials, and the highest rate of each that was in time; 0 when none was.
#[derive(Serialize)]
pub(super) struct Figures {
    pub(super) trials: Vec<Trial>,
    pub(super) peak: [f64; 2],
}

/// Finds both peaks in turn: each step of the search is taken by one mode and then by the other.
pub(super) fn find(
    endpoint: &Endpoint,
    dialogues: &Dialogues,
    terms: &Terms,
    progress: &mut Progress,
) -> Result<Figures> {
    let mut searches = [Search::new(terms.start), Search::new(terms.start)];
    let mut trials = Vec::new();
    let questions: Vec<&String> = dialogues.dialogues.iter().flat_map(|dialogue| &dialogue.turns).collect();
    for step in 0..MOST_TRIALS {
        for mode in Mode::in_turn(step) {
            let Some(rate) = searches[mode as usize].rate() else { continue };
            let client = Client::of(endpoint, mode);
            let mut chance = Chance::new(step as u64 + 1);
            let visits: Vec<(Duration, Value)> = poisson(&mut chance, rate, terms.trial)
                .into_iter()
                .enumerate()
                .map(|(number, at)| {
                    // No two ask the same: what is cached is the shop's rules, as in its real days.
                    let said = format!("[{step}-{number}] {}", questions[chance.below(questions.len())]);
                    let messages = json!([
                        { "role": "system", "content": dialogues.system },
                        { "role": "user", "content": said },
                    ]);
                    (at, client.body(&messages, terms.max_tokens))
                })
                .collect();
            let trial = try_rate(&client, mode, rate, &visits, terms)?;
            progress.done(&trial.describe());
            searches[mode as usize].learn(rate, trial.in_time);
            trials.push(trial);
        }
    }
    Ok(Figures { trials, peak: searches.map(|search| search.good) })
}

/// Sends the clients at their times, whether or not those before them are served.
fn try_rate(client: &Client, mode: Mode, rate: f64, visits: &[(Duration, Value)], terms: &Terms) -> Result<Trial> {
    let begun = Instant::now();
    let ends: Mutex<Vec<Result<Ending>>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (at, body) in visits {
            std::thread::sleep(at.saturating_sub(begun.elapsed()));
            let ends = &ends;
            scope.spawn(move || {
                let end = ask(client.endpoint(), CHAT, body);
                ends.lock().unwrap_or_else(PoisonError::into_inner).push(end);
            });
        }
    });
    let (mut first, mut whole, mut refused) = (Vec::new(), Vec::new(), 0);
    for end in ends.into_inner().unwrap_or_else(PoisonError::into_inner) {
        match end.with_context(|| format!("at {rate:.2} requests/s"))? {
            Ending::Answered(answered) => {
                first.push(answered.first.as_secs_f64());
                whole.push(answered.whole.as_secs_f64());
            }
            Ending::Refused(refusal) => {
                ensure!(refusal.status == 429, "refused with {}: {}", refusal.status, refusal.reason);
                refused += 1;
            }
        }
    }
    let in_time = refused == 0 && is_in_time(&first, terms.first) && is_in_time(&whole, terms.whole);
    Ok(Trial {
        mode,
        rate,
        clients: visits.len(),
        refused,
        first: Percentiles::of(&first),
        whole: Percentiles::of(&whole),
        in_time,
    })
}

/// Nobody came, so that nobody waited; else by the 95th percentile.
fn is_in_time(seconds: &[f64], limit: f64) -> bool {
    Percentiles::of(seconds).is_none_or(|percentiles| percentiles.p95 <= limit)
}

impl Trial {
    fn describe(&self) -> String {
        let p95 = |of: Option<Percentiles>| of.map_or("-".to_owned(), |of| format!("{:.2} s", of.p95));
        format!(
            "{}, {:.2} requests/s: p95 {} to the first text, {} to the last, {} refused: {}",
            self.mode.name(),
            self.rate,
            p95(self.first),
            p95(self.whole),
            self.refused,
            if self.in_time { "in time" } else { "too slow" }
        )
    }
}

/// Raises a rate until it is too much, then halves between what was good and what was not.
struct Search {
    good: f64,
    bad: Option<f64>,
    next: f64,
    halvings: usize,
}

impl Search {
    fn new(start: f64) -> Self {
        Self { good: 0.0, bad: None, next: start, halvings: 0 }
    }

    /// The next rate to try.
    fn rate(&self) -> Option<f64> {
        (self.halvings <= HALVINGS).then_some(self.next)
    }

    fn learn(&mut self, rate: f64, in_time: bool) {
        if in_time {
            self.good = self.good.max(rate);
        } else {
            self.bad = Some(self.bad.map_or(rate, |bad| bad.min(rate)));
        }
        self.next = match self.bad {
            None => rate * RAISE,
            Some(bad) => {
                self.halvings += 1;
                (self.good + bad) / 2.0
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{RAISE, Search, is_in_time};

    fn search(peak: f64) -> (f64, usize) {
        let mut search = Search::new(1.0);
        let mut trials = 0;
        while let Some(rate) = search.rate() {
            search.learn(rate, rate <= peak);
            trials += 1;
        }
        (search.good, trials)
    }

    #[test]
    fn the_peak_is_found_from_below_and_closely() {
        for peak in [0.9, 1.0, 3.3, 17.0, 120.0] {
            let (found, trials) = search(peak);
            let left = 1.0 - 1.0 / RAISE;
            assert!(found <= peak && found >= peak * (1.0 - left / 4.0), "{found} for {peak}");
            assert!(trials <= 24, "{trials} trials for {peak}");
        }
        assert_eq!(search(0.0).0, 0.0);
    }

    #[test]
    fn the_slowest_twentieth_may_be_late() {
        let mut seconds = vec![1.0; 100];
        seconds[..5].fill(9.0);
        assert!(is_in_time(&seconds, 2.0));
        seconds[5] = 9.0;
        assert!(!is_in_time(&seconds, 2.0));
        assert!(is_in_time(&[], 0.1));
    }
}
