//! Steps of a build: each can be printed as the shell would have it, and taken.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One step.
#[derive(Debug)]
pub(crate) enum Step {
    Run(Invocation),
    /// Makes a folder and those above it.
    Folder(PathBuf),
    /// Copies a file, or a folder with what is in it, over what is there.
    Copy {
        from: PathBuf,
        to: PathBuf,
    },
    /// Makes a symbolic link, over one that is there.
    Link {
        at: PathBuf,
        to: PathBuf,
    },
    Write {
        file: PathBuf,
        text: String,
    },
}

/// A program with its arguments, folder and additional environment.
#[derive(Debug)]
pub(crate) struct Invocation {
    program: OsString,
    arguments: Vec<OsString>,
    folder: Option<PathBuf>,
    variables: Vec<(OsString, OsString)>,
}

impl Invocation {
    pub(crate) fn new(program: impl Into<OsString>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), folder: None, variables: Vec::new() }
    }

    /// A command that somebody else put together. Its variables are those of this process, and inherited anyway.
    pub(crate) fn of(command: &Command) -> Self {
        Self::new(command.get_program()).arguments(command.get_args())
    }

    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn arguments<S: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    pub(crate) fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    fn run(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let status = command.status().with_context(|| format!("`{self}` could not be started"))?;
        if !status.success() {
            bail!("`{self}` failed ({status}); what it said is above");
        }
        Ok(())
    }
}

impl Step {
    pub(crate) fn take(&self) -> Result<()> {
        match self {
            Step::Run(invocation) => invocation.run(),
            Step::Folder(folder) => {
                std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
            }
            Step::Copy { from, to } => copy(from, to),
            Step::Link { at, to } => match std::fs::remove_file(at) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("cannot replace {}", at.display()))
                }
                _ => std::os::unix::fs::symlink(to, at).with_context(|| format!("cannot link {}", at.display())),
            },
            Step::Write { file, text } => {
                std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
            }
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let metadata = std::fs::symlink_metadata(from).with_context(|| format!("{} is not there", from.display()))?;
    if metadata.is_symlink() {
        let link = Step::Link { at: to.to_owned(), to: std::fs::read_link(from)? };
        return link.take();
    }
    if metadata.is_dir() {
        Step::Folder(to.to_owned()).take()?;
        for entry in std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    // Over a library that a program has open, writing would change what it runs.
    let _ = std::fs::remove_file(to);
    std::fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Run(invocation) => invocation.fmt(formatter),
            Step::Folder(folder) => write!(formatter, "mkdir -p {}", quoted(folder.as_os_str())),
            Step::Copy { from, to } => {
                write!(formatter, "cp -rT {} {}", quoted(from.as_os_str()), quoted(to.as_os_str()))
            }
            Step::Link { at, to } => {
                write!(formatter, "ln -sfn {} {}", quoted(to.as_os_str()), quoted(at.as_os_str()))
            }
            Step::Write { file, text } => {
                write!(formatter, "cat > {} <<'END'\n{text}END", quoted(file.as_os_str()))
            }
        }
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(folder) = &self.folder {
            write!(formatter, "cd {} && ", quoted(folder.as_os_str()))?;
        }
        for (name, value) in &self.variables {
            write!(formatter, "{}={} ", name.to_string_lossy(), quoted(value))?;
        }
        write!(formatter, "{}", quoted(&self.program))?;
        for argument in &self.arguments {
            write!(formatter, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

/// A word as a shell takes it for one.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_a_shell_would_do() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let echo = Invocation::new("sh")
            .arguments(["-c", "printf '%s|' \"$1\" \"$NAME\" > out", "sh", "it's one word"])
            .folder(folder.path())
            .variable("NAME", "$HOME `x`");
        let read = || std::fs::read_to_string(folder.path().join("out")).expect("the command wrote it");
        echo.run().expect("it runs");
        let taken = read();
        assert_eq!(taken, "it's one word|$HOME `x`|");
        std::fs::remove_file(folder.path().join("out")).expect("it was written");
        let status = Command::new("sh").arg("-c").arg(echo.to_string()).status().expect("there is a shell");
        assert!(status.success(), "{echo}");
        assert_eq!(read(), taken, "{echo}");
    }

    #[test]
    fn a_step_that_fails_names_its_command() {
        let failing = Step::Run(Invocation::new("sh").arguments(["-c", "exit 3"]));
        let error = failing.take().expect_err("it exits with 3").to_string();
        assert!(error.contains("sh -c 'exit 3'") && error.contains('3'), "{error}");
        let missing = Step::Copy { from: "/does/not/exist".into(), to: "/neither".into() };
        assert!(missing.take().expect_err("nothing is there").to_string().contains("/does/not/exist is not there"));
    }
}
