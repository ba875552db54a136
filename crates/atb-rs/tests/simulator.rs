//! The safe layer on the simulator, which is asynchronous for real.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, unreachable_pub)]
#[path = "../examples/matmul_rms_norm.rs"]
mod matmul_rms_norm;

use acl_sys::Api;
use atb_rs::parameters::{CacheLayout, PagedAttention, PagedMode, ReshapeAndCache, Sort};
use atb_rs::{
    Context, DataType, Device, DeviceBuffer, Executor, Lengths, Operation, Runtime, Stream, Tensor, TensorDesc,
    Workspace, mask,
};
use half::f16;
use std::sync::Mutex;

/// One runtime at a time.
static TEST: Mutex<()> = Mutex::new(());

fn with_context(test: impl FnOnce(&Context)) {
    let _guard = TEST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: each function has the C signature of its symbol: the simulator takes both from acl-sys.
    let api = unsafe { Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) };
    let runtime = Runtime::start(api).unwrap();
    let context = Context::new(&Device::open(&runtime, 0).unwrap()).unwrap();
    test(&context);
    drop(context);
    runtime.shutdown().unwrap();
}

#[test]
fn the_example_computes_what_f64_does() {
    with_context(|context| {
        for _ in 0..8 {
            let outcome = matmul_rms_norm::run(context).unwrap();
            for (got, wanted) in outcome.normed.iter().zip(matmul_rms_norm::expected()) {
                assert!((got.to_f64() - wanted).abs() < 0.01, "{got} for {wanted}");
            }
            assert!(outcome.elapsed > std::time::Duration::ZERO);
        }
    });
}

const HEADS: usize = 2;
const SIZE: usize = 16;
const BLOCK: usize = 16;
/// The sequence's length before this step, and the rows of this step.
const HISTORY: usize = 4;
const ROWS: usize = 3;

fn number(at: usize) -> f32 {
    ((at * 29 % 41) as f32 - 20.0) / 16.0
}

fn halves(count: usize, from: usize) -> Vec<f16> {
    (0..count).map(|at| f16::from_f32(number(from + at))).collect()
}

/// Attention of one row over the first `seen` positions, in f64.
fn attend(query: &[f16], keys: &[f16], values: &[f16], head: usize, seen: usize) -> Vec<f64> {
    let at = |rows: &[f16], row: usize, element: usize| rows[(row * HEADS + head) * SIZE + element].to_f64();
    let score = |row| (0..SIZE).map(|element| query[element].to_f64() * at(keys, row, element)).sum::<f64>() * 0.25;
    let scores: Vec<f64> = (0..seen).map(score).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (0..SIZE)
        .map(|element| weights.iter().enumerate().map(|(row, weight)| weight * at(values, row, element)).sum::<f64>())
        .map(|value| value / sum)
        .collect()
}

