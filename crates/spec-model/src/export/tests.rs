use super::*;
use crate::gguf::Gguf;
use crate::gguf::write::Writer;

/// A llama of one layer whose matrices are of floats, 256 wide, with keys of every kind.
fn source() -> Writer {
    let mut file = Writer::new()
        .key("general.architecture", "llama")
        .key("general.name", "a model")
        .key("general.file_type", Value::U32(1))
        .key("split.count", Value::U32(0))
        .key("llama.embedding_length", 256_u32)
        .key("llama.feed_forward_length", 512_u32)
        .key("llama.block_count", 1_u32)
        .key("llama.context_length", 64_u32)
        .key("llama.attention.head_count", 4_u32)
        .key("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .key("an.array", vec![1.5_f32, -2.0])
        .key("tokenizer.ggml.model", "gpt2")
        .key("tokenizer.ggml.tokens", vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    let mut matrix = |name: &str, rows: u64, cols: u64| {
        let values: Vec<f32> = (0..rows * cols).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 504.0).collect();
        file = file.clone().f32_tensor(&format!("{name}.weight"), &[cols, rows], &values);
    };
    matrix("token_embd", 3, 256);
    for part in ["attn_q", "attn_k", "attn_v", "attn_output"] {
        matrix(&format!("blk.0.{part}"), 256, 256);
    }
    matrix("blk.0.ffn_gate", 512, 256);
    matrix("blk.0.ffn_up", 512, 256);
    matrix("blk.0.ffn_down", 256, 512);
    for norm in ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"] {
        file = file.f32_tensor(&format!("{norm}.weight"), &[256], &[1.0; 256]);
    }
    file
}

fn exported(file: Vec<u8>, quantizer: Quantizer, tables: Quantizer, threads: usize) -> Vec<u8> {
    let checkpoint = Checkpoint::from_bytes(file, "source").expect("a legal file");
    let export = Export::new(&checkpoint, quantizer, tables).expect("something to do");
    let (mut out, mut heard) = (Vec::new(), 0);
    export.write(&mut out, "out", threads, &mut |bytes| heard = bytes).expect("it is written");
    assert_eq!((out.len(), heard), (export.bytes(), export.bytes()));
    out
}

#[test]
fn matrices_are_quantised_and_everything_else_is_as_it_was() {
    let before = Gguf::parse(source().finish(), "before").expect("a legal file");
    for quantizer in Quantizer::ALL {
        let after = exported(source().finish(), quantizer, Quantizer::Q8_0, 3);
        assert_eq!(after, exported(source().finish(), quantizer, Quantizer::Q8_0, 1), "threads change nothing");
        let after = Gguf::parse(after, "after").expect("a legal file");
        for (key, value) in before.stored_values().filter(|(key, _)| !OF_THE_SOURCE.contains(key)) {
            assert!(after.stored_values().any(|other| other == (key, value)), "{key}");
        }
        assert_eq!(after.metadata().u32("general.file_type").ok(), Some(file_type(quantizer)));
        assert!(!after.metadata().contains("split.count"));
        for (old, new) in before.tensors().iter().zip(after.tensors()) {
            assert_eq!((&old.name, &old.dims), (&new.name, &new.dims));
            let expected = match &*old.name {
                name if name.contains("norm") => TensorType::F32,
                "token_embd.weight" => TensorType::Q8_0,
                _ => quantizer.tensor_type(),
            };
            assert_eq!(new.tensor_type, expected, "{}", old.name);
            let stored = &before.bytes()[old.range.clone()];
            let found = &after.bytes()[new.range.clone()];
            if expected == TensorType::F32 {
                assert_eq!(found, stored);
                continue;
            }
            let values: Vec<f32> = stored.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            let chosen = if expected == TensorType::Q8_0 { Quantizer::Q8_0 } else { quantizer };
            let mut wanted = vec![0; found.len()];
            chosen.quantize(&values, &mut wanted).expect("whole blocks");
            assert!(found == wanted, "{quantizer:?}: {}", old.name);
        }
        Checkpoint::from_bytes(after.bytes().clone(), "after").expect("a model all the same");
    }
}

#[test]
fn what_is_narrow_already_stays_and_nothing_to_do_is_refused() {
    let once = exported(source().finish(), Quantizer::Q4_0, Quantizer::Q4_0, 2);
    let checkpoint = Checkpoint::from_bytes(once.clone(), "once").expect("a legal file");
    for quantizer in [Quantizer::Q4_0, Quantizer::Q8_0, Quantizer::Q4K] {
        let refused = Export::new(&checkpoint, quantizer, quantizer).expect_err("nothing is wider").to_string();
        assert!(refused.contains("no matrix has more bits"), "{refused}");
    }
    let twice = Gguf::parse(exported(once, Quantizer::Q3K, Quantizer::Q8_0, 2), "twice").expect("a legal file");
    let count = |wanted| twice.tensors().iter().filter(|tensor| tensor.tensor_type == wanted).count();
    assert_eq!((count(TensorType::Q3K), count(TensorType::Q4_0)), (7, 1));
}

#[test]
fn a_number_that_is_not_finite_is_named_by_its_tensor() {
    let mut values = vec![0.5_f32; 512 * 256];
    values[300] = f32::INFINITY;
    let file = source().f32_tensor("blk.0.ffn_up.weight", &[256, 512], &values).finish();
    let checkpoint = Checkpoint::from_bytes(file, "source").expect("a legal file");
    let export = Export::new(&checkpoint, Quantizer::Q4K, Quantizer::Q4K).expect("something to do");
    let refused = export.write(&mut Vec::new(), "out", 2, &mut |_| ()).expect_err("infinite").to_string();
    assert!(refused.contains("blk.0.ffn_up.weight") && refused.contains("finite"), "{refused}");
}
