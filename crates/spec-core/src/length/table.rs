//! The length policies by name.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use super::{Additive, ByPromptLength, Fixed, Goodput, LengthPolicy, Survey};
use crate::NameError;

/// A length policy as users name it: `goodput`, `fixed:4`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LengthPolicyName {
    entry: &'static LengthPolicyEntry,
    parameter: usize,
}

/// A line of the table of length policies.
#[derive(Debug)]
pub struct LengthPolicyEntry {
    /// The name.
    pub name: &'static str,
    /// What it does and what its parameter is, in a line.
    pub summary: &'static str,
    /// The parameter when none is given.
    pub parameter: usize,
    /// Least and greatest parameter.
    pub range: (usize, usize),
    takes: &'static str,
    build: fn(usize) -> Box<dyn LengthPolicy>,
}

impl PartialEq for LengthPolicyEntry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// All length policies.
pub static LENGTH_POLICIES: [LengthPolicyEntry; 5] = [
    LengthPolicyEntry {
        name: "goodput",
        summary: "what gives the most tokens per second by measurement, at most x; may stop drafting",
        parameter: Goodput::MOST,
        range: (1, 64),
        takes: "the most tokens to draft, from 1 to 64",
        build: |most| Box::new(Goodput::new(most)),
    },
    LengthPolicyEntry {
        name: "fixed",
        summary: "x tokens in every round",
        parameter: 5,
        range: (0, 64),
        takes: "a number of tokens from 0 to 64",
        build: |length| Box::new(Fixed(length)),
    },
    LengthPolicyEntry {
        name: "additive",
        summary: "one more after more than 80 % accepted over the last 4 rounds that drafted, else one less, at most x",
        parameter: 8,
        range: (1, 64),
        takes: "the most tokens to draft, from 1 to 64",
        build: |most| Box::new(Additive::new(5, most)),
    },
    LengthPolicyEntry {
        name: "by-prompt-length",
        summary: "3 tokens for prompts shorter than x tokens, else 5",
        parameter: 256,
        range: (0, usize::MAX),
        takes: "a prompt length in tokens",
        build: |threshold| Box::new(ByPromptLength::new(threshold)),
    },
    LengthPolicyEntry {
        name: "survey",
        summary: "every length up to x in turn, for records that `spec tune` reads",
        parameter: 8,
        range: (1, 64),
        takes: "the most tokens to draft, from 1 to 64",
        build: |most| Box::new(Survey::new(most)),
    },
];

impl Default for LengthPolicyName {
    /// The first of the table: goodput.
    fn default() -> Self {
        let entry = &LENGTH_POLICIES[0];
        Self { entry, parameter: entry.parameter }
    }
}

impl LengthPolicyName {
    /// Its line of the table.
    pub fn entry(&self) -> &'static LengthPolicyEntry {
        self.entry
    }

    /// A policy for one generation.
    pub fn build(&self) -> Box<dyn LengthPolicy> {
        (self.entry.build)(self.parameter)
    }
}

impl FromStr for LengthPolicyName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        const TABLE: &str = "length policy";
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        let Some(entry) = LENGTH_POLICIES.iter().find(|entry| entry.name == name) else {
            return Err(NameError::unknown(TABLE, name, LENGTH_POLICIES.iter().map(|entry| (entry.name, true))));
        };
        let Some(value) = value else { return Ok(Self { entry, parameter: entry.parameter }) };
        match value.parse() {
            Ok(parameter) if (entry.range.0..=entry.range.1).contains(&parameter) => Ok(Self { entry, parameter }),
            _ => Err(NameError::Parameter {
                table: TABLE,
                name: entry.name,
                value: value.to_owned(),
                takes: entry.takes,
            }),
        }
    }
}

impl fmt::Display for LengthPolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.entry.name, self.parameter)
    }
}
