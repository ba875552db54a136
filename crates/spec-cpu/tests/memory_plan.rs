//! What is told before loading against what loading takes.

use std::sync::Arc;

use spec_cpu::{CpuModel, KvType, LoadOptions, MemoryPlan, Pool};
use spec_model::{Checkpoint, Quantizer, TensorType};
use spec_testing::tiny::{self, TinySpec, TinyTypes};

/// Tokens of a block of the cache.
const BLOCK_TOKENS: usize = 32;

#[test]
fn the_plan_is_what_loading_takes() {
    let pool = Arc::new(Pool::new(1).expect("a thread"));
    for types in [TensorType::F16, TensorType::Q4_1, TensorType::Q8_0] {
        let quants = [None, Some(Quantizer::Q4_0), Some(Quantizer::Q4K), Some(Quantizer::Q3K)];
        for (quant, requantize) in quants.into_iter().flat_map(|quant| [(quant, false), (quant, true)]) {
            let spec = TinySpec { types: TinyTypes::all(types), ..TinySpec::llama() };
            let checkpoint = Checkpoint::from_bytes(tiny::gguf(spec), "tiny").expect("a legal file");
            let mut options = LoadOptions::new(Arc::clone(&pool));
            (options.quant, options.context, options.kv) = (quant, Some(100), KvType::Q8);
            options.requantize = requantize;
            let plan = MemoryPlan::of(&checkpoint, &options).expect("kernels take it");
            let model = CpuModel::load(&checkpoint, options).expect("it loads");
            let what = format!("{types}, quantised to {quant:?}, anew: {requantize}");
            assert_eq!(plan.weights, model.weight_bytes(), "{what}");
            assert_eq!(plan.kv, model.total_blocks() * BLOCK_TOKENS * model.kv_bytes_per_token(), "{what}");
            assert!(plan.loading > plan.weights && plan.peak() >= plan.loading, "{what}: {plan:?}");
        }
    }
}

#[test]
fn context_and_type_of_the_cache_are_in_the_plan() {
    let pool = Arc::new(Pool::new(1).expect("a thread"));
    let checkpoint = Checkpoint::from_bytes(tiny::gguf(TinySpec::llama()), "tiny").expect("a legal file");
    let kv = |context, kv| {
        let mut options = LoadOptions::new(Arc::clone(&pool));
        (options.context, options.kv) = (Some(context), kv);
        MemoryPlan::of(&checkpoint, &options).expect("kernels take it")
    };
    let (short, long) = (kv(64, KvType::F16), kv(192, KvType::F16));
    assert_eq!(long.kv - short.kv, 128 * short.kv_per_token);
    assert_eq!(kv(64, KvType::F32).kv, 2 * short.kv);
    assert!(kv(64, KvType::Q8).kv < short.kv);
}

#[test]
fn sequences_at_a_time_are_in_the_plan_and_in_the_cache() {
    let pool = Arc::new(Pool::new(1).expect("a thread"));
    let checkpoint = Checkpoint::from_bytes(tiny::gguf(TinySpec::llama()), "tiny").expect("a legal file");
    let options = |parallel, kv_tokens| {
        let mut options = LoadOptions::new(Arc::clone(&pool));
        (options.context, options.parallel, options.kv_tokens) = (Some(128), parallel, kv_tokens);
        options
    };
    let plan =
        |parallel, kv_tokens| MemoryPlan::of(&checkpoint, &options(parallel, kv_tokens)).expect("kernels take it");
    let (one, four) = (plan(1, None), plan(4, None));
    assert_eq!((four.kv, four.weights), (4 * one.kv, one.weights));
    assert!(four.scratch > one.scratch);
    assert_eq!(plan(4, Some(640)).kv, 640 * one.kv_per_token, "what is asked for by the token");
    let model = CpuModel::load(&checkpoint, options(4, None)).expect("it loads");
    assert_eq!(four.kv, model.total_blocks() * BLOCK_TOKENS * model.kv_bytes_per_token());
}
