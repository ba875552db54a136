//! Generations with and without speculation, in pairs: how fast, how often accepted, and whether equal.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::Serialize;
use spec_figures::{Spread, geometric_mean, ratios};

use crate::engine::{Generation, Position, Sampling};

/// What an answer was asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Case {
    pub(crate) sampling: Sampling,
    pub(crate) prompt: String,
}

/// All answers; every drafter answers every case once a round, so that equal indices are of one round.
pub(crate) struct Generations {
    /// The names of the settings, plain decoding first.
    drafters: Vec<&'static str>,
    cases: BTreeMap<Case, Answers>,
}

struct Answers {
    /// The first answer, which all others must equal.
    expected: Generation,
    /// By drafter.
    series: Vec<Series>,
}

#[derive(Clone, Default)]
struct Series {
    rates: Vec<f64>,
    overheads: Vec<f64>,
    rounds: usize,
    emitted: usize,
    drafted: usize,
    accepted: usize,
    by_position: Vec<Position>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseFigures {
    pub(crate) prompt: String,
    pub(crate) sampling: Sampling,
    pub(crate) tokens: usize,
    pub(crate) settings: Vec<SettingFigures>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SettingFigures {
    pub(crate) drafter: &'static str,
    pub(crate) tokens_per_second: Spread,
    /// Over plain decoding in the same round.
    pub(crate) speed_up: Spread,
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
    /// Emitted tokens over rounds, corrected and bonus tokens included.
    pub(crate) tokens_per_round: f64,
    /// The share of decoding in which neither model computed.
    pub(crate) overhead: Spread,
    pub(crate) by_position: Vec<Position>,
}

impl Generations {
    pub(crate) fn new(drafters: Vec<&'static str>) -> Self {
        Self { drafters, cases: BTreeMap::new() }
    }

    pub(crate) fn drafters(&self) -> &[&'static str] {
        &self.drafters
    }

    /// Keeps an answer's figures.
    ///
    /// # Errors
    /// The answer differs from the first one to the same case. No figure counts then.
    pub(crate) fn record(&mut self, case: &Case, drafter: usize, generation: Generation) -> Result<()> {
        let answers = self.cases.entry(case.clone()).or_insert_with(|| Answers {
            expected: generation.clone(),
            series: vec![Series::default(); self.drafters.len()],
        });
        if let Some(difference) = difference(&answers.expected, &generation) {
            bail!(
                "{}, {}: the answer with the drafter `{}` is another one: {difference}; that is a bug of the engine",
                case.prompt,
                case.sampling.name(),
                self.drafters[drafter]
            );
        }
        answers.series[drafter].add(&generation);
        Ok(())
    }

    /// Draft tokens in all answers: equality shows something only where there were some.
    pub(crate) fn drafted(&self) -> usize {
        self.cases.values().flat_map(|answers| &answers.series).map(|series| series.drafted).sum()
    }

    pub(crate) fn figures(&self) -> Vec<CaseFigures> {
        let figures = |(case, answers): (&Case, &Answers)| {
            let plain = &answers.series[0].rates;
            let settings = self.drafters.iter().zip(&answers.series);
            CaseFigures {
                prompt: case.prompt.clone(),
                sampling: case.sampling,
                tokens: answers.expected.completion_tokens,
                settings: settings.filter_map(|(&drafter, series)| series.figures(drafter, plain)).collect(),
            }
        };
        self.cases.iter().map(figures).collect()
    }

    /// The median speed-ups of a drafter, one for each prompt.
    pub(crate) fn speed_ups(&self, drafter: &str, sampling: Sampling) -> Vec<f64> {
        let figures = self.figures();
        let cases = figures.iter().filter(|case| case.sampling == sampling);
        cases
            .filter_map(|case| case.settings.iter().find(|setting| setting.drafter == drafter))
            .map(|setting| setting.speed_up.median)
            .collect()
    }

    /// Tokens per second of a drafter on a prompt, by round.
    pub(crate) fn rates(&self, prompt: &str, sampling: Sampling, drafter: &str) -> Option<&[f64]> {
        let at = self.drafters.iter().position(|name| *name == drafter)?;
        let answers = self.cases.get(&Case { sampling, prompt: prompt.to_owned() })?;
        Some(&answers.series[at].rates)
    }

    /// Over the prompts, of the median speed-ups.
    pub(crate) fn mean_speed_up(&self, drafter: &str, sampling: Sampling) -> Option<f64> {
        geometric_mean(&self.speed_ups(drafter, sampling))
    }

    /// Of all answers of a drafter that drafts.
    pub(crate) fn overhead(&self, drafter: &str, sampling: Sampling) -> Option<Spread> {
        let at = self.drafters.iter().position(|name| *name == drafter)?;
        let cases = self.cases.iter().filter(|(case, _)| case.sampling == sampling);
        let overheads: Vec<f64> = cases.flat_map(|(_, answers)| &answers.series[at].overheads).copied().collect();
        Spread::of(&overheads)
    }

    /// By depth below the committed text, over all prompts.
    pub(crate) fn by_position(&self, drafter: &str, sampling: Sampling) -> Vec<Position> {
        let mut sum = Vec::new();
        if let Some(at) = self.drafters.iter().position(|name| *name == drafter) {
            for (_, answers) in self.cases.iter().filter(|(case, _)| case.sampling == sampling) {
                add_positions(&mut sum, &answers.series[at].by_position);
            }
        }
        sum
    }
}

impl Series {
    fn add(&mut self, generation: &Generation) {
        let speculation = &generation.speculation;
        self.rates.push(generation.timings.decode_tokens_per_second);
        self.overheads.push(generation.overhead());
        self.rounds += speculation.rounds;
        // The first token comes out of the prefill, before any round.
        self.emitted += generation.completion_tokens - 1;
        self.drafted += speculation.drafted;
        self.accepted += speculation.accepted;
        add_positions(&mut self.by_position, &speculation.accepted_by_position);
    }

    fn figures(&self, drafter: &'static str, plain: &[f64]) -> Option<SettingFigures> {
        Some(SettingFigures {
            drafter,
            tokens_per_second: Spread::of(&self.rates)?,
            speed_up: Spread::of(&ratios(&self.rates, plain))?,
            drafted: self.drafted,
            accepted: self.accepted,
            tokens_per_round: self.emitted as f64 / self.rounds.max(1) as f64,
            overhead: Spread::of(&self.overheads)?,
            by_position: self.by_position.clone(),
        })
    }
}

fn add_positions(sum: &mut Vec<Position>, positions: &[Position]) {
    if sum.len() < positions.len() {
        sum.resize(positions.len(), Position::default());
    }
    for (sum, position) in sum.iter_mut().zip(positions) {
        sum.drafted += position.drafted;
        sum.accepted += position.accepted;
    }
}

/// Where `got` leaves `expected`, if it does.
pub(crate) fn difference(expected: &Generation, got: &Generation) -> Option<String> {
    let common = expected.tokens.iter().zip(&got.tokens).take_while(|(one, other)| one == other).count();
    match (expected.tokens.get(common), got.tokens.get(common)) {
        (None, None) if expected.finish_reason == got.finish_reason => None,
        (None, None) => Some(format!("it ends by `{}` instead of `{}`", got.finish_reason, expected.finish_reason)),
        (Some(_), None) => Some(format!("it ends after {common} tokens instead of {}", expected.tokens.len())),
        (None, Some(_)) => Some(format!("it goes on after {common} tokens, where the expected one ends")),
        (Some(one), Some(other)) => Some(format!("its token {common}, counted from 0, is {other} instead of {one}")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Case, Generations, difference};
    use crate::engine::tests::answer;
    use crate::engine::{Generation, Sampling};

    fn generation(tokens: &[u32], rate: f64, drafted: usize, accepted: usize) -> Generation {
        Generation::parse(&answer(tokens, rate, drafted, accepted)).unwrap()
    }

    fn case(prompt: &str, sampling: Sampling) -> Case {
        Case { prompt: prompt.into(), sampling }
    }

    /// Two prompts, two rounds; the second round ran at half speed.
    pub(crate) fn two_rounds() -> Generations {
        let mut generations = Generations::new(vec!["plain", "ngram"]);
        for slow in [1.0, 2.0] {
            for (prompt, gain) in [("a", 2.0), ("b", 0.5)] {
                let case = case(prompt, Sampling::Greedy);
                generations.record(&case, 0, generation(&[1, 2, 3], 20.0 / slow, 0, 0)).unwrap();
                generations.record(&case, 1, generation(&[1, 2, 3], 20.0 * gain / slow, 4, 3)).unwrap();
            }
        }
        generations
    }

    impl Generations {
        pub(crate) fn rename(&mut self, prompt: &str, name: &str) {
            let answers = self.cases.remove(&case(prompt, Sampling::Greedy)).unwrap();
            self.cases.insert(case(name, Sampling::Greedy), answers);
        }
    }

    #[test]
    fn speed_ups_are_of_one_round_and_means_over_prompts() {
        let generations = two_rounds();
        let figures = generations.figures();
        let ngram = &figures[0].settings[1];
        assert_eq!((ngram.speed_up.least, ngram.speed_up.most, ngram.speed_up.count), (2.0, 2.0, 2));
        assert_eq!((ngram.drafted, ngram.accepted, ngram.tokens_per_round), (8, 6, 4.0 / 6.0));
        assert_eq!(figures[0].settings[0].speed_up.median, 1.0);
        assert_eq!(generations.speed_ups("ngram", Sampling::Greedy), [2.0, 0.5]);
        assert!((generations.mean_speed_up("ngram", Sampling::Greedy).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(generations.mean_speed_up("ngram", Sampling::Seeded), None);
        assert_eq!(generations.rates("b", Sampling::Greedy, "ngram").unwrap(), [10.0, 5.0]);
        assert_eq!(generations.by_position("ngram", Sampling::Greedy)[0].accepted, 12);
        assert_eq!(generations.drafted(), 16);
    }

    #[test]
    fn an_answer_that_differs_is_refused_with_its_first_difference() {
        let mut generations = Generations::new(vec!["plain", "ngram"]);
        let greedy = case("a", Sampling::Greedy);
        generations.record(&greedy, 0, generation(&[1, 2, 3], 20.0, 0, 0)).unwrap();
        let error = generations.record(&greedy, 1, generation(&[1, 7, 3], 40.0, 4, 3)).unwrap_err().to_string();
        assert!(error.contains("a, greedy") && error.contains("`ngram`"), "{error}");
        assert!(error.contains("token 1, counted from 0, is 7 instead of 2"), "{error}");
        // Another sampling is another case, and may answer otherwise.
        generations.record(&case("a", Sampling::Seeded), 1, generation(&[9, 9, 9], 40.0, 4, 3)).unwrap();
    }

    #[test]
    fn length_and_end_belong_to_an_answer() {
        let whole = generation(&[1, 2, 3], 1.0, 0, 0);
        assert_eq!(difference(&whole, &whole.clone()), None);
        assert!(difference(&whole, &generation(&[1, 2], 1.0, 0, 0)).unwrap().contains("after 2 tokens"));
        assert!(difference(&generation(&[1, 2], 1.0, 0, 0), &whole).unwrap().contains("goes on"));
        let mut stopped = whole.clone();
        stopped.finish_reason = "stop".into();
        assert!(difference(&whole, &stopped).unwrap().contains("`stop` instead of `length`"));
    }
}
