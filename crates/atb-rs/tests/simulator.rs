//! The safe layer on the simulator, which is asynchronous for real.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, unreachable_pub)]
#[path = "../examples/matmul_rms_norm.rs"]
mod matmul_rms_norm;

use acl_sys::Api;
use atb_rs::parameters::{
    Activation, CacheLayout, Elewise, Gather, Linear, LinearQuant, Multinomial, NormQuant, PagedAttention, PagedMode,
    Placement, PrefillKernel, PrefillMask, Reduce, Reduction, ReshapeAndCache, RmsNorm, Rope, RopeTables, Rotation,
    Sampling, SelfAttention, Softmax, Sort, Split,
};
use atb_rs::{
    Context, DataType, Device, DeviceBuffer, Executor, Lengths, Operation, Parameters, Runtime, Stream, Tensor,
    TensorDesc, Workspace, mask,
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

/// Executes an operation on zeros, of the types and shapes given, with outputs as ATB infers them.
#[track_caller]
fn execute(executor: &Executor, parameters: impl Parameters, inputs: Vec<Tensor>) {
    let context = executor.stream().context();
    let words = format!("{parameters:?}");
    let mut operation = Operation::new(context, parameters).unwrap_or_else(|error| panic!("{words}: {error}"));
    let descs: Vec<_> = inputs.iter().map(|tensor| tensor.desc().copied()).collect();
    let outputs = operation.infer(&descs).unwrap_or_else(|error| panic!("{words}: {error}"));
    let outputs: Vec<_> = outputs.into_iter().map(|desc| Tensor::allocate(context, desc).unwrap()).collect();
    let plan = operation.setup(executor, inputs, outputs);
    plan.unwrap_or_else(|error| panic!("{words}: {error}")).execute().unwrap();
    executor.stream().synchronize().unwrap_or_else(|error| panic!("{words}: {error}"));
}

#[test]
fn every_operation_takes_its_inputs_in_the_order_that_is_documented() {
    use DataType::{Bf16, F16, F32, I8, I32, I64, U64};
    with_context(|context| {
        let stream = Stream::new(context).unwrap();
        let executor = Executor::new(&stream, Workspace::new(context, Workspace::DEFAULT_CEILING)).unwrap();
        fn zeros<const RANK: usize>(context: &Context, dtype: DataType, shape: [usize; RANK]) -> Tensor {
            let desc = TensorDesc::new(dtype, shape);
            Tensor::new(desc, &DeviceBuffer::from_slice(context, &vec![0u8; desc.bytes()]).unwrap()).unwrap()
        }
        let one = |dtype, length| zeros(context, dtype, [length]);
        let two = |dtype, rows, columns| zeros(context, dtype, [rows, columns]);
        let three = |dtype, rows, heads, size| zeros(context, dtype, [rows, heads, size]);

        execute(&executor, Gather::ROWS, vec![two(Bf16, 10, 32), one(I32, 3)]);
        let norm = RmsNorm::new(1e-6);
        execute(&executor, norm, vec![two(F16, 3, 32), one(F16, 32)]);
        let before = RmsNorm { placement: Placement::BeforeLayer { bias: true }, ..norm };
        execute(&executor, before, vec![two(F16, 3, 32), one(F16, 32), two(F16, 3, 32), one(F16, 32)]);
        let after = RmsNorm { placement: Placement::AfterLayer { bias: false }, ..norm };
        execute(&executor, after, vec![two(F16, 3, 32), two(F16, 3, 32), one(F16, 32)]);
        let per_token = RmsNorm { quant: NormQuant::Int8PerToken, ..norm };
        execute(&executor, per_token, vec![two(F16, 3, 32), one(F16, 32), one(F16, 32)]);

        execute(&executor, Linear::new(true), vec![two(Bf16, 3, 32), two(Bf16, 64, 32), one(Bf16, 64)]);
        let (x, w) = (|| two(I8, 3, 32), || two(I8, 64, 32));
        let channel = |output, bias| Linear { quant: LinearQuant::PerChannel { output }, ..Linear::new(bias) };
        execute(&executor, channel(F16, true), vec![x(), w(), one(I32, 64), one(U64, 64)]);
        execute(&executor, channel(Bf16, false), vec![x(), w(), one(F32, 64)]);
        let token = Linear { quant: LinearQuant::PerToken { output: F16 }, ..Linear::new(false) };
        execute(&executor, token, vec![x(), w(), one(F32, 64), one(F32, 3)]);

        let rope = Rope { rotation: Rotation::Halves, tables: RopeTables::PerToken };
        let tables = || two(F32, 3, 16);
        execute(&executor, rope, vec![two(F16, 3, 64), two(F16, 3, 32), tables(), tables(), one(I32, 1)]);
        let lengths = Lengths::new(context, 2).unwrap();
        lengths.set(&stream, &[1, 2]).unwrap();
        for (dtype, mask) in [(F16, PrefillMask::Triangle), (Bf16, PrefillMask::Triangle), (F16, PrefillMask::None)] {
            let kernel = PrefillKernel::Default;
            let attention = SelfAttention { heads: 4, kv_heads: 2, scale: 0.25, mask, kernel };
            let mut inputs = vec![three(dtype, 3, 4, 16), three(dtype, 3, 2, 16), three(dtype, 3, 2, 16)];
            if mask == PrefillMask::Triangle {
                let values = mask::triangle(128, attention.mask_values(dtype));
                let bits: Vec<u16> = values
                    .iter()
                    .map(|&value| match dtype {
                        F16 => f16::from_f32(value).to_bits(),
                        _ => half::bf16::from_f32(value).to_bits(),
                    })
                    .collect();
                let buffer = DeviceBuffer::from_slice(context, &bits).unwrap();
                let mask = Tensor::new(TensorDesc::new(dtype, [128, 128]), &buffer).unwrap();
                inputs.push(mask.with_mask_values(attention.mask_values(dtype)));
            }
            inputs.push(Tensor::lengths(&lengths));
            execute(&executor, attention, inputs);
        }
        let decode = PagedAttention { heads: 4, kv_heads: 2, scale: 0.25, mode: PagedMode::Decode };
        let cache = || zeros(context, F16, [4, 16, 2, 16]);
        let inputs = vec![three(F16, 2, 4, 16), cache(), cache(), two(I32, 2, 1), Tensor::lengths(&lengths)];
        execute(&executor, decode, inputs);

        execute(&executor, Activation::Swiglu, vec![two(F16, 3, 64)]);
        execute(&executor, Activation::Swish { scale: 1.0 }, vec![two(F16, 3, 64)]);
        execute(&executor, Activation::Gelu { exact: true }, vec![two(F16, 3, 64)]);
        execute(&executor, Activation::Sigmoid, vec![two(F16, 3, 64)]);
        execute(&executor, Elewise::Cast { to: F32 }, vec![two(F16, 3, 64)]);
        execute(&executor, Elewise::Scale { factor: 0.5 }, vec![two(F16, 3, 64)]);
        for elewise in [Elewise::Add, Elewise::Subtract, Elewise::Multiply, Elewise::Equal, Elewise::Divide] {
            execute(&executor, elewise, vec![two(F16, 3, 64), two(F16, 1, 64)]);
        }
        for elewise in [Elewise::Cosine, Elewise::Sine, Elewise::Negate, Elewise::Tanh, Elewise::DynamicQuantize] {
            execute(&executor, elewise, vec![two(Bf16, 3, 64)]);
        }
        for offset in [None, Some(-3)] {
            execute(&executor, Elewise::Quantize { scale: 0.25, offset }, vec![two(F16, 3, 64)]);
        }
        for offset in [one(I8, 64), Tensor::absent()] {
            execute(&executor, Elewise::QuantizePerChannel, vec![two(F16, 3, 64), one(F16, 64), offset.clone()]);
            execute(&executor, Elewise::DequantizePerChannel, vec![two(I8, 3, 64), one(F16, 64), offset]);
        }
        execute(&executor, Elewise::Less, vec![two(I64, 3, 64), two(I64, 3, 64)]);
        execute(&executor, Elewise::Greater, vec![two(I64, 3, 64), two(I64, 3, 64)]);
        execute(&executor, Elewise::And, vec![two(I8, 3, 64), two(I8, 3, 64)]);
        execute(&executor, Elewise::Or, vec![two(I8, 3, 64), two(I8, 3, 64)]);
        execute(&executor, Elewise::Not, vec![two(I8, 3, 64)]);
        execute(&executor, Softmax, vec![two(F16, 3, 64)]);
        execute(&executor, Sort { count: 4 }, vec![two(F16, 3, 64)]);
        execute(&executor, Reduce { reduction: Reduction::Max, axis: 1 }, vec![two(Bf16, 3, 64)]);
        execute(&executor, Reduce { reduction: Reduction::Sum, axis: 0 }, vec![two(F16, 3, 64)]);
        execute(&executor, Split { axis: -1, lengths: vec![32, 16, 16] }, vec![two(F16, 3, 64)]);

        let rows = || {
            let buffer = DeviceBuffer::from_slice(context, &[f16::from_f32(1.0 / 64.0); 128]).unwrap();
            Tensor::new(TensorDesc::new(F16, [2, 64]), &buffer).unwrap()
        };
        let top_p = |rows| {
            let buffer = DeviceBuffer::from_slice(context, &vec![f16::ONE; rows]).unwrap();
            Tensor::new(TensorDesc::new(F16, [rows, 1]), &buffer).unwrap()
        };
        execute(&executor, Multinomial { count: 2, seed: 7 }, vec![rows()]);
        execute(&executor, Sampling::Uniform { top_k: 5, seed: 7 }, vec![rows(), top_p(2)]);
        let last_kept = || two(I32, 2, 1);
        execute(&executor, Sampling::Seeded { seeds: vec![1, 2] }, vec![rows(), last_kept(), top_p(2)]);
        let noise = || rows();
        execute(&executor, Sampling::Exponential, vec![rows(), last_kept(), top_p(2), noise()]);
        let logged = Sampling::ExponentialLogged { log_probabilities: 8 };
        execute(&executor, logged, vec![rows(), last_kept(), top_p(2), noise()]);
        let uniform = two(F32, 2, 1);
        let supplied = Sampling::Supplied { log_probabilities: 8 };
        execute(&executor, supplied, vec![rows(), last_kept(), top_p(2), uniform]);
    });
}

#[test]
fn ranges_are_named_in_the_timeline_and_are_nothing_where_there_are_no_markers() {
    with_context(|context| {
        ascend_sim::ranges();
        {
            let _outer = context.range("outer");
            let _inner = context.range("inner");
        }
        assert_eq!(ascend_sim::ranges(), ["inner", "outer"]);
        drop(context.range(&"é".repeat(80)));
        assert_eq!(ascend_sim::ranges(), ["é".repeat(63)], "127 bytes, and no half character");
    });
    for missing in ["aclprofCreateStamp", "aclprofSetStampTraceMessage", "aclprofPush"] {
        ascend_sim::configure(&format!("absent={missing}")).unwrap();
        with_context(|context| {
            drop(context.range("unseen"));
            assert_eq!(ascend_sim::ranges(), Vec::<String>::new());
        });
    }
    ascend_sim::configure("").unwrap();
}
