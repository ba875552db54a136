//! What can limit the speed of a run: a row for each, with the test that finds it.

use super::figures::Figures;
use super::{acceptance, circumstances, costs};

/// A row of the table.
pub(crate) struct Diagnosis {
    /// By which documents and programs know it.
    pub(crate) name: &'static str,
    /// What it says of a run, in a line.
    pub(crate) limit: &'static str,
    /// Finds it in the figures.
    pub(crate) examine: fn(&Figures<'_>) -> Option<Seen>,
}

/// What a diagnosis found in one run.
pub(crate) struct Seen {
    /// How it is weighed against others.
    pub(crate) weight: Weight,
    /// The figures that it rests on.
    pub(crate) evidence: String,
    /// The change most likely to help.
    pub(crate) advice: String,
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Weight {
    /// Something does not fit together, and is to be put right before anything is weighed. With the share of the time that would go.
    Fault(f64),
    /// The share of the time that the change would save, by the figures of this run.
    Saves(f64),
    /// The same, if drafts stood as those of models that fit do: see [`FITTING`].
    Could(f64),
    /// Not a matter of speed, and always said.
    Price,
    /// What remains when nothing else is found.
    Bound,
}

/// The share of draft tokens that stand, each behind those before it, of a draft model that fits its target.
pub(crate) const FITTING: f64 = 0.7;
/// What is saved at least for a limit to be worth a word.
pub(crate) const NOTICEABLE: f64 = 0.05;
/// How many are named.
pub(crate) const MOST: usize = 3;

impl Weight {
    /// The share of the time, where there is one.
    pub(crate) fn share(self) -> Option<f64> {
        match self {
            Self::Fault(share) | Self::Saves(share) | Self::Could(share) => Some(share),
            Self::Price | Self::Bound => None,
        }
    }

    /// Greater comes first.
    fn rank(self) -> (u8, f64) {
        match self {
            Self::Fault(share) => (3, share),
            Self::Saves(share) | Self::Could(share) => (2, share),
            Self::Price => (1, 0.0),
            Self::Bound => (0, 0.0),
        }
    }
}

/// A diagnosis that applies.
pub(crate) struct Finding {
    pub(crate) diagnosis: &'static Diagnosis,
    pub(crate) seen: Seen,
}

/// What limits a run, the most rewarding first: at most [`MOST`]. Where nothing can be gained, the bound that remains.
pub(crate) fn diagnose(figures: &Figures<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = DIAGNOSES
        .iter()
        .filter_map(|diagnosis| Some(Finding { diagnosis, seen: (diagnosis.examine)(figures)? }))
        .filter(
            |finding| !matches!(finding.seen.weight, Weight::Saves(share) | Weight::Could(share) if share < NOTICEABLE),
        )
        .collect();
    // Of equals the table's order counts, which has causes before what follows from them.
    found.sort_by(|a, b| {
        let ((kind_a, share_a), (kind_b, share_b)) = (a.seen.weight.rank(), b.seen.weight.rank());
        kind_b.cmp(&kind_a).then(share_b.total_cmp(&share_a))
    });
    if found.iter().any(|finding| finding.seen.weight != Weight::Bound) {
        found.retain(|finding| finding.seen.weight != Weight::Bound);
        found.truncate(MOST);
    } else {
        found.truncate(1);
    }
    found
}

/// All of them.
pub(crate) static DIAGNOSES: [Diagnosis; 28] = [
    Diagnosis {
        name: "forbidden-drafts",
        limit: "what has to come by the grammar is not what is drafted",
        examine: acceptance::forbidden_drafts,
    },
    Diagnosis {
        name: "foreign-vocabulary",
        limit: "the draft model has another vocabulary",
        examine: acceptance::foreign_vocabulary,
    },
    Diagnosis {
        name: "base-and-instruct",
        limit: "one model is tuned to follow instructions, and the other is not",
        examine: acceptance::base_and_instruct,
    },
    Diagnosis {
        name: "no-acceptance",
        limit: "nothing that is drafted stands, and nothing in the settings says why",
        examine: acceptance::no_acceptance,
    },
    Diagnosis {
        name: "high-temperature",
        limit: "the temperature leaves drafts little chance",
        examine: acceptance::high_temperature,
    },
    Diagnosis {
        name: "unlike-target",
        limit: "the draft model seldom says what the target says",
        examine: acceptance::unlike_target,
    },
    Diagnosis {
        name: "nothing-to-copy",
        limit: "the text does not repeat itself, and look-ups find little in it",
        examine: acceptance::nothing_to_copy,
    },
    Diagnosis { name: "draft-too-large", limit: "the draft model is too large", examine: costs::draft_too_large },
    Diagnosis { name: "draft-too-long", limit: "drafts are too long", examine: acceptance::draft_too_long },
    Diagnosis { name: "draft-too-short", limit: "drafts are too short", examine: acceptance::draft_too_short },
    Diagnosis {
        name: "verification-not-flat",
        limit: "a pass over several rows takes much longer than over one",
        examine: costs::verification_not_flat,
    },
    Diagnosis { name: "slow-kernels", limit: "the slow kernels ran", examine: circumstances::slow_kernels },
    Diagnosis { name: "too-few-threads", limit: "cores stand idle", examine: circumstances::too_few_threads },
    Diagnosis {
        name: "too-many-threads",
        limit: "threads wait for each other's cores",
        examine: circumstances::too_many_threads,
    },
    Diagnosis {
        name: "busy-machine",
        limit: "some passes take far longer than others of their size",
        examine: circumstances::busy_machine,
    },
    Diagnosis {
        name: "draft-catches-up",
        limit: "the draft model reads text that the target has read already",
        examine: costs::draft_catches_up,
    },
    Diagnosis { name: "slow-look-up", limit: "look-ups take long", examine: costs::slow_look_up },
    Diagnosis { name: "round-overhead", limit: "much time goes by between the passes", examine: costs::round_overhead },
    Diagnosis {
        name: "draft-loading",
        limit: "loading the draft model takes a large part of so short a run",
        examine: circumstances::draft_loading,
    },
    Diagnosis {
        name: "long-prompt",
        limit: "reading the prompt takes most of the time",
        examine: circumstances::long_prompt,
    },
    Diagnosis {
        name: "speculation-off",
        limit: "nothing is drafted, because nothing was asked to",
        examine: circumstances::speculation_off,
    },
    Diagnosis {
        name: "drafting-rests",
        limit: "drafting did not pay when it was tried, and is left alone",
        examine: acceptance::drafting_rests,
    },
    Diagnosis {
        name: "short-answer",
        limit: "the answer is too short to learn what pays",
        examine: circumstances::short_answer,
    },
    Diagnosis {
        name: "shared-passes",
        limit: "other answers have the rows that drafts would take",
        examine: circumstances::shared_passes,
    },
    Diagnosis {
        name: "preempted",
        limit: "answers gave way to others and were read again",
        examine: circumstances::preempted,
    },
    Diagnosis {
        name: "memory-nearly-full",
        limit: "the memory that may be taken is nearly full",
        examine: circumstances::memory_nearly_full,
    },
    Diagnosis { name: "lossy-rule", limit: "the rule changes the answer", examine: acceptance::lossy_rule },
    Diagnosis { name: "memory-bound", limit: "nothing to put right: passes read the weights", examine: costs::bound },
];
