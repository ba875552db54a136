//! What can go wrong before a call is made.

use crate::status::Status;
use crate::table::Since;
use crate::version::Version;
use std::fmt;
use std::path::PathBuf;

/// Why a function cannot be called.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// None of the libraries that a function may be in could be loaded.
    #[error("could not load {libraries}{tried}\n{advice}")]
    LibraryMissing {
        /// Their names.
        libraries: String,
        /// Where they were looked for.
        tried: Tried,
        /// What to do, with lines to paste.
        advice: String,
    },

    /// A simulator was asked for, and there is none.
    #[error(
        "libascend_sim.so is not at SPEC_ASCEND_SIM, beside the program or in target/ascend{}; build it with \
         `cargo xtask build-atb --sim`",
        .tried.oddities()
    )]
    SimulatorMissing {
        /// Where it was looked for.
        tried: Tried,
    },

    /// The libraries are there, and none has the symbol.
    #[error("`{symbol}` is in none of the libraries; it is there since {since}{tried}\n{advice}")]
    SymbolMissing {
        /// Its name.
        symbol: &'static str,
        /// The first release that has it.
        since: Since,
        /// Where it was looked for.
        tried: Tried,
        /// What to do.
        advice: String,
    },

    /// Libraries for linking, whose functions do nothing, would have been called.
    #[error(
        "{} is a library for linking, whose functions only return 100039; remove folders named devlib or stub from \
         LD_LIBRARY_PATH\n{advice}",
        .file.display()
    )]
    StubLibrary {
        /// The library.
        file: PathBuf,
        /// The lines to paste.
        advice: String,
    },

    /// A simulator was found where a real library was wanted.
    #[error(
        "{} is a simulator (it exports `ascend_sim_version`), and none was asked for; to use it say so \
         (`--device ascend-sim`, or `Loader::simulator`), else take its folder out of the search path",
        .file.display()
    )]
    SimulatorRefused {
        /// The library.
        file: PathBuf,
    },

    /// A simulator was asked for, and the library is none.
    #[error(
        "{} is not a simulator: it does not export `ascend_sim_version`; build one with \
         `cargo xtask build-atb --sim`",
        .file.display()
    )]
    NotASimulator {
        /// The library.
        file: PathBuf,
    },

    /// The shim speaks another version of its interface.
    #[error(
        "{} speaks version {found} of the ATB shim's interface, and version {expected} is needed; build it anew with \
         `cargo xtask build-atb`",
        .file.display()
    )]
    ShimVersion {
        /// The library.
        file: PathBuf,
        /// What it speaks; 0 when it is no shim.
        found: u32,
        /// What this crate speaks.
        expected: u32,
    },

    /// CANN is older than what is asked of it.
    #[error("CANN is {found}, and {needed} or newer is needed; install a newer toolkit and source its set_env.sh")]
    VersionTooOld {
        /// What is there.
        found: String,
        /// What is needed.
        needed: Version,
    },

    /// A call was made and failed.
    #[error(transparent)]
    Status(#[from] Status),
}

/// The outcome where no file is.
pub(crate) const ABSENT: &str = "no such file";

/// One place where something was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// A path, or the name of a library.
    pub place: String,
    /// Why it was not there.
    pub outcome: String,
}

/// Every place where something was looked for, a line each when displayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tried(pub Vec<Attempt>);

impl Tried {
    pub(crate) fn add(&mut self, place: impl Into<String>, outcome: impl Into<String>) {
        self.0.push(Attempt { place: place.into(), outcome: outcome.into() });
    }

    /// Places where something was, and was no use.
    fn oddities(&self) -> String {
        let odd = self.0.iter().filter(|attempt| attempt.outcome != ABSENT);
        odd.map(|Attempt { place, outcome }| format!(" ({place}: {outcome})")).collect()
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Attempt { place, outcome } in &self.0 {
            // The system's loader starts its words with the path.
            let outcome = outcome.strip_prefix(&format!("{place}: ")).unwrap_or(outcome);
            write!(formatter, "\n  tried {place}: {outcome}")?;
        }
        Ok(())
    }
}
