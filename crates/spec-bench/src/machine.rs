//! What the figures were taken on: a figure without its machine and date says nothing.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) threads: usize,
    /// In UTC, as year-month-day.
    pub(crate) date: String,
    /// Of the sources that the binary was built from; `changed` behind it when files differ from it.
    pub(crate) commit: String,
}

impl Machine {
    /// `sources` is a folder in the checkout.
    pub(crate) fn this(threads: usize, sources: &Path) -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            processor: processor(&cpuinfo).unwrap_or(std::env::consts::ARCH).to_owned(),
            threads,
            date: date(seconds),
            commit: commit(sources),
        }
    }

    pub(crate) fn describe(&self) -> String {
        format!("{}, {} threads, {}, commit {}", self.processor, self.threads, self.date, self.commit)
    }
}

/// Threads that the process may use at once.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

fn commit(sources: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(sources).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "--short=10", "HEAD"]) {
        None => "unknown".to_owned(),
        Some(commit) if git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty()) => commit,
        Some(commit) => format!("{commit}, changed"),
    }
}

/// The civil date of a time in seconds since 1970, by the Gregorian calendar's cycle of 400 years.
fn date(seconds: u64) -> String {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Counted from the first of March of the year 0, so that leap days end their years.
    let days = seconds / 86_400 + 719_468;
    let (cycle, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Months from March have 31 and 30 days in a pattern of five months with 153 days.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{}-{month:02}-{day:02}", cycle * 400 + year + carry)
}

#[cfg(test)]
mod tests {
    use super::{date, processor};

    #[test]
    fn dates_are_right_around_leap_days_and_ends_of_years() {
        let cases = [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
            (1_735_689_600, "2025-01-01"),
            (4_107_542_400, "2100-03-01"),
            (4_107_542_399, "2100-02-28"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn the_processors_name_is_read() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Fast One\nflags\t: a\n";
        assert_eq!(processor(cpuinfo), Some("Fast One"));
        assert_eq!(processor("processor : 0\n"), None);
    }
}
