//! Checkpoints in folders: safetensors, one file or a set, with `config.json`.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod tiny;

use std::path::Path;

use safetensors::Dtype;
use serde_json::{Value, json};
use spec_model::{Activation, Checkpoint, Format, ModelConfig, RopeScaling, RopeStyle};
use tiny::folder::{MODEL_TYPES, Tensor, config, folder, says, serialize, tensors, write, write_set};

fn opened(config: &Value, tensors: &[Tensor]) -> Checkpoint {
    let folder = folder(config, tensors);
    Checkpoint::open(folder.path()).unwrap()
}

/// The configuration of a model whose `config.json` has these fields besides.
fn config_with(model_type: &str, layers: usize, fields: Value) -> ModelConfig {
    opened(&merged(config(model_type, layers), fields), &tensors(model_type, layers)).config().clone()
}

fn merged(mut config: Value, fields: Value) -> Value {
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn refused(path: &Path, phrases: &[&str]) {
    let message = Checkpoint::open(path).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    says(&message, phrases);
}

fn refused_with(model_type: &str, fields: Value, phrases: &[&str]) {
    let folder = folder(&merged(config(model_type, 2), fields), &tensors(model_type, 2));
    refused(folder.path(), phrases);
}

fn scaling(fields: Value) -> RopeScaling {
    config_with("llama", 1, fields).rope.unwrap().scaling
}

#[test]
fn every_architecture_opens_as_one_file_and_as_a_set() {
    for model_type in MODEL_TYPES {
        let (config, tensors) = (config(model_type, 2), tensors(model_type, 2));
        let one = folder(&config, &tensors);
        let set = tempfile::tempdir().unwrap();
        write_set(set.path(), &config, &tensors, 3);
        let by_file = Checkpoint::open(one.path().join("model.safetensors")).unwrap();
        assert_eq!(by_file.format(), Format::Safetensors);
        for path in ["", "model-00002-of-00003.safetensors", "model.safetensors.index.json"] {
            let sharded = Checkpoint::open(set.path().join(path)).unwrap();
            assert_eq!(sharded.files().count(), 3, "{model_type} {path}");
            let (a, b) = (by_file.weights(), sharded.weights());
            assert_eq!(a.layers[1].down.weight.to_f32(), b.layers[1].down.weight.to_f32());
            assert_eq!(a.embedding.bytes(), b.embedding.bytes());
        }
    }
}

#[test]
fn every_tensor_is_needed() {
    for model_type in MODEL_TYPES {
        for tensor in tensors(model_type, 1) {
            let rest: Vec<Tensor> = tensors(model_type, 1).into_iter().filter(|t| t.name != tensor.name).collect();
            let folder = folder(&config(model_type, 1), &rest);
            if tensor.name.ends_with(".attn.bias") {
                Checkpoint::open(folder.path()).unwrap();
            } else {
                refused(folder.path(), &[&tensor.name, "missing"]);
            }
        }
    }
}

#[test]
fn bf16_and_f16_are_read_as_they_are() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        for model_type in MODEL_TYPES {
            let plain = tensors(model_type, 1);
            let cast: Vec<Tensor> = plain.iter().cloned().map(|tensor| tensor.cast(dtype)).collect();
            let (plain, cast) = (opened(&config(model_type, 1), &plain), opened(&config(model_type, 1), &cast));
            let (a, b) = (plain.weights(), cast.weights());
            assert_eq!(a.layers[0].v.weight.to_f32(), b.layers[0].v.weight.to_f32(), "{model_type} {dtype:?}");
            assert_eq!(a.output_norm.weight.to_f32(), b.output_norm.weight.to_f32(), "{model_type} {dtype:?}");
            assert_eq!(b.embedding.bytes().len(), a.embedding.bytes().len() / 2);
        }
    }
}

#[test]
fn gemma3_stores_norms_as_their_distance_from_one() {
    let checkpoint = opened(&config("gemma3_text", 7), &tensors("gemma3_text", 7));
    let weights = checkpoint.weights();
    let expected: Vec<f32> = (0..8).map(|i| 1.0 + i as f32 / 16.0).collect();
    let layer = &weights.layers[0];
    for norm in [&weights.output_norm, &layer.attn_norm, layer.post_ffn_norm.as_ref().unwrap()] {
        assert_eq!(norm.weight.to_f32(), expected);
    }
    assert_eq!(layer.q_norm.unwrap().to_f32(), expected[..4]);
    let bytes: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(weights.output_norm.weight.bytes(), bytes);
    let config = checkpoint.config();
    let window = config.sliding_window.as_ref().unwrap();
    assert_eq!((window.size, window.layers.as_slice()), (32, [true, true, true, true, true, false, true].as_slice()));
    assert_eq!((window.rope.as_ref().unwrap().theta, config.rope.as_ref().unwrap().theta), (10_000.0, 1_000_000.0));
    assert_eq!((config.attention_scale, config.embedding_scale), (0.5, 8.0_f32.sqrt()));
    assert_eq!(config.activation, Activation::GeluTanh);
}