#[test]
fn a_chain_of_drafts_is_verified_over_a_paged_cache() {
    with_context(|context| {
        let stream = Stream::new(context).unwrap();
        let executor = Executor::new(&stream, Workspace::new(context, Workspace::DEFAULT_CEILING)).unwrap();
        let half = |shape| TensorDesc::new(DataType::F16, shape);
        let upload = |desc: TensorDesc, numbers: &[f16]| {
            Tensor::new(desc, &DeviceBuffer::from_slice(context, numbers).unwrap()).unwrap()
        };
        let total = HISTORY + ROWS;
        let width = HEADS * SIZE;
        let (keys, values) = (halves(total * width, 0), halves(total * width, 500));
        let query = halves(ROWS * width, 900);
        let row = |tokens| TensorDesc::new(DataType::F16, [tokens, HEADS, SIZE]);

        // All of the sequence goes to block 1 of the cache, in the table's only column.
        let cache = TensorDesc::new(DataType::F16, [2, BLOCK, HEADS, SIZE]);
        let (key_cache, value_cache) =
            (Tensor::allocate(context, cache).unwrap(), Tensor::allocate(context, cache).unwrap());
        let slots: Vec<i32> = (0..total).map(|position| (BLOCK + position) as i32).collect();
        let slots = DeviceBuffer::from_slice(context, &slots).unwrap();
        let slots = Tensor::new(TensorDesc::new(DataType::I32, [total]), &slots).unwrap();
        let mut write = Operation::new(context, ReshapeAndCache { layout: CacheLayout::Nd }).unwrap();
        let inputs =
            vec![upload(row(total), &keys), upload(row(total), &values), key_cache.clone(), value_cache.clone(), slots];
        let caches = vec![key_cache.clone(), value_cache.clone()];
        write.setup(&executor, inputs, caches).unwrap().execute().unwrap();

        let (contexts, rows) = (Lengths::new(context, 1).unwrap(), Lengths::new(context, 1).unwrap());
        contexts.set(&stream, &[total as i32]).unwrap();
        rows.set(&stream, &[ROWS as i32]).unwrap();
        let chain: Vec<f16> = mask::chains(&[ROWS], &[total], BLOCK).into_iter().map(f16::from_f32).collect();
        let table = DeviceBuffer::from_slice(context, &[1i32]).unwrap();
        let output = Tensor::allocate(context, row(ROWS)).unwrap();
        let inputs = vec![
            upload(row(ROWS), &query),
            key_cache,
            value_cache,
            Tensor::new(TensorDesc::new(DataType::I32, [1, 1]), &table).unwrap(),
            Tensor::lengths(&contexts),
            upload(half([ROWS, BLOCK]), &chain).with_mask_values(PagedAttention::MASK_VALUES),
            Tensor::lengths(&rows),
        ];
        let parameters = PagedAttention { heads: HEADS, kv_heads: HEADS, scale: 0.25, mode: PagedMode::Verify };
        let mut attention = Operation::new(context, parameters).unwrap();
        attention.setup(&executor, inputs, vec![output.clone()]).unwrap().execute().unwrap();
        stream.synchronize().unwrap();

        let mut got = vec![f16::ZERO; ROWS * width];
        output.buffer().unwrap().read(0, &mut got).unwrap();
        for token in 0..ROWS {
            for head in 0..HEADS {
                let start = (token * HEADS + head) * SIZE;
                // Row i of a chain sees its own position and all before it.
                let wanted = attend(&query[start..][..SIZE], &keys, &values, head, HISTORY + token + 1);
                for (got, wanted) in got[start..][..SIZE].iter().zip(wanted) {
                    assert!((got.to_f64() - wanted).abs() < 4e-3, "row {token}, head {head}: {got} for {wanted}");
                }
            }
        }
    });
}

#[test]
fn an_argmax_is_a_sort_of_one() {
    with_context(|context| {
        let stream = Stream::new(context).unwrap();
        let executor = Executor::new(&stream, Workspace::new(context, Workspace::DEFAULT_CEILING)).unwrap();
        let rows: Vec<f16> = [0.5, 3.0, -1.0, 2.0, 9.0, 8.0, 7.0, 6.0].map(f16::from_f32).to_vec();
        let buffer = DeviceBuffer::from_slice(context, &rows).unwrap();
        let x = Tensor::new(TensorDesc::new(DataType::F16, [2, 4]), &buffer).unwrap();
        let largest = Tensor::allocate(context, TensorDesc::new(DataType::F16, [2, 1])).unwrap();
        let index = Tensor::allocate(context, TensorDesc::new(DataType::I32, [2, 1])).unwrap();
        let mut sort = Operation::new(context, Sort { count: 1 }).unwrap();
        sort.setup(&executor, vec![x], vec![largest.clone(), index.clone()]).unwrap().execute().unwrap();
        stream.synchronize().unwrap();
        let mut indices = [0i32; 2];
        index.buffer().unwrap().read(0, &mut indices).unwrap();
        assert_eq!(indices, [1, 0]);
    });
}
