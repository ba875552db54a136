//! The command line as typed. Each flag is defined once; `config` sets flags from the environment and a file.

mod audit;
mod chat;
mod explain;
mod help;
mod profile;
mod record;
mod sampling;
mod serve;
mod sweep;
mod tools;
mod tune;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use spec_core::{Fixed, LengthPolicy, LengthPolicyName, Token};

pub(crate) use audit::AuditArgs;
pub(crate) use chat::ChatArgs;
pub(crate) use explain::{ExplainArgs, LastRunArgs};
pub(crate) use profile::{ProfileArgs, ProfileStatsArgs, ProfileTask};
pub(crate) use record::RecordArgs;
pub(crate) use sampling::{SamplingArgs, StopArgs};
pub(crate) use serve::{AnswersArgs, BatchArgs, ServeArgs};
pub(crate) use sweep::BenchSweepArgs;
pub(crate) use tools::{
    Bench, BenchArgs, BenchForwardArgs, CompletionsArgs, DemoArgs, DoctorArgs, InspectArgs, LogitsKind, ManArgs,
    PullArgs, QuantizeArgs, TokenizeArgs,
};
pub(crate) use tune::{Search, TuneArgs, TuneEpsilonArgs};

use crate::color::{ColorKind, Shown};
use crate::device::DeviceName;
use crate::logs::LogFormat;
use crate::memory::Size;
use crate::profile::Trace;

/// Faster generation from large language models, token for token the same as without.
#[derive(Debug, Parser)]
#[command(
    name = "spec",
    version,
    max_term_width = 100,
    after_help = help::OVERVIEW
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Read flags from this file and not from the user's own; `none` reads none
    #[arg(long, value_name = "FILE", global = true, help_heading = "Configuration")]
    pub(crate) config: Option<PathBuf>,

    /// Print the value of every flag of the command, and where it comes from, and do nothing
    #[arg(long, global = true, help_heading = "Configuration")]
    pub(crate) print_config: bool,

    /// How the log on standard error is written; SPEC_LOG says what it holds
    #[arg(long, value_enum, value_name = "FORMAT", global = true, help_heading = "Configuration")]
    pub(crate) log_format: Option<LogFormat>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continue a prompt, with speculation unless `--draft none`
    #[command(after_help = help::GENERATE, after_long_help = help::generate_long())]
    Generate(Box<GenerateArgs>),
    /// Talk with a model; lines of standard input are its turns when that is no terminal
    #[command(after_help = help::CHAT, after_long_help = help::chat_long())]
    Chat(Box<ChatArgs>),
    /// Answer requests over HTTP, as OpenAI's clients make them
    #[command(after_help = help::SERVE)]
    Serve(Box<ServeArgs>),
    /// Answer the requests of a file into a file, as `serve` would
    #[command(after_help = help::BATCH)]
    Batch(Box<BatchArgs>),
    /// Test whether the tokens of this build have the target's law, on your models, and say how sure that is
    #[command(after_help = help::AUDIT)]
    Audit(Box<AuditArgs>),
    /// Show what a model file holds, or with --plan what a run takes in memory
    Inspect(InspectArgs),
    /// Show how a text is split into tokens
    Tokenize(TokenizeArgs),
    /// Measure
    Bench(BenchArgs),
    /// Run prompts plain and speculative, compare the token ids, and print what speculation gains
    Demo(DemoArgs),
    /// Trace a command for Perfetto or Chrome, or sum up a trace
    #[command(after_help = help::PROFILE)]
    Profile(ProfileArgs),
    /// Replay records of rounds under every length policy, and say what to set
    #[command(after_help = help::TUNE)]
    Tune(TuneArgs),
    /// Say what limits the speed of a run, by which figures, and what to change
    Explain(ExplainArgs),
    /// Bring a model from a hub into the cache, and print where it is
    Pull(PullArgs),
    /// Write a model file anew with fewer bits a weight, as GGUF
    Quantize(QuantizeArgs),
    /// Look at this machine and say what is wrong with it, and what to do
    Doctor(DoctorArgs),
    /// Print a script that completes commands and flags in a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Print the manual page, or write one for every command
    Man(ManArgs),
}

/// Where guesses come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum DraftKind {
    /// Everything at hand, as far as it pays: suffix and n-gram, and the draft model when `--draft-model` is given
    Auto,
    /// The model given by `--draft-model`
    Model,
    /// Copy what followed the same words earlier in the text; needs no second model
    Ngram,
    /// Copy what followed the longest earlier occurrence of the text's end; needs no second model
    Suffix,
    /// The target's own file, opened a second time: a check, not a gain
    #[value(name = "self")]
    Itself,
    /// No speculation
    None,
}

/// What the KV cache stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum KvKind {
    /// Half precision
    F16,
    /// Single precision, twice the memory
    F32,
    /// Bytes with a scale for each token and head, half the memory
    Q8,
}

