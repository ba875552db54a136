//! `/set`: flags that change while a conversation goes on. They are the flags of the command line, read by the same definitions.

use anyhow::{Result, anyhow, bail};

use crate::args::{ChatArgs, Cli, Command};
use crate::config::{CommandLine, Refusal};
use crate::nearest::nearest;
use crate::refusal::sentence;

/// Long names of the flags that hold for one answer. The others are settled when the model is loaded.
const SETTABLE: &[&str] = &[
    "temperature",
    "top-k",
    "top-p",
    "min-p",
    "repeat-penalty",
    "presence-penalty",
    "frequency-penalty",
    "penalty-window",
    "logit-bias",
    "seed",
    "rule",
    "epsilon-latency",
    "loss-budget",
    "max-tokens",
    "stop",
    "draft",
    "draft-len",
    "preset",
    "length-policy",
    "draft-width",
    "show-accept",
    "color",
];

/// The command line, and what was set since.
pub(super) struct Settings<'a> {
    line: &'a CommandLine,
    words: Vec<String>,
}

impl<'a> Settings<'a> {
    pub(super) fn new(line: &'a CommandLine) -> Self {
        Self { line, words: Vec::new() }
    }

    /// The flags with one changed.
    pub(super) fn with(&self, name: &str, value: &str) -> Result<ChatArgs> {
        if !SETTABLE.contains(&name) {
            let meant = nearest(name, SETTABLE.iter().copied());
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
            bail!("`{name}` cannot be set during a conversation{meant} /set lists what can");
        }
        let words: Vec<String> = self.words.iter().cloned().chain([word(name, value)]).collect();
        let refused = |refusal| match refusal {
            Refusal::Clap(error) => anyhow!(sentence(&error)),
            Refusal::Config(problem) => anyhow!(problem),
        };
        match self.line.with(&words).and_then(|line| line.parsed()).map_err(refused)? {
            Cli { command: Command::Chat(args), .. } => Ok(*args),
            _ => bail!("`{name}` is no flag of spec chat"),
        }
    }

    /// Lets a change stand.
    pub(super) fn keep(&mut self, name: &str, value: &str) {
        self.words.push(word(name, value));
    }

    /// Lists what can be set, with the values in force.
    pub(super) fn show(&self) {
        let Ok(line) = self.line.with(&self.words) else { return };
        for name in SETTABLE {
            eprintln!("  {name:<16} {}", line.value(name).unwrap_or_else(|| "not set".to_owned()));
        }
    }
}

fn word(name: &str, value: &str) -> String {
    format!("--{name}={value}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn line(rest: &[&str]) -> CommandLine {
        let words = ["spec", "chat", "--model", "m.gguf"].iter().chain(rest);
        CommandLine::read(words.map(|word| (*word).into()).collect(), BTreeMap::new()).expect("a legal line")
    }

    #[test]
    fn everything_that_can_be_set_is_a_flag_of_chat_and_later_words_count() {
        let line = line(&["--temperature", "0.5", "--draft-len", "3"]);
        let mut settings = Settings::new(&line);
        for name in SETTABLE {
            let value = ["1", "7=1.5", "greedy", "goodput", "none", "kept", "auto", "quality"];
            let legal = value.iter().any(|value| settings.with(name, value).is_ok());
            // A preset and a length of one's own exclude each other.
            assert_eq!(legal, *name != "preset", "{name}");
        }
        let bare = self::line(&[]);
        assert!(Settings::new(&bare).with("preset", "quality").is_ok());
        assert_eq!(settings.with("top-k", "7").expect("legal").sampling.temperature, 0.5, "the rest stays");
        settings.keep("temperature", "0.25");
        settings.keep("temperature", "0.75");
        assert_eq!(settings.with("seed", "3").expect("legal").sampling.temperature, 0.75);
    }

    #[test]
    fn what_cannot_be_set_is_refused_in_words() {
        let line = line(&[]);
        let settings = Settings::new(&line);
        for (name, value, said) in [
            ("temprature", "1", "did you mean `temperature`?"),
            ("model", "x.gguf", "cannot be set"),
            ("temperature", "warm", "warm"),
            ("draft", "wings", "wings"),
            ("draft-len", "1000", "64"),
        ] {
            let error = settings.with(name, value).expect_err(name).to_string();
            assert!(error.contains(said), "{name}: {error}");
        }
    }
}
