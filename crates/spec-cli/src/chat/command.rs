//! Lines that begin with a slash.

use std::path::PathBuf;

use crate::nearest::nearest;

/// What a line asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    Nothing,
    /// A turn of the conversation.
    Say(String),
    Do(Command),
}

/// What can be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    Help,
    Clear,
    /// Tells what the assistant is told, or changes it; `off` ends it.
    System(Option<String>),
    Save(PathBuf),
    Load(PathBuf),
    Retry,
    Undo,
    /// A flag's name and its new value; nothing shows what can be set.
    Set(Option<(String, String)>),
    Stats,
    Exit,
}

/// A command as it is typed.
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// What follows the name.
    pub(super) takes: &'static str,
    pub(super) does: &'static str,
    /// Makes the command of what follows; nothing when that is missing.
    make: fn(&str) -> Option<Command>,
}

/// All commands, in the order of `/help`.
pub(super) const COMMANDS: &[Entry] = &[
    Entry { name: "help", takes: "", does: "lists these", make: |_| Some(Command::Help) },
    Entry {
        name: "clear",
        takes: "",
        does: "begins a new conversation; the system message stays",
        make: |_| Some(Command::Clear),
    },
    Entry {
        name: "system",
        takes: "[TEXT|off]",
        does: "shows or changes what the assistant is told beforehand",
        make: |rest| Some(Command::System(given(rest))),
    },
    Entry {
        name: "save",
        takes: "FILE",
        does: "writes the conversation as JSON",
        make: |rest| given(rest).map(|file| Command::Save(file.into())),
    },
    Entry {
        name: "load",
        takes: "FILE",
        does: "goes on with a conversation from such a file",
        make: |rest| given(rest).map(|file| Command::Load(file.into())),
    },
    Entry { name: "retry", takes: "", does: "answers the last turn again", make: |_| Some(Command::Retry) },
    Entry { name: "undo", takes: "", does: "takes the last turn and its answer back", make: |_| Some(Command::Undo) },
    Entry {
        name: "set",
        takes: "[FLAG VALUE]",
        does: "changes a flag such as temperature or draft-len from here on; alone it shows them",
        make: setting,
    },
    Entry { name: "stats", takes: "", does: "shows what the last answer took", make: |_| Some(Command::Stats) },
    Entry { name: "exit", takes: "", does: "leaves, as Ctrl-D does", make: |_| Some(Command::Exit) },
];

fn given(rest: &str) -> Option<String> {
    (!rest.is_empty()).then(|| rest.to_owned())
}

fn setting(rest: &str) -> Option<Command> {
    if rest.is_empty() {
        return Some(Command::Set(None));
    }
    let (name, value) = rest.split_once(|c: char| c.is_whitespace() || c == '=')?;
    let value = value.trim();
    (!value.is_empty()).then(|| Command::Set(Some((name.trim_start_matches("--").to_owned(), value.to_owned()))))
}

/// Reads a line, or says what is wrong with it.
pub(super) fn read(line: &str) -> Result<Line, String> {
    let trimmed = line.trim();
    if trimmed.is_empty() {
        return Ok(Line::Nothing);
    }
    let Some(command) = trimmed.strip_prefix('/') else { return Ok(Line::Say(line.to_owned())) };
    if command.starts_with('/') {
        return Ok(Line::Say(command.to_owned()));
    }
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    let Some(entry) = COMMANDS.iter().find(|entry| entry.name == name) else {
        let meant = nearest(name, COMMANDS.iter().map(|entry| entry.name));
        let meant = meant.map_or(String::new(), |meant| format!("did you mean /{meant}? "));
        return Err(format!("/{name} is no command; {meant}/help lists them, and // begins a turn with a slash"));
    };
    if entry.takes.is_empty() && !rest.is_empty() {
        return Err(format!("/{name} stands alone; `{rest}` is too much"));
    }
    (entry.make)(rest).map(Line::Do).ok_or_else(|| format!("/{name} needs {}", entry.takes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_turns_commands_or_refused() {
        let set = |name: &str, value: &str| Line::Do(Command::Set(Some((name.into(), value.into()))));
        for (typed, line) in [
            ("  ", Line::Nothing),
            ("hello", Line::Say("hello".into())),
            ("//etc/passwd is what?", Line::Say("/etc/passwd is what?".into())),
            ("/help", Line::Do(Command::Help)),
            (" /exit ", Line::Do(Command::Exit)),
            ("/system", Line::Do(Command::System(None))),
            ("/system Be brief.  ", Line::Do(Command::System(Some("Be brief.".into())))),
            ("/save a file.json", Line::Do(Command::Save("a file.json".into()))),
            ("/set", Line::Do(Command::Set(None))),
            ("/set temperature 0.7", set("temperature", "0.7")),
            ("/set --draft-len=3", set("draft-len", "3")),
        ] {
            assert_eq!(read(typed), Ok(line), "{typed:?}");
        }
        for (typed, said) in [
            ("/hlep", "did you mean /help?"),
            ("/etc/passwd", "is no command"),
            ("/save", "/save needs FILE"),
            ("/undo 3", "stands alone"),
            ("/set temperature", "/set needs"),
        ] {
            assert!(read(typed).is_err_and(|error| error.contains(said)), "{typed:?}");
        }
    }

    #[test]
    fn every_command_of_the_list_can_be_typed() {
        for entry in COMMANDS {
            let line = format!("/{} {}", entry.name, if entry.takes.is_empty() { "" } else { "temperature 1" });
            assert!(matches!(read(&line), Ok(Line::Do(_))), "{line}");
        }
    }
}
