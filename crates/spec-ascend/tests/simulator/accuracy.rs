//! Logits against other implementations: transformers, and spec-cpu.

use std::sync::Arc;

use spec_ascend::{AscendError, AscendModel, AscendStream, HalfType, LoadOptions};
use spec_cpu::{CpuModel, KvType, Pool};
use spec_model::Checkpoint;
use spec_runtime::{Batch, HostStream, Model, Want};
use spec_testing::logits;
use spec_testing::tiny::{self, TinySpec};

use crate::conformance::AT_ONCE;
use crate::device::{SPECS, checkpoint, options, with_device};

/// Texts that only one case is tried with.
const LONG: usize = 1000;
/// Most that a logit of a tiny model may differ by from one that was computed in f32, as a share of the largest logit of
/// its row: f16 has 11 bits, and a layer some ten roundings.
const F16_BOUND: f32 = 0.015;
/// The same for bf16, which has 8 bits.
const BF16_BOUND: f32 = 0.08;
/// The same for int8 weights and activations. These models' random weights are hard on it; SmolLM2 says what it costs.
const INT8_BOUND: f32 = 0.3;

/// Logits of all `tokens` that `wanted` names, fed in passes of 64.
pub(crate) fn all_logits(model: &dyn Model, tokens: &[u32], wanted: impl Fn(usize) -> bool) -> Vec<Vec<f32>> {
    let seq = model.open().expect("room");
    let mut logits = Vec::new();
    for (index, tokens) in tokens.chunks(64).enumerate() {
        let committed = 64 * index;
        model.reserve(seq, tokens.len()).expect("room");
        let mut batch = Batch::chain(seq, tokens, committed, None, Want::Nothing);
        for row in &mut batch.rows {
            row.want = if wanted(row.position) { Want::Logits } else { Want::Nothing };
        }
        let rows = model.submit(&HostStream, &batch).expect("legal rows").wait().expect("a pass");
        let scored = (0..tokens.len()).filter(|&row| batch.rows[row].want == Want::Logits);
        logits.extend(scored.map(|row| rows.logits(row).expect("wanted").to_vec()));
        let path: Vec<u32> = (0..tokens.len() as u32).collect();
        model.settle(seq, &path).expect("a chain");
    }
    model.close(seq);
    logits
}

/// The largest difference of a row, as a share of its largest logit.
pub(crate) fn difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

pub(crate) fn greatest(logits: &[f32]) -> usize {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("a vocabulary")
}

fn worst(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    found.iter().zip(expected).map(|(found, expected)| difference(found, expected)).fold(0.0, f32::max)
}

#[test]
fn supported_checkpoints_give_the_logits_of_transformers_and_others_are_refused_by_name() {
    with_device(AT_ONCE, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let mut problems = Vec::new();
        for case in logits::cases() {
            // One of the texts as long as a stretched context is enough.
            if case.count > LONG && case.name != "llama-yarn" {
                continue;
            }
            let Some(bytes) = case.gguf() else { continue };
            let checkpoint = Checkpoint::from_bytes(bytes, case.name).expect("a legal file");
            let mut options = LoadOptions::default();
            options.dtype = Some(HalfType::F16);
            let model = AscendModel::load(&checkpoint, &stream, options);
            if case.name == "gpt2" {
                assert_refused(&model.expect_err("norms with a mean"), "norms with a mean");
                continue;
            }
            let model = model.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let found = all_logits(&model, &case.tokens(), |position| case.rows.contains(&position));
            let worst = worst(&found, &case.logits);
            println!("{}: logits differ by {worst:.1e} of the largest", case.name);
            if worst.is_nan() || worst > F16_BOUND {
                problems.push(format!("{}: {worst}", case.name));
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        let capped = AscendModel::load(&checkpoint(TinySpec::gemma()), &stream, LoadOptions::default());
        assert_refused(&capped.expect_err("capped scores"), "attention scores capped at 2");
    });
}

#[track_caller]
fn assert_refused(error: &AscendError, words: &str) {
    assert!(matches!(error, AscendError::Unsupported { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(words) && text.contains("--device cpu"), "{text}");
}

/// Every kind of weights, as field report 167 asks for: each has its parity before it is announced.
#[test]
fn every_type_of_weights_gives_the_logits_of_the_cpu() {
    let text: Vec<u32> = (0..90).map(|i| (i * 37 + i * i % 11) % 299).collect();
    with_device(AT_ONCE, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let pool = Arc::new(Pool::new(2).expect("threads"));
        let mut problems = Vec::new();
        let specs = SPECS.into_iter().chain([TinySpec::qwen_k(), TinySpec::blocks_of_32(), TinySpec::super_blocks()]);
        for spec in specs {
            let checkpoint = checkpoint(spec);
            // The CPU multiplies quantised weights with eight-bit activations; with F32 it rounds nothing.
            let floats = Checkpoint::from_bytes(tiny::gguf_floats(spec), "floats.gguf").expect("a legal file");
            let mut on_cpu = spec_cpu::LoadOptions::new(Arc::clone(&pool));
            on_cpu.kv = KvType::F32;
            let expected = all_logits(&CpuModel::load(&floats, on_cpu).expect("a model for the CPU"), &text, |_| true);
            let forms = [
                (Some(HalfType::F16), false, F16_BOUND),
                (Some(HalfType::Bf16), false, BF16_BOUND),
                (Some(HalfType::F16), true, INT8_BOUND),
            ];
            for (dtype, int8, bound) in forms {
                let mut options = options(spec);
                (options.dtype, options.int8) = (dtype, int8);
                let model = AscendModel::load(&checkpoint, &stream, options).expect("a model that ATB expresses");
                let found = all_logits(&model, &text, |_| true);
                let worst = worst(&found, &expected);
                let what = format!("{}, seed {}, {dtype:?}, int8 {int8}", spec.arch, spec.seed);
                println!("{what}: logits differ by {worst:.1e} of the largest");
                if worst.is_nan() || worst > bound {
                    problems.push(format!("{what}: {worst}"));
                }
                // Greedy text: the same token wherever the best is further ahead than both may be off.
                for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let (ours, theirs) = (greatest(found), greatest(expected));
                    let largest = expected.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
                    if expected[theirs] - expected[ours] > 2.0 * bound * largest {
                        problems.push(format!("{what}: row {at} chooses {ours}, and the CPU {theirs}"));
                    }
                }
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    });
}
