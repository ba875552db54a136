//! Turns of several lines: a backslash at the end of a line, or a block between `"""` and `"""`.

const QUOTES: &str = r#"""""#;

/// Whether more lines belong to what was typed so far.
pub(super) fn is_open(text: &str) -> bool {
    match block(text) {
        Some(block) => !closes(block),
        None => continues(text),
    }
}

/// The turn that was typed, without what held its lines together.
pub(super) fn joined(text: &str) -> String {
    match block(text) {
        Some(block) => {
            let inner = block.trim_end().strip_suffix(QUOTES).unwrap_or(block);
            let inner = inner.strip_prefix('\n').unwrap_or(inner);
            inner.strip_suffix('\n').unwrap_or(inner).to_owned()
        }
        None => {
            let lines = text.split('\n').map(|line| if continues(line) { &line[..line.len() - 1] } else { line });
            lines.collect::<Vec<_>>().join("\n")
        }
    }
}

/// What follows the quotes that a block begins with.
fn block(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix(QUOTES)
}

fn closes(block: &str) -> bool {
    block.trim_end().ends_with(QUOTES)
}

/// A backslash ends the line, and is not itself written as two.
fn continues(line: &str) -> bool {
    let backslashes = line.len() - line.trim_end_matches('\\').len();
    backslashes % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_together_by_a_backslash_or_in_a_block() {
        for (typed, open, turn) in [
            ("one line", false, "one line"),
            ("first\\", true, "first"),
            ("first\\\nsecond", false, "first\nsecond"),
            ("first\\\nsecond\\", true, "first\nsecond"),
            ("a path C:\\\\", false, "a path C:\\\\"),
            ("\"\"\"", true, ""),
            ("\"\"\"\none\ntwo\\", true, "one\ntwo\\"),
            ("\"\"\"\none\n\n  two\n\"\"\"", false, "one\n\n  two"),
            ("\"\"\"one\ntwo\"\"\"  ", false, "one\ntwo"),
            ("  \"\"\"one\"\"\"", false, "one"),
            ("say \"\"\" aloud", false, "say \"\"\" aloud"),
            ("", false, ""),
        ] {
            assert_eq!((is_open(typed), joined(typed).as_str()), (open, turn), "{typed:?}");
        }
    }
}
