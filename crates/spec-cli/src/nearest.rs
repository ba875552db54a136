//! The name that was probably meant.

/// How alike two names must be, from 0 to 1, for one to be taken for the other mistyped.
const ALIKE: f64 = 0.75;

/// The candidate that is most like `name`, if one is.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.into_iter().map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= ALIKE).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let names = ["temperature", "top-k", "top-p", "threads", "draft", "draft-model"];
        for (name, meant) in [
            ("temprature", Some("temperature")),
            ("top_k", Some("top-k")),
            ("thread", Some("threads")),
            ("draftmodel", Some("draft-model")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names), meant, "{name}");
        }
    }
}
