//! What each architecture's GGUF files say, and what they leave to the architecture.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod tiny;

use spec_model::gguf::write::{Value, Writer};
use spec_model::{Activation, ModelConfig, NormKind, RopeScaling, RopeStyle, TensorType};
use tiny::{numbered, of, open};

fn config(writer: Writer) -> ModelConfig {
    open(writer).unwrap().config().clone()
}

fn refused(writer: Writer, phrases: &[&str]) {
    let message = open(writer).unwrap_err().to_string();
    for phrase in phrases {
        assert!(message.contains(phrase), "`{phrase}` is not in: {message}");
    }
}

fn scaling(writer: Writer) -> RopeScaling {
    config(writer).rope.unwrap().scaling
}

#[test]
fn every_architecture_opens_and_needs_each_of_its_tensors() {
    for architecture in ["llama", "qwen2", "qwen3", "gemma3", "gpt2"] {
        let checkpoint = open(of(architecture, 2)).unwrap();
        let names: Vec<String> = checkpoint.tensors().map(|tensor| tensor.name.to_owned()).collect();
        assert!(names.len() >= 20, "{architecture}");
        for name in names {
            let message = match open(of(architecture, 2).without_tensor(&name)) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("{architecture}: opened without {name}"),
            };
            assert!(message.contains(&name) && message.contains("missing"), "{architecture}: {message}");
        }
    }
}

#[test]
fn qwen3_norms_its_heads_and_has_no_biases() {
    let checkpoint = open(of("qwen3", 1)).unwrap();
    let layer = &checkpoint.weights().layers[0];
    assert_eq!(layer.q_norm.unwrap().to_f32(), [0.0, 1.0, 2.0, 3.0]);
    assert!(layer.k_norm.is_some() && layer.q.bias.is_none());
    assert_eq!(checkpoint.config().rope.as_ref().unwrap().style, RopeStyle::Halves);
}

#[test]
fn gemma3_without_pattern_and_local_base_gets_the_architectures() {
    // As the public file of 270 million parameters: the window's size, and nothing else about windows.
    let writer = of("gemma3", 7)
        .key("gemma3.attention.sliding_window", 32_u32)
        .key("gemma3.rope.freq_base", 1_000_000.0_f32)
        .key("gemma3.attention.key_length", 4_u32)
        .key("gemma3.attention.value_length", 4_u32);
    let checkpoint = open(writer).unwrap();
    let config = checkpoint.config();
    let window = config.sliding_window.as_ref().unwrap();
    assert_eq!((window.size, window.layers.as_slice()), (32, [true, true, true, true, true, false, true].as_slice()));
    let (local, global) = (window.rope.as_ref().unwrap(), config.rope.as_ref().unwrap());
    assert_eq!((local.theta, global.theta), (10_000.0, 1_000_000.0));
    assert_eq!(config.embedding_scale, 8.0_f32.sqrt());
    assert_eq!(config.attention_scale, 0.5);
    assert_eq!((config.activation, config.norm), (Activation::GeluTanh, NormKind::Rms));
    assert!(checkpoint.chat_template().unwrap().is_none());
    // GGUF's norms hold what they multiply with: nothing is added.
    let layer = &checkpoint.weights().layers[0];
    assert_eq!(layer.attn_norm.weight.to_f32()[..3], [0.0, 1.0, 2.0]);
    assert!(layer.post_attn_norm.is_some() && layer.post_ffn_norm.is_some());
}