#[test]
fn gpt2_matrices_are_turned_and_the_fused_one_is_split() {
    let checkpoint = opened(&config("gpt2", 1), &tensors("gpt2", 1));
    let layer = &checkpoint.weights().layers[0];
    // Element (input, output) of the stored matrix is number `24 * input + output`.
    for (part, first) in [(&layer.q, 0), (&layer.k, 8), (&layer.v, 16)] {
        let element = |output: usize, input: usize| ((24 * input + first + output) % 64) as f32 / 16.0;
        let expected: Vec<f32> = (0..64).map(|i| element(i / 8, i % 8)).collect();
        assert_eq!(part.weight.to_f32(), expected);
        assert_eq!(part.weight.row(3).unwrap()[..], part.weight.bytes()[96..128]);
        assert_eq!(part.weight.stored_bytes(), 256);
        let expected: Vec<f32> = (0..8).map(|i| (first + i) as f32 / 16.0).collect();
        assert_eq!(part.bias.unwrap().to_f32(), expected);
    }
    assert_eq!((layer.up.weight.rows, layer.up.weight.cols), (12, 8));
    assert!(checkpoint.config().rope.is_none());
}

#[test]
fn names_may_lack_their_prefix_or_have_a_longer_one() {
    for (model_type, from, to) in [
        ("llama", "model.", ""),
        ("gemma3_text", "model.", "language_model.model."),
        ("gemma3_text", "model.", "model.language_model."),
        ("gpt2", "transformer.", ""),
    ] {
        let mut tensors = tensors(model_type, 1);
        for tensor in &mut tensors {
            tensor.name = tensor.name.replacen(from, to, 1);
        }
        opened(&config(model_type, 1), &tensors);
    }
}

#[test]
fn a_head_is_read_unless_the_embedding_is_the_head() {
    let mut with_head = tensors("llama", 1);
    with_head.push(Tensor::new("lm_head.weight", &[262, 8]));
    let tied = opened(&config("llama", 1), &with_head);
    assert!(tied.config().tied_embeddings && tied.weights().output.is_none());
    let untied = merged(config("llama", 1), json!({"tie_word_embeddings": false}));
    let checkpoint = opened(&untied, &with_head);
    assert!(!checkpoint.config().tied_embeddings && checkpoint.weights().output.is_some());
    refused(folder(&untied, &tensors("llama", 1)).path(), &["`lm_head.weight`", "missing"]);
    // Gemma's and GPT-2's are tied when nothing is said, the others' are not.
    let mut silent = config("llama", 1);
    silent.as_object_mut().unwrap().remove("tie_word_embeddings");
    refused(folder(&silent, &tensors("llama", 1)).path(), &["`lm_head.weight`", "missing"]);
}

#[test]
fn the_text_part_of_a_model_that_sees_is_read() {
    let text = config("gemma3_text", 1);
    let outer = json!({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 4}});
    let mut all = tensors("gemma3_text", 1);
    for tensor in &mut all {
        tensor.name = format!("language_model.{}", tensor.name);
    }
    all.push(Tensor::new("vision_tower.vision_model.embeddings.patch_embedding.weight", &[4, 3, 2, 2]));
    all.push(Tensor::new("multi_modal_projector.mm_soft_emb_norm.weight", &[4]));
    let checkpoint = opened(&outer, &all);
    assert_eq!(checkpoint.config().hidden_size, 8);
    // Without the outer configuration, these tensors are strangers.
    refused(folder(&config("gemma3_text", 1), &all).path(), &["has no meaning", "gemma3"]);
    // Hand-written configurations leave out what the architecture implies.
    let short = json!({"model_type": "gemma3", "text_config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 3,
        "intermediate_size": 12, "sliding_window": 32}});
    refused(folder(&short, &all).path(), &["text_config.num_key_value_heads", "4 does not divide the 3"]);
}

