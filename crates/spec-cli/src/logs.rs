//! What is logged, and how. Events of every layer go to standard error, never among answers.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use clap::ValueEnum;
use spec_runtime::{DECISIONS, DecisionDetail};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::Command;
use crate::config::CommandLine;
use crate::usage;

/// What is logged: a level, or targets with their levels.
const FILTER: &str = "SPEC_LOG";
/// How, where no flag says so.
const FORMAT: &str = "SPEC_LOG_FORMAT";
/// What is told of decisions: 0 to 3.
const DECODE_DEBUG: &str = "SPEC_DECODE_DEBUG";
/// Whether the device's layers are logged, ours and the vendor's.
const DEVICE_LOG: &str = "ASCEND_LOG";
/// Crates of ours that call the device's libraries.
const DEVICE_LAYERS: [&str; 3] = ["acl_sys", "atb_rs", "spec_ascend"];

/// How the log is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    Text,
    /// An object a line: timestamp, level, target, message, and the event's fields
    Json,
}

/// Begins to log for a command.
pub(crate) fn start(format: Option<LogFormat>, command: &Command, line: &CommandLine) -> Result<()> {
    let format = match (format, line.variable(FORMAT)) {
        (Some(format), _) => format,
        (None, Some(name)) => {
            LogFormat::from_str(name, true).map_err(|_| usage(format!("{FORMAT} is {name:?}; give text or json")))?
        }
        (None, None) => LogFormat::Text,
    };
    let level = match command {
        // Services say what they do; other commands have an answer to give, or a question.
        Command::Serve(_) | Command::Batch(_) => LevelFilter::INFO,
        _ => LevelFilter::WARN,
    };
    let targets = targets(level, |name| line.variable(name))?;
    let written = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let written = match format {
        LogFormat::Text => written.with_target(false).with_filter(targets).boxed(),
        LogFormat::Json => {
            let objects = written.json().flatten_event(true).with_current_span(false).with_span_list(false);
            objects.with_filter(targets).boxed()
        }
    };
    tracing_subscriber::registry().with(written).try_init().context("the log is begun twice")
}

/// How much is told of decisions, as the environment says.
pub(crate) fn decisions() -> Result<Option<DecisionDetail>> {
    decision_detail(std::env::var(DECODE_DEBUG).ok().as_deref())
}

fn decision_detail(value: Option<&str>) -> Result<Option<DecisionDetail>> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    DecisionDetail::from_digit(value).map_err(|error| usage(error.to_string()))
}

/// Which events are written.
fn targets<'a>(level: LevelFilter, variable: impl Fn(&str) -> Option<&'a str>) -> Result<Targets> {
    let mut targets = match variable(FILTER) {
        Some(text) => filter(text).ok_or_else(|| {
            usage(format!(
                "{FILTER} is {text:?}; give a level (off, error, warn, info, debug, trace), and levels of targets where they \
                 differ: warn,spec_runtime=debug"
            ))
        })?,
        None => Targets::new().with_default(level),
    };
    if decision_detail(variable(DECODE_DEBUG))?.is_some() {
        targets = targets.with_target(DECISIONS, LevelFilter::TRACE);
    }
    if variable(DEVICE_LOG) == Some("1") {
        targets = targets.with_targets(DEVICE_LAYERS.map(|layer| (layer, LevelFilter::DEBUG)));
    }
    Ok(targets)
}

