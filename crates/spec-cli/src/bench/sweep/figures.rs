//! The figures of a study, each defined here, once.

use serde::Serialize;
use spec_core::RuleName;
use spec_figures::{geometric_mean, median, ratios};
use spec_runtime::{ForgivenStats, SpeculationStats};

use super::bootstrap::{Interval, RESAMPLES, SEED};
use super::quality::{bleu, edit_similarity};
use super::{Case, Judged, Setting};
use crate::args::{BenchSweepArgs, Preset};

/// A line of the article's table.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ArticleLine {
    pub(super) length: usize,
    pub(super) speedup: f64,
    pub(super) bleu_drop: f64,
    pub(super) scenario: &'static str,
}

/// What the article says, in its order.
pub(super) fn article() -> [ArticleLine; 3] {
    Preset::ALL.map(|preset| {
        let (speedup, bleu_drop, scenario) = match preset {
            Preset::Quality => (2.1, 0.3, "quality first"),
            Preset::General => (3.8, 0.9, "general"),
            Preset::Speed => (4.5, 2.1, "speed first"),
        };
        ArticleLine { length: preset.tokens(), speedup, bleu_drop, scenario }
    })
}

/// How intervals were made.
#[derive(Debug, Serialize)]
pub(super) struct Bootstrap {
    over: &'static str,
    level: f64,
    resamples: usize,
    seed: u64,
}

/// All that a study found.
#[derive(Debug, Serialize)]
pub(super) struct Study {
    pub(super) target: String,
    pub(super) device: String,
    pub(super) drafter: String,
    pub(super) prompts: Vec<String>,
    pub(super) seeds: u64,
    pub(super) temperature: f32,
    pub(super) max_tokens: usize,
    pub(super) repeats: usize,
    pub(super) loss_budget: Option<f64>,
    pub(super) bootstrap: Bootstrap,
    pub(super) plain: Plain,
    pub(super) settings: Vec<Figures>,
    pub(super) article: [ArticleLine; 3],
}

/// Plain decoding.
#[derive(Debug, Serialize)]
pub(super) struct Plain {
    /// Median of the answers.
    pub(super) tokens_per_second: Interval,
    /// Mean over all tokens, in nats.
    pub(super) logprob: Interval,
}

/// A rule with a length.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) rule: String,
    pub(super) lossless: bool,
    pub(super) length: usize,
    /// Median of the answers.
    pub(super) tokens_per_second: Interval,
    /// Geometric mean of the answers' ratios to the plain ones; each is the median of its repeats.
    pub(super) speedup: Interval,
    /// Draft tokens accepted, of those drafted.
    pub(super) acceptance_rate: Interval,
    /// Draft tokens accepted a round.
    pub(super) mean_accepted_length: Interval,
    pub(super) rounds: usize,
    pub(super) drafted: usize,
    pub(super) accepted: usize,
    /// Of the rounds that drafted, the share in which so many tokens of the draft stood: one, two, ...
    pub(super) survival: Vec<f64>,
    pub(super) forgiven: Forgiven,
    /// Against the plain answers' texts; `null` where they are of another sample.
    pub(super) text: Option<TextFigures>,
    /// Mean over all tokens of the target's log-probability, in nats.
    pub(super) logprob: Interval,
    pub(super) verdict: Verdict,
}

/// What a lossy rule forgave in all answers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Forgiven {
    pub(super) count: usize,
    pub(super) log_ratio: f64,
}

/// Answers beside the plain ones.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct TextFigures {
    /// The share with the same token ids.
    pub(super) exact_match: Interval,
    /// 0 to 100.
    pub(super) bleu: Interval,
    /// 0 to 1, mean over the answers.
    pub(super) edit_similarity: Interval,
}

/// What may be said of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Every answer had the plain one's token ids, and drafts were judged.
    LosslessChecked,
    /// There was no draft to judge: whatever the answers are, they show nothing.
    NothingDrafted,
    /// Samples of the same law; the interval of what their mean log-probability is above that of plain samples holds zero.
    SameLawWithin,
    /// It does not, which happens to about one true law in twenty, to more of few prompts.
    SameLawOutside,
    /// Samples of the same law, of too few prompts for an interval.
    SameLawUnjudged,
    /// The price is in the figures.
    Lossy,
}

