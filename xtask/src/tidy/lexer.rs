//! Splits Rust source into code and comments, line by line: a rule about `unsafe` must not be fooled by a string that
//! says so, nor one about comments by code.

/// One line of source.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Line {
    /// The code, with the contents of strings and characters taken out (the quotes stay).
    pub(crate) code: String,
    /// The comments, without what opens and closes them.
    pub(crate) comment: String,
}

enum State {
    Code,
    LineComment,
    /// With its depth: block comments nest.
    BlockComment(u32),
    /// Of a raw string the number of `#`, `None` where backslashes escape.
    Text(Option<usize>),
}

pub(crate) fn split(source: &str) -> Vec<Line> {
    let characters: Vec<char> = source.chars().collect();
    let starts = |at: usize, text: &str| text.chars().enumerate().all(|(i, c)| characters.get(at + i) == Some(&c));
    let mut lines = Vec::new();
    let mut line = Line::default();
    let mut state = State::Code;
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        at += 1;
        if character == '\n' {
            lines.push(std::mem::take(&mut line));
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            continue;
        }
        match state {
            State::LineComment => line.comment.push(character),
            State::BlockComment(depth) if character == '*' && starts(at, "/") => {
                at += 1;
                state = if depth == 1 { State::Code } else { State::BlockComment(depth - 1) };
            }
            State::BlockComment(depth) if character == '/' && starts(at, "*") => {
                at += 1;
                state = State::BlockComment(depth + 1);
            }
            State::BlockComment(_) => line.comment.push(character),
            // An escaped line break stays for the next turn, which counts it.
            State::Text(None) if character == '\\' => at += usize::from(!starts(at, "\n")),
            State::Text(hashes) => {
                if character == '"' && starts(at, &"#".repeat(hashes.unwrap_or(0))) {
                    at += hashes.unwrap_or(0);
                    line.code.push('"');
                    state = State::Code;
                }
            }
            State::Code if character == '/' && starts(at, "/") => {
                at += 1;
                state = State::LineComment;
            }
            State::Code if character == '/' && starts(at, "*") => {
                at += 1;
                state = State::BlockComment(1);
            }
            State::Code if character == '"' => {
                line.code.push('"');
                state = State::Text(raw_hashes(&line.code));
            }
            State::Code if character == '\'' => {
                let literal = character_literal(&characters[at..]);
                line.code.push_str(if literal == 0 { "'" } else { "''" });
                at += literal;
            }
            State::Code => line.code.push(character),
        }
    }
    if line != Line::default() {
        lines.push(line);
    }
    lines
}

/// The number of `#` when `code`, which ends in a quote, has just opened a raw string.
fn raw_hashes(code: &str) -> Option<usize> {
    let before = code.strip_suffix('"')?;
    let prefix = before.trim_end_matches('#');
    let word_start = prefix
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |at| at + prefix[at..].chars().next().map_or(1, char::len_utf8));
    matches!(&prefix[word_start..], "r" | "br" | "cr").then(|| before.len() - prefix.len())
}

/// How many characters after a quote belong to a character literal; 0 for a lifetime or a label.
fn character_literal(rest: &[char]) -> usize {
    match rest {
        ['\\', escaped @ ..] => {
            // The first character may be the quote itself, escaped.
            escaped.iter().skip(1).position(|&c| c == '\'').map_or(0, |at| at + 3)
        }
        [_, '\'', ..] => 2,
        _ => 0,
    }
}
