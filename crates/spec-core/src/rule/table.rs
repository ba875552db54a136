//! The rules by name.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

use super::lossy::EPSILON;
use super::{Block, Coupled, Entropy, Epsilon, EpsilonPublished, Greedy, RejectionRule, Typical};
use crate::{AcceptanceRule, NameError, Noise, NoiseScan, Siblings};

/// A rule as users name it: `rejection`, `epsilon:0.1`.
///
/// ```
/// use spec_core::RuleName;
///
/// let rule: RuleName = "epsilon:0.1".parse()?;
/// assert_eq!((rule.entry().lossless, rule.parameter()), (false, Some(0.1)));
/// assert!("epsilonn".parse::<RuleName>().is_err_and(|error| error.to_string().contains("epsilon-published:x")));
/// # Ok::<(), spec_core::NameError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RuleName {
    entry: &'static RuleEntry,
    parameter: Option<f64>,
}

/// Makes a rule from its parameter, and the noise and scan that `coupled` samples with.
type Build = fn(f64, Noise, &Arc<dyn NoiseScan>) -> Box<dyn AcceptanceRule>;

/// A line of the table of rules.
#[derive(Debug)]
pub struct RuleEntry {
    /// The name.
    pub name: &'static str,
    /// Whether the law of the output is the target's.
    pub lossless: bool,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The parameter when none is given; `None` when it takes none.
    pub parameter: Option<f64>,
    build: Build,
}

impl PartialEq for RuleEntry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// All rules.
pub static RULES: [RuleEntry; 9] = [
    RuleEntry {
        name: "greedy",
        lossless: true,
        summary: "keeps the target's argmax; for temperature 0",
        parameter: None,
        build: |_, _, _| Box::new(Greedy),
    },
    RuleEntry {
        name: "coupled",
        lossless: true,
        summary: "keeps the target's own sample under shared noise; the output is that without a draft, bit for bit",
        parameter: None,
        build: |_, noise, scan| Box::new(Coupled::new(noise, Arc::clone(scan))),
    },
    RuleEntry {
        name: "rejection",
        lossless: true,
        summary: "keeps with min(1, p/q); on trees, siblings without replacement",
        parameter: None,
        build: |_, _, _| Box::new(RejectionRule { siblings: Siblings::Distinct }),
    },
    RuleEntry {
        name: "rejection-independent",
        lossless: true,
        summary: "keeps with min(1, p/q); on trees, independent siblings",
        parameter: None,
        build: |_, _, _| Box::new(RejectionRule { siblings: Siblings::Independent }),
    },
    RuleEntry {
        name: "block",
        lossless: true,
        summary: "judges a chain as a whole; keeps the most that a lossless rule can",
        parameter: None,
        build: |_, _, _| Box::new(Block),
    },
    RuleEntry {
        name: "typical",
        lossless: false,
        summary: "keeps what is not improbable for the target's entropy",
        parameter: None,
        build: |_, _, _| Box::new(Typical::default()),
    },
    RuleEntry {
        name: "entropy",
        lossless: false,
        summary: "rejection, looser the less sure the target is",
        parameter: None,
        build: |_, _, _| Box::new(Entropy::default()),
    },
    RuleEntry {
        name: "epsilon",
        lossless: false,
        summary: "keeps where p >= q - x",
        parameter: Some(EPSILON),
        build: |x, _, _| Box::new(Epsilon(x)),
    },
    RuleEntry {
        name: "epsilon-published",
        lossless: false,
        summary: "keeps where q >= p - x; needs a draft model",
        parameter: Some(EPSILON),
        build: |x, _, _| Box::new(EpsilonPublished(x)),
    },
];

impl RuleName {
    /// Its line of the table.
    pub fn entry(&self) -> &'static RuleEntry {
        self.entry
    }

    /// Its parameter: the one given, or the default; `None` when it takes none.
    pub fn parameter(&self) -> Option<f64> {
        self.parameter.or(self.entry.parameter)
    }

    /// The rule for one generated text. Noise and scan are those that [`Coupled`] samples with.
    pub fn build(&self, noise: Noise, scan: &Arc<dyn NoiseScan>) -> Box<dyn AcceptanceRule> {
        (self.entry.build)(self.parameter().unwrap_or_default(), noise, scan)
    }
}

impl FromStr for RuleName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        const TABLE: &str = "rule";
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        let Some(entry) = RULES.iter().find(|entry| entry.name == name) else {
            let known = RULES.iter().map(|entry| (entry.name, entry.parameter.is_some()));
            return Err(NameError::unknown(TABLE, name, known));
        };
        let Some(value) = value else { return Ok(Self { entry, parameter: None }) };
        let bad = |takes| NameError::Parameter { table: TABLE, name: entry.name, value: value.to_owned(), takes };
        if entry.parameter.is_none() {
            return Err(bad("none"));
        }
        match value.parse::<f64>() {
            Ok(number) if (0.0..=1.0).contains(&number) => Ok(Self { entry, parameter: Some(number) }),
            _ => Err(bad("a tolerance from 0 to 1, such as 0.01")),
        }
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parameter {
            Some(parameter) => write!(f, "{}:{parameter}", self.entry.name),
            None => f.write_str(self.entry.name),
        }
    }
}
