//! Starting the programs that are measured.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Words put before every measured program, `taskset -c 0-7` for example; ours and others' alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launcher(Vec<String>);

impl Launcher {
    pub(crate) fn new(words: &str) -> Self {
        Self(words.split_whitespace().map(str::to_owned).collect())
    }

    /// The start of a command; its reader of standard input finds nothing.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = match self.0.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        // What runs is what the line says: our binary takes no flags from the user's configuration.
        command.stdin(Stdio::null()).env("SPEC_CONFIG", "none").env("SPEC_NO_LAST_RUN", "1");
        command
    }
}

/// What a program that ended well printed.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `command` to its end.
///
/// # Errors
/// It cannot be started, or fails; the message has the last line that it wrote.
pub(crate) fn capture(command: &mut Command) -> Result<Printed> {
    let line = describe(command);
    let output = command.output().with_context(|| format!("`{line}` cannot be started"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("`{line}` failed ({}): {}", output.status, last_line(&stderr));
    }
    // A generation that ends within a character leaves a cut one, which is no failure of the run.
    Ok(Printed { stdout: String::from_utf8_lossy(&output.stdout).into_owned(), stderr })
}

/// Runs `command` to its end with its output on the terminal, its standard output going where the progress goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    eprintln!("+ {line}");
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("`{line}` cannot be started"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// The command as one would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

pub(crate) fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it gave no reason")
}

#[cfg(test)]
mod tests {
    use super::{Launcher, capture, describe};
    use std::path::Path;
    use std::process::Command;

    fn command(launcher: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Launcher::new(launcher).command(Path::new(program));
        command.args(arguments);
        command
    }

    #[test]
    fn the_launchers_words_stand_before_the_program() {
        let with = command("taskset  -c 0-7", "spec", &["-p", "two words", ""]);
        assert_eq!(describe(&with), "taskset -c 0-7 spec -p 'two words' ''");
        assert_eq!(describe(&command("", "spec", &["--json"])), "spec --json");
    }

    #[test]
    fn a_failure_names_the_command_and_its_last_word() {
        let mut fails = command("", "sh", &["-c", "echo first >&2; echo why >&2; exit 3"]);
        let error = format!("{:#}", capture(&mut fails).unwrap_err());
        assert!(error.contains("sh -c") && error.ends_with(": why"), "{error}");
        let mut missing = command("", "no-such-program", &["x"]);
        assert!(format!("{:#}", capture(&mut missing).unwrap_err()).contains("cannot be started"));
    }
}
