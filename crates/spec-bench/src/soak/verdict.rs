//! What has to hold after a soak, and the table that says whether it does.

use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use spec_figures::{Spread, Table};

use super::{Counts, Ledger};
use crate::exposition::Samples;

/// Memory may grow after warm-up by this share and these bytes: pages that the allocator keeps, and no more with every minute.
const GROWTH: (f64, u64) = (1.05, 32 << 20);
/// The part of a soak that warms up: buffers and caches reach their sizes in it.
const WARM_UP: f64 = 0.3;

/// What a server has to do.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Load {
    pub(super) running: f64,
    pub(super) waiting: f64,
    /// Blocks of the KV cache that requests hold; those that are only remembered count as free.
    pub(super) held_blocks: f64,
    /// Times since the start that one gave way to another for want of them.
    pub(super) preemptions: f64,
}

/// The server at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Look {
    pub(super) at: Duration,
    pub(super) resident: u64,
    /// `None` where /metrics did not answer.
    pub(super) load: Option<Load>,
}

/// Each claim with what was seen, and whether it holds.
pub(super) struct Verdict(Vec<(&'static str, String, bool)>);

impl Load {
    pub(super) fn of(samples: &Samples) -> Result<Self> {
        Ok(Self {
            running: samples.sum("spec_requests_running")?,
            waiting: samples.sum("spec_requests_waiting")?,
            held_blocks: samples.sum("spec_kv_blocks_used")?,
            preemptions: samples.sum("spec_preemptions_total")?,
        })
    }

    pub(super) fn is_idle(self) -> bool {
        self.running == 0.0 && self.waiting == 0.0 && self.held_blocks == 0.0
    }

    pub(super) fn describe(self) -> String {
        format!("{} running, {} waiting, {} KV blocks held", self.running, self.waiting, self.held_blocks)
    }
}

impl Verdict {
    pub(super) fn of(
        ledger: &Ledger,
        looks: &[Look],
        idle: Result<Load>,
        repeated: usize,
        alive: bool,
        said: &str,
        ended: Result<ExitStatus>,
    ) -> Self {
        let totals = ledger.totals();
        // Looks are too rare to meet the fullest moment; who was refused has.
        let full = ledger.statuses.get(&429).copied().unwrap_or(0);
        let panics = said.lines().filter(|line| line.contains("panicked at")).count();
        let preemptions = looks.iter().filter_map(|look| look.load).map(|load| load.preemptions).fold(0.0, f64::max);
        let memory = memory(looks);
        let (idle_text, is_idle) = match idle {
            Ok(load) => (load.describe(), true),
            Err(error) => (format!("{error:#}"), false),
        };
        let (ended_text, ended_well) = match ended {
            Ok(status) => (status.to_string(), status.success()),
            Err(error) => (format!("{error:#}"), false),
        };
        Self(vec![
            (
                "every client got an answer, a reason, or left",
                format!("{} of {}", totals.answered + totals.refused + totals.left, totals.sent),
                totals.faults == 0 && totals.sent > 0,
            ),
            ("answers were whole", totals.answered.to_string(), totals.answered > 0),
            ("drafts were made", format!("{} tokens", totals.drafted), totals.drafted > 0),
            (
                "answers repeated alone and without drafts are equal",
                format!("{repeated} repeated"),
                repeated > 0 && ledger.faults.len() == totals.faults,
            ),
            ("the queue was full at times", format!("{full} were told to come again"), full > 0),
            ("the cache was full at times", format!("{preemptions} had to give way"), preemptions > 0.0),
            ("nothing is left of it", idle_text, is_idle),
            ("memory is flat after warm-up", memory.0, memory.1),
            ("the server is well, and nothing panicked", format!("{panics} panics"), alive && panics == 0),
            ("it ends when it is asked to", ended_text, ended_well),
        ])
    }

    /// The first claim that does not hold.
    pub(super) fn first_fault(&self) -> Option<String> {
        let (claim, seen, _) = self.0.iter().find(|(.., holds)| !holds)?;
        Some(format!("it does not hold that {claim}: {seen}"))
    }

    pub(super) fn markdown(&self, ledger: &Ledger, looks: &[Look], took: Duration) -> String {
        let mut clients = Table::new(["client", "sent", "answered", "refused", "left", "faults"]);
        let row = |name: &str, counts: &Counts| {
            let numbers = [counts.sent, counts.answered, counts.refused, counts.left, counts.faults];
            std::iter::once(name.to_owned()).chain(numbers.map(|number| number.to_string())).collect::<Vec<_>>()
        };
        for (name, counts) in &ledger.by_kind {
            clients.row(row(name, counts));
        }
        clients.row(row("all", &ledger.totals()));
        let mut claims = Table::new(["claim", "seen", "holds"]);
        for (claim, seen, holds) in &self.0 {
            claims.row([(*claim).to_owned(), seen.clone(), if *holds { "yes" } else { "NO" }.to_owned()]);
        }
        let statuses: Vec<String> =
            ledger.statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        let mut text = format!(
            "# Soak of {:.0} s, looked at {} times\n\n{}\nRefusals by status: {}.\n\n{}",
            took.as_secs_f64(),
            looks.len(),
            clients.markdown(),
            statuses.join(", "),
            claims.markdown()
        );
        if !ledger.faults.is_empty() {
            text.push_str("\nFaults:\n\n");
            for fault in ledger.faults.iter().take(20) {
                text.push_str(&format!("- {fault}\n"));
            }
            if ledger.faults.len() > 20 {
                text.push_str(&format!("- and {} more\n", ledger.faults.len() - 20));
            }
        }
        text
    }

    pub(super) fn json(&self, ledger: &Ledger, looks: &[Look]) -> Value {
        let claims: Vec<Value> =
            self.0.iter().map(|(claim, seen, holds)| json!({ "claim": claim, "seen": seen, "holds": holds })).collect();
        json!({ "clients": ledger.by_kind, "statuses": ledger.statuses, "claims": claims, "faults": ledger.faults, "looks": looks })
    }
}

/// Compares the middle of what was resident soon after warm-up with the middle of the end.
fn memory(looks: &[Look]) -> (String, bool) {
    let end = looks.last().map_or(0.0, |look| look.at.as_secs_f64());
    let between = |from: f64, until: f64| {
        let inside = looks.iter().filter(|look| (from..=until).contains(&(look.at.as_secs_f64() / end.max(1e-9))));
        Spread::of(&inside.map(|look| look.resident as f64).collect::<Vec<_>>())
    };
    let (Some(warm), Some(last)) = (between(WARM_UP, (1.0 + WARM_UP) / 2.0), between(0.8, 1.0)) else {
        return ("too few looks to say".to_owned(), false);
    };
    let bound = warm.median * GROWTH.0 + GROWTH.1 as f64;
    let megabytes = |bytes: f64| bytes / 1e6;
    let seen = format!(
        "{:.0} MB after warm-up, {:.0} MB at the end, {:.0} MB allowed",
        megabytes(warm.median),
        megabytes(last.median),
        megabytes(bound)
    );
    (seen, last.median <= bound)
}

#[cfg(test)]
mod tests {
    use super::{Load, Look, Verdict, memory};
    use crate::soak::Ledger;
    use crate::soak::traffic::End;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    const IDLE: Load = Load { running: 0.0, waiting: 0.0, held_blocks: 0.0, preemptions: 3.0 };

    fn looks(resident: impl Fn(u64) -> u64) -> Vec<Look> {
        let busy = Load { running: 4.0, waiting: 6.0, held_blocks: 9.0, preemptions: 3.0 };
        (0..100).map(|at| Look { at: Duration::from_secs(at), resident: resident(at), load: Some(busy) }).collect()
    }

    #[test]
    fn growth_in_the_warm_up_is_none_and_growth_by_the_minute_is_a_leak() {
        assert!(memory(&looks(|at| 100_000_000 * at.min(20))).1);
        let (seen, holds) = memory(&looks(|at| 500_000_000 + 10_000_000 * at));
        assert!(!holds && seen.contains("MB allowed"), "{seen}");
        assert!(!memory(&[]).1);
    }

    #[test]
    fn each_claim_can_fail() {
        let verdict = |ledger: &Ledger, load: anyhow::Result<Load>, repeated, alive, said: &str, code| {
            let ended = Ok(ExitStatus::from_raw(code << 8));
            Verdict::of(ledger, &looks(|_| 1 << 30), load, repeated, alive, said, ended).first_fault()
        };
        let mut good = Ledger::default();
        good.record("x", Ok(End::Left));
        let counts = good.by_kind.get_mut("x").unwrap();
        (counts.sent, counts.answered, counts.drafted) = (2, 1, 5);
        good.statuses.insert(429, 1);
        assert_eq!(verdict(&good, Ok(IDLE), 1, true, "ready\n", 0), None);
        let fault = |found: Option<String>| found.unwrap();
        good.statuses.clear();
        assert!(fault(verdict(&good, Ok(IDLE), 1, true, "", 0)).contains("queue"));
        good.statuses.insert(429, 1);
        let mut roomy = looks(|_| 1 << 30);
        roomy.iter_mut().filter_map(|look| look.load.as_mut()).for_each(|load| load.preemptions = 0.0);
        let roomy = Verdict::of(&good, &roomy, Ok(IDLE), 1, true, "", Ok(ExitStatus::from_raw(0)));
        assert!(fault(roomy.first_fault()).contains("cache was full"));
        assert!(fault(verdict(&good, Err(anyhow::anyhow!("1 running")), 1, true, "", 0)).contains("1 running"));
        assert!(fault(verdict(&good, Ok(IDLE), 0, true, "", 0)).contains("repeated"));
        assert!(fault(verdict(&good, Ok(IDLE), 1, false, "", 0)).contains("well"));
        assert!(fault(verdict(&good, Ok(IDLE), 1, true, "thread 'x' panicked at y\n", 0)).contains("1 panics"));
        assert!(fault(verdict(&good, Ok(IDLE), 1, true, "", 3)).contains("ends"));
        good.faults.push("another text".into());
        assert!(fault(verdict(&good, Ok(IDLE), 1, true, "", 0)).contains("equal"));
        good.record("x", Err(anyhow::anyhow!("silence")));
        assert!(fault(verdict(&good, Ok(IDLE), 1, true, "", 0)).contains("every client"));
    }
}
