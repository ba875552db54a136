//! What an audit says.

use std::fmt::Write as _;

use serde_json::{Value, json};
use spec_runtime::SpeculationStats;
use spec_runtime::audit::{Estimate, Verdict};

use super::case::Case;

/// Above the rows of a table.
pub(super) const HEAD: &str = "\n  rule                   drafter  sampler                                open   drafted  accepted         p  seen from  verdict";

/// The tokens of a case, judged.
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    pub(super) speculation: SpeculationStats,
    pub(super) texts: usize,
}

/// What came of a case, or why its rule and its drafter do not go together.
pub(super) type Outcome = Result<Judgement, String>;

/// A case, and what came of it.
pub(super) struct Found<'a> {
    case: &'a Case,
    drafter: Option<String>,
    outcome: Outcome,
    seed: u64,
}

/// One of few words, for tables and programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Consistent,
    Differs,
    Lossy,
    /// The rule is a lossy one, and nothing was seen of it.
    LossyUnseen,
    NothingDrafted,
    TooFew,
    Refused,
}

impl Word {
    fn name(self) -> &'static str {
        match self {
            Self::Consistent => "consistent",
            Self::Differs => "DIFFERS",
            Self::Lossy => "LOSSY",
            Self::LossyUnseen => "LOSSY, not seen here",
            Self::NothingDrafted => "nothing drafted",
            Self::TooFew => "too few tokens",
            Self::Refused => "refused",
        }
    }
}

impl<'a> Found<'a> {
    pub(super) fn new(case: &'a Case, drafter: Option<String>, outcome: Outcome, seed: u64) -> Self {
        Self { case, drafter, outcome, seed }
    }

    fn word(&self) -> Word {
        match &self.outcome {
            Err(_) => Word::Refused,
            Ok(Judgement { verdict, .. }) if verdict.differs() => {
                if self.case.is_lossless() {
                    Word::Differs
                } else {
                    Word::Lossy
                }
            }
            Ok(Judgement { verdict, .. }) if !verdict.is_conclusive() => Word::TooFew,
            Ok(Judgement { speculation, .. }) if self.drafter.is_some() && speculation.drafted == 0 => {
                Word::NothingDrafted
            }
            Ok(_) if self.case.is_lossless() => Word::Consistent,
            Ok(_) => Word::LossyUnseen,
        }
    }

    /// Why the program should not end well. Among many cases a drafter may find nothing to copy in some.
    pub(super) fn failure(&self, among_many: bool) -> Option<String> {
        let case = self.case;
        match self.word() {
            Word::Differs => {
                Some(format!("{case}: tokens do not have the target's law: that is a bug of ours, please report it"))
            }
            Word::TooFew => Some(format!("{case}: too few tokens to say anything; give --draws 1000 or more")),
            Word::NothingDrafted if !among_many => {
                Some(format!("{case}: nothing was drafted, so that there was no speculation to be audited"))
            }
            Word::NothingDrafted | Word::Consistent | Word::Lossy | Word::LossyUnseen | Word::Refused => None,
        }
    }

    /// A line of the table.
    pub(super) fn row(&self) -> String {
        let case = self.case;
        let (rule, draft, sampler) = (case.rule.to_string(), case.draft_name(), case.sampler());
        let begin = format!("  {rule:<22} {draft:<8} {sampler:<36}");
        match &self.outcome {
            Err(reason) => format!("{begin} {:>61}  refused: {reason}", ""),
            Ok(Judgement { verdict, speculation, .. }) => {
                let p = verdict.p.map_or("-".to_owned(), chance);
                let seen = verdict.resolution.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
                let acceptance = format!("{:.0} %", 100.0 * speculation.acceptance_rate());
                let mut row = format!(
                    "{begin} {:>6} {:>9} {acceptance:>9} {p:>9} {seen:>10}  {}",
                    verdict.open,
                    speculation.drafted,
                    self.word().name()
                );
                if self.word() == Word::Lossy {
                    let _ = write!(row, ", by {} or more", share(&verdict.distance.total_variation));
                }
                row
            }
        }
    }

