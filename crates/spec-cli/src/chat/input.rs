//! Where turns come from: a line editor on a terminal, lines of standard input otherwise.

use std::io::{self, BufRead, IsTerminal, StdinLock};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};

use super::command::COMMANDS;
use super::lines::{is_open, joined};

const PROMPT: &str = "> ";
/// Turns that are remembered.
const REMEMBERED: usize = 1000;

/// What came of waiting for a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// Whole, its lines joined.
    Turn(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

/// The source of turns.
pub(super) enum Input {
    Terminal(Box<Terminal>),
    Lines(StdinLock<'static>),
}

/// A line editor and what it remembers.
pub(super) struct Terminal {
    editor: Editor<Turns, DefaultHistory>,
    history: Option<PathBuf>,
}

impl Input {
    /// The editor where both ends are a terminal. `history` is the flag.
    pub(super) fn open(history: Option<&Path>) -> Result<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self::Lines(io::stdin().lock()));
        }
        let config = Config::builder().max_history_size(REMEMBERED)?.history_ignore_space(true).build();
        let mut editor = Editor::with_config(config).context("opening the terminal")?;
        editor.set_helper(Some(Turns));
        let history = match history {
            Some(path) if path == Path::new("none") => None,
            Some(path) => Some(path.to_owned()),
            None => own_history(),
        };
        if let Some(path) = history.as_deref().filter(|path| path.exists()) {
            editor.load_history(path).with_context(|| format!("--history {}", path.display()))?;
        }
        Ok(Self::Terminal(Box::new(Terminal { editor, history })))
    }

    /// Whether somebody sits at it.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Waits for a turn.
    pub(super) fn next(&mut self) -> Result<Typed> {
        match self {
            Self::Terminal(terminal) => terminal.next(),
            Self::Lines(lines) => read_turn(lines).context("reading standard input"),
        }
    }
}

impl Terminal {
    fn next(&mut self) -> Result<Typed> {
        match self.editor.readline(PROMPT) {
            Ok(text) => {
                self.remember(&text);
                Ok(Typed::Turn(joined(&text)))
            }
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupted),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(error).context("reading from the terminal"),
        }
    }

    /// A history that cannot be written is no reason to end a conversation: it is said once.
    fn remember(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let added = self.editor.add_history_entry(text);
        let Some(path) = &self.history else { return };
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::from);
        let written = added.and(folder).and_then(|()| self.editor.append_history(path));
        if let Err(error) = written {
            eprintln!("[typed lines are not remembered: {}: {error}]", path.display());
            self.history = None;
        }
    }
}

/// Where typed lines are remembered unless told otherwise.
fn own_history() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    folder.map(|folder| folder.join("spec/history"))
}

/// The next turn of piped lines; at the end of the input a block that was not closed ends there.
fn read_turn(lines: &mut impl BufRead) -> io::Result<Typed> {
    let mut text = String::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(if text.is_empty() { Typed::End } else { Typed::Turn(joined(&text)) });
        }
        let line = line.strip_suffix('\n').unwrap_or(&line);
        if !text.is_empty() {
            text.push('\n');
        }
        text += line.strip_suffix('\r').unwrap_or(line);
        if !is_open(&text) {
            return Ok(Typed::Turn(joined(&text)));
        }
    }
}

/// What the editor knows of turns: which go on, and the names of commands.
struct Turns;

impl Validator for Turns {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_open(typed.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Turns {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let Some(typed) = line[..position].strip_prefix('/') else { return Ok((position, Vec::new())) };
        let names = COMMANDS.iter().map(|entry| entry.name).filter(|name| name.starts_with(typed));
        Ok((0, names.map(|name| format!("/{name} ")).collect()))
    }
}

impl Hinter for Turns {
    type Hint = String;
}

impl Highlighter for Turns {}

impl Helper for Turns {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piped_lines_are_turns() {
        let mut lines = io::Cursor::new("one\r\n\nfirst\\\nsecond\n\"\"\"\na\n\nb\n\"\"\"\n\"\"\"\nnot closed\n");
        let turn = |text: &str| Typed::Turn(text.to_owned());
        for expected in [turn("one"), turn(""), turn("first\nsecond"), turn("a\n\nb"), turn("not closed"), Typed::End] {
            assert_eq!(read_turn(&mut lines).expect("text"), expected);
        }
        assert!(read_turn(&mut io::Cursor::new([0xff, b'\n'])).is_err(), "no UTF-8");
    }
}
