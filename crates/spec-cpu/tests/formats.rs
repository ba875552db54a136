//! One model in two formats: SmolLM2's GGUF file is converted here to safetensors and the JSON files beside them, both
//! with the same f16 weights. What comes out must be the same model.
//!
//! GGUF stores the rows of queries and keys permuted, so that neighbours turn together; safetensors does not. Everything
//! else is equal bit by bit, and attention sums the same products in another order: the logits differ by rounding only.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use spec_cpu::{CpuModel, KvType, LoadOptions, Pool};
use spec_model::gguf::write::Writer;
use spec_model::{Checkpoint, Message, ModelConfig, RopeStyle, TensorType, TensorView, TokenKind, Tokenizer};
use spec_runtime::{Batch, HostStream, Model as _, Row, Want};
use spec_testing::data;
use spec_testing::models::{self, Model};

/// Greatest difference of two logits, which span about 40: rounding of sums in another order. 0.0002 were measured.
const BOUND: f32 = 0.001;
/// Tokens of the text that is compared.
const LENGTH: usize = 48;

#[test]
fn real_smollm2_is_the_same_model_as_gguf_and_as_safetensors() {
    let original = Checkpoint::open(models::path(Model::SmolLm2)).expect("a legal file");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let gguf = folder.path().join("f16.gguf");
    write_gguf(&original, &gguf);
    write_safetensors(&original, folder.path());
    let stored = Checkpoint::open(&gguf).expect("a legal file");
    let published = Checkpoint::open(folder.path().join("model.safetensors")).expect("a legal folder");
    same_description(stored.config(), published.config());
    same_weights(&stored, &published);

    let (ours, theirs) = (stored.tokenizer().expect("a tokenizer"), published.tokenizer().expect("a tokenizer"));
    let reference = data::reference(Model::SmolLm2);
    for string in &reference.tokenize {
        for (special, ids) in [(false, &string.ids), (true, &string.ids_with_special)] {
            assert_eq!(&theirs.encode(&string.text, special).expect("text"), ids, "{:?}", string.text);
        }
    }
    assert_eq!(
        (ours.end_ids(), ours.bos_id(), ours.adds_bos()),
        (theirs.end_ids(), theirs.bos_id(), theirs.adds_bos())
    );
    let templates = [&stored, &published].map(|checkpoint| checkpoint.chat_template().expect("it compiles"));
    let [a, b] = templates.map(|template| template.expect("a template").render(&[Message::new("user", "Hello!")]));
    assert_eq!(a.expect("a text"), b.expect("a text"));

    let case = &reference.complete[0];
    let generated = case.generated.iter().map(|token| token.id);
    let text: Vec<u32> = case.prompt_ids.iter().copied().chain(generated).take(LENGTH).collect();
    let (ours, theirs) = (logits(&stored, &text), logits(&published, &text));
    assert_eq!(ours.len(), LENGTH);
    let mut greatest = 0.0_f32;
    for (row, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(best(ours), best(theirs), "row {row}");
        greatest = ours.iter().zip(theirs).fold(greatest, |greatest, (a, b)| greatest.max((a - b).abs()));
    }
    println!("{} rows, logits differ by {greatest} at most", ours.len());
    assert!(greatest <= BOUND, "{greatest}");
}

fn same_description(gguf: &ModelConfig, safetensors: &ModelConfig) {
    let (Some(ours), Some(theirs)) = (&gguf.rope, &safetensors.rope) else { panic!("both turn") };
    assert_eq!((ours.style, theirs.style), (RopeStyle::Interleaved, RopeStyle::Halves));
    let mut same = safetensors.clone();
    same.name.clone_from(&gguf.name);
    same.rope.clone_from(&gguf.rope);
    assert_eq!(&same, gguf);
    assert_eq!((ours.theta, ours.dims, ours.scaling), (theirs.theta, theirs.dims, theirs.scaling));
}

