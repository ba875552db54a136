//! Whether to colour, and in which colours.

use std::io::IsTerminal;

use clap::ValueEnum;
use spec_runtime::TokenSource;

/// When colours are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ColorKind {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`
    Auto,
    /// Always, into files and pipes too
    Always,
    /// Never
    Never,
}

impl ColorKind {
    /// Whether what goes to `stream` is coloured.
    pub(crate) fn applies_to(self, stream: &impl IsTerminal) -> bool {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                stream.is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }
}

/// What is shown of a draft.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Shown {
    /// The tokens of the answer, by where they come from
    Kept,
    /// Those, and struck through the draft tokens that were rejected
    All,
}

const RESET: &str = "\x1b[0m";
/// Dim, red, struck through.
const REJECTED: &str = "\x1b[2;31;9m";

/// Colours of the basic eight, which every terminal and theme has, with another attribute where colours are few.
fn paint(source: TokenSource) -> &'static str {
    match source {
        TokenSource::Target => "",
        TokenSource::Accepted => "\x1b[32m",
        TokenSource::Corrected => "\x1b[33m",
        TokenSource::Bonus => "\x1b[36m",
    }
}

/// The text of a token, coloured by what it is to its draft.
pub(crate) fn token(source: TokenSource, text: &str) -> String {
    painted(paint(source), text)
}

/// The text of draft tokens that were rejected.
pub(crate) fn rejected(text: &str) -> String {
    // A line that was never said does not break the line.
    painted(REJECTED, &text.replace('\n', "\\n"))
}

/// What the colours mean, on one line.
pub(crate) fn legend(shown: Shown) -> String {
    let mut names = vec![
        token(TokenSource::Accepted, "accepted draft"),
        token(TokenSource::Corrected, "correction of a rejected one"),
        token(TokenSource::Bonus, "bonus behind a whole draft"),
        "nothing drafted".to_owned(),
    ];
    if shown == Shown::All {
        names.push(rejected("rejected draft"));
    }
    format!("[{}]", names.join(" | "))
}

fn painted(paint: &str, text: &str) -> String {
    if paint.is_empty() || text.is_empty() { text.to_owned() } else { format!("{paint}{text}{RESET}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_looks_different_and_ends_its_colour() {
        let sources = [TokenSource::Target, TokenSource::Accepted, TokenSource::Corrected, TokenSource::Bonus];
        let mut looks: Vec<String> = sources.iter().map(|&source| token(source, "x")).collect();
        looks.push(rejected("x"));
        assert!(looks.iter().skip(1).all(|look| look.starts_with('\x1b') && look.ends_with(RESET)), "{looks:?}");
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), 5);
        assert_eq!(token(TokenSource::Accepted, ""), "", "a token without text leaves no mark");
        assert!(!rejected("a\nb").contains('\n'));
    }
}