/// What weights are quantised to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum QuantKind {
    /// 8.5 bits a weight
    #[value(name = "q8_0", alias = "q8")]
    Q8_0,
    /// 4.5 bits a weight
    #[value(name = "q4_0", alias = "q4")]
    Q4_0,
    /// 4.5 bits a weight, with scales and minima fitted
    #[value(name = "q4_K")]
    Q4K,
    /// 3.4 bits a weight, with scales fitted
    #[value(name = "q3_K", alias = "q3")]
    Q3K,
    /// On Ascend: bytes with a scale for each output, activations quantised row by row
    Int8,
}

/// How the text of a model is read: for every command that reads text.
#[derive(Debug, Args)]
pub(crate) struct TextArgs {
    /// How text is split into words, for files that do not say so, or say it wrong
    #[arg(long, value_name = "NAME")]
    pub(crate) pre_tokenizer: Option<String>,
}

/// A model that is looked at and not run.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// A GGUF or safetensors file, any file of a set, a folder with one of these, or `hf:ORG/REPO[:FILE]`
    #[arg(long, short, value_name = "FILE")]
    pub(crate) model: PathBuf,

    #[command(flatten)]
    pub(crate) text: TextArgs,
}

/// How weights and cache are stored: for every command that loads a model.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct StorageArgs {
    /// Precision of the KV cache
    #[arg(long, value_enum, default_value_t = KvKind::F16, help_heading = "Device")]
    pub(crate) kv: KvKind,

    /// Quantise matrices of floats (F32, F16, BF16) to this type while loading; kept as they are when not given
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Device")]
    pub(crate) quant: Option<QuantKind>,
}

/// What of a draft model's head is kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum HeadKind {
    /// All of it
    Whole,
    /// What drafts are scored with: frequent tokens and those of the text; embeddings are read from the file
    Trimmed,
}

/// How a draft model is stored, where that is not as the target. The answer is the same, whatever is chosen.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DraftStorageArgs {
    /// Precision of the draft model's KV cache; that of `--kv` when not given
    #[arg(long, value_enum, value_name = "KV", help_heading = "Speculation")]
    pub(crate) draft_kv: Option<KvKind>,

    /// Quantise the draft model to this type while loading it, also from files that are quantised already to more bits
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Speculation")]
    pub(crate) draft_quant: Option<QuantKind>,

    /// What of the draft model's head is kept in memory
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = HeadKind::Whole, help_heading = "Speculation")]
    pub(crate) draft_head: HeadKind,
}

/// How the answer is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OutputKind {
    /// Text, as it comes
    Text,
    /// Token ids, comma-separated, fit for `--ids`
    Ids,
}

/// Draft lengths by what they are for. Under a lossless rule all of them give the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Preset {
    /// 3 tokens a round
    Quality,
    /// 5 tokens a round
    General,
    /// 7 tokens a round
    Speed,
}

impl Preset {
    /// Those that the article's table has, in its order.
    pub(crate) const ALL: [Self; 3] = [Self::Quality, Self::General, Self::Speed];

    pub(crate) fn tokens(self) -> usize {
        match self {
            Self::Quality => 3,
            Self::General => 5,
            Self::Speed => 7,
        }
    }
}

/// Draft length: a number, or left to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DraftLen {
    Auto,
    Tokens(usize),
}

fn draft_len(text: &str) -> Result<DraftLen, String> {
    if text == "auto" {
        return Ok(DraftLen::Auto);
    }
    match text.parse() {
        Ok(tokens) if tokens <= 64 => Ok(DraftLen::Tokens(tokens)),
        _ => Err("give `auto` or a number from 0 to 64".into()),
    }
}

fn draft_width(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(width) if (1..=64).contains(&width) => Ok(width),
        _ => Err("give a number from 1 to 64".into()),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=256).contains(&count) => Ok(count),
        _ => Err("give a number from 1 to 256".into()),
    }
}

/// Target, draft and device: what `generate` and `demo` share.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// The model that answers: a GGUF or safetensors file, any file of a set, a folder, or `hf:ORG/REPO[:FILE]`, which is fetched once
    #[arg(long, short, value_name = "FILE")]
    pub(crate) model: PathBuf,

    #[command(flatten)]
    pub(crate) text: TextArgs,

    /// Where guesses come from
    #[arg(long, value_enum, default_value_t = DraftKind::Auto, help_heading = "Speculation")]
    pub(crate) draft: DraftKind,

    /// A smaller model of the same vocabulary; loaded only by `--draft model` and `--draft auto`
    #[arg(long, value_name = "FILE", help_heading = "Speculation")]
    pub(crate) draft_model: Option<PathBuf>,

    /// Let a draft model of another tokenizer guess with the tokens that both have
    #[arg(long, help_heading = "Speculation")]
    pub(crate) allow_vocab_mismatch: bool,

    /// Tokens guessed a round, or `auto`, which measures what pays
    #[arg(long, value_name = "N", default_value = "auto", value_parser = draft_len, help_heading = "Speculation")]
    pub(crate) draft_len: DraftLen,

    /// Tokens guessed a round, by what they are for
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        conflicts_with_all = ["draft_len", "length_policy"],
        help_heading = "Speculation"
    )]
    pub(crate) preset: Option<Preset>,

    /// How many tokens to guess, round by round
    #[arg(long, value_name = "NAME[:x]", long_help = help::length_policies(), help_heading = "Speculation")]
    pub(crate) length_policy: Option<LengthPolicyName>,

    /// Guesses per place at most: 1 keeps to chains, more allows trees; as many as pay when not given
    #[arg(long, value_name = "N", value_parser = draft_width, help_heading = "Speculation")]
    pub(crate) draft_width: Option<usize>,

    /// Memory for drafts of the draft model, which are used again where the same text comes again; 0 keeps none
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = draft_cache, help_heading = "Speculation")]
    pub(crate) draft_cache: Size,

    /// Where models run: cpu, ascend, ascend:N or ascend-sim
    #[arg(long, value_name = "NAME", default_value_t = DeviceName::Cpu, help_heading = "Device")]
    pub(crate) device: DeviceName,

    /// Worker threads; all cores when not given
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "Device")]
    pub(crate) threads: Option<usize>,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    #[command(flatten)]
    pub(crate) draft_storage: DraftStorageArgs,

    /// Memory that may be taken, such as 300MB or 2GiB: what needs more is refused before it is loaded, with what would fit
    #[arg(long, value_name = "SIZE", help_heading = "Device")]
    pub(crate) mem_limit: Option<Size>,

    /// Where its rounds are traced: set by `spec profile`, which has read the flags of another command.
    #[arg(skip)]
    pub(crate) trace: Option<Arc<Trace>>,
}