fn same_weights(gguf: &Checkpoint, safetensors: &Checkpoint) {
    let (a, b) = (gguf.weights(), safetensors.weights());
    assert_eq!(a.embedding.bytes(), b.embedding.bytes());
    assert!(a.output.is_none() && b.output.is_none());
    for (a, b) in a.layers.iter().zip(&b.layers) {
        for (a, b) in [(&a.v, &b.v), (&a.attn_output, &b.attn_output), (&a.up, &b.up), (&a.down, &b.down)] {
            assert_eq!(a.weight.bytes(), b.weight.bytes(), "{}", a.weight.name);
        }
        assert_eq!(a.ffn_norm.weight.to_f32(), b.ffn_norm.weight.to_f32());
        assert_ne!(a.q.weight.bytes(), b.q.weight.bytes(), "{} is not permuted", a.q.weight.name);
    }
}

fn logits(checkpoint: &Checkpoint, tokens: &[u32]) -> Vec<Vec<f32>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = LoadOptions::new(Arc::new(Pool::new(threads).expect("threads")));
    options.kv = KvType::F32;
    options.context = Some(256);
    let model = CpuModel::load(checkpoint, options).expect("a model that the kernels take");
    let seq = model.open().expect("room");
    model.reserve(seq, tokens.len()).expect("room");
    let rows = tokens.iter().enumerate().map(|(position, &token)| Row {
        seq,
        token,
        position,
        parent: (position as u32).checked_sub(1),
        want: Want::Logits,
    });
    let batch = Batch { rows: rows.collect() };
    let results = model.submit(&HostStream, &batch).expect("legal rows").wait().expect("a pass");
    (0..tokens.len()).map(|row| results.logits(row).expect("wanted").to_vec()).collect()
}

fn best(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
}

/// Matrices become f16, vectors stay f32.
fn halves(tensor: &TensorView<'_>) -> (TensorType, Vec<u8>) {
    let values = tensor.to_f32();
    match tensor.rows {
        1 => (TensorType::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        _ => (TensorType::F16, values.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect()),
    }
}

fn write_gguf(original: &Checkpoint, path: &Path) {
    let (config, tokenizer) = (original.config(), original.tokenizer().expect("a tokenizer"));
    let metadata = original.metadata().expect("a GGUF file has metadata");
    let rope = config.rope.as_ref().expect("it turns");
    let texts: Vec<String> =
        metadata.strings("tokenizer.ggml.tokens").expect("tokens").map(|text| text_of(text).to_owned()).collect();
    let merges: Vec<String> =
        metadata.strings("tokenizer.ggml.merges").expect("merges").map(|text| text_of(text).to_owned()).collect();
    let mut writer = Writer::new()
        .key("general.architecture", "llama")
        .key("general.name", config.name.as_str())
        .key("llama.block_count", config.layers as u32)
        .key("llama.context_length", config.context_length as u32)
        .key("llama.embedding_length", config.hidden_size as u32)
        .key("llama.feed_forward_length", config.intermediate_size as u32)
        .key("llama.attention.head_count", config.heads as u32)
        .key("llama.attention.head_count_kv", config.kv_heads as u32)
        .key("llama.attention.layer_norm_rms_epsilon", config.norm_epsilon)
        .key("llama.rope.freq_base", rope.theta)
        .key("tokenizer.ggml.model", "gpt2")
        .key("tokenizer.ggml.pre", metadata.str("tokenizer.ggml.pre").expect("a name"))
        .key("tokenizer.ggml.tokens", texts)
        .key("tokenizer.ggml.merges", merges)
        .key("tokenizer.ggml.token_type", metadata.i32s("tokenizer.ggml.token_type").expect("types"))
        .key("tokenizer.ggml.bos_token_id", tokenizer.bos_id().expect("one"))
        .key("tokenizer.ggml.eos_token_id", metadata.u32("tokenizer.ggml.eos_token_id").expect("one"))
        .key("tokenizer.ggml.add_bos_token", tokenizer.adds_bos())
        .key("tokenizer.chat_template", metadata.str("tokenizer.chat_template").expect("one"));
    for tensor in original.tensors() {
        let (tensor_type, bytes) = halves(&tensor);
        let dims = match tensor.rows {
            1 => vec![tensor.cols as u64],
            rows => vec![tensor.cols as u64, rows as u64],
        };
        writer = writer.tensor(tensor.name, tensor_type, &dims, &bytes);
    }
    std::fs::write(path, writer.finish()).expect("room for the file");
}

fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("byte-level vocabularies are text")
}