#[test]
fn gemma3_takes_pattern_local_base_scaling_and_soft_cap_from_the_file() {
    let writer = || of("gemma3", 4).key("gemma3.attention.sliding_window", 8_u32);
    let listed = writer()
        .key("gemma3.attention.sliding_window_pattern", vec![false, true, true, false])
        .key("gemma3.rope.freq_base_swa", 500.0_f32)
        .key("gemma3.rope.scaling.type", "linear")
        .key("gemma3.rope.scaling.factor", 8.0_f32)
        .key("gemma3.final_logit_softcapping", 30.0_f32);
    let listed = config(listed);
    let window = listed.sliding_window.unwrap();
    assert_eq!(window.layers, [false, true, true, false]);
    // Local layers are never stretched.
    assert_eq!((window.rope.as_ref().unwrap().theta, window.rope.unwrap().scaling), (500.0, RopeScaling::None));
    assert_eq!(listed.rope.unwrap().scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(listed.logit_softcap, Some(30.0));
    let each = config(writer().key("gemma3.attention.sliding_window_pattern", 2_u32));
    assert_eq!(each.sliding_window.unwrap().layers, [true, false, true, false]);
    refused(
        writer().key("gemma3.attention.sliding_window_pattern", vec![true]),
        &["sliding_window_pattern", "1 entries for 4 layers"],
    );
    assert!(config(of("gemma3", 4)).sliding_window.is_none());
}

#[test]
fn the_largest_gemma3_scales_queries_by_width_over_heads() {
    let scale = |layers| {
        let writer = of("gemma3", layers).key("gemma3.attention.key_length", 4_u32);
        let writer = writer.key("gemma3.attention.head_count", 4_u32).key("gemma3.attention.head_count_kv", 2_u32);
        let mut writer = writer;
        for layer in 0..layers {
            for (name, rows) in [("q", 16), ("k", 8), ("v", 8)] {
                writer = numbered(writer, &format!("blk.{layer}.attn_{name}.weight"), &[8, rows]);
            }
            writer = numbered(writer, &format!("blk.{layer}.attn_output.weight"), &[16, 8]);
        }
        config(writer).attention_scale
    };
    assert_eq!(scale(61), 0.5);
    assert_eq!(scale(62), 2.0_f32.sqrt().recip());
}

#[test]
fn a_window_holds_in_all_layers_of_mistral_and_nowhere_without_a_list_in_qwen() {
    let window = config(of("llama", 2).key("llama.attention.sliding_window", 16_u32)).sliding_window.unwrap();
    assert_eq!((window.size, window.layers.as_slice(), window.rope), (16, [true, true].as_slice(), None));
    refused(of("qwen2", 2).key("qwen2.attention.sliding_window", 16_u32), &["sliding_window", "pattern"]);
    let listed = of("qwen2", 2)
        .key("qwen2.attention.sliding_window", 16_u32)
        .key("qwen2.attention.sliding_window_pattern", Value::I32s(vec![0, 1]));
    assert_eq!(config(listed).sliding_window.unwrap().layers, [false, true]);
}

#[test]
fn gpt2_has_learned_positions_and_its_fused_matrix_is_read_in_three_parts() {
    let checkpoint = open(of("gpt2", 1)).unwrap();
    let config = checkpoint.config();
    assert!(config.rope.is_none() && config.tied_embeddings && config.kv_heads == config.heads);
    assert_eq!((config.norm, config.activation), (NormKind::Layer, Activation::GeluTanh));
    let weights = checkpoint.weights();
    assert_eq!((weights.positions.unwrap().rows, weights.positions.unwrap().cols), (64, 8));
    assert!(weights.output_norm.bias.is_some());
    let layer = &weights.layers[0];
    assert!(layer.gate.is_none() && layer.attn_output.bias.is_some() && layer.down.bias.is_some());
    for (part, first) in [(&layer.q, 0.0), (&layer.k, 64.0), (&layer.v, 128.0)] {
        let expected: Vec<f32> = (0..64).map(|i| first + i as f32).collect();
        assert_eq!((part.weight.rows, part.weight.cols), (8, 8));
        assert_eq!(part.weight.to_f32(), expected);
        assert_eq!(part.weight.row(1).unwrap()[..], part.weight.bytes()[32..64]);
        let expected: Vec<f32> = (0..8).map(|i| first / 8.0 + i as f32).collect();
        assert_eq!(part.bias.unwrap().to_f32(), expected);
    }
    // Rows of a stored matrix are not copied.
    assert!(matches!(layer.k.weight.bytes(), std::borrow::Cow::Borrowed(_)));
}

#[test]
fn a_bf16_head_beside_q8_matrices_is_read() {
    let mut writer = of("llama", 1).key("llama.embedding_length", 32_u32).key("llama.attention.key_length", 4_u32);
    for (name, cols, rows) in
        [("attn_q", 32, 8), ("attn_k", 32, 4), ("attn_v", 32, 4), ("ffn_gate", 32, 12), ("ffn_up", 32, 12)]
    {
        let bytes = [0x40; 34].repeat(rows as usize);
        writer = writer.tensor(&format!("blk.0.{name}.weight"), TensorType::Q8_0, &[cols, rows], &bytes);
    }
    for (name, cols) in [("attn_output", 8), ("ffn_down", 12)] {
        writer = numbered(writer, &format!("blk.0.{name}.weight"), &[cols, 32]);
    }
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        writer = numbered(writer, name, &[32]);
    }
    for name in ["token_embd.weight", "output.weight"] {
        let bytes = [0x80, 0x3f].repeat(32 * 262);
        writer = writer.tensor(name, TensorType::BF16, &[32, 262], &bytes);
    }
    let checkpoint = open(writer).unwrap();
    let weights = checkpoint.weights();
    assert_eq!(weights.output.unwrap().to_f32()[..3], [1.0; 3]);
    assert_eq!(weights.layers[0].q.weight.tensor_type, TensorType::Q8_0);
}