#[test]
fn biases_are_as_the_configuration_says() {
    let mut with = tensors("llama", 1);
    for (name, length) in [("q_proj", 8), ("k_proj", 4), ("v_proj", 4), ("o_proj", 8)] {
        with.push(Tensor::new(&format!("model.layers.0.self_attn.{name}.bias"), &[length]));
    }
    let says_so = merged(config("llama", 1), json!({"attention_bias": true}));
    assert!(opened(&says_so, &with).weights().layers[0].attn_output.bias.is_some());
    refused(folder(&says_so, &tensors("llama", 1)).path(), &["q_proj.bias", "missing"]);
    refused(folder(&config("llama", 1), &with).path(), &[".bias", "no meaning"]);
}

#[test]
fn both_names_of_the_rope_type_are_read_and_the_newer_one_counts() {
    let linear = |name: &str| json!({"rope_scaling": {name: "linear", "factor": 4.0}});
    for name in ["type", "rope_type"] {
        assert_eq!(scaling(linear(name)), RopeScaling::Linear { factor: 4.0 });
    }
    let both = json!({"rope_scaling": {"type": "frobnicate", "rope_type": "default"}});
    assert_eq!(scaling(both), RopeScaling::None);
    assert_eq!(scaling(json!({"rope_scaling": null})), RopeScaling::None);
    for unknown in ["dynamic", "longrope", "frobnicate"] {
        let fields = json!({"rope_scaling": {"rope_type": unknown, "factor": 2.0}});
        refused_with("llama", fields, &[unknown, "rope_scaling", "default, linear, llama3, yarn"]);
    }
}

#[test]
fn llama3_and_yarn_are_read_with_all_their_fields() {
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32, "rope_theta": 500_000.0});
    let expected =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 32 };
    assert_eq!(scaling(json!({"rope_scaling": llama3.clone()})), expected);
    let newer = config_with("llama", 1, json!({"rope_parameters": llama3.clone()})).rope.unwrap();
    assert_eq!((newer.scaling, newer.theta), (expected, 500_000.0));
    for missing in ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"] {
        let mut fields = llama3.clone();
        fields.as_object_mut().unwrap().remove(missing);
        refused_with("llama", json!({"rope_scaling": fields}), &[&format!("rope_scaling.{missing}"), "missing"]);
    }

    let natural = 0.1 * 4.0_f32.ln() + 1.0;
    let yarn = |fields: Value| {
        let base = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
        config_with("qwen2", 1, json!({"rope_scaling": merged(base, fields)}))
    };
    let plain = yarn(json!({}));
    // The stretched positions can be used.
    assert_eq!(plain.context_length, 256);
    let of = |config: ModelConfig| match config.rope.unwrap().scaling {
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor, truncate } => {
            (factor, original_context, beta_fast, beta_slow, attention_factor, truncate)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(of(plain), (4.0, 64, 32.0, 1.0, natural, true));
    let given = json!({"beta_fast": 16, "beta_slow": 2, "attention_factor": 1.5, "truncate": false});
    assert_eq!(of(yarn(given)), (4.0, 64, 16.0, 2.0, 1.5, false));
    let weighted = natural / (0.05 * 4.0_f32.ln() + 1.0);
    assert_eq!(of(yarn(json!({"mscale": 1.0, "mscale_all_dim": 0.5}))).4, weighted);
}

#[test]
fn newer_configurations_give_rope_by_type_of_layer() {
    let fields = json!({"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
    }});
    let config = config_with("gemma3_text", 6, fields);
    let (global, local) = (config.rope.unwrap(), config.sliding_window.unwrap().rope.unwrap());
    assert_eq!((global.theta, global.scaling), (2_000_000.0, RopeScaling::Linear { factor: 8.0 }));
    assert_eq!((local.theta, local.scaling, local.style), (500.0, RopeScaling::None, RopeStyle::Halves));
    let older = json!({"rope_local_base_freq": 700.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}});
    let config = config_with("gemma3_text", 6, older);
    let local = config.sliding_window.unwrap().rope.unwrap();
    assert_eq!((local.theta, local.scaling), (700.0, RopeScaling::None));
}

