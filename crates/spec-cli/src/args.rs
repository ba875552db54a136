//! The command line as typed. Each flag is defined once.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use spec_core::{Fixed, LENGTH_POLICIES, LengthPolicy, LengthPolicyName, RULES, RuleName, Token};

use crate::device::DeviceName;

/// Faster generation from large language models, token for token the same as without.
#[derive(Debug, Parser)]
#[command(
    name = "spec",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 the command line was wrong.\n\
        SPEC_CPU_ISA chooses the kernels: avx512vnni, avx2vnni, avx2 or portable; by default the fastest\n\
        that the processor runs.\n\n\
        Try: spec generate --model MODEL.gguf --chat -p 'Write a haiku about rivers.'"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continue a prompt, with speculation unless `--draft none`
    Generate(GenerateArgs),
    /// Show what a model file holds
    Inspect(InspectArgs),
    /// Show how a text is split into tokens
    Tokenize(TokenizeArgs),
    /// Measure
    Bench(BenchArgs),
    /// Run prompts plain and speculative, compare the token ids, and print what speculation gains
    Demo(DemoArgs),
    /// Bring a model from a hub into the cache, and print where it is
    Pull(PullArgs),
    /// Look at this machine and say what is wrong with it, and what to do
    Doctor(DoctorArgs),
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

/// What weights are quantised to while a model is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum QuantKind {
    /// 8.5 bits a weight
    #[value(name = "q8_0")]
    Q8_0,
    /// 4.5 bits a weight
    #[value(name = "q4_0")]
    Q4_0,
    /// 4.5 bits a weight, with scales and minima fitted
    #[value(name = "q4_K")]
    Q4K,
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

/// How the answer is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OutputKind {
    /// Text, as it comes
    Text,
    /// Token ids, comma-separated, fit for `--ids`
    Ids,
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

    /// Tokens guessed a round, or `auto`, which measures what pays
    #[arg(long, value_name = "N", default_value = "auto", value_parser = draft_len, help_heading = "Speculation")]
    pub(crate) draft_len: DraftLen,

    /// How many tokens to guess, round by round
    #[arg(long, value_name = "NAME[:x]", long_help = length_policies(), help_heading = "Speculation")]
    pub(crate) length_policy: Option<LengthPolicyName>,

    /// Guesses per place at most: 1 keeps to chains, more allows trees; as many as pay when not given
    #[arg(long, value_name = "N", value_parser = draft_width, help_heading = "Speculation")]
    pub(crate) draft_width: Option<usize>,

    /// Where models run: cpu, ascend, ascend:N or ascend-sim
    #[arg(long, value_name = "NAME", default_value_t = DeviceName::Cpu, help_heading = "Device")]
    pub(crate) device: DeviceName,

    /// Worker threads; all cores when not given
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "Device")]
    pub(crate) threads: Option<usize>,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,
}

impl ModelArgs {
    /// The length policy that the flags ask for, or why they contradict each other.
    pub(crate) fn lengths(&self) -> Result<Box<dyn LengthPolicy>, String> {
        match (self.draft_len, self.length_policy) {
            (DraftLen::Auto, policy) => Ok(policy.unwrap_or_default().build()),
            (DraftLen::Tokens(tokens), None) => Ok(Box::new(Fixed(tokens))),
            (DraftLen::Tokens(tokens), Some(policy)) => Err(format!(
                "--draft-len {tokens} fixes the length and --length-policy {policy} chooses it; give one of them"
            )),
        }
    }
}

fn length_policies() -> String {
    let mut help = String::from("How many tokens to guess, round by round:\n");
    for entry in &LENGTH_POLICIES {
        help += &format!("  {}[:x]: {}; x is {} when not given\n", entry.name, entry.summary, entry.parameter);
    }
    help
}

fn rules() -> String {
    let mut help = String::from("Which guesses are kept. Lossless rules leave the law of the answer as it is:\n");
    for entry in &RULES {
        let parameter = entry.parameter.map_or(String::new(), |x| format!("; x is {x} when not given"));
        let name = if entry.parameter.is_some() { format!("{}[:x]", entry.name) } else { entry.name.to_owned() };
        help += &format!("  {name}: {}{}{parameter}\n", if entry.lossless { "" } else { "LOSSY, " }, entry.summary);
    }
    help + "When not given, greedy at temperature 0, else coupled."
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("input").required(true).args(["prompt", "file", "ids"]))]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// The prompt
    #[arg(long, short, value_name = "TEXT", help_heading = "Prompt", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,

    /// Read the prompt from a file, or from standard input when it is `-`
    #[arg(long, short, value_name = "FILE", help_heading = "Prompt")]
    pub(crate) file: Option<PathBuf>,

    /// The prompt as token ids, used exactly as given
    #[arg(long, value_name = "1,2,3", value_delimiter = ',', help_heading = "Prompt")]
    pub(crate) ids: Option<Vec<Token>>,

    /// Put the prompt into the model's chat template, as the user's message
    #[arg(long, conflicts_with = "ids", help_heading = "Prompt")]
    pub(crate) chat: bool,

    /// Which guesses are kept; by default those that leave the answer token for token the same
    #[arg(long, value_name = "NAME[:x]", long_help = rules(), help_heading = "Speculation")]
    pub(crate) rule: Option<RuleName>,

    /// 0 always takes the likeliest token; higher is more varied
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) temperature: f32,

    /// Sample from the K likeliest tokens; 0 is off
    #[arg(long, value_name = "K", default_value_t = 0, help_heading = "Sampling")]
    pub(crate) top_k: usize,

    /// Sample from the likeliest tokens that together have probability P; 1 is off
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) top_p: f32,

    /// Drop tokens less likely than P times the likeliest; 0 is off
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) min_p: f32,

    /// Weaken tokens that the text already has; 1 is off
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) repeat_penalty: f32,

    /// The same seed gives the same answer; a fresh one is drawn and reported when not given
    #[arg(long, value_name = "S", help_heading = "Sampling")]
    pub(crate) seed: Option<u64>,

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

    /// End the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) stop: Vec<String>,

    /// End the answer at this token id, beside the model's own end tokens; may be given several times
    #[arg(long, value_name = "ID", help_heading = "Limits")]
    pub(crate) stop_id: Vec<Token>,

    /// Report each token's log-probability and the N likeliest alternatives, in `--json`
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) logprobs: Option<usize>,

    /// What to print
    #[arg(long, value_enum, default_value_t = OutputKind::Text, help_heading = "Output")]
    pub(crate) output: OutputKind,

    /// One JSON object with the answer and all figures, instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

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
