//! What converters make of a safetensors checkpoint.

use spec_model::gguf::write::Writer;

use super::LogitsCase;

/// How a tensor changes.
enum Change {
    None,
    /// `[inputs, outputs]` becomes `[outputs, inputs]`.
    Transpose,
    /// The halves of each head's rows are interleaved.
    Interleave {
        heads: usize,
    },
    /// One is added to each element.
    AddOne,
}

/// Parts of a layer's names in the Llama family, and what GGUF calls them.
const LLAMA_PARTS: [(&str, &str); 13] = [
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// The same in GPT-2.
const GPT2_PARTS: [(&str, &str); 6] = [
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

/// Names outside the layers.
const OTHERS: [(&str, &str); 6] = [
    ("embed_tokens", "token_embd"),
    ("wte", "token_embd"),
    ("wpe", "position_embd"),
    ("norm", "output_norm"),
    ("ln_f", "output_norm"),
    ("lm_head", "output"),
];

fn renamed(name: &str, gemma: bool) -> String {
    let (stem, end) = name.rsplit_once('.').expect("every name ends in .weight or .bias");
    let stem = stem.trim_start_matches("model.").trim_start_matches("transformer.");
    let find = |parts: &[(&str, &str)], stem: &str| {
        let found = parts.iter().find(|(theirs, _)| *theirs == stem);
        found.unwrap_or_else(|| panic!("no name for {name}")).1.to_owned()
    };
    let layer =
        ["layers.", "h."].iter().find_map(|start| stem.strip_prefix(start)).and_then(|rest| rest.split_once('.'));
    match layer {
        // Gemma has a norm of this name that the others lack.
        Some((layer, "post_attention_layernorm")) if gemma => format!("blk.{layer}.post_attention_norm.{end}"),
        Some((layer, part)) => {
            let parts = if stem.starts_with("h.") { &GPT2_PARTS[..] } else { &LLAMA_PARTS[..] };
            format!("blk.{layer}.{}.{end}", find(parts, part))
        }
        None => format!("{}.{end}", find(&OTHERS, stem)),
    }
}

impl Change {
    fn apply(&self, values: Vec<f32>, shape: &[usize]) -> (Vec<f32>, Vec<usize>) {
        match *self {
            Self::None => (values, shape.to_vec()),
            Self::AddOne => (values.into_iter().map(|value| value + 1.0).collect(), shape.to_vec()),
            Self::Transpose => {
                let &[inputs, outputs] = shape else { unreachable!("a matrix") };
                let element = |index: usize| values[index % inputs * outputs + index / inputs];
                ((0..values.len()).map(element).collect(), vec![outputs, inputs])
            }
            Self::Interleave { heads } => {
                let (rows, width) = (shape[0], values.len() / shape[0]);
                let half = rows / heads / 2;
                let source = |row: usize| {
                    let (head, within) = (row / (2 * half), row % (2 * half));
                    head * 2 * half + within % 2 * half + within / 2
                };
                let row = |row: usize| &values[source(row) * width..(source(row) + 1) * width];
                ((0..rows).flat_map(row).copied().collect(), shape.to_vec())
            }
        }
    }
}

pub(super) fn convert(case: &LogitsCase) -> Option<Vec<u8>> {
    let model_type = case.model_type();
    let gpt2 = model_type == "gpt2";
    let architecture = match model_type {
        // Converters make no difference.
        "mistral" => "llama",
        "gemma3_text" => "gemma3",
        other => other,
    };
    let interleaved = architecture == "llama";
    let size = |key: &str, gpt2_key: &str| case.integer(if gpt2 { gpt2_key } else { key }).map(|size| size as usize);
    let hidden = size("hidden_size", "n_embd")?;
    let heads = size("num_attention_heads", "n_head")?;
    let kv_heads = size("num_key_value_heads", "n_head")?;
    let layers = size("num_hidden_layers", "n_layer")?;
    let head_dim = size("head_dim", "").unwrap_or(hidden / heads);
    if case.integer("query_pre_attn_scalar").is_some_and(|scalar| scalar as usize != head_dim) {
        return None;
    }

    let key = |name: &str| format!("{architecture}.{name}");
    let number = |file: Writer, name: &str, value: usize| file.key(&key(name), value as u32);
    let mut file = Writer::new().key("general.architecture", architecture).key("general.name", case.name);
    for (name, value) in [
        ("embedding_length", hidden),
        ("feed_forward_length", size("intermediate_size", "").unwrap_or(4 * hidden)),
        ("block_count", layers),
        ("context_length", size("max_position_embeddings", "n_positions")?),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv_heads),
    ] {
        file = number(file, name, value);
    }
    if gpt2 {
        file = file.key(&key("attention.layer_norm_epsilon"), 1e-5_f32);
    } else {
        let theta = case.number("rope_theta").unwrap_or(if architecture == "gemma3" { 1e6 } else { 1e4 });
        file = file
            .key(&key("attention.layer_norm_rms_epsilon"), case.number("rms_norm_eps").unwrap_or(1e-6) as f32)
            .key(&key("attention.key_length"), head_dim as u32)
            .key(&key("attention.value_length"), head_dim as u32)
            .key(&key("rope.dimension_count"), head_dim as u32)
            .key(&key("rope.freq_base"), theta as f32);
        file = stretch(case, file, architecture, head_dim, theta);
    }
    if let Some(cap) = case.number("final_logit_softcapping") {
        file = file.key(&key("final_logit_softcapping"), cap as f32);
    }
    if let Some(window) = case.integer("sliding_window") {
        file = file.key(&key("attention.sliding_window"), window as u32);
        if let Some(flags) = windows(case, layers) {
            file = file.key(&key("attention.sliding_window_pattern"), flags);
        }
    }
    for (name, shape) in &case.tensors {
        let change = if gpt2 && shape.len() == 2 && name.contains(".h.") {
            Change::Transpose
        } else if interleaved && name.contains("q_proj") {
            Change::Interleave { heads }
        } else if interleaved && name.contains("k_proj") {
            Change::Interleave { heads: kv_heads }
        } else if case.norms_from_one() && shape.len() == 1 {
            Change::AddOne
        } else {
            Change::None
        };
        let (values, shape) = change.apply(case.values(name, shape), shape);
        let dims: Vec<u64> = shape.iter().rev().map(|&dim| dim as u64).collect();
        file = file.f32_tensor(&renamed(name, case.norms_from_one()), &dims, &values);
    }
    Some(file.finish())
}

/// Which layers have the window, where the file has to say.
fn windows(case: &LogitsCase, layers: usize) -> Option<Vec<bool>> {
    if let Some(kinds) = case.config.get("layer_types").and_then(|kinds| kinds.as_array()) {
        return Some(kinds.iter().map(|kind| kind == "sliding_attention").collect());
    }
    let first = case.integer("max_window_layers")? as usize;
    Some((0..layers).map(|layer| layer >= first).collect())
}

/// Stretched frequencies: keys for two ways, a tensor of divisors for the third.
fn stretch(case: &LogitsCase, file: Writer, architecture: &str, head_dim: usize, theta: f64) -> Writer {
    let Some(scaling) = case.config.get("rope_scaling") else { return file };
    let number = |key: &str| scaling[key].as_f64().unwrap_or_else(|| panic!("{}: no {key}", case.name));
    let factor = number("factor");
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    match scaling.get("rope_type").or(scaling.get("type")).and_then(|kind| kind.as_str()) {
        Some("linear") => file.key(&key("type"), "linear").key(&key("factor"), factor as f32),
        Some("yarn") => file
            .key(&key("type"), "yarn")
            .key(&key("factor"), factor as f32)
            .key(&key("original_context_length"), number("original_max_position_embeddings") as u32),
        Some("llama3") => {
            let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
            let context = number("original_max_position_embeddings");
            let divisors: Vec<f32> = (0..head_dim / 2)
                .map(|pair| {
                    let wavelength = std::f64::consts::TAU * theta.powf(2.0 * pair as f64 / head_dim as f64);
                    let kept = ((context / wavelength - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 / (kept + (1.0 - kept) / factor)) as f32
                })
                .collect();
            file.f32_tensor("rope_freqs.weight", &[divisors.len() as u64], &divisors)
        }
        other => panic!("{}: rope_type {other:?}", case.name),
    }
}