impl Study {
    pub(super) fn new(
        args: &BenchSweepArgs,
        (target, device, drafter): (String, String, String),
        prompts: Vec<String>,
        settings: &[Setting],
        cases: &[Case],
    ) -> Self {
        let view = View::new(cases, prompts.len());
        let plain: Vec<&Judged> = cases.iter().map(|case| &case.plain).collect();
        let plain = Plain { tokens_per_second: view.rate(&plain), logprob: view.logprob(&plain) };
        let figures = settings.iter().enumerate().map(|(at, setting)| view.figures(args, at, setting));
        Self {
            settings: figures.collect(),
            target,
            device,
            drafter,
            prompts,
            seeds: args.seeds,
            temperature: args.temperature,
            max_tokens: args.max_tokens,
            repeats: args.repeats,
            loss_budget: args.loss_budget,
            bootstrap: Bootstrap { over: "prompts", level: 0.95, resamples: RESAMPLES, seed: SEED },
            plain,
            article: article(),
        }
    }
}

/// Cases by their prompts, which are what is resampled: answers to one prompt are no independent ones.
struct View<'a> {
    cases: &'a [Case],
    of_prompt: Vec<Vec<usize>>,
}

impl<'a> View<'a> {
    fn new(cases: &'a [Case], prompts: usize) -> Self {
        let mut of_prompt = vec![Vec::new(); prompts];
        for (at, case) in cases.iter().enumerate() {
            of_prompt[case.prompt].push(at);
        }
        Self { cases, of_prompt }
    }

    /// A statistic of cases, and its interval over prompts.
    fn interval(&self, statistic: impl Fn(&mut dyn Iterator<Item = usize>) -> f64) -> Interval {
        Interval::of(self.of_prompt.len(), |prompts| {
            statistic(&mut prompts.iter().flat_map(|&prompt| self.of_prompt[prompt].iter().copied()))
        })
    }

    /// Sum of `over` by sum of `under`.
    fn share(&self, over: impl Fn(usize) -> f64, under: impl Fn(usize) -> f64) -> Interval {
        self.interval(|cases| quotient(cases.map(|case| (over(case), under(case)))))
    }

    fn rate(&self, answers: &[&Judged]) -> Interval {
        let rates: Vec<f64> = answers.iter().map(|judged| median(&judged.answer.rates).unwrap_or(0.0)).collect();
        self.interval(|cases| median(&cases.map(|case| rates[case]).collect::<Vec<_>>()).unwrap_or(0.0))
    }

    fn logprob(&self, answers: &[&Judged]) -> Interval {
        self.interval(|cases| per_token(cases.map(|case| answers[case])))
    }

    /// Mean log-probability less that of the plain answers to the same prompts: what prompts differ by is not in its interval.
    fn logprob_gain(&self, answers: &[&Judged]) -> Interval {
        self.interval(|cases| {
            let (own, plain): (Vec<_>, Vec<_>) = cases.map(|case| (answers[case], &self.cases[case].plain)).unzip();
            per_token(own.into_iter()) - per_token(plain.into_iter())
        })
    }

    fn figures(&self, args: &BenchSweepArgs, at: usize, setting: &Setting) -> Figures {
        let answers: Vec<&Judged> = self.cases.iter().map(|case| &case.answers[at]).collect();
        let mut sum = SpeculationStats::default();
        answers.iter().for_each(|judged| sum += &judged.answer.speculation);
        let stats = |case: usize| &answers[case].answer.speculation;
        let gains: Vec<f64> =
            self.cases.iter().zip(&answers).map(|(case, judged)| ratio(&case.plain, judged)).collect();
        let speedup = self.interval(|cases| {
            let gains: Vec<f64> = cases.map(|case| gains[case]).collect();
            geometric_mean(&gains).unwrap_or(1.0)
        });
        let logprob = self.logprob(&answers);
        let ForgivenStats { count, log_ratio } = sum.forgiven;
        Figures {
            rule: setting.rule.to_string(),
            lossless: setting.rule.entry().lossless,
            length: setting.length,
            tokens_per_second: self.rate(&answers),
            speedup,
            acceptance_rate: self.share(|case| stats(case).accepted as f64, |case| stats(case).drafted as f64),
            mean_accepted_length: self.share(|case| stats(case).accepted as f64, |case| stats(case).rounds as f64),
            rounds: sum.rounds,
            drafted: sum.drafted,
            accepted: sum.accepted,
            survival: survival(&sum),
            forgiven: Forgiven { count, log_ratio },
            text: setting.compares_texts(args.temperature).then(|| self.text(&answers)),
            verdict: verdict(
                setting.rule,
                setting.repeats_plain(args.temperature),
                sum.drafted,
                (self.of_prompt.len() >= ENOUGH_PROMPTS).then(|| self.logprob_gain(&answers)),
            ),
            logprob,
        }
    }