/// A filter of which every part is a level, or a target with one. (A word alone would be taken for a target.)
fn filter(text: &str) -> Option<Targets> {
    let is_clear = |part: &str| match part.split_once('=') {
        Some((target, level)) => !target.is_empty() && level.parse::<LevelFilter>().is_ok(),
        None => part.parse::<LevelFilter>().is_ok(),
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.iter().copied().all(is_clear) { parts.join(",").parse().ok() } else { None }
}

/// Lets CANN and ATB log where `ASCEND_LOG` is 1, before any of their libraries is loaded.
///
/// # Errors
/// When the variable is neither 0 nor 1.
///
/// # Safety
/// No other thread may run: it may read the environment, which is changed.
pub(crate) unsafe fn prepare_device_logs() -> Result<()> {
    let value = std::env::var_os(DEVICE_LOG).unwrap_or_default();
    match value.to_str() {
        Some("" | "0") => {}
        Some("1") => {
            for (name, value) in
                device_variables(|name| std::env::var_os(name).is_some(), std::io::stdout().is_terminal())
            {
                // SAFETY: the caller has promised it.
                unsafe { std::env::set_var(name, value) };
            }
        }
        _ => return Err(usage(format!("{DEVICE_LOG} is {value:?}; give 1 for the device's log, or 0"))),
    }
    Ok(())
}

/// What CANN and ATB are told. What is set already stays: it says more than a switch.
///
/// On standard output they would stand among answers: they are let there only where somebody sees both. Else CANN writes its files,
/// as ever, below `ASCEND_PROCESS_LOG_PATH` or `~/ascend/log`.
fn device_variables(
    is_set: impl Fn(&str) -> bool,
    is_seen: bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    /// CANN: 0 debug to 4 none; ATB until 8.2: its own.
    const LEVELS: [(&str, &str); 2] = [("ASCEND_GLOBAL_LOG_LEVEL", "1"), ("ASDOPS_LOG_LEVEL", "INFO")];
    /// The first is CANN's until 12, the second since 9.2.
    const TO_OUTPUT: [&str; 3] = ["ASCEND_SLOG_PRINT_TO_STDOUT", "ASCEND_LOG_PRINT_TO_STDOUT", "ASDOPS_LOG_TO_STDOUT"];
    let to_output = TO_OUTPUT.map(|name| (name, if is_seen { "1" } else { "0" }));
    LEVELS.into_iter().chain(to_output).filter(move |(name, _)| !is_set(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets_of(variables: &[(&str, &'static str)]) -> Result<Targets> {
        targets(LevelFilter::WARN, |name| variables.iter().find(|(known, _)| *known == name).map(|&(_, value)| value))
    }

    #[test]
    fn variables_say_what_is_logged() {
        use tracing::Level;
        let of = |variables: &[(&str, &'static str)]| targets_of(variables).expect("a filter");
        let plain = of(&[]);
        assert!(plain.would_enable("spec_runtime", &Level::WARN) && !plain.would_enable("spec_runtime", &Level::INFO));
        assert!(!plain.would_enable(DECISIONS, &Level::INFO));
        let decisions = of(&[("SPEC_DECODE_DEBUG", "1")]);
        assert!(decisions.would_enable(DECISIONS, &Level::TRACE) && !decisions.would_enable("spec_cpu", &Level::INFO));
        let chosen = of(&[("SPEC_LOG", "error, spec_cpu=debug"), ("ASCEND_LOG", "1")]);
        assert!(
            chosen.would_enable("spec_cpu::model", &Level::DEBUG) && !chosen.would_enable("spec_cli", &Level::WARN)
        );
        assert!(chosen.would_enable("acl_sys::loader", &Level::DEBUG));
        let off = of(&[("SPEC_DECODE_DEBUG", "0"), ("ASCEND_LOG", "0"), ("SPEC_LOG", "off")]);
        assert!(!off.would_enable(DECISIONS, &Level::ERROR));
    }

    #[test]
    fn what_means_nothing_is_refused_in_one_line() {
        for (name, value) in [
            ("SPEC_LOG", "inof"),
            ("SPEC_LOG", "spec_cpu"),
            ("SPEC_LOG", "spec_cpu=loud"),
            ("SPEC_LOG", "=info"),
            ("SPEC_DECODE_DEBUG", "4"),
            ("SPEC_DECODE_DEBUG", "yes"),
        ] {
            let message = targets_of(&[(name, value)]).expect_err(value).to_string();
            assert!(message.contains(name) && message.contains(value) && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn devices_log_to_the_terminal_or_to_their_files_and_as_was_chosen_before() {
        let seen: Vec<_> = device_variables(|_| false, true).collect();
        assert!(
            seen.contains(&("ASCEND_GLOBAL_LOG_LEVEL", "1")) && seen.contains(&("ASCEND_SLOG_PRINT_TO_STDOUT", "1"))
        );
        let mut into_a_pipe = device_variables(|name| name == "ASCEND_GLOBAL_LOG_LEVEL", false);
        assert!(into_a_pipe.all(|(name, value)| value != "1" && name != "ASCEND_GLOBAL_LOG_LEVEL"));
    }
}
