//! The drafters that are measured, and how each is asked for on the command line of `spec generate`: a table.

/// A setting of the engine that a prompt is run with.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Drafter {
    /// What the reports and `--drafters` call it.
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) draft_model: DraftModel,
    /// Measured when `--drafters` is not given.
    pub(crate) by_default: bool,
}

/// Whether a setting gets `--draft-model`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DraftModel {
    /// Never.
    Without,
    /// When there is one.
    IfGiven,
    /// The setting is left out when there is none.
    Needed,
}

/// Decoding without speculation, which all others are compared with.
pub(crate) const PLAIN: &Drafter = &DRAFTERS[0];

pub(crate) const DRAFTERS: &[Drafter] = &[
    Drafter { name: "plain", arguments: &["--draft", "none"], draft_model: DraftModel::Without, by_default: true },
    Drafter { name: "ngram", arguments: &["--draft", "ngram"], draft_model: DraftModel::Without, by_default: true },
    // What the engine chooses by itself without a draft model, beside runs that have one.
    Drafter { name: "free", arguments: &["--draft", "auto"], draft_model: DraftModel::Without, by_default: false },
    Drafter { name: "model", arguments: &["--draft", "model"], draft_model: DraftModel::Needed, by_default: true },
    Drafter { name: "auto", arguments: &["--draft", "auto"], draft_model: DraftModel::IfGiven, by_default: true },
    // A drafter that is there and never asked: it should cost what none costs.
    Drafter {
        name: "off",
        arguments: &["--draft", "ngram", "--draft-len", "0"],
        draft_model: DraftModel::Without,
        by_default: false,
    },
];

/// The setting that stands for drafting without a second model: the first of these that was measured.
pub(crate) const DRAFT_FREE: [&str; 2] = ["free", "ngram"];
/// The setting that stands for drafting with everything there is.
pub(crate) const WITH_DRAFT_MODEL: &str = "auto";

/// The settings to measure, plain decoding first; `names` selects others than the default ones.
///
/// # Errors
/// A name that is not in the table, or a setting that needs a draft model when none is given.
pub(crate) fn select(names: &[String], has_draft_model: bool) -> Result<Vec<&'static Drafter>, String> {
    let available = |drafter: &&Drafter| has_draft_model || drafter.draft_model != DraftModel::Needed;
    if names.is_empty() {
        return Ok(DRAFTERS.iter().filter(|drafter| drafter.by_default).filter(available).collect());
    }
    for name in names {
        match DRAFTERS.iter().find(|drafter| drafter.name == name) {
            None => {
                let known: Vec<&str> = DRAFTERS.iter().map(|drafter| drafter.name).collect();
                return Err(format!("there is no drafter `{name}`; there are {}", known.join(", ")));
            }
            Some(drafter) if !available(&drafter) => {
                return Err(format!("the drafter `{name}` needs --draft-model FILE"));
            }
            Some(_) => {}
        }
    }
    let wanted = |drafter: &&Drafter| *drafter == PLAIN || names.iter().any(|name| name == drafter.name);
    Ok(DRAFTERS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::{DRAFT_FREE, DRAFTERS, Drafter, PLAIN, WITH_DRAFT_MODEL, select};

    fn names(drafters: &[&Drafter]) -> Vec<&'static str> {
        drafters.iter().map(|drafter| drafter.name).collect()
    }

    #[test]
    fn what_needs_a_draft_model_is_left_out_without_one() {
        assert_eq!(names(&select(&[], true).unwrap()), ["plain", "ngram", "model", "auto"]);
        assert_eq!(names(&select(&[], false).unwrap()), ["plain", "ngram", "auto"]);
    }

    #[test]
    fn plain_decoding_is_always_first_and_what_cannot_be_measured_is_refused() {
        assert_eq!(names(&select(&["off".into(), "ngram".into()], false).unwrap()), ["plain", "ngram", "off"]);
        assert!(select(&["psychic".into()], false).unwrap_err().contains("ngram"));
        assert!(select(&["model".into()], false).unwrap_err().contains("--draft-model"));
    }

    #[test]
    fn the_settings_that_are_judged_are_in_the_table_and_names_are_unique() {
        assert_eq!(PLAIN.name, "plain");
        for name in DRAFT_FREE.into_iter().chain([WITH_DRAFT_MODEL]) {
            assert_eq!(DRAFTERS.iter().filter(|drafter| drafter.name == name).count(), 1, "{name}");
        }
        for drafter in DRAFTERS {
            assert_eq!(DRAFTERS.iter().filter(|other| other.name == drafter.name).count(), 1, "{}", drafter.name);
        }
    }
}