    fn text(&self, answers: &[&Judged]) -> TextFigures {
        let plain = |case: usize| &self.cases[case].plain.answer;
        let equal: Vec<f64> = answers
            .iter()
            .enumerate()
            .map(|(case, judged)| f64::from(u8::from(judged.answer.tokens == plain(case).tokens)))
            .collect();
        if equal.iter().all(|&equal| equal == 1.0) {
            let (one, hundred) = (Interval::certain(1.0), Interval::certain(100.0));
            return TextFigures { exact_match: one, bleu: hundred, edit_similarity: one };
        }
        let edits: Vec<f64> = answers
            .iter()
            .enumerate()
            .map(|(case, judged)| edit_similarity(&plain(case).text, &judged.answer.text))
            .collect();
        TextFigures {
            exact_match: self.share(|case| equal[case], |_| 1.0),
            bleu: self.interval(|cases| {
                let (references, texts): (Vec<&str>, Vec<&str>) =
                    cases.map(|case| (&*plain(case).text, &*answers[case].answer.text)).unzip();
                bleu(&references, &texts)
            }),
            edit_similarity: self.share(|case| edits[case], |_| 1.0),
        }
    }
}

/// Sum of the first by sum of the second, 0 where there is none of the second.
fn quotient(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (over, under) = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    if under > 0.0 { over / under } else { 0.0 }
}

/// Mean log-probability of all tokens of the answers.
fn per_token<'a>(answers: impl Iterator<Item = &'a Judged>) -> f64 {
    quotient(answers.map(|judged| (judged.logprob, judged.answer.tokens.len() as f64)))
}

/// An answer's speed over the plain one's: the median of its repeats, in each of which both ran.
fn ratio(plain: &Judged, judged: &Judged) -> f64 {
    let ratio = median(&ratios(&judged.answer.rates, &plain.answer.rates)).unwrap_or(0.0);
    // An answer of one token has no rate, with drafts or without.
    if ratio.is_finite() && ratio > 0.0 { ratio } else { 1.0 }
}

/// Of the rounds that drafted, the share in which at least 1, 2, ... tokens of the draft stood.
fn survival(stats: &SpeculationStats) -> Vec<f64> {
    let rounds = stats.drafted_rounds.max(1) as f64;
    stats.by_position.iter().map(|position| position.accepted as f64 / rounds).collect()
}

/// Prompts from which on an interval over prompts says something.
const ENOUGH_PROMPTS: usize = 5;

