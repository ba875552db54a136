//! What starting costs: seconds to the first token, and the memory that the process owns while it loads.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::launcher::describe;

/// Short beside a load, long beside reading a few lines of text.
const BETWEEN_LOOKS: Duration = Duration::from_millis(3);

/// Seconds from the start of `command` to the first line that it prints.
pub(crate) fn seconds_to_first_line(command: &mut Command) -> Result<f64> {
    let begun = Instant::now();
    let mut child = start(command)?;
    let mut line = String::new();
    let stdout = child.stdout.take().context("its standard output is a pipe of ours")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let seconds = begun.elapsed().as_secs_f64();
    finish(child, command)?;
    Ok(seconds)
}

/// The most bytes of anonymous and shared memory that `command` and what it starts held at once: what no file backs, and
/// so cannot be dropped under pressure. `None` where the system does not tell.
pub(crate) fn peak_owned_bytes(command: &mut Command) -> Result<Option<u64>> {
    let mut child = start(command)?;
    let mut peak: Option<u64> = None;
    while child.try_wait().with_context(|| format!("`{}` cannot be waited for", describe(command)))?.is_none() {
        peak = peak.max(owned_by_tree(child.id()));
        std::thread::sleep(BETWEEN_LOOKS);
    }
    finish(child, command)?;
    Ok(peak)
}

fn start(command: &mut Command) -> Result<Child> {
    let line = describe(command);
    // One line of standard output fits a pipe; messages go to the terminal.
    command.stdout(Stdio::piped()).spawn().with_context(|| format!("`{line}` cannot be started"))
}

fn finish(mut child: Child, command: &Command) -> Result<()> {
    let status = child.wait()?;
    if !status.success() {
        bail!("`{}` failed ({status})", describe(command));
    }
    Ok(())
}

fn owned_by_tree(process: u32) -> Option<u64> {
    let folder = format!("/proc/{process}");
    let own = owned(&std::fs::read_to_string(Path::new(&folder).join("status")).ok()?);
    let children = std::fs::read_to_string(format!("{folder}/task/{process}/children")).unwrap_or_default();
    let below = children.split_whitespace().filter_map(|word| word.parse().ok()).map(owned_by_tree);
    below.chain([own]).max().flatten()
}

/// From the text of a `status` file of proc.
fn owned(status: &str) -> Option<u64> {
    let kilobytes = |name: &str| {
        let line = status.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some((kilobytes("RssAnon")? + kilobytes("RssShmem").unwrap_or(0)) * 1024)
}

#[cfg(test)]
mod tests {
    use super::{owned, seconds_to_first_line};
    use std::process::Command;

    #[test]
    fn memory_that_a_file_backs_is_not_counted() {
        let status = "Name:\tspec\nVmHWM:\t 9000 kB\nRssAnon:\t 1000 kB\nRssFile:\t 5000 kB\nRssShmem:\t 24 kB\n";
        assert_eq!(owned(status), Some(1024 * 1024));
        assert_eq!(owned("Name:\tspec\n"), None);
    }

    #[test]
    fn a_program_that_fails_has_no_startup_time() {
        let mut fails = Command::new("sh");
        let error = seconds_to_first_line(fails.args(["-c", "echo x; exit 4"])).unwrap_err().to_string();
        assert!(error.contains("sh -c"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_child_of_the_started_program_holds_is_found() {
        let mut command = Command::new("sh");
        command.args(["-c", "(x=$(head -c 30000000 /dev/zero | tr '\\0' x); sleep 0.5; echo ${#x}); true"]);
        let peak = super::peak_owned_bytes(&mut command).unwrap().unwrap();
        assert!(peak > 20_000_000, "{peak}");
    }
}
