//! What the simulated machine is like, from a text of `key=value` parts.

use std::fmt;
use std::time::Duration;

/// Which chip is simulated, as far as operators care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Soc {
    /// Atlas 800I A2 and A3, under a name that says what it is.
    Simulated,
    /// Ascend910B1.
    A2,
    /// Ascend310P3.
    Inference310P,
}

impl Soc {
    pub(crate) fn name(self) -> &'static std::ffi::CStr {
        match self {
            Soc::Simulated => c"Ascend910BSim",
            Soc::A2 => c"Ascend910B1",
            Soc::Inference310P => c"Ascend310P3",
        }
    }

    pub(crate) fn is_310p(self) -> bool {
        self == Soc::Inference310P
    }
}

/// How results are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// A row of an output is a function of that row's inputs, whatever else is in the batch.
    Exact,
    /// As hardware may: a unit in the last place of f16 depends on the number of rows and the kernel.
    ByShape,
}

/// Which of equal elements Sort puts first. Hardware does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ties {
    Lowest,
    Highest,
}

/// What a Verify is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    /// ATB's operations, as the spec-decode module puts them together.
    Composed,
    /// One kernel that reads each row once, as the module's AscendC source has it.
    Kernel,
}

/// What happens at misuse that hardware would tolerate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strict {
    /// Nothing.
    Off,
    /// It is noted down, for `ascend_sim_violations`.
    Report,
    /// It is noted down, and the call or the task fails.
    Fail,
}

/// The simulated machine.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) soc: Soc,
    pub(crate) devices: u32,
    /// Bytes of memory of each device.
    pub(crate) memory: u64,
    /// `(major, minor, patch)` of CANN.
    pub(crate) cann: (u32, u32, u32),
    pub(crate) driver_old: bool,
    pub(crate) strict: Strict,
    pub(crate) rounding: Rounding,
    pub(crate) sort_ties: Ties,
    pub(crate) verify: Verification,
    pub(crate) poison: bool,
    pub(crate) seed: u64,
    /// Bounds of the delay before each task.
    pub(crate) delay: (Duration, Duration),
    /// Symbols that `ascend_sim_resolve` does not know.
    pub(crate) absent: Vec<String>,
    /// `name:nth:action`, see [`crate::faults`].
    pub(crate) faults: Vec<String>,
    pub(crate) cost: Cost,
    pub(crate) max_streams: usize,
    pub(crate) max_events: usize,
}

/// What things take on the virtual clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Bytes per nanosecond (GB/s) of a device's memory.
    pub(crate) memory_bandwidth: f64,
    /// The same between host and device.
    pub(crate) link_bandwidth: f64,
    /// Multiply-adds per nanosecond in f16; int8 takes half the time.
    pub(crate) multiply_adds: f64,
    /// Nanoseconds that the device spends on each task beside its work.
    pub(crate) launch: f64,
    /// Nanoseconds that the host spends on each call that queues something.
    pub(crate) call: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            soc: Soc::Simulated,
            devices: 1,
            memory: 64 << 30,
            cann: (8, 5, 0),
            driver_old: false,
            strict: Strict::Report,
            rounding: Rounding::Exact,
            sort_ties: Ties::Lowest,
            verify: Verification::Composed,
            poison: true,
            seed: 0,
            delay: (Duration::ZERO, Duration::from_micros(200)),
            absent: Vec::new(),
            faults: Vec::new(),
            cost: Cost {
                memory_bandwidth: 800.0,
                link_bandwidth: 24.0,
                multiply_adds: 100_000.0,
                launch: 4_000.0,
                call: 2_000.0,
            },
            max_streams: 1984,
            max_events: 65_536,
        }
    }
}

/// A part of a configuration that says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadConfig(String);