    /// A page.
    pub(super) fn text(&self) -> String {
        let case = self.case;
        let (verdict, speculation, texts) = match &self.outcome {
            Err(reason) => return format!("refused: {reason}"),
            Ok(Judgement { verdict, speculation, texts }) => (verdict, speculation, texts),
        };
        let kind = if case.is_lossless() { "lossless" } else { "lossy" };
        let drafter = self.drafter.as_deref().unwrap_or("none");
        let mut page = format!(
            "rule {} ({kind}); drafter {drafter}; {}; seed {}\n{} tokens of {texts} texts, {} where the target was not sure; \
             {} of {} drafted tokens accepted\n\n",
            case.rule,
            case.sampler(),
            self.seed,
            verdict.tokens,
            verdict.open,
            speculation.accepted,
            speculation.drafted,
        );
        if !verdict.questions.is_empty() {
            let _ = writeln!(
                page,
                "{:<34} {:>8} {:>11} {:>4} {:>9} {:>10}",
                "question", "tokens", "chi-square", "df", "p", "corrected"
            );
        }
        // Writing to a String cannot fail.
        for question in &verdict.questions {
            let _ = writeln!(
                page,
                "{:<34} {:>8} {:>11.2} {:>4} {:>9} {:>10}",
                question.name,
                question.tokens,
                question.statistic,
                question.freedom,
                chance(question.p),
                chance(question.adjusted)
            );
        }
        if verdict.compared > 0 {
            let _ = writeln!(
                page,
                "texts equal to plain decoding: {} of {}",
                verdict.compared - verdict.unequal,
                verdict.compared
            );
        }
        if verdict.impossible > 0 {
            let _ = writeln!(page, "tokens that the target's law does not allow: {}", verdict.impossible);
        }
        if !case.is_lossless() || verdict.differs() {
            let distance = &verdict.distance;
            let _ = writeln!(
                page,
                "total variation from the target, a token: {} at least",
                share(&distance.total_variation)
            );
            if let Some(guesses) = &distance.guesses {
                let _ = writeln!(page, "the drafter's guesses, more often than their probability: {}", share(guesses));
            }
            let (low, high) = distance.log_probability.interval();
            let _ = writeln!(
                page,
                "log-probability over plain sampling's: {:+.4} nats a token ({low:+.4} to {high:+.4})",
                distance.log_probability.mean
            );
        }
        page.push('\n');
        page += &self.sentence(verdict);
        page
    }

    fn sentence(&self, verdict: &Verdict) -> String {
        let p = verdict.p.map_or(String::new(), |p| {
            let questions = verdict.questions.len();
            format!("p = {}, corrected for {questions} questions; ", chance(p))
        });
        let seen = verdict.resolution.map_or(String::new(), |share| {
            format!("; a shift of {:.1} % of probability would have been seen 95 times of 100", 100.0 * share)
        });
        let count = format!("n = {}, {} of them open", verdict.tokens, verdict.open);
        match self.word() {
            Word::Consistent if verdict.compared > 0 => {
                format!("consistent: equal to plain decoding, and of the target's law: {p}{count}{seen}")
            }
            Word::Consistent => format!("consistent with the target's law: {p}{count}{seen}"),
            Word::Differs => format!("DIFFERS from the target's law: {p}{count}"),
            Word::Lossy => format!("LOSSY, as the rule says of itself: {p}{count}"),
            Word::LossyUnseen => {
                format!("LOSSY by its rule, and not told apart from the target here: {p}{count}{seen}")
            }
            word @ (Word::NothingDrafted | Word::TooFew | Word::Refused) => {
                format!("{}: {p}{count}{seen}", word.name())
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        let mut object = json!({
            "rule": self.case.rule.to_string(),
            "lossless": self.case.is_lossless(),
            "drafter": self.drafter,
            "draft": self.case.draft_name(),
            "sampler": self.case.sampler(),
            "seed": self.seed,
            "verdict": self.word().name(),
        });
        match &self.outcome {
            Err(reason) => object["reason"] = reason.as_str().into(),
            Ok(Judgement { verdict, speculation, texts }) => {
                object["texts"] = (*texts).into();
                object["tokens"] = verdict.tokens.into();
                object["open"] = verdict.open.into();
                object["drafted"] = speculation.drafted.into();
                object["accepted"] = speculation.accepted.into();
                object["impossible"] = verdict.impossible.into();
                object["compared"] = verdict.compared.into();
                object["unequal"] = verdict.unequal.into();
                object["alpha"] = verdict.alpha.into();
                object["p"] = verdict.p.into();
                object["resolution"] = verdict.resolution.into();
                let question = |question: &spec_runtime::audit::Question| {
                    json!({
                        "name": question.name, "tokens": question.tokens, "chi_square": question.statistic,
                        "freedom": question.freedom, "p": question.p, "corrected": question.adjusted,
                    })
                };
                object["questions"] = verdict.questions.iter().map(question).collect();
                let distance = &verdict.distance;
                object["total_variation_at_least"] = estimate(&distance.total_variation);
                object["guesses_over_probability"] = distance.guesses.as_ref().map_or(Value::Null, estimate);
                object["log_probability_over_plain"] = estimate(&distance.log_probability);
            }
        }
        object
    }
}

fn estimate(estimate: &Estimate) -> Value {
    let (low, high) = estimate.interval();
    json!({ "mean": estimate.mean, "low": low, "high": high })
}

/// A share with the interval that holds it 95 times of 100.
fn share(estimate: &Estimate) -> String {
    let (low, high) = estimate.interval();
    format!("{:.2} % ({:.2} to {:.2} %)", 100.0 * estimate.mean, 100.0 * low, 100.0 * high)
}

fn chance(p: f64) -> String {
    if p > 0.0 && p < 1e-3 { format!("{p:.1e}") } else { format!("{p:.3}") }
}