/// `gain` is what the mean log-probability is above plain sampling's.
fn verdict(rule: RuleName, repeats: bool, drafted: usize, gain: Option<Interval>) -> Verdict {
    match (rule.entry().lossless, repeats, gain) {
        _ if drafted == 0 => Verdict::NothingDrafted,
        (false, ..) => Verdict::Lossy,
        (true, true, _) => Verdict::LosslessChecked,
        (true, false, None) => Verdict::SameLawUnjudged,
        (true, false, Some(gain)) if gain.holds(0.0) => Verdict::SameLawWithin,
        (true, false, Some(_)) => Verdict::SameLawOutside,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Answer;
    use super::*;
    use clap::Parser;
    use spec_runtime::PositionStats;

    /// Flags of a study.
    pub(in super::super) fn args(flags: &str) -> BenchSweepArgs {
        use crate::args::{Bench, Cli, Command};
        let line = format!("spec bench sweep --model m.gguf --prompts p --out o {flags}");
        match Cli::try_parse_from(line.split_whitespace()).expect("a legal line").command {
            Command::Bench(bench) => match bench.bench {
                Bench::Sweep(args) => *args,
                _ => panic!("another measurement"),
            },
            _ => panic!("another command"),
        }
    }

    fn judged(text: &str, rates: &[f64], accepted: usize, logprob: f64) -> Judged {
        let speculation = SpeculationStats {
            rounds: 4,
            drafted_rounds: 4,
            drafted: 8,
            accepted,
            by_position: vec![
                PositionStats { drafted: 4, accepted: accepted.min(4) },
                PositionStats { drafted: 4, accepted: accepted.saturating_sub(4) },
            ],
            ..SpeculationStats::default()
        };
        let tokens = text.bytes().map(u32::from).collect();
        Judged { answer: Answer { tokens, text: text.to_owned(), speculation, rates: rates.to_vec() }, logprob }
    }

    /// Two prompts, greedy and epsilon, one length.
    pub(in super::super) fn study() -> Study {
        let args = args("--rules greedy,epsilon:0.1 --lengths 3 --repeats 2");
        let rules = args.checked_rules().expect("they fit");
        let settings: Vec<Setting> = rules.iter().map(|&rule| Setting { rule, length: 3 }).collect();
        let case = |prompt: usize, plain: &str, lossy: &str, speed: f64| Case {
            prompt,
            plain: judged(plain, &[10.0, 5.0], 0, -4.0),
            // The second repeat ran at half speed on both sides.
            answers: vec![
                judged(plain, &[10.0 * speed, 5.0 * speed], 6, -4.0),
                judged(lossy, &[20.0 * speed, 10.0 * speed], 8, -8.0),
            ],
        };
        let cases = [
            case(0, "one two three four", "one two three four", 2.0),
            case(1, "five six seven eight", "five six seven nine", 0.5),
        ];
        let names = vec!["first".to_owned(), "second".to_owned()];
        let about = ("target".to_owned(), "cpu".to_owned(), "ngram".to_owned());
        Study::new(&args, about, names, &settings, &cases)
    }

    #[test]
    fn figures_are_what_they_are_said_to_be() {
        let study = study();
        let [greedy, lossy] = &study.settings[..] else { panic!("two settings") };
        assert!((greedy.speedup.value - 1.0).abs() < 1e-12, "a gain and its inverse: {:?}", greedy.speedup);
        assert!((greedy.speedup.low - 0.5).abs() < 1e-12 && (greedy.speedup.high - 2.0).abs() < 1e-12);
        assert!((lossy.speedup.value - 2.0).abs() < 1e-12);
        assert_eq!(greedy.acceptance_rate, Interval::certain(0.75));
        assert_eq!(greedy.mean_accepted_length, Interval::certain(1.5));
        assert_eq!(greedy.survival, [1.0, 0.5]);
        assert_eq!(greedy.verdict, Verdict::LosslessChecked);
        let text = greedy.text.expect("texts of one sample");
        assert_eq!((text.exact_match, text.bleu), (Interval::certain(1.0), Interval::certain(100.0)));
        let text = lossy.text.expect("texts of one sample");
        assert_eq!((text.exact_match.value, text.exact_match.low, text.exact_match.high), (0.5, 0.0, 1.0));
        let expected = 100.0 * (7.0 / 8.0 * 5.0 / 6.0 * 3.0 / 4.0 * 1.0 / 2.0_f64).powf(0.25);
        assert!((text.bleu.value - expected).abs() < 1e-9 && text.bleu.high == 100.0, "{text:?}");
        assert_eq!((lossy.verdict, lossy.rule.as_str()), (Verdict::Lossy, "epsilon:0.1"));
        // A token for each byte of the two texts.
        assert!((study.plain.logprob.value + 8.0 / 38.0).abs() < 1e-12, "{:?}", study.plain.logprob);
    }

    #[test]
    fn a_rule_of_the_same_law_is_judged_by_its_difference_from_plain_sampling_prompt_by_prompt() {
        // Prompts that differ by far more than the samples: -0.5, -1.0, ... a token, of 10 tokens each.
        let cases = |shift: fn(usize) -> f64| -> Vec<Case> {
            let case = |prompt: usize| {
                let mean = -0.5 * (prompt + 1) as f64;
                let sample = |mean: f64| judged("ten tokens", &[1.0], 4, 10.0 * mean);
                Case { prompt, plain: sample(mean), answers: vec![sample(mean + shift(prompt))] }
            };
            (0..8).map(case).collect()
        };
        let args = args("--rules rejection --temperature 0.8 --lengths 3");
        let setting = Setting { rule: "rejection".parse().expect("a rule"), length: 3 };
        let verdict = |cases: &[Case], prompts: usize| View::new(cases, prompts).figures(&args, 0, &setting).verdict;
        let by_chance = cases(|prompt| if prompt % 2 == 0 { 0.05 } else { -0.05 });
        assert_eq!(verdict(&by_chance, 8), Verdict::SameLawWithin);
        let biased = cases(|prompt| 0.04 + 0.002 * prompt as f64);
        assert_eq!(verdict(&biased, 8), Verdict::SameLawOutside, "though every mean is within what prompts differ by");
        assert_eq!(verdict(&biased[..4], 4), Verdict::SameLawUnjudged);
    }

    #[test]
    fn answers_without_drafts_show_nothing() {
        for (rule, repeats) in [("greedy", true), ("rejection", false), ("epsilon:0.1", false)] {
            let rule: RuleName = rule.parse().expect("a rule");
            assert_eq!(verdict(rule, repeats, 0, Some(Interval::certain(0.0))), Verdict::NothingDrafted);
        }
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        for (flags, word) in [
            ("--draft-len 4", "--lengths"),
            ("--preset speed", "--lengths"),
            ("--max-tokens 1", "two tokens"),
            ("--seeds 3", "temperature 0"),
            ("--temperature 0.8 --rules greedy", "--rules greedy"),
            ("--temperature -1", "temperature"),
            ("--repeats 0", "at least 1"),
        ] {
            let said = args(flags).checked_rules().expect_err(flags);
            assert!(said.contains(word), "{flags}: {said}");
        }
        let names = |flags: &str| -> Vec<String> {
            args(flags).checked_rules().expect(flags).iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(""), ["greedy", "epsilon:0.1"]);
        assert_eq!(names("--temperature 0.8 --seeds 2"), ["coupled", "rejection", "epsilon:0.1"]);
    }
}
