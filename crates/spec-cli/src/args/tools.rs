//! The commands beside `generate` and `chat`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::serve::batch;
use super::{
    BenchSweepArgs, DraftStorageArgs, FileArgs, LastRunArgs, ModelArgs, QuantKind, RecordArgs, StorageArgs, threads,
};
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
pub(crate) struct QuantizeArgs {
    /// The model: a GGUF file, any file of a set, or `hf:ORG/REPO[:FILE]`
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,

    /// The file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// What matrices are quantised to; those with no more bits stay as they are
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(crate) kind: QuantKind,

    /// What embedding and head are quantised to; as the other matrices when not given
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(crate) head_type: Option<QuantKind>,

    /// Write over a file that is there
    #[arg(long)]
    pub(crate) force: bool,

    /// Worker threads; all cores when not given
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,

    /// A JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    #[command(flatten)]
    pub(crate) draft_storage: DraftStorageArgs,
}

/// What a plan is for.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Plan the memory of a run, with what speculation adds. A model may then also be a `config.json`, or the name of a published
    /// one such as qwen2.5-7b; `:q4_k_m` or another type of file may stand behind it
    #[arg(long, help_heading = "Plan")]
    pub(crate) plan: bool,

    /// The draft model, for --plan
    #[arg(long, value_name = "FILE", help_heading = "Plan")]
    pub(crate) draft_model: Option<PathBuf>,

    /// Positions of a text with its answer, for --plan; 4096 when not given, or what the model was trained for if that is less
    #[arg(long, value_name = "N", help_heading = "Plan")]
    pub(crate) context: Option<usize>,

    /// Texts at a time, for --plan
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = batch, help_heading = "Plan")]
    pub(crate) parallel: usize,
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

    #[command(flatten)]
    pub(crate) last_run: LastRunArgs,

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
