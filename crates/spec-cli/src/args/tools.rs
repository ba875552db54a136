//! The commands beside `generate` and `chat`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{BenchSweepArgs, FileArgs, ModelArgs, RecordArgs, StorageArgs, threads};
use crate::device::DeviceName;

#[derive(Debug, Args)]
#[command(
    after_help = "The environment: HF_ENDPOINT is another hub, such as a mirror; HF_TOKEN is for what is not public;\n\
        SPEC_MODELS is where models are kept; SSL_CERT_FILE has the certificates of a network's own."
)]
pub(crate) struct PullArgs {
    /// `hf:ORG/REPO[@REVISION][:FILE]`; without FILE the one GGUF file of the repository, or its safetensors
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,

    /// A JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,

    /// Parse special tokens in the text, and add the beginning token where the model asks for one
    #[arg(long)]
    pub(crate) special: bool,

    /// Print `{"tokens": [...]}`
    #[arg(long)]
    pub(crate) json: bool,

    /// The text
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Time passes of several row counts, interleaved, beside the machine's ceilings
    Forward(BenchForwardArgs),
    /// Speed and quality of draft lengths and rules, against plain decoding in the same run
    #[command(after_help = super::help::SWEEP)]
    Sweep(Box<BenchSweepArgs>),
}

/// Rows whose logits a pass delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogitsKind {
    /// Every row's, as verification needs them
    All,
    /// The last row's, as prefill needs them
    Last,
}

#[derive(Debug, Args)]
pub(crate) struct BenchForwardArgs {
    /// A GGUF or safetensors file, any file of a set, or a folder with one of these
    #[arg(long, short, value_name = "FILE")]
    pub(crate) model: PathBuf,

    /// Row counts
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2,4,8,16,512")]
    pub(crate) rows: Vec<usize>,

    /// Tokens in the KV cache before the pass
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) context: usize,

    /// Rows whose logits are computed
    #[arg(long, value_enum, default_value_t = LogitsKind::All)]
    pub(crate) logits: LogitsKind,

    /// Rounds; each runs every row count once and both ceilings
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) rounds: usize,

    /// Worker threads; all cores when not given
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// One JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// A directory of prompts, one `.txt` file each
    #[arg(long, value_name = "DIR")]
    pub(crate) prompts: PathBuf,

    /// Tokens to generate at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 200)]
    pub(crate) max_tokens: usize,

    #[command(flatten)]
    pub(crate) records: RecordArgs,

    /// A JSON line per prompt instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the device can be used, 1 the CPU path fails, 2 the command line was wrong, 3 a library is \
        missing, 4 driver or device, 5 permission, 6 versions do not fit, 7 memory, 8 ATB.\n\
        Without --device the CPU decides, and what else is here is looked at."
)]
pub(crate) struct DoctorArgs {
    /// The device that has to work: cpu, ascend, ascend:N, ascend-sim or cuda
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<DeviceName>,

    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write `spec.1` and the page of every command into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