impl fmt::Display for BadConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Config {
    /// Applies a text to the defaults: parts `key=value` between commas, semicolons, white space or line ends; `#`
    /// begins a comment. `absent` and `fault` may occur several times.
    pub(crate) fn parse(text: &str) -> Result<Self, BadConfig> {
        let mut config = Self::default();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        for part in lines.flat_map(|line| line.split([',', ';', ' ', '\t'])).filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| BadConfig(format!("`{part}` is not of the form key=value")))?;
            config.set(key, value).map_err(|expected| BadConfig(format!("`{key}={value}`: expected {expected}")))?;
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "soc" => {
                self.soc = match value {
                    "sim" => Soc::Simulated,
                    "910B1" => Soc::A2,
                    "310P3" => Soc::Inference310P,
                    _ => return Err("sim, 910B1 or 310P3".to_owned()),
                }
            }
            "devices" => self.devices = number(value)?,
            "memory" => self.memory = bytes(value)?,
            "cann" => {
                let mut parts = value.split('.').map(number::<u32>);
                let mut next = || parts.next().unwrap_or_else(|| Err("three numbers, such as 8.5.0".to_owned()));
                self.cann = (next()?, next()?, next()?);
            }
            "driver" => self.driver_old = choice(value, "old", "current")?,
            "strict" => {
                self.strict = match value {
                    "off" => Strict::Off,
                    "report" => Strict::Report,
                    "fail" => Strict::Fail,
                    _ => return Err("off, report or fail".to_owned()),
                }
            }
            "rounding" => {
                self.rounding = if choice(value, "by-shape", "exact")? { Rounding::ByShape } else { Rounding::Exact }
            }
            "sort_ties" => {
                self.sort_ties = if choice(value, "highest", "lowest")? { Ties::Highest } else { Ties::Lowest }
            }
            "verify" => {
                let kernel = choice(value, "kernel", "composed")?;
                self.verify = if kernel { Verification::Kernel } else { Verification::Composed }
            }
            "poison" => self.poison = choice(value, "on", "off")?,
            "seed" => self.seed = number(value)?,
            "delay" => {
                let (low, high) = value.split_once("..").unwrap_or((value, value));
                self.delay = (Duration::from_micros(number(low)?), Duration::from_micros(number(high)?));
                if self.delay.0 > self.delay.1 {
                    return Err("microseconds, or a range of them such as 0..200".to_owned());
                }
            }
            "absent" => self.absent.push(value.to_owned()),
            "fault" => self.faults.push(value.to_owned()),
            "memory_bandwidth" => self.cost.memory_bandwidth = positive(value)?,
            "link_bandwidth" => self.cost.link_bandwidth = positive(value)?,
            "multiply_adds" => self.cost.multiply_adds = positive(value)?,
            "launch" => self.cost.launch = number(value)?,
            "call" => self.cost.call = number(value)?,
            "max_streams" => self.max_streams = number(value)?,
            "max_events" => self.max_events = number(value)?,
            _ => return Err("a key that the README lists".to_owned()),
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| "a number".to_owned())
}

fn positive(value: &str) -> Result<f64, String> {
    number(value).and_then(|number: f64| if number > 0.0 { Ok(number) } else { Err("more than 0".to_owned()) })
}

fn choice(value: &str, yes: &str, no: &str) -> Result<bool, String> {
    if value == yes || value == no { Ok(value == yes) } else { Err(format!("{yes} or {no}")) }
}

fn bytes(value: &str) -> Result<u64, String> {
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'K') => (&value[..value.len() - 1], 10),
        Some(b'M') => (&value[..value.len() - 1], 20),
        Some(b'G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    number::<u64>(digits)?.checked_mul(1 << shift).ok_or_else(|| "less than 2^64 bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_sets_what_it_names_and_nothing_else() {
        let config =
            Config::parse("soc=310P3;memory=2G, delay=5..9\nfault=aclrtMalloc:2:207001 # why\nfault=task:1:hang");
        let config = config.expect("well formed");
        assert_eq!((config.soc, config.memory), (Soc::Inference310P, 2 << 30));
        assert_eq!(config.delay, (Duration::from_micros(5), Duration::from_micros(9)));
        assert_eq!(config.faults, ["aclrtMalloc:2:207001", "task:1:hang"]);
        assert_eq!(config.devices, Config::default().devices);
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        for (text, expected) in [
            ("memory", "not of the form"),
            ("memory=lots", "a number"),
            ("soc=H100", "sim, 910B1 or 310P3"),
            ("delay=9..5", "microseconds"),
            ("colour=red", "a key"),
            ("cann=8.5", "three numbers"),
            ("sort_ties=any", "highest or lowest"),
            ("verify=fused", "kernel or composed"),
            ("link_bandwidth=0", "more than 0"),
        ] {
            let error = Config::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
