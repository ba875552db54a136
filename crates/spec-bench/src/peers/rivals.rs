//! The settings of llama.cpp on one prompt: their rates, and which of them are still in the run.

use anyhow::{Result, ensure};
use spec_figures::Spread;

use super::outputs::Decoded;
use super::settings::{PLAIN, Setting};

/// After the trial rounds a setting goes on when its best rate is at least this share of the best of all: far enough below
/// it that no noise of this machine makes it the best after all.
const STAYS_FROM: f64 = 0.8;

pub(crate) struct Rivals {
    all: Vec<Rival>,
    prompt_tokens: Option<usize>,
}

pub(crate) struct Rival {
    pub(crate) setting: &'static Setting,
    /// Tokens per second, by round.
    pub(crate) rates: Vec<f64>,
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
    pub(crate) state: State,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Running,
    /// Too slow in the trial rounds.
    Dropped,
    Failed(String),
}

impl Rivals {
    pub(crate) fn new(settings: Vec<&'static Setting>) -> Self {
        let rival = |setting| Rival { setting, rates: Vec::new(), drafted: 0, accepted: 0, state: State::Running };
        Self { all: settings.into_iter().map(rival).collect(), prompt_tokens: None }
    }

    pub(crate) fn all(&self) -> &[Rival] {
        &self.all
    }

    pub(crate) fn setting(&self, index: usize) -> &'static Setting {
        self.all[index].setting
    }

    /// The indices of those that take part in the next round.
    pub(crate) fn running(&self) -> impl Iterator<Item = usize> + '_ {
        self.all.iter().enumerate().filter(|(_, rival)| rival.state == State::Running).map(|(index, _)| index)
    }

    /// Keeps a run's figures.
    ///
    /// # Errors
    /// It read another number of prompt tokens than the runs before it: then it was given other work.
    pub(crate) fn record(&mut self, index: usize, decoded: &Decoded) -> Result<()> {
        self.expect_prompt(decoded.prompt_tokens)?;
        let rival = &mut self.all[index];
        rival.rates.push(decoded.tokens_per_second);
        let (drafted, accepted) = decoded.drafts.unwrap_or_default();
        rival.drafted += drafted;
        rival.accepted += accepted;
        Ok(())
    }

    /// Holds both engines to one number of prompt tokens.
    pub(crate) fn expect_prompt(&mut self, tokens: usize) -> Result<()> {
        let expected = *self.prompt_tokens.get_or_insert(tokens);
        ensure!(
            tokens == expected,
            "one run read {tokens} prompt tokens and another {expected}, so that they are not comparable"
        );
        Ok(())
    }

    pub(crate) fn fail(&mut self, index: usize, reason: String) {
        self.all[index].state = State::Failed(reason);
    }

    /// Drops what is out of reach of the best, never plain decoding; the names of what is left.
    pub(crate) fn drop_slow(&mut self) -> Vec<&'static str> {
        let best = |rival: &Rival| rival.rates.iter().copied().fold(0.0, f64::max);
        let best_of_all = self.all.iter().map(best).fold(0.0, f64::max);
        for rival in &mut self.all {
            let slow = best(rival) < STAYS_FROM * best_of_all;
            if rival.state == State::Running && slow && rival.setting.name != PLAIN.name {
                rival.state = State::Dropped;
            }
        }
        self.running().map(|index| self.all[index].setting.name).collect()
    }

    /// The setting with the highest median among those that ran to the end.
    pub(crate) fn best(&self) -> Option<(&Rival, Spread)> {
        let running = self.all.iter().filter(|rival| rival.state == State::Running);
        let rated = running.filter_map(|rival| Some((rival, Spread::of(&rival.rates)?)));
        rated.max_by(|one, other| one.1.median.total_cmp(&other.1.median))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Rivals, State};
    use crate::peers::outputs::Decoded;
    use crate::peers::settings::select;

    fn decoded(tokens_per_second: f64) -> Decoded {
        Decoded { prompt_tokens: 61, tokens_per_second, drafts: Some((10, 4)) }
    }

    /// Plain decoding at 30, one n-gram mode at 40 and one at 20, which is dropped after the first of two rounds.
    pub(crate) fn two_rounds() -> Rivals {
        let mut rivals = Rivals::new(select(&["ngram-simple".into(), "lookup 5".into()], false).unwrap());
        for (index, rate) in [(0, 30.0), (1, 40.0), (2, 20.0)] {
            rivals.record(index, &decoded(rate)).unwrap();
        }
        assert_eq!(rivals.drop_slow(), ["plain", "ngram-simple"]);
        rivals.record(0, &decoded(28.0)).unwrap();
        rivals.record(1, &decoded(44.0)).unwrap();
        rivals
    }

    #[test]
    fn the_best_is_the_highest_median_of_those_that_stayed() {
        let rivals = two_rounds();
        let (best, rate) = rivals.best().unwrap();
        assert_eq!((best.setting.name, rate.median, rate.count), ("ngram-simple", 42.0, 2));
        assert_eq!((best.drafted, best.accepted), (20, 8));
        assert_eq!(rivals.all()[2].state, State::Dropped);
    }

    #[test]
    fn plain_decoding_stays_however_slow_and_a_failure_is_never_the_best() {
        let mut rivals = Rivals::new(select(&["ngram-simple".into()], false).unwrap());
        rivals.record(0, &decoded(10.0)).unwrap();
        rivals.record(1, &decoded(90.0)).unwrap();
        assert_eq!(rivals.drop_slow(), ["plain", "ngram-simple"]);
        rivals.fail(1, "out of memory".into());
        assert_eq!(rivals.best().unwrap().0.setting.name, "plain");
        assert_eq!(rivals.running().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_prompt_of_another_length_is_no_comparison() {
        let mut rivals = two_rounds();
        let error = rivals.record(0, &Decoded { prompt_tokens: 60, ..decoded(30.0) }).unwrap_err().to_string();
        assert!(error.contains("60") && error.contains("61"), "{error}");
    }
}