impl ModelArgs {
    /// The length policy that the flags ask for, or why they contradict each other.
    pub(crate) fn lengths(&self) -> Result<Box<dyn LengthPolicy>, String> {
        if let Some(preset) = self.preset {
            return match (self.draft_len, self.length_policy) {
                (DraftLen::Auto, None) => Ok(Box::new(Fixed(preset.tokens()))),
                _ => Err("--preset fixes the length, and --draft-len or --length-policy says another; give one".into()),
            };
        }
        match (self.draft_len, self.length_policy) {
            (DraftLen::Auto, policy) => Ok(policy.unwrap_or_default().build()),
            (DraftLen::Tokens(tokens), None) => Ok(Box::new(Fixed(tokens))),
            (DraftLen::Tokens(tokens), Some(policy)) => Err(format!(
                "--draft-len {tokens} fixes the length and --length-policy {policy} chooses it; give one of them"
            )),
        }
    }
}

fn draft_cache(text: &str) -> Result<Size, String> {
    if text == "0" { Ok(Size(0)) } else { text.parse() }
}

/// How drafts show in an answer.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ShowArgs {
    /// Colour tokens by what they are to the draft: accepted, corrected, bonus; `=all` shows rejected ones too, struck through
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "kept",
        help_heading = "Output"
    )]
    pub(crate) show_accept: Option<Shown>,

    /// When to use colours
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColorKind::Auto, help_heading = "Output")]
    pub(crate) color: ColorKind,
}

impl ShowArgs {
    /// What is shown of drafts in an answer that goes to `stream`.
    pub(crate) fn on(self, stream: &impl IsTerminal) -> Option<Shown> {
        self.show_accept.filter(|_| self.color.applies_to(stream))
    }
}

/// A prompt as text.
#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// The prompt
    #[arg(long, short, value_name = "TEXT", help_heading = "Prompt", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,

    /// Read the prompt from a file, or from standard input when it is `-`
    #[arg(long, short, value_name = "FILE", help_heading = "Prompt")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("input").required(true).args(["prompt", "file", "ids"]))]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    #[command(flatten)]
    pub(crate) text: PromptArgs,

    /// The prompt as token ids, used exactly as given
    #[arg(long, value_name = "1,2,3", value_delimiter = ',', help_heading = "Prompt")]
    pub(crate) ids: Option<Vec<Token>>,

    /// Put the prompt into the model's chat template, as the user's message
    #[arg(long, conflicts_with = "ids", help_heading = "Prompt")]
    pub(crate) chat: bool,

    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Answer with JSON that this schema, in a file, describes
    #[arg(long, value_name = "FILE", help_heading = "Sampling")]
    pub(crate) json_schema: Option<PathBuf>,

    /// Answer with a JSON object
    #[arg(long, conflicts_with = "json_schema", help_heading = "Sampling")]
    pub(crate) json_object: bool,

    /// Tokens to generate at most
    #[arg(
        long,
        short = 'n',
        value_name = "N",
        default_value_t = 512,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    pub(crate) max_tokens: usize,

    /// Positions to make room for; by default what prompt and `--max-tokens` need, within the model's own
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) context: Option<usize>,

    #[command(flatten)]
    pub(crate) stop: StopArgs,

    /// Report each token's log-probability and the N likeliest alternatives, in `--json`
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) logprobs: Option<usize>,

    /// What to print
    #[arg(long, value_enum, default_value_t = OutputKind::Text, help_heading = "Output")]
    pub(crate) output: OutputKind,

    #[command(flatten)]
    pub(crate) show: ShowArgs,

    #[command(flatten)]
    pub(crate) records: RecordArgs,

    #[command(flatten)]
    pub(crate) last_run: LastRunArgs,

    /// One JSON object with the answer and all figures, instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}
