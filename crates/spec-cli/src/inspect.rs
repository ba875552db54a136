use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;

use crate::args::InspectArgs;
use crate::session::Opened;

/// Values longer than this are cut: templates and licences fill screens.
const SHOWN_CHARS: usize = 100;

pub(crate) fn run(args: &InspectArgs) -> Result<ExitCode> {
    let opened = Opened::open(&args.model, args.pre_tokenizer.as_deref())?;
    let mut out = String::new();
    describe(&opened, &mut out)?;
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn describe(opened: &Opened, out: &mut String) -> Result<(), std::fmt::Error> {
    let checkpoint = &opened.checkpoint;
    let config = checkpoint.config();
    let gguf = checkpoint.gguf();
    let tokenizer = opened.tokenizer();
    let bytes: usize = (0..gguf.tensors().len()).map(|i| gguf.tensor_bytes(i).len()).sum();
    writeln!(
        out,
        "{}: GGUF version {}, {} tensors, {}",
        gguf.name(),
        gguf.version(),
        gguf.tensors().len(),
        megabytes(bytes)
    )?;
    writeln!(out, "\nmodel")?;
    let facts = [
        ("name", config.name.clone()),
        ("architecture", config.architecture.name.to_owned()),
        ("context", format!("{} positions", config.context_length)),
        ("layers", config.layers.to_string()),
        ("hidden size", config.hidden_size.to_string()),
        ("feed-forward size", config.intermediate_size.to_string()),
        ("heads", format!("{} query, {} key/value, {} wide", config.heads, config.kv_heads, config.head_dim)),
        (
            "rope",
            config.rope.as_ref().map_or_else(
                || "none: learned positions".to_owned(),
                |rope| format!("theta {}, {:?} pairs", rope.theta, rope.style),
            ),
        ),
        ("head", if config.tied_embeddings { "the embedding" } else { "of its own" }.to_owned()),
        ("vocabulary", format!("{} rows, {} real tokens", config.vocab_size, tokenizer.real_vocab_size())),
        ("end tokens", tokens(opened, tokenizer.end_ids())),
        (
            "begin token",
            match tokenizer.bos_id() {
                Some(id) if tokenizer.adds_bos() => format!("{}, added to text", tokens(opened, &[id])),
                Some(id) => format!("{}, not added", tokens(opened, &[id])),
                None => "none".to_owned(),
            },
        ),
        (
            "chat template",
            match checkpoint.chat_template() {
                Ok(Some(_)) => "yes".to_owned(),
                Ok(None) => "no".to_owned(),
                Err(error) => format!("unusable: {error}"),
            },
        ),
        ("KV cache", format!("{} a token in f16", megabytes(4 * config.layers * config.kv_heads * config.head_dim))),
    ];
    for (name, value) in facts {
        writeln!(out, "  {name:<18} {value}")?;
    }

    let mut types: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (index, tensor) in gguf.tensors().iter().enumerate() {
        let entry = types.entry(tensor.tensor_type.to_string()).or_default();
        *entry = (entry.0 + 1, entry.1 + gguf.tensor_bytes(index).len());
    }
    writeln!(out, "\nweights")?;
    for (name, (count, bytes)) in types {
        writeln!(out, "  {name:<18} {count:>4} tensors {:>12}", megabytes(bytes))?;
    }

    writeln!(out, "\nmetadata")?;
    for key in gguf.keys() {
        let value = gguf.metadata().describe(key).unwrap_or_default();
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut = if value.chars().count() > SHOWN_CHARS { "..." } else { "" };
        let shown: String = value.chars().take(SHOWN_CHARS).collect();
        writeln!(out, "  {key:<44} {shown}{cut}")?;
    }

    writeln!(out, "\ntensors")?;
    for tensor in gguf.tensors() {
        writeln!(out, "  {:<32} {:<6} {}", tensor.name, tensor.tensor_type.to_string(), tensor.shape())?;
    }
    Ok(())
}

fn tokens(opened: &Opened, ids: &[u32]) -> String {
    let shown = ids.iter().map(|&id| format!("{id} {}", opened.tokenizer().token_text(id).unwrap_or_default()));
    shown.collect::<Vec<_>>().join(", ")
}

fn megabytes(bytes: usize) -> String {
    if bytes < 1_000_000 { format!("{:.1} kB", bytes as f64 / 1e3) } else { format!("{:.1} MB", bytes as f64 / 1e6) }
}
