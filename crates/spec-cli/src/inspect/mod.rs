//! `spec inspect`: what a checkpoint holds and what it will take, without loading it.

mod plan;
mod planned;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};
use spec_cpu::KvType;
use spec_model::{Checkpoint, Format, ModelConfig, RopeConfig, RopeScaling, Tokenizer};

use crate::args::{InspectArgs, KvKind};
use crate::storage::kv_type;
use crate::{ascend, pull};

/// Values longer than this are cut: templates and licences fill screens.
const SHOWN_CHARS: usize = 100;
/// Context lengths whose memory is shown, beside the model's own.
const CONTEXTS: [usize; 4] = [1024, 4096, 16_384, 65_536];

pub(crate) fn run(args: &InspectArgs) -> Result<ExitCode> {
    if args.plan.plan {
        return show_plan(args);
    }
    let checkpoint = Checkpoint::open(pull::resolve(&args.file.model)?)?;
    // A file whose text cannot be read is worth looking at all the same.
    let tokenizer =
        checkpoint.tokenizer_with(args.file.text.pre_tokenizer.as_deref()).map_err(|error| error.to_string());
    let view = View { checkpoint: &checkpoint, tokenizer };
    let mut out = String::new();
    match args.json {
        true => writeln!(out, "{}", view.json())?,
        false => view.text(&mut out)?,
    }
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn show_plan(args: &InspectArgs) -> Result<ExitCode> {
    let plan = plan::Plan::new(args)?;
    let mut out = String::new();
    match args.json {
        true => writeln!(out, "{}", plan.json())?,
        false => plan.text(&mut out)?,
    }
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What is shown, in either form.
struct View<'a> {
    checkpoint: &'a Checkpoint,
    tokenizer: Result<Tokenizer, String>,
}

/// Tensors of one type.
#[derive(Default)]
struct TypeTotal {
    tensors: usize,
    parameters: usize,
    bytes: usize,
}

impl View<'_> {
    fn config(&self) -> &ModelConfig {
        self.checkpoint.config()
    }

    /// By the names of the types.
    fn types(&self) -> BTreeMap<String, TypeTotal> {
        let mut types: BTreeMap<String, TypeTotal> = BTreeMap::new();
        for tensor in self.checkpoint.tensors() {
            let total = types.entry(tensor.tensor_type.to_string()).or_default();
            total.tensors += 1;
            total.parameters += tensor.rows * tensor.cols;
            total.bytes += tensor.stored_bytes();
        }
        types
    }

    /// Lengths up to the model's own, ascending.
    fn contexts(&self) -> Vec<usize> {
        let limit = self.config().context_length;
        CONTEXTS.into_iter().filter(|&length| length < limit).chain([limit]).collect()
    }

    /// Bytes of keys and values of one token in all layers.
    fn kv_bytes(&self, kv: KvType) -> usize {
        let config = self.config();
        2 * config.layers * config.kv_heads * kv.head_bytes(config.head_dim)
    }

    fn format(&self) -> String {
        match self.checkpoint.format() {
            Format::Gguf { version } => format!("GGUF version {version}"),
            Format::Safetensors => "safetensors".to_owned(),
            other => format!("{other:?}"),
        }
    }

    fn template(&self) -> String {
        match self.checkpoint.chat_template() {
            Ok(Some(_)) => "yes".to_owned(),
            Ok(None) => "none: `--chat` needs one".to_owned(),
            Err(error) => format!("unusable: {error}"),
        }
    }

    fn window(&self) -> Option<String> {
        let window = self.config().sliding_window.as_ref()?;
        let layers = window.layers.iter().filter(|&&slides| slides).count();
        Some(format!("{} positions in {layers} of {} layers", window.size, self.config().layers))
    }

    fn json(&self) -> Value {
        let (config, types) = (self.config(), self.types());
        let parameters: usize = types.values().map(|total| total.parameters).sum();
        let bytes: usize = types.values().map(|total| total.bytes).sum();
        let kinds = KvKind::value_variants().iter().filter_map(|kind| Some((kind, kind.to_possible_value()?)));
        let kv: Vec<(String, usize)> =
            kinds.map(|(&kind, name)| (name.get_name().to_owned(), self.kv_bytes(kv_type(kind)))).collect();
        let memory: Vec<Value> = self
            .contexts()
            .into_iter()
            .map(|context| {
                let of_kind: serde_json::Map<_, _> =
                    kv.iter().map(|(name, bytes)| (name.clone(), json!(bytes * context))).collect();
                json!({ "context": context, "weights_bytes": bytes, "kv_bytes": of_kind })
            })
            .collect();
        let tokenizer = match &self.tokenizer {
            Ok(tokenizer) => json!({
                "tokens": tokenizer.vocab_size(),
                "real_tokens": tokenizer.real_vocab_size(),
                "end_ids": tokenizer.end_ids(),
                "bos_id": tokenizer.bos_id(),
                "adds_bos": tokenizer.adds_bos(),
            }),
            Err(error) => json!({ "error": error }),
        };
        let window = config.sliding_window.as_ref();
        json!({
            "path": self.checkpoint.name(),
            "format": self.format(),
            "files": self.checkpoint.files().map(|(name, bytes)| json!({ "name": name, "bytes": bytes })).collect::<Vec<_>>(),
            "name": config.name,
            "architecture": config.architecture.name,
            "parameters": parameters,
            "context_length": config.context_length,
            "layers": config.layers,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "vocab_size": config.vocab_size,
            "tied_embeddings": config.tied_embeddings,
            "rope": config.rope.as_ref().map(rope),
            "sliding_window": window.map(|window| json!({ "size": window.size, "layers": window.layers })),
            "tokenizer": tokenizer,
            "chat_template": matches!(self.checkpoint.chat_template(), Ok(Some(_))),
            "types": types.iter().map(|(name, total)| (name.clone(), json!({
                "tensors": total.tensors, "parameters": total.parameters, "bytes": total.bytes,
            }))).collect::<serde_json::Map<_, _>>(),
            "memory": memory,
            "ascend": self.ascend_json(),
        })
    }

    fn text(&self, out: &mut String) -> Result<(), std::fmt::Error> {
        let (config, types) = (self.config(), self.types());
        let parameters: usize = types.values().map(|total| total.parameters).sum();
        let bytes: usize = types.values().map(|total| total.bytes).sum();
        let count: usize = types.values().map(|total| total.tensors).sum();
        writeln!(out, "{}: {}, {count} tensors, {}", self.checkpoint.name(), self.format(), size(bytes))?;
        let files: Vec<_> = self.checkpoint.files().collect();
        if files.len() > 1 {
            for (name, bytes) in files {
                writeln!(out, "  {name:<60} {:>12}", size(bytes))?;
            }
        }
        writeln!(out, "\nmodel")?;
        let facts = [
            ("name", config.name.clone()),
            ("architecture", config.architecture.name.to_owned()),
            ("parameters", format!("{:.1} million", parameters as f64 / 1e6)),
            ("context", format!("{} positions", config.context_length)),
            ("layers", config.layers.to_string()),
            ("hidden size", config.hidden_size.to_string()),
            ("feed-forward size", config.intermediate_size.to_string()),
            ("heads", format!("{} query, {} key/value, {} wide", config.heads, config.kv_heads, config.head_dim)),
            ("rope", config.rope.as_ref().map_or_else(|| "none: learned positions".to_owned(), rope)),
            ("sliding window", self.window().unwrap_or_else(|| "none".to_owned())),
            ("head", if config.tied_embeddings { "the embedding" } else { "of its own" }.to_owned()),
            ("chat template", self.template()),
        ];
        for (name, value) in facts.into_iter().chain(self.vocabulary()) {
            writeln!(out, "  {name:<18} {value}")?;
        }

        writeln!(out, "\nweights")?;
        for (name, total) in types {
            writeln!(out, "  {name:<18} {:>4} tensors {:>12}", total.tensors, size(total.bytes))?;
        }
        self.memory(bytes, out)?;
        let context = self.ascend_context();
        match ascend::plan(self.checkpoint, context) {
            Ok(plan) => writeln!(out, "\nmemory of an Atlas A2, for {context} positions\n{plan}")?,
            Err(reason) => writeln!(out, "\nAscend\n  {reason}")?,
        }

        if let Some(metadata) = self.checkpoint.metadata() {
            writeln!(out, "\nmetadata")?;
            for key in self.checkpoint.keys() {
                let value = metadata.describe(key).unwrap_or_default();
                let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
                let cut = if value.chars().count() > SHOWN_CHARS { "..." } else { "" };
                let shown: String = value.chars().take(SHOWN_CHARS).collect();
                writeln!(out, "  {key:<44} {shown}{cut}")?;
            }
        }

        writeln!(out, "\ntensors")?;
        for tensor in self.checkpoint.tensors() {
            let (name, kind) = (tensor.name, tensor.tensor_type.to_string());
            writeln!(out, "  {name:<32} {kind:<6} [{}, {}]", tensor.rows, tensor.cols)?;
        }
        Ok(())
    }

    /// The context that memory on Ascend is shown for.
    fn ascend_context(&self) -> usize {
        self.config().context_length.min(CONTEXTS[1])
    }

    fn ascend_json(&self) -> Value {
        let context = self.ascend_context();
        match ascend::plan(self.checkpoint, context) {
            Ok(plan) => json!({
                "context": context,
                "device_bytes": plan.device_bytes(),
                "host_bytes": plan.host_bytes(),
                "parts": plan.lines().map(|(what, bytes)| (what.to_owned(), json!(bytes))).collect::<serde_json::Map<_, _>>(),
            }),
            Err(reason) => json!({ "refused": reason }),
        }
    }

    /// Weights with keys and values, by context length and type of the cache.
    fn memory(&self, weights: usize, out: &mut String) -> Result<(), std::fmt::Error> {
        write!(out, "\n{:<20}", "memory, by context")?;
        let kinds = KvKind::value_variants();
        for kind in kinds {
            let name = kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
            write!(out, " {:>12}", format!("KV {name}"))?;
        }
        writeln!(out)?;
        for context in self.contexts() {
            write!(out, "  {context:<18}")?;
            for &kind in kinds {
                write!(out, " {:>12}", size(weights + context * self.kv_bytes(kv_type(kind))))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn vocabulary(&self) -> Vec<(&'static str, String)> {
        let rows = self.config().vocab_size;
        let tokenizer = match &self.tokenizer {
            Ok(tokenizer) => tokenizer,
            Err(error) => {
                return vec![("vocabulary", format!("{rows} rows")), ("tokenizer", format!("unusable: {error}"))];
            }
        };
        let begin = match tokenizer.bos_id() {
            Some(id) if tokenizer.adds_bos() => format!("{}, added to text", tokens(tokenizer, &[id])),
            Some(id) => format!("{}, not added", tokens(tokenizer, &[id])),
            None => "none".to_owned(),
        };
        vec![
            ("vocabulary", format!("{rows} rows, {} real tokens", tokenizer.real_vocab_size())),
            ("end tokens", tokens(tokenizer, tokenizer.end_ids())),
            ("begin token", begin),
        ]
    }
}

fn rope(rope: &RopeConfig) -> String {
    let stretched = match rope.scaling {
        RopeScaling::None => String::new(),
        RopeScaling::Linear { factor } => format!(", stretched linearly by {factor}"),
        RopeScaling::Llama3 { factor, original_context, .. } => {
            format!(", stretched as Llama 3 by {factor} from {original_context} positions")
        }
        RopeScaling::Yarn { factor, original_context, .. } => {
            format!(", stretched by YaRN by {factor} from {original_context} positions")
        }
        other => format!(", {other:?}"),
    };
    let factors = if rope.frequency_factors.is_some() { ", with factors by frequency" } else { "" };
    format!("theta {}, {:?} pairs{stretched}{factors}", rope.theta, rope.style)
}

fn tokens(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let shown = ids.iter().map(|&id| format!("{id} {}", tokenizer.token_text(id).unwrap_or_default()));
    shown.collect::<Vec<_>>().join(", ")
}

fn size(bytes: usize) -> String {
    match bytes as f64 {
        bytes if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.2} GB", bytes / 1e9),
    }
}
