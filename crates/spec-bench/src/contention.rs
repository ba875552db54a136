//! What else ran while we measured. Programs whose threads wait for each other by spinning, ours and llama.cpp's, lose far more
//! to a neighbour than the time that it takes: figures from a busy machine are to be recognised as such.

use serde::Serialize;

/// The processors' time, in ticks of the kernel's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    /// Of all programs.
    busy: u64,
    /// Given to other machines by the host, where this one is virtual.
    stolen: u64,
    /// All there was.
    total: u64,
    /// Of this program and those that it started and that have ended.
    own: u64,
}

/// Shares of the processors' time that was not ours to use.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Contention {
    pub(crate) other_programs: f64,
    pub(crate) other_machines: f64,
}

impl Ticks {
    /// `None` where the system does not tell.
    pub(crate) fn now() -> Option<Self> {
        let read = |path| std::fs::read_to_string(path).ok();
        Self::parse(&read("/proc/stat")?, &read("/proc/self/stat")?)
    }

    fn parse(machine: &str, own: &str) -> Option<Self> {
        let line = machine.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        // User, nice, system, idle, waiting for a disk, two kinds of interrupts, stolen; guests are counted in the first two.
        let [user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen] = *times.first_chunk()?;
        let busy = user + nice + system + interrupts + soft_interrupts;
        // The name in parentheses may have spaces. The times of the process and of its children are numbers 14 to 17, and the
        // first one behind the name is number 3.
        let (_, fields) = own.rsplit_once(')')?;
        let own =
            fields.split_whitespace().skip(11).take(4).map(|word| word.parse::<u64>().ok()).sum::<Option<u64>>()?;
        Some(Self { busy, stolen, total: busy + idle + waiting + stolen, own })
    }

    /// From `self` to `later`.
    pub(crate) fn until(self, later: Self) -> Contention {
        let share = |ticks: u64| ticks as f64 / later.total.saturating_sub(self.total).max(1) as f64;
        let own = later.own.saturating_sub(self.own);
        Contention {
            other_programs: share(later.busy.saturating_sub(self.busy).saturating_sub(own)),
            other_machines: share(later.stolen.saturating_sub(self.stolen)),
        }
    }
}

/// The share of the processors that others may use in a run whose figures are judged.
const TOLERATED: f64 = 0.05;

impl Contention {
    /// Whether others had so much of the machine that nothing can be concluded.
    pub(crate) fn spoils(self) -> bool {
        self.other_programs > TOLERATED || self.other_machines > TOLERATED
    }

    /// Since `begun`, where the system tells.
    pub(crate) fn since(begun: Option<Ticks>) -> Option<Self> {
        Some(begun?.until(Ticks::now()?))
    }

    pub(crate) fn describe(this: Option<Self>) -> String {
        this.map_or(String::new(), |this| {
            let warning = if this.spoils() { " That is too much: conclude nothing from the figures." } else { "" };
            format!(
                " Meanwhile other programs used {:.0} % of the processors, and other machines on the host {:.0} %.{warning}",
                this.other_programs * 100.0,
                this.other_machines * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Contention, Ticks};

    #[test]
    fn what_neither_we_nor_the_idle_processors_used_was_others() {
        let own = |ticks: u64| format!("7 (a b) c) R 1 2 3 4 5 6 7 8 9 10 {ticks} 20 5 5 0 0");
        let before = Ticks::parse("cpu  100 0 50 800 10 0 0 5 0 0\ncpu0 1 1\n", &own(10)).unwrap();
        // 200 ticks later: 120 busy, 80 of them ours; 60 idle; 20 stolen.
        let after = Ticks::parse("cpu  200 10 60 850 20 0 0 25 0 0\ncpu0 1 1\n", &own(90)).unwrap();
        let contention = before.until(after);
        assert_eq!(contention, Contention { other_programs: 0.2, other_machines: 0.1 });
        let text = Contention::describe(Some(contention));
        assert!(text.contains("programs used 20 %") && text.contains("host 10 %"), "{text}");
        assert!(text.contains("conclude nothing"), "{text}");
        let quiet = Contention { other_programs: 0.01, other_machines: 0.0 };
        assert!(!Contention::describe(Some(quiet)).contains("conclude nothing"));
    }

    #[test]
    fn text_of_another_form_is_not_guessed_at() {
        assert!(Ticks::parse("cpu  1 2 3\n", "7 (a) R 1").is_none());
        assert_eq!(Contention::describe(None), "");
    }
}