/// The published names of GGUF's tensors.
fn published_name(name: &str) -> String {
    let name = name.replace("blk.", "model.layers.");
    [
        ("token_embd", "model.embed_tokens"),
        ("output_norm", "model.norm"),
        ("attn_norm", "input_layernorm"),
        ("ffn_norm", "post_attention_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ]
    .iter()
    .fold(name, |name, (ours, theirs)| name.replace(ours, theirs))
}

/// Rows of a head from neighbours (`0 0' 1 1' ...`) to halves (`0 1 ... 0' 1' ...`).
fn unpermuted(bytes: &[u8], rows: usize, head_dim: usize) -> Vec<u8> {
    let row = bytes.len() / rows;
    let source = |index: usize| {
        let (head, within) = (index / head_dim, index % head_dim);
        let (half, pair) = (within / (head_dim / 2), within % (head_dim / 2));
        head * head_dim + 2 * pair + half
    };
    (0..rows).flat_map(|index| bytes[source(index) * row..][..row].iter().copied()).collect()
}

fn write_safetensors(original: &Checkpoint, folder: &Path) {
    let config = original.config();
    let (mut header, mut content) = (String::from("{\"__metadata__\":{\"format\":\"pt\"}"), Vec::new());
    for tensor in original.tensors() {
        let (tensor_type, mut bytes) = halves(&tensor);
        if tensor.name.ends_with("attn_q.weight") || tensor.name.ends_with("attn_k.weight") {
            bytes = unpermuted(&bytes, tensor.rows, config.head_dim);
        }
        let shape =
            if tensor.rows == 1 { format!("[{}]", tensor.cols) } else { format!("[{},{}]", tensor.rows, tensor.cols) };
        let (name, begin) = (published_name(tensor.name), content.len());
        content.extend(bytes);
        let end = content.len();
        write!(
            header,
            ",\"{name}\":{{\"dtype\":\"{tensor_type}\",\"shape\":{shape},\"data_offsets\":[{begin},{end}]}}"
        )
        .expect("memory");
    }
    header.push('}');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.into_bytes());
    bytes.extend(content);
    std::fs::write(folder.join("model.safetensors"), bytes).expect("room for the file");

    let tokenizer = original.tokenizer().expect("a tokenizer");
    let metadata = original.metadata().expect("a GGUF file has metadata");
    let eos = metadata.u32("tokenizer.ggml.eos_token_id").expect("one");
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_epsilon, "rope_theta": config.rope.as_ref().expect("it turns").theta,
        "rope_scaling": null, "tie_word_embeddings": true, "vocab_size": config.vocab_size, "eos_token_id": eos,
    });
    let put = |name: &str, value: Value| std::fs::write(folder.join(name), value.to_string()).expect("room");
    put("config.json", config);
    put("tokenizer.json", tokenizer_json(original, &tokenizer));
    put("generation_config.json", json!({"eos_token_id": eos}));
    let text = |id: u32| tokenizer.token_text(id).expect("a token").to_owned();
    put(
        "tokenizer_config.json",
        json!({
            "bos_token": text(tokenizer.bos_id().expect("one")), "eos_token": text(eos),
            "chat_template": metadata.str("tokenizer.chat_template").expect("one"),
        }),
    );
}

/// Byte-level BPE over single digits, as SmolLM2 publishes it.
fn tokenizer_json(original: &Checkpoint, tokenizer: &Tokenizer) -> Value {
    let metadata = original.metadata().expect("a GGUF file has metadata");
    let tokens = metadata.strings("tokenizer.ggml.tokens").expect("tokens").map(text_of);
    let vocabulary: serde_json::Map<String, Value> =
        tokens.clone().zip(0_u32..).map(|(text, id)| (text.to_owned(), id.into())).collect();
    let added: Vec<Value> = tokens
        .zip(0_u32..)
        .filter(|&(_, id)| tokenizer.token_kind(id).is_ok_and(|kind| kind == TokenKind::Control))
        .map(|(text, id)| {
            json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        })
        .collect();
    let merges: Vec<&str> = metadata.strings("tokenizer.ggml.merges").expect("merges").map(text_of).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": true}, bytes]},
        "post_processor": null, "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": merges},
    })
}
