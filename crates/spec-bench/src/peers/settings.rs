//! Every setting of llama.cpp that is run beside ours: data. Its best one on a prompt is what ours is compared with.

/// A way to decode with llama.cpp.
pub(crate) struct Setting {
    /// What the reports call it.
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// Whether it gets the draft model, and is left out without one.
    pub(crate) needs_draft: bool,
}

/// Decoding without speculation.
pub(crate) const PLAIN: &Setting = &SETTINGS[0];

const SIMPLE: &str = "llama-speculative-simple";

/// The programs that are built: those of the settings, and the two that time passes alone.
pub(crate) const PROGRAMS: [&str; 7] = [
    "llama-bench",
    "llama-batched-bench",
    "llama-completion",
    SIMPLE,
    "llama-speculative",
    "llama-lookup",
    "llama-lookahead",
];

/// Its default n-gram lengths, made for long copies, and shorter ones, since short answers copy in short pieces.
#[rustfmt::skip]
pub(crate) const SETTINGS: &[Setting] = &[
    without_draft("plain", "llama-completion", &["--no-conversation"]),
    with_draft("draft 2", SIMPLE, &["--spec-type", "draft-simple", "--spec-draft-n-max", "2"]),
    with_draft("draft 3", SIMPLE, &["--spec-type", "draft-simple", "--spec-draft-n-max", "3"]),
    with_draft("draft 5", SIMPLE, &["--spec-type", "draft-simple", "--spec-draft-n-max", "5"]),
    with_draft("draft 8", SIMPLE, &["--spec-type", "draft-simple", "--spec-draft-n-max", "8"]),
    with_draft("draft 16 while p >= 0.75", SIMPLE, &["--spec-type", "draft-simple", "--spec-draft-n-max", "16", "--spec-draft-p-min", "0.75"]),
    with_draft("draft tree", "llama-speculative", &["--spec-draft-n-max", "8", "--parallel", "4"]),
    without_draft("ngram-simple", SIMPLE, &["--spec-type", "ngram-simple"]),
    without_draft("ngram-simple 4/8", SIMPLE, &["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "8"]),
    without_draft("ngram-map-k", SIMPLE, &["--spec-type", "ngram-map-k"]),
    without_draft("ngram-map-k 4/8", SIMPLE, &["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "4", "--spec-ngram-map-k-size-m", "8"]),
    without_draft("ngram-map-k 4/16", SIMPLE, &["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "4", "--spec-ngram-map-k-size-m", "16"]),
    without_draft("ngram-map-k4v", SIMPLE, &["--spec-type", "ngram-map-k4v"]),
    without_draft("ngram-map-k4v 4/8", SIMPLE, &["--spec-type", "ngram-map-k4v", "--spec-ngram-map-k4v-size-n", "4", "--spec-ngram-map-k4v-size-m", "8"]),
    without_draft("ngram-mod", SIMPLE, &["--spec-type", "ngram-mod"]),
    without_draft("ngram-mod 6/16", SIMPLE, &["--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "6", "--spec-ngram-mod-n-min", "2", "--spec-ngram-mod-n-max", "16"]),
    without_draft("ngram-cache", SIMPLE, &["--spec-type", "ngram-cache"]),
    without_draft("lookup 5", "llama-lookup", &["--spec-draft-n-max", "5"]),
    without_draft("lookup 10", "llama-lookup", &["--spec-draft-n-max", "10"]),
    without_draft("lookahead", "llama-lookahead", &[]),
    with_draft("ngram-simple 4/8, draft 3", SIMPLE, &["--spec-type", "ngram-simple,draft-simple", "--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "8", "--spec-draft-n-max", "3"]),
];

const fn without_draft(name: &'static str, program: &'static str, arguments: &'static [&'static str]) -> Setting {
    Setting { name, program, arguments, needs_draft: false }
}

const fn with_draft(name: &'static str, program: &'static str, arguments: &'static [&'static str]) -> Setting {
    Setting { name, program, arguments, needs_draft: true }
}

/// The settings that can be run: all, or all that need no draft model; `names` selects some beside plain decoding.
///
/// # Errors
/// A name that is not in the table.
pub(crate) fn select(names: &[String], has_draft_model: bool) -> Result<Vec<&'static Setting>, String> {
    if let Some(name) = names.iter().find(|name| !SETTINGS.iter().any(|setting| setting.name == name.as_str())) {
        let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        return Err(format!("llama.cpp is run with no setting `{name}`; there are: {}", known.join("; ")));
    }
    let wanted = |setting: &&Setting| {
        let named = names.is_empty() || setting.name == PLAIN.name || names.iter().any(|name| name == setting.name);
        named && (has_draft_model || !setting.needs_draft)
    };
    Ok(SETTINGS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::{PLAIN, PROGRAMS, SETTINGS, select};

    #[test]
    fn every_settings_program_is_built_and_every_name_is_its_own() {
        for setting in SETTINGS {
            assert!(PROGRAMS.contains(&setting.program), "{}", setting.name);
            assert_eq!(SETTINGS.iter().filter(|other| other.name == setting.name).count(), 1, "{}", setting.name);
        }
        for program in &PROGRAMS[2..] {
            assert!(SETTINGS.iter().any(|setting| setting.program == *program), "{program} is built for nothing");
        }
    }

    #[test]
    fn plain_decoding_is_never_left_out() {
        let all = select(&[], true).unwrap();
        assert_eq!((all[0].name, all.len()), (PLAIN.name, SETTINGS.len()));
        assert!(select(&[], false).unwrap().iter().all(|setting| !setting.needs_draft));
        let some = select(&["draft 3".into()], true).unwrap();
        assert_eq!(some.iter().map(|setting| setting.name).collect::<Vec<_>>(), ["plain", "draft 3"]);
        assert!(select(&["eagle".into()], true).err().unwrap().contains("lookahead"));
    }
}
