//! Real models, teacher-forced: the reference's own tokens are fed in one pass and each is judged where it was made.
//!
//! Both sides round activations to eight bits, which a small model amplifies into noise. On SmolLM2, 16 variants of this
//! decoder that are equally right (single stages or all of them in f32, the reference's own roundings of scales and of
//! attention, f16 and f32 cache, attention scaled by 1 + 1e-6) agree on 364 to 372 of its 384 tokens, 369 on average with a
//! standard deviation of 2.1; f32 throughout on 371. The reference engine with its flash attention off agrees with its own
//! reference on 371 too, and differs from it by 0.035 a token. 97 % would be 373. The bound for SmolLM2 is three deviations
//! below the average.
//!
//! Gemma 3 270M agrees on 377 of its 384 with an f16 cache and on 373 with f32 (AVX-512), and differs by 0.028 a token.

use std::sync::Arc;

use spec_cpu::{CpuModel, KvType, LoadOptions, Pool};
use spec_model::Checkpoint;
use spec_runtime::{Batch, HostStream, Model as _, Row, Want};
use spec_testing::data;
use spec_testing::models::{self, Model};

/// Share of the reference's tokens that must be a model's first choice.
const TOP_1: f64 = 0.97;
/// The same for SmolLM2: (369 - 3 * 2.1) / 384, see above.
const TOP_1_SMOLLM2: f64 = 0.944;
/// Mean absolute difference of the generated tokens' log-probabilities that no model may pass.
const LOG_PROBABILITY: f64 = 0.05;

fn load(model: Model, kv: KvType) -> CpuModel {
    let checkpoint = Checkpoint::open(models::path(model)).expect("a legal file");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = LoadOptions::new(Arc::new(Pool::new(threads).expect("threads")));
    options.kv = kv;
    options.context = Some(1024);
    CpuModel::load(&checkpoint, options).expect("a model that the kernels take")
}

fn log_probability(logits: &[f32], token: u32) -> f64 {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - greatest).exp()).sum();
    f64::from(logits[token as usize] - greatest) - sum.ln()
}

/// At least the share `top_1` of the reference's tokens must be the model's first choice.
fn agrees_with_the_reference(name: Model, kv: KvType, top_1: f64) {
    let model = load(name, kv);
    let (mut positions, mut agreed, mut difference) = (0, 0, 0.0);
    for case in data::reference(name).complete {
        let prompt = case.prompt_ids.len();
        let tokens: Vec<u32> =
            case.prompt_ids.iter().copied().chain(case.generated.iter().map(|token| token.id)).collect();
        let seq = model.open().expect("room");
        model.reserve(seq, tokens.len()).expect("room");
        let rows = tokens
            .iter()
            .enumerate()
            .map(|(position, &token)| Row {
                seq,
                token,
                position,
                parent: (position as u32).checked_sub(1),
                want: if position + 1 >= prompt { Want::Logits } else { Want::Nothing },
            })
            .collect();
        let results = model.submit(&HostStream, &Batch { rows }).expect("legal rows").wait().expect("a pass");
        for (i, token) in case.generated.iter().enumerate() {
            let logits = results.logits(prompt + i - 1).expect("wanted");
            let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("a vocabulary");
            positions += 1;
            agreed += usize::from(best == token.id as usize);
            difference += (log_probability(logits, token.id) - token.logprob).abs();
        }
        model.close(seq);
    }
    assert_eq!(model.free_blocks(), model.total_blocks(), "blocks leak");
    let (rate, mean) = (agreed as f64 / positions as f64, difference / positions as f64);
    println!(
        "{} with {kv:?}: top-1 agrees on {agreed} of {positions}, mean |log-probability difference| {mean:.4}",
        name.stem()
    );
    assert!(rate >= top_1, "{name:?} with {kv:?}: top-1 agrees on {agreed} of {positions} positions only");
    assert!(mean <= LOG_PROBABILITY, "{name:?} with {kv:?}: log-probabilities differ by {mean:.4} on average");
}

#[test]
fn real_smollm2_agrees_with_the_reference() {
    agrees_with_the_reference(Model::SmolLm2, KvType::F16, TOP_1_SMOLLM2);
    agrees_with_the_reference(Model::SmolLm2, KvType::F32, TOP_1_SMOLLM2);
    agrees_with_the_reference(Model::SmolLm2, KvType::Q8, TOP_1_SMOLLM2);
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair_agrees_with_the_reference() {
    for model in [Model::QwenDraft, Model::QwenTarget] {
        agrees_with_the_reference(model, KvType::F16, TOP_1);
        agrees_with_the_reference(model, KvType::F32, TOP_1);
        agrees_with_the_reference(model, KvType::Q8, TOP_1);
    }
}

#[test]
#[ignore = "needs Gemma 3 270M: cargo xtask test --gemma"]
fn real_gemma_agrees_with_the_reference() {
    agrees_with_the_reference(Model::Gemma, KvType::F16, TOP_1);
    agrees_with_the_reference(Model::Gemma, KvType::F32, TOP_1);
}

/// One chain of eight rows against eight single rows behind a long prompt, the length at which kernels differ in tiling.
fn rows_together_equal_rows_alone(name: Model) {
    let model = load(name, KvType::F16);
    let reference = data::reference(name);
    let case = reference.complete.iter().max_by_key(|case| case.prompt_ids.len()).expect("cases");
    let generated: Vec<u32> = case.generated.iter().take(8).map(|token| token.id).collect();
    let run = |chunk: usize| {
        let seq = model.open().expect("room");
        let mut logits: Vec<Vec<u32>> = Vec::new();
        let mut committed = 0;
        for tokens in [&case.prompt_ids[..]].into_iter().chain(generated.chunks(chunk)) {
            model.reserve(seq, tokens.len()).expect("room");
            let mut batch = Batch::chain(seq, tokens, committed, None, Want::Logits);
            batch.rows.iter_mut().for_each(|row| row.want = Want::Logits);
            let results = model.submit(&HostStream, &batch).expect("legal rows").wait().expect("a pass");
            for row in 0..tokens.len() {
                logits.push(results.logits(row).expect("wanted").iter().map(|x| x.to_bits()).collect());
            }
            let path: Vec<u32> = (0..tokens.len() as u32).collect();
            model.settle(seq, &path).expect("a chain");
            committed += tokens.len();
        }
        model.close(seq);
        logits
    };
    assert!(run(1) == run(8), "{name:?}: rows in one pass differ from rows alone");
    assert!(run(1) == run(3), "{name:?}: rows in passes of three differ from rows alone");
}

#[test]
fn real_smollm2_rows_together_equal_rows_alone() {
    rows_together_equal_rows_alone(Model::SmolLm2);
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair_rows_together_equal_rows_alone() {
    rows_together_equal_rows_alone(Model::QwenDraft);
    rows_together_equal_rows_alone(Model::QwenTarget);
}

#[test]
#[ignore = "needs Gemma 3 270M: cargo xtask test --gemma"]
fn real_gemma_rows_together_equal_rows_alone() {
    rows_together_equal_rows_alone(Model::Gemma);
}
