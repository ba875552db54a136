//! What is audited: a rule, a drafter, a sampler.

use std::fmt;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::ValueEnum as _;
use spec_core::{Noise, NoiseScan, RULES, RuleName, SamplingParams, ScalarScan};

use crate::args::{AuditArgs, DraftKind, ModelArgs};

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) rule: RuleName,
    pub(super) draft: DraftKind,
    pub(super) sampling: SamplingParams,
}

impl Case {
    /// What the flags ask for.
    pub(super) fn asked(args: &AuditArgs, sampling: SamplingParams) -> Result<Self> {
        let rule = match args.sampling.rule {
            Some(rule) => rule,
            None => named(if sampling.is_greedy() { "greedy" } else { "coupled" })?,
        };
        Ok(Self { rule, draft: args.model.draft, sampling })
    }

    pub(super) fn is_lossless(&self) -> bool {
        self.rule.entry().lossless
    }

    /// Whether every round draws by itself, so that where a round begins says nothing of what it emits.
    pub(super) fn draws_afresh(&self) -> bool {
        let scan: Arc<dyn NoiseScan> = Arc::new(ScalarScan);
        self.is_lossless() && self.rule.build(Noise::new(0), &scan).proposal().draws()
    }

    /// Whether its texts are those of plain decoding, token for token.
    pub(super) fn equals_plain(&self) -> bool {
        self.is_lossless() && !self.draws_afresh()
    }

    pub(super) fn draft_name(&self) -> String {
        self.draft.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The sampling parameters that are not those of plain temperature 1.
    pub(super) fn sampler(&self) -> String {
        let plain = SamplingParams::default();
        let sampling = &self.sampling;
        let mut words = vec![format!("temperature {}", sampling.temperature)];
        let mut add = |differs: bool, word: String| words.extend(differs.then_some(word));
        add(sampling.top_k != plain.top_k, format!("top-k {}", sampling.top_k));
        add(sampling.top_p != plain.top_p, format!("top-p {}", sampling.top_p));
        add(sampling.min_p != plain.min_p, format!("min-p {}", sampling.min_p));
        add(sampling.repeat_penalty != plain.repeat_penalty, format!("repeat {}", sampling.repeat_penalty));
        add(sampling.presence_penalty != plain.presence_penalty, format!("presence {}", sampling.presence_penalty));
        add(sampling.frequency_penalty != plain.frequency_penalty, format!("frequency {}", sampling.frequency_penalty));
        add(!sampling.logit_bias.is_empty(), "bias".into());
        words.join(", ")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.rule, self.draft_name(), self.sampler())
    }
}

fn named(name: &str) -> Result<RuleName> {
    name.parse().map_err(|error| anyhow!("{error}"))
}

/// Every rule with every drafter: lossless ones under several samplers, lossy ones under the first.
pub(super) fn all(args: &ModelArgs) -> Vec<Case> {
    let plain = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
    let samplers = [
        plain.clone(),
        SamplingParams { temperature: 1.0, top_p: 0.9, ..plain.clone() },
        SamplingParams { top_k: 40, min_p: 0.05, ..plain.clone() },
        SamplingParams { repeat_penalty: 1.1, frequency_penalty: 0.1, ..plain },
    ];
    let mut drafts = vec![DraftKind::Suffix, DraftKind::Ngram];
    if args.draft_model.is_some() {
        drafts.extend([DraftKind::Model, DraftKind::Auto]);
    }
    let mut cases = Vec::new();
    for entry in &RULES {
        // A name of the table is one that parses.
        let Ok(rule) = entry.name.parse::<RuleName>() else { continue };
        let of_rule: Vec<SamplingParams> = match (entry.name, entry.lossless) {
            ("greedy", _) => {
                let penalised = SamplingParams { repeat_penalty: 1.1, ..SamplingParams::default() };
                vec![SamplingParams::default(), penalised]
            }
            (_, true) => samplers.to_vec(),
            (_, false) => vec![samplers[0].clone()],
        };
        for &draft in &drafts {
            cases.extend(of_rule.iter().map(|sampling| Case { rule, draft, sampling: sampling.clone() }));
        }
    }
    cases
}
