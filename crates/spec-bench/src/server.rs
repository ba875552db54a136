//! A server as a user starts it: its process, its address, its memory, and its end.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::http::Endpoint;
use crate::launcher::{describe, last_line};

/// For a model to be loaded, and for the last requests to end.
const READY_WITHIN: Duration = Duration::from_secs(300);
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// The longest silence of a server that is well: a long prompt behind others.
const PATIENCE: Duration = Duration::from_secs(600);

/// A server that ends with this.
pub(crate) struct Server {
    process: Child,
    pub(crate) endpoint: Endpoint,
    /// All that it said.
    pub(crate) log: PathBuf,
}

impl Server {
    /// Starts `command`, which chooses its port itself and says its address, and waits until `ready` answers.
    pub(crate) fn start(command: &mut Command, log: &Path, ready: &str) -> Result<Self> {
        Self::start_at(command, log, ready, None)
    }

    /// Starts `command`, which was told `port`.
    pub(crate) fn start_on(command: &mut Command, log: &Path, ready: &str, port: u16) -> Result<Self> {
        Self::start_at(command, log, ready, Some(port))
    }

    fn start_at(command: &mut Command, log: &Path, ready: &str, port: Option<u16>) -> Result<Self> {
        let line = describe(command);
        eprintln!("+ {line}");
        // A file and no pipe: nobody has to read while it serves.
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let process = command
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("`{line}` cannot be started"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
        let endpoint = Endpoint { address, key: None, patience: PATIENCE };
        let mut server = Self { process, endpoint, log: log.to_owned() };
        let begun = Instant::now();
        loop {
            if let Some(status) = server.process.try_wait()? {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("`{line}` ended before it served ({status}): {}", last_line(&said));
            }
            if server.endpoint.address.port() == 0
                && let Some(port) = port_in(&std::fs::read_to_string(log).unwrap_or_default())
            {
                server.endpoint.address.set_port(port);
            }
            if server.endpoint.address.port() != 0
                && server.endpoint.get(ready).is_ok_and(|answer| answer.status == 200)
            {
                return Ok(server);
            }
            if begun.elapsed() > READY_WITHIN {
                bail!("`{line}` was not ready within {} s; it said: {}", READY_WITHIN.as_secs(), log.display());
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Bytes that it has in memory; `None` where the system does not tell.
    pub(crate) fn resident(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    }

    /// Asks it to end, as a service's supervisor does.
    pub(crate) fn stop(mut self) -> Result<ExitStatus> {
        let asked = Command::new("kill").arg("-TERM").arg(self.process.id().to_string()).status();
        asked.context("`kill` cannot be started")?;
        let begun = Instant::now();
        while begun.elapsed() < STOPPED_WITHIN {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        bail!("the server was asked to end and had not after {} s", STOPPED_WITHIN.as_secs())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Neither fails unless it has ended, which is what they are for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The port of the first address of this machine in what a server said.
fn port_in(said: &str) -> Option<u16> {
    said.match_indices("http://127.0.0.1:").find_map(|(at, found)| {
        let rest = &said[at + found.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        rest[..end].parse().ok()
    })
}

/// A port that was free a moment ago, for a server that cannot choose its own.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::{Server, port_in};
    use std::process::Command;

    #[test]
    fn the_port_is_found_once_its_line_is_whole() {
        assert_eq!(port_in("loading\nlistening on http://127.0.0.1:40123/ now\n"), Some(40123));
        // Cut within the number.
        assert_eq!(port_in("listening on http://127.0.0.1:40"), None);
        assert_eq!(port_in("nothing yet"), None);
    }

    #[test]
    fn a_server_that_ends_at_once_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let mut fails = Command::new("sh");
        fails.args(["-c", "echo no such model >&2; exit 1"]);
        let error = Server::start(&mut fails, &folder.path().join("log"), "/ready").err().unwrap();
        assert!(error.to_string().contains("no such model"), "{error:#}");
    }
}