#[test]
fn biases_of_llama_are_read_where_they_are() {
    let mut writer = of("llama", 2);
    for layer in 0..2 {
        for (name, length) in [("attn_q", 8), ("attn_k", 4), ("attn_v", 4), ("attn_output", 8)] {
            writer = numbered(writer, &format!("blk.{layer}.{name}.bias"), &[length]);
        }
    }
    let checkpoint = open(writer.clone()).unwrap();
    let layer = &checkpoint.weights().layers[1];
    assert!(layer.q.bias.is_some() && layer.attn_output.bias.is_some() && layer.up.bias.is_none());
    refused(writer.without_tensor("blk.1.attn_output.bias"), &["`blk.1.attn_output.bias`", "missing"]);
}

#[test]
fn a_factor_without_a_type_is_linear_and_the_older_key_too() {
    for key in ["rope.scaling.factor", "rope.scale_linear"] {
        let writer = of("llama", 1).key(&format!("llama.{key}"), 4.0_f32);
        assert_eq!(scaling(writer.clone()), RopeScaling::Linear { factor: 4.0 });
        assert_eq!(scaling(writer.key("llama.rope.scaling.type", "none")), RopeScaling::None);
    }
    for none in [0.0_f32, 1.0] {
        assert_eq!(scaling(of("llama", 1).key("llama.rope.scaling.factor", none)), RopeScaling::None);
    }
}

#[test]
fn yarn_reads_its_keys_and_strengthens_attention() {
    let yarn = || {
        of("qwen2", 1)
            .key("qwen2.rope.scaling.type", "yarn")
            .key("qwen2.rope.scaling.factor", 4.0_f32)
            .key("qwen2.rope.scaling.original_context_length", 64_u32)
    };
    let natural = 0.1 * 4.0_f32.ln() + 1.0;
    let expected = |attention_factor| RopeScaling::Yarn {
        factor: 4.0,
        original_context: 64,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor,
        truncate: true,
    };
    assert_eq!(scaling(yarn()), expected(natural));
    assert_eq!(scaling(yarn().key("qwen2.rope.scaling.attn_factor", 0.5_f32)), expected(natural * 0.5));
    let weighted = yarn().key("qwen2.rope.scaling.yarn_log_multiplier", 0.5_f32);
    assert_eq!(scaling(weighted), expected(natural / (0.05 * 4.0_f32.ln() + 1.0)));
    let betas =
        yarn().key("qwen2.rope.scaling.yarn_beta_fast", 16.0_f32).key("qwen2.rope.scaling.yarn_beta_slow", 2.0_f32);
    assert!(matches!(scaling(betas), RopeScaling::Yarn { beta_fast: 16.0, beta_slow: 2.0, .. }));
    // The stretched positions can be used.
    assert_eq!(config(yarn()).context_length, 256);
}

#[test]
fn an_encoder_is_refused_with_the_reason() {
    for name in ["bert", "nomic-bert", "t5encoder"] {
        refused(
            of("llama", 1).key("general.architecture", name),
            &[name, "encoder-only", "next token", "neither draft nor be drafted for", "gpt2"],
        );
    }
}
