//! Command-line words, taken one by one: too few are needed here for an argument parser to pay for its compile time.

use crate::UsageError;
use anyhow::Result;

pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    pub(crate) fn from_environment() -> Self {
        Self(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect())
    }

    /// Takes the first word that is left.
    pub(crate) fn next_word(&mut self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Takes `name` wherever it stands; whether it was there.
    pub(crate) fn take_switch(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|word| word != name);
        self.0.len() < before
    }

    /// Takes `name VALUE` or `name=VALUE`.
    pub(crate) fn take_value(&mut self, name: &str) -> Result<Option<String>> {
        let joined = format!("{name}=");
        let Some(at) = self.0.iter().position(|word| word == name || word.starts_with(&joined)) else {
            return Ok(None);
        };
        let word = self.0.remove(at);
        if let Some(value) = word.strip_prefix(&joined) {
            return Ok(Some(value.to_owned()));
        }
        if at == self.0.len() {
            return Err(UsageError(format!("{name} needs a value")).into());
        }
        Ok(Some(self.0.remove(at)))
    }

    /// All that is left, for a program that reads it itself.
    pub(crate) fn rest(self) -> Vec<String> {
        self.0
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some(word) => Err(UsageError(format!("`{word}` is not understood here")).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;

    fn words(line: &str) -> Arguments {
        Arguments(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn values_are_taken_in_both_spellings_and_the_rest_is_refused() {
        let mut arguments = words("--max-tokens 40 --json --model=a.gguf extra");
        assert_eq!(arguments.take_value("--model").unwrap().as_deref(), Some("a.gguf"));
        assert_eq!(arguments.take_value("--max-tokens").unwrap().as_deref(), Some("40"));
        assert!(arguments.take_switch("--json"));
        assert!(!arguments.take_switch("--json"));
        assert!(arguments.finish().unwrap_err().to_string().contains("`extra`"));
    }

    #[test]
    fn a_flag_without_its_value_is_refused() {
        let mut arguments = words("--json --model");
        assert!(arguments.take_value("--model").unwrap_err().to_string().contains("--model needs a value"));
    }
}
