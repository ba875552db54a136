//! The command line, with the spellings that circulate in articles as aliases.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Where the article clones ATB from.
pub(crate) const REPOSITORY: &str = "https://atomgit.com/cann/ascend-transformer-boost";

/// Builds ATB and the shim over it, or lays the simulator out like a CANN installation
#[derive(Debug, Parser)]
#[command(name = "cargo xtask build-atb", bin_name = "cargo xtask build-atb", max_term_width = 100)]
pub(crate) struct Arguments {
    /// Build the spec-decode module into the shim
    #[arg(long, alias = "with_spec_decode")]
    pub(crate) with_spec_decode: bool,

    /// Build the ATB that is checked out in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["git", "installed", "sim"])]
    pub(crate) source: Option<PathBuf>,

    /// Clone ATB from here and build it; the repository's tip, or with `#BRANCH` behind the address a branch
    #[arg(long, value_name = "URL", default_value = REPOSITORY, conflicts_with_all = ["installed", "sim"])]
    pub(crate) git: String,

    /// Build no ATB: compile the shim for the one that is installed (ATB_HOME_PATH, else nnal's)
    #[arg(long, conflicts_with = "sim")]
    pub(crate) installed: bool,

    /// C++ ABI of ATB and of the shim; by default that of ATB_HOME_PATH, else 1
    #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) cxx11_abi: Option<u8>,

    /// Ceiling of an operation's workspace in MB, where the program names none; SPEC_ATB_MAX_WS_SIZE changes it later
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) max_ws_size: Option<u64>,

    /// The article's spelling of --max-ws-size: -DMAX_WS_SIZE=MB
    #[arg(short = 'D', hide = true, value_parser = definition, conflicts_with = "max_ws_size")]
    pub(crate) definition: Option<u64>,

    /// Lay the simulator out instead, so that everything can be tried without an NPU
    #[arg(long)]
    pub(crate) sim: bool,

    /// Print the commands and run none
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Where to install; by default the folder `ascend/built` (with --sim `ascend`) of cargo's target folder
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// The folder with the sources `shim` and `spec-decode`
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) sources: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Load what was installed and ask it who it is, in a process that has its environment
    #[command(hide = true)]
    Smoke {
        #[arg(long)]
        simulator: bool,
        /// The spec-decode module has to be in the shim
        #[arg(long)]
        spec_decode: bool,
        /// The shim's file, or the simulator's
        path: PathBuf,
    },
}

impl Arguments {
    /// The ceiling of workspaces in MB, if one is asked for.
    pub(crate) fn ceiling(&self) -> Option<u64> {
        self.max_ws_size.or(self.definition)
    }
}

/// Of `-DNAME=VALUE`, which upstream's script ignores without a word, the one name that means something here.
fn definition(text: &str) -> Result<u64, String> {
    let value = text.strip_prefix("MAX_WS_SIZE=").ok_or("only -DMAX_WS_SIZE=MB is understood")?;
    value
        .parse::<u64>()
        .ok()
        .filter(|number| (1..=1 << 24).contains(number))
        .ok_or_else(|| "give a number of MB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("build-atb").chain(line.split_whitespace()))
    }

    #[test]
    fn the_articles_spellings_are_aliases() {
        let own = parse("--with-spec-decode --max-ws-size 2048").expect("ours");
        let articles = parse("--with_spec_decode -DMAX_WS_SIZE=2048").expect("the article's");
        for arguments in [own, articles] {
            assert!(arguments.with_spec_decode);
            assert_eq!(arguments.ceiling(), Some(2048));
            assert_eq!(arguments.git, REPOSITORY);
        }
    }

    #[test]
    fn contradictions_and_nonsense_are_refused() {
        for line in [
            "--source a --git b",
            "--sim --installed",
            "--cxx11-abi 2",
            "--max-ws-size 0",
            "-DOTHER=1",
            "-DMAX_WS_SIZE=2G",
            "--max-ws-size 1 -DMAX_WS_SIZE=2",
            "--sim --source a",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