#[test]
fn windows_hold_where_each_architecture_has_them() {
    let layers = |model_type: &str, fields: Value| {
        config_with(model_type, 4, fields).sliding_window.map(|window| (window.size, window.layers))
    };
    assert_eq!(layers("mistral", json!({"sliding_window": 16})), Some((16, vec![true; 4])));
    assert_eq!(layers("mistral", json!({"sliding_window": null})), None);
    // Qwen's files give a size whether or not it is used.
    let given = json!({"sliding_window": 16, "max_window_layers": 1});
    assert_eq!(layers("qwen2", given.clone()), None);
    let used = merged(given, json!({"use_sliding_window": true}));
    assert_eq!(layers("qwen2", used.clone()), Some((16, vec![false, true, true, true])));
    let all_above = merged(used.clone(), json!({"max_window_layers": 4}));
    assert_eq!(layers("qwen3", all_above), None);
    let types = ["full_attention", "sliding_attention", "full_attention", "full_attention"];
    let listed = Some((16, vec![false, true, false, false]));
    assert_eq!(layers("qwen2", merged(used, json!({"layer_types": types}))), listed);
    for key in ["sliding_window_pattern", "_sliding_window_pattern"] {
        assert_eq!(layers("gemma3_text", json!({key: 2})), Some((32, vec![true, false, true, false])));
    }
    assert_eq!(layers("llama", json!({"sliding_window": 16})), None);
    refused_with("gemma3_text", json!({"layer_types": ["full_attention"]}), &["layer_types", "1 entries for 2"]);
    refused_with("gemma3_text", json!({"layer_types": ["full_attention", "ssm"]}), &["layer_types", "ssm"]);
}

#[test]
fn what_would_change_the_computation_is_refused_and_not_ignored() {
    refused_with("llama", json!({"quantization_config": {"bits": 4}}), &["quantization_config", "another tool"]);
    refused_with("llama", json!({"partial_rotary_factor": 0.5}), &["partial_rotary_factor", "0.5"]);
    refused_with("llama", json!({"hidden_act": "relu"}), &["hidden_act", "relu"]);
    refused_with("gpt2", json!({"scale_attn_by_inverse_layer_idx": true}), &["scale_attn_by_inverse_layer_idx"]);
    refused_with("llama", json!({"is_encoder_decoder": true}), &["is_encoder_decoder"]);
    refused_with("gemma3_text", json!({"use_bidirectional_attention": true}), &["encoder-only", "next token"]);
    assert_eq!(config_with("gemma3_text", 1, json!({"final_logit_softcapping": 30.0})).logit_softcap, Some(30.0));
    assert_eq!(config_with("gpt2", 1, json!({"scale_attn_weights": false})).attention_scale, 1.0);
}

#[test]
fn fields_of_the_wrong_kind_are_named() {
    for (fields, phrases) in [
        (json!({"hidden_size": "8"}), ["`hidden_size`", "\"8\" is not an integer"]),
        (json!({"hidden_size": -8}), ["`hidden_size`", "-8"]),
        (json!({"hidden_size": 8.5}), ["`hidden_size`", "8.5"]),
        (json!({"hidden_size": 1_u64 << 40}), ["`hidden_size`", "1099511627776"]),
        (json!({"num_hidden_layers": 0}), ["`num_hidden_layers`", "0 is not within"]),
        (json!({"num_hidden_layers": null}), ["`num_hidden_layers`", "missing"]),
        (json!({"rms_norm_eps": 2.0}), ["`rms_norm_eps`", "below 1"]),
        (json!({"rope_theta": 1.0}), ["`rope_theta`", "above 1"]),
        (json!({"rope_theta": 1e300}), ["`rope_theta`", "finite"]),
        (json!({"rope_scaling": [1]}), ["`rope_scaling`", "not an object"]),
        (json!({"rope_scaling": {"type": "linear", "factor": 0.5}}), ["`rope_scaling.factor`", "at least 1"]),
        (json!({"tie_word_embeddings": "yes"}), ["`tie_word_embeddings`", "true or false"]),
        (json!({"vocab_size": 300}), ["`model.embed_tokens.weight`", "[300, 8]"]),
        (json!({"model_type": 7}), ["`model_type`", "not a string"]),
    ] {
        refused_with("llama", fields, &phrases);
    }
}

#[test]
fn another_architecture_is_named_and_an_encoder_is_refused_with_the_reason() {
    refused_with("llama", json!({"model_type": "falcon"}), &["`falcon`", "llama, mistral, qwen2, qwen3, gemma3, gpt2"]);
    for encoder in ["bert", "distilbert", "roberta", "xlm-roberta", "deberta-v2"] {
        refused_with("llama", json!({"model_type": encoder}), &[encoder, "encoder-only", "neither draft nor be"]);
    }
    // Before any weights are looked for: there are none that could be read.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "bert"}"#).unwrap();
    std::fs::write(folder.path().join("pytorch_model.bin"), b"PK\x03\x04").unwrap();
    refused(folder.path(), &["bert", "encoder-only"]);
}

