//! What a diagnosis consists of: findings, each with how bad it is and what to do, in sections.

use serde_json::{Value, json};

/// What kind of thing is wrong; it decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Cpu,
    Library,
    Device,
    Permission,
    Version,
    Memory,
    Atb,
}

impl Fault {
    /// The exit code when it is the first failure.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Cpu => 1,
            Self::Library => 3,
            Self::Device => 4,
            Self::Permission => 5,
            Self::Version => 6,
            Self::Memory => 7,
            Self::Atb => 8,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Note,
    /// Costs speed or a feature, or may explain a failure.
    Warning,
    /// The device cannot be used.
    Failure(Fault),
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failure(_) => "failure",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    /// What was found; lines after the first are details.
    pub(crate) said: String,
    /// What to do, a line each.
    pub(crate) fixes: Vec<String>,
}

impl Finding {
    fn new(check: &'static str, level: Level, said: impl Into<String>) -> Self {
        Self { check, level, said: said.into(), fixes: Vec::new() }
    }

    pub(crate) fn fine(check: &'static str, said: impl Into<String>) -> Self {
        Self::new(check, Level::Fine, said)
    }

    pub(crate) fn note(check: &'static str, said: impl Into<String>) -> Self {
        Self::new(check, Level::Note, said)
    }

    pub(crate) fn warning(check: &'static str, said: impl Into<String>) -> Self {
        Self::new(check, Level::Warning, said)
    }

    pub(crate) fn failure(check: &'static str, fault: Fault, said: impl Into<String>) -> Self {
        Self::new(check, Level::Failure(fault), said)
    }

    /// Adds what to do, a line each.
    pub(crate) fn fix(mut self, text: impl AsRef<str>) -> Self {
        self.fixes.extend(text.as_ref().lines().map(str::to_owned));
        self
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        match self.level {
            Level::Failure(fault) => Some(fault),
            _ => None,
        }
    }

    fn text(&self) -> String {
        let mut lines = self.said.lines();
        let mut text = format!("  {:<8} {}: {}\n", self.level.name(), self.check, lines.next().unwrap_or_default());
        for line in lines {
            text += &format!("             {}\n", line.trim_start());
        }
        for fix in &self.fixes {
            text += &format!("           fix: {}\n", fix.trim_start());
        }
        text
    }

    fn json(&self) -> Value {
        json!({ "check": self.check, "level": self.level.name(), "said": self.said, "fix": self.fixes })
    }
}

/// Findings about one part of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) findings: Vec<Finding>,
}

impl Section {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, findings: Vec::new() }
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.findings.iter().any(|finding| finding.fault().is_some())
    }

    /// Failures of a device that nobody asked for are warnings.
    pub(crate) fn demoted(mut self) -> Self {
        for finding in &mut self.findings {
            if finding.fault().is_some() {
                finding.level = Level::Warning;
            }
        }
        self
    }

    pub(crate) fn text(&self) -> String {
        let findings: String = self.findings.iter().map(Finding::text).collect();
        format!("{}\n{findings}", self.name)
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "name": self.name, "findings": self.findings.iter().map(Finding::json).collect::<Vec<_>>() })
    }
}
