//! Floats quantised while a model is loaded.

use std::sync::Arc;

use spec_cpu::{CpuModel, LoadOptions, Pool};
use spec_model::{Checkpoint, Quantizer, TensorType};
use spec_runtime::{Batch, HostStream, Model as _, Want};
use spec_testing::tiny::{self, TinySpec, TinyTypes};

fn load(file: Vec<u8>, quant: Option<Quantizer>) -> CpuModel {
    load_with(file, quant, false)
}

fn load_with(file: Vec<u8>, quant: Option<Quantizer>, requantize: bool) -> CpuModel {
    let checkpoint = Checkpoint::from_bytes(file, "tiny.gguf").expect("a legal file");
    let mut options = LoadOptions::new(Arc::new(Pool::new(2).expect("threads")));
    (options.quant, options.requantize) = (quant, requantize);
    CpuModel::load(&checkpoint, options).expect("a model that the kernels take")
}

fn logits(model: &CpuModel) -> Vec<u32> {
    let tokens: Vec<u32> = (0..20).map(|i| i * 13 % 299).collect();
    let seq = model.open().expect("room");
    model.reserve(seq, tokens.len()).expect("room");
    let mut batch = Batch::chain(seq, &tokens, 0, None, Want::Logits);
    batch.rows.iter_mut().for_each(|row| row.want = Want::Logits);
    let rows = model.submit(&HostStream, &batch).expect("legal rows").wait().expect("a pass");
    (0..tokens.len()).flat_map(|row| rows.logits(row).expect("wanted").to_vec()).map(f32::to_bits).collect()
}

#[test]
fn a_model_quantised_while_it_is_loaded_is_the_model_whose_file_is_quantised() {
    for ty in [TensorType::F32, TensorType::F16, TensorType::BF16] {
        for (spec, width_of_super_blocks) in [(TinySpec::qwen_k(), true), (TinySpec::llama(), false)] {
            let spec = TinySpec { types: TinyTypes::all(ty), ..spec };
            let plain = logits(&load(tiny::gguf(spec), None));
            for quantizer in Quantizer::ALL {
                let model = load(tiny::gguf(spec), Some(quantizer));
                let found = logits(&model);
                assert!(found == logits(&load(tiny::gguf_quantized(spec, quantizer), None)), "{ty} to {quantizer:?}");
                assert!(found != plain, "{ty} to {quantizer:?}: something was rounded");
                let falls_back = matches!(quantizer, Quantizer::Q4K | Quantizer::Q3K) && !width_of_super_blocks;
                assert_eq!(model.notes().is_empty(), !falls_back, "{:?}", model.notes());
            }
        }
    }
}

#[test]
fn what_falls_back_is_said_with_its_width_and_count() {
    // 96 inputs: query, key, value, gate, up of two layers, and the embedding; 288: two outputs of attention; 224: two downs.
    let spec = TinySpec { types: TinyTypes::all(TensorType::F16), ..TinySpec::llama() };
    let model = load(tiny::gguf(spec), Some(Quantizer::Q4K));
    assert_eq!(
        model.notes(),
        [
            "11 matrices of 96 inputs, which is no multiple of 256, stored as Q8_0",
            "2 matrices of 224 inputs, which is no multiple of 256, stored as Q8_0",
            "2 matrices of 288 inputs, which is no multiple of 256, stored as Q8_0",
        ]
    );
}

#[test]
fn what_is_quantised_already_stays_as_it_is() {
    let spec = TinySpec::qwen_mixed();
    // Its head alone is of floats.
    let types = TinyTypes { output: None, ..spec.types };
    let spec = TinySpec { types, ..spec };
    assert!(logits(&load(tiny::gguf(spec), Some(Quantizer::Q4_0))) == logits(&load(tiny::gguf(spec), None)));
}

#[test]
fn what_is_quantised_anew_is_what_a_file_of_the_same_numbers_is_quantised_to() {
    // Q8_0 and Q6_K are wider than anything that they can be asked to become but Q8_0.
    for (spec, ty) in [(TinySpec::qwen_k(), TensorType::Q6K), (TinySpec::llama(), TensorType::Q8_0)] {
        let spec = TinySpec { types: TinyTypes::all(ty), ..spec };
        let plain = logits(&load(tiny::gguf(spec), None));
        for quantizer in [Quantizer::Q4_0, Quantizer::Q4K, Quantizer::Q3K] {
            if !spec.hidden.is_multiple_of(256) && quantizer == Quantizer::Q4K {
                continue;
            }
            let model = load_with(tiny::gguf(spec), Some(quantizer), true);
            let found = logits(&model);
            assert!(found == logits(&load(tiny::gguf_quantized(spec, quantizer), None)), "{ty} to {quantizer:?}");
            assert!(found != plain, "{ty} to {quantizer:?}: something was rounded");
        }
    }
}

#[test]
fn nothing_is_quantised_anew_to_as_many_bits_or_more() {
    // Matrices of Q4_K, as wide as Q4_0, beside two of Q6_K.
    let file = || tiny::gguf(TinySpec::qwen_k());
    let kept = |quantizer| logits(&load_with(file(), Some(quantizer), true)) == logits(&load(file(), None));
    assert!(kept(Quantizer::Q8_0));
    assert!(!kept(Quantizer::Q4_0), "what is wider is quantised");
    // Q4_1 becomes Q4_0 and not Q8_0, which 96 inputs would make of Q4_K.
    let spec = TinySpec { types: TinyTypes::all(TensorType::Q4_1), ..TinySpec::llama() };
    let model = load_with(tiny::gguf(spec), Some(Quantizer::Q4K), true);
    assert!(logits(&model) == logits(&load(tiny::gguf(spec), None)));
    let notes = model.notes();
    assert!(notes.len() == 3 && notes.iter().all(|note| note.ends_with("stored as Q4_1")), "{notes:?}");
}