#[test]
fn missing_files_of_a_set_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    write_set(folder.path(), &config("llama", 2), &tensors("llama", 2), 4);
    for number in [1, 4] {
        std::fs::remove_file(folder.path().join(format!("model-{number:05}-of-00004.safetensors"))).unwrap();
    }
    let missing = "model-00001-of-00004.safetensors, model-00004-of-00004.safetensors";
    for path in ["", "model-00002-of-00004.safetensors"] {
        refused(&folder.path().join(path), &["4 files", missing]);
    }
    std::fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    refused(&folder.path().join("model-00002-of-00004.safetensors"), &["4 files", missing]);
}

#[test]
fn a_set_without_its_index_is_found_by_its_names() {
    let folder = tempfile::tempdir().unwrap();
    write_set(folder.path(), &config("llama", 2), &tensors("llama", 2), 2);
    std::fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    for path in ["", "model-00002-of-00002.safetensors"] {
        assert_eq!(Checkpoint::open(folder.path().join(path)).unwrap().files().count(), 2);
    }
}

#[test]
fn an_index_that_does_not_fit_its_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    let rewrite = |change: &dyn Fn(&mut Value)| {
        write_set(folder.path(), &config("llama", 1), &tensors("llama", 1), 2);
        let mut value: Value = serde_json::from_slice(&std::fs::read(&index).unwrap()).unwrap();
        change(&mut value["weight_map"]);
        std::fs::write(&index, value.to_string()).unwrap();
    };
    rewrite(&|map| map["model.norm.weight"] = "model-00002-of-00002.safetensors".into());
    refused(folder.path(), &["index.json", "does not list tensor `model.norm.weight`"]);
    rewrite(&|map| map["ghost"] = "model-00002-of-00002.safetensors".into());
    refused(folder.path(), &["tensor `ghost` is not in model-00002-of-00002"]);
    for elsewhere in ["../model.safetensors", "/etc/passwd", "a\\b.safetensors", "model.gguf"] {
        rewrite(&|map| map["ghost"] = elsewhere.into());
        refused(folder.path(), &["no safetensors file of this folder"]);
    }
    rewrite(&|map| *map = json!({}));
    refused(folder.path(), &["names 0 files"]);
    rewrite(&|map| *map = json!([1]));
    refused(folder.path(), &["index.json", "not the JSON"]);
}

#[test]
fn a_tensor_in_two_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config("llama", 1).to_string()).unwrap();
    let tensors = tensors("llama", 1);
    for number in [1, 2] {
        let name = format!("model-{number:05}-of-00002.safetensors");
        std::fs::write(folder.path().join(name), serialize(&tensors)).unwrap();
    }
    refused(folder.path(), &["model-00002-of-00002", "is in", "model-00001-of-00002", "too"]);
}

#[test]
fn tensors_of_other_types_are_refused_unless_they_follow_from_the_configuration() {
    let mut all = tensors("gpt2", 1);
    let mask = all.iter_mut().find(|tensor| tensor.name.ends_with(".attn.bias")).unwrap();
    (mask.dtype, mask.bytes) = (Dtype::BOOL, vec![1; 64 * 64]);
    opened(&config("gpt2", 1), &all);
    all.push(Tensor { name: "extra".into(), shape: vec![2], dtype: Dtype::I64, bytes: vec![0; 16] });
    refused(folder(&config("gpt2", 1), &all).path(), &["`extra`", "I64", "F32, F16, BF16"]);
}

#[test]
fn folders_say_what_is_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    refused(folder.path(), &["no safetensors or GGUF file"]);
    for (name, phrase) in [("model.onnx", "ONNX"), ("pytorch_model.bin", "PyTorch"), ("tf_model.h5", "TensorFlow")] {
        std::fs::write(at(name), b"?").unwrap();
        refused(folder.path(), &[name, phrase]);
        std::fs::remove_file(at(name)).unwrap();
    }
    std::fs::write(at("weights.safetensors"), serialize(&tensors("llama", 1))).unwrap();
    refused(folder.path(), &["config.json beside them"]);
    refused(&at("weights.safetensors"), &["config.json beside them"]);
    std::fs::write(at("config.json"), config("llama", 1).to_string()).unwrap();
    Checkpoint::open(folder.path()).unwrap();
    std::fs::write(at("other.safetensors"), b"?").unwrap();
    refused(folder.path(), &["more than one checkpoint", "other.safetensors, weights.safetensors"]);
    refused(&at("config.json"), &["JSON", "the folder that it is in"]);
}

