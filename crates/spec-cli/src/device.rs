//! Devices by name, as `--device` takes them, and where the libraries of each come from.

use std::fmt;
use std::str::FromStr;

use acl_sys::{Host, Loader};

/// A device that can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceName {
    Cpu,
    /// An Ascend NPU by its number, counted from 0 after `ASCEND_RT_VISIBLE_DEVICES`.
    Ascend(u16),
    /// The simulator of one.
    AscendSim,
    /// Known, so that asking for it is answered; nothing of it is built.
    Cuda,
}

/// What is said to whoever asks for a GPU.
pub(crate) const CUDA_IS_NOT_BUILT: &str = "CUDA is a known device that is not built yet; use --device cpu";

impl DeviceName {
    /// How the libraries of an Ascend device, or of its simulator, are found; `None` for devices that need none.
    ///
    /// The simulator is taken from `SPEC_ASCEND_SIM`, from beside the program, or from the `ascend` folder of cargo's
    /// target folder; where it is in none, the error says in one line which command builds it.
    pub(crate) fn loader(self, host: &Host) -> Option<Loader> {
        match self {
            Self::Cpu | Self::Cuda => None,
            Self::Ascend(_) => Some(Loader::new().host(host.clone())),
            Self::AscendSim => Some(Loader::new().host(host.clone()).simulator(true)),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "ascend" => Ok(Self::Ascend(0)),
            "ascend-sim" => Ok(Self::AscendSim),
            "cuda" => Ok(Self::Cuda),
            _ => text
                .strip_prefix("ascend:")
                .and_then(|number| number.parse().ok().map(Self::Ascend))
                .ok_or_else(|| "give cpu, ascend, ascend:N, ascend-sim or cuda".to_owned()),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Ascend(number) => write!(f, "ascend:{number}"),
            Self::AscendSim => f.write_str("ascend-sim"),
            Self::Cuda => f.write_str("cuda"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_printed() {
        for name in ["cpu", "ascend:0", "ascend:7", "ascend-sim", "cuda"] {
            assert_eq!(name.parse::<DeviceName>().expect(name).to_string(), name);
        }
        assert_eq!("ascend".parse(), Ok(DeviceName::Ascend(0)));
        for name in ["", "gpu", "ascend:", "ascend:-1", "ascend:x", "ascendsim", "CPU"] {
            assert!(name.parse::<DeviceName>().is_err(), "{name}");
        }
    }
}