#[test]
fn tokenizer_and_template_come_from_the_files_beside_the_weights() {
    let folder = folder(&config("llama", 1), &tensors("llama", 1));
    let put = |name: &str, value: Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    let open = || Checkpoint::open(folder.path()).unwrap();
    let message = open().tokenizer().unwrap_err().to_string();
    assert!(message.contains("tokenizer.json"), "{message}");
    assert!(open().chat_template().unwrap().is_none());

    let vocabulary: serde_json::Map<String, Value> =
        tiny::tokens().into_iter().take(259).zip(0_u32..).map(|(text, id)| (text, id.into())).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let end = json!({"id": 257, "content": "<|im_end|>", "special": true, "normalized": false, "single_word": false,
        "lstrip": false, "rstrip": false});
    put(
        "tokenizer.json",
        json!({"version": "1.0", "added_tokens": [end], "pre_tokenizer": bytes, "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["a b"]}}),
    );
    put(
        "tokenizer_config.json",
        json!({"eos_token": "<|im_end|>", "chat_template": "{{ messages[0].content }}|{{ eos_token }}"}),
    );
    put("generation_config.json", json!({"eos_token_id": [257, 258]}));
    let tokenizer = open().tokenizer().unwrap();
    assert_eq!(tokenizer.encode("ab<|im_end|>", true).unwrap(), [256, 257]);
    assert_eq!(tokenizer.end_ids(), [257, 258]);
    let render = || open().chat_template().unwrap().unwrap().render(&[spec_model::Message::new("user", "hi")]).unwrap();
    assert_eq!(render(), "hi|<|im_end|>");
    std::fs::write(folder.path().join("chat_template.jinja"), "[{{ messages[0].content }}]").unwrap();
    assert_eq!(render(), "[hi]");
    let message = open().tokenizer_with(Some("gpt-2")).unwrap_err().to_string();
    assert!(message.contains("`gpt-2`") && message.contains("tokenizer.json"), "{message}");
}

#[test]
fn a_gguf_file_in_a_folder_is_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.gguf"), tiny::llama().finish()).unwrap();
    assert!(matches!(Checkpoint::open(folder.path()).unwrap().format(), Format::Gguf { version: 3 }));
}

#[test]
fn files_are_told_by_what_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config("llama", 1), &tensors("llama", 1));
    let at = |name: &str| folder.path().join(name);
    std::fs::rename(at("model.safetensors"), at("model.gguf")).unwrap();
    assert_eq!(Checkpoint::open(at("model.gguf")).unwrap().format(), Format::Safetensors);
    std::fs::write(at("model.safetensors"), tiny::llama().finish()).unwrap();
    assert!(matches!(Checkpoint::open(at("model.safetensors")).unwrap().format(), Format::Gguf { .. }));
    for (bytes, phrase) in [
        (b"\x08\x07\x12\x07pytorch".as_slice(), "ONNX"),
        (b"PK\x03\x04", "PyTorch"),
        (b"\x80\x02}q\x00", "pickle"),
        (b"<!DOCTYPE html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"FUGG\0\0\0\x03", "big-endian"),
        (b"tjgg\x01\0\0\0", "GGJT"),
    ] {
        std::fs::write(at("what.gguf"), bytes).unwrap();
        refused(&at("what.gguf"), &["what.gguf", phrase]);
    }
}

#[test]
fn json_bombs_are_refused() {
    let folder = folder(&config("llama", 1), &tensors("llama", 1));
    let put = |text: String| std::fs::write(folder.path().join("config.json"), text).unwrap();
    put(format!("{{\"a\":{}", "[".repeat(500_000)));
    refused(folder.path(), &["config.json", "recursion limit"]);
    put(format!("{{\"a\":\"{}\"}}", "x".repeat(2 << 20)));
    refused(folder.path(), &["config.json", "at most 1048576"]);
    put("{\"model_type\":".into());
    refused(folder.path(), &["config.json", "EOF"]);
    put("[]".into());
    refused(folder.path(), &["config.json", "expected a map"]);
}
