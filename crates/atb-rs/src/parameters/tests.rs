//! Each limit refuses what is past it and nothing before it.

use super::lower::{Check, Lower};
use super::*;
use crate::device::Chip;
use crate::error::{Error, Result};
use crate::tensor::DataType::{self, *};
use crate::tensor::{Facts, MaskValues, TensorDesc};
use acl_sys::{Api, Status, spec_atb_linear_param, spec_atb_operation, spec_atb_sampling_param};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Mutex;

fn facts<const RANK: usize>(dtype: DataType, shape: [usize; RANK]) -> Facts {
    Facts { desc: Some(TensorDesc::new(dtype, shape)), address: Some(1), ..Facts::default() }
}

fn lengths(values: &[i32]) -> Facts {
    Facts { lengths: Some(values.into()), ..facts(I32, [values.len()]) }
}

fn masked(facts: Facts, values: MaskValues) -> Facts {
    Facts { mask: Some(values), ..facts }
}

fn nz(mut facts: Facts) -> Facts {
    facts.desc = facts.desc.map(TensorDesc::nz);
    facts
}

fn check_on(chip: Chip, parameters: &dyn Lower, inputs: &[Facts], outputs: &[Facts]) -> Result<()> {
    parameters.check(chip)?;
    parameters.check_tensors(&Check::new(parameters.name(), chip, inputs, outputs)?)
}

fn check(parameters: &dyn Lower, inputs: &[Facts]) -> Result<()> {
    check_on(Chip::A2, parameters, inputs, &[])
}

/// A refusal, with these words in it.
#[track_caller]
fn refused(result: Result<()>, words: &str) {
    let text = match result {
        Err(error @ (Error::Parameter { .. } | Error::Tensor { .. })) => error.to_string(),
        other => panic!("{words}: {other:?}"),
    };
    assert!(text.contains(words), "no {words:?} in {text}");
}

#[test]
fn gather() {
    let inputs = |table| [facts(table, [100, 64]), facts(I32, [7])];
    check(&Gather::ROWS, &inputs(Bf16)).unwrap();
    refused(check(&Gather::ROWS, &inputs(U8)), "has to be f16 or");
    refused(check(&Gather { axis: 0, batch_dims: 1 }, &inputs(F16)), "batch_dims is 1");
    refused(check(&Gather { axis: 2, batch_dims: 0 }, &inputs(F16)), "has no axis 2");
    refused(check(&Gather::ROWS, &[facts(F16, [100, 64]), facts(F16, [7])]), "indices is f16");
    let deep = [facts(F16, [2, 2, 2, 2, 2]), facts(I32, [2, 2, 2, 2, 2])];
    refused(check(&Gather::ROWS, &deep), "more than 8 axes");
    refused(check_on(Chip::I310B, &Gather::ROWS, &inputs(F32), &[]), "has to be f16");
    refused(check_on(Chip::I310P, &Gather::ROWS, &inputs(Bf16), &[]), "has no bf16");
    refused(check(&Gather::ROWS, &inputs(F16)[..1]), "indices (input 1)");
    refused(check(&Gather::ROWS, &[facts(F16, [0, 64]), facts(I32, [7])]), "no axis may be 0 long");
}

#[test]
fn norms() {
    let norm = RmsNorm::new(1e-6);
    let inputs = |width| [facts(F16, [3, width]), facts(F16, [width])];
    check(&norm, &inputs(48)).unwrap();
    check(&norm, &[facts(F16, [3, 48]), facts(F16, [1, 48])]).unwrap();
    refused(check(&norm, &inputs(40)), "multiple of 32 bytes");
    refused(check(&norm, &[facts(F16, [3, 48]), facts(F16, [32])]), "48 elements");
    refused(check(&norm, &[facts(F32, [3, 48]), facts(F32, [48])]), "has to be f16 or bf16");
    refused(check(&RmsNorm { epsilon: 1e-39, ..norm }, &inputs(48)), "2e-38");
    refused(check(&RmsNorm { epsilon: f32::NAN, ..norm }, &inputs(48)), "2e-38");
    let before = |bias| RmsNorm { placement: Placement::BeforeLayer { bias }, ..norm };
    let x = || facts(F16, [3, 48]);
    check(&before(false), &[x(), x(), facts(F16, [48])]).unwrap();
    check(&before(true), &[x(), facts(F16, [48]), x(), facts(F16, [48])]).unwrap();
    refused(check(&before(false), &[x(), facts(F16, [2, 48]), facts(F16, [48])]), "residual");
    refused(check(&RmsNorm { quant: NormQuant::Int8, ..before(true) }, &[]), "no bias");
    refused(check(&RmsNorm { model: NormModel::Gemma, quant: NormQuant::Int8, ..norm }, &[]), "Gemma");
    let per_token = RmsNorm { quant: NormQuant::Int8PerToken, ..norm };
    refused(check(&RmsNorm { quant: NormQuant::Int8PerToken, ..before(false) }, &[]), "the norm alone");
    check(&per_token, &inputs(12_288)).unwrap();
    refused(check(&per_token, &inputs(12_304)), "12288 at most");
    refused(check_on(Chip::A910, &before(false), &[], &[]), "the norm alone only");
}

#[test]
fn linears() {
    let linear = Linear::new(false);
    check(&linear, &[facts(Bf16, [3, 64]), facts(Bf16, [128, 64])]).unwrap();
    check(&Linear { transpose_weight: false, ..linear }, &[facts(F16, [3, 64]), facts(F16, [64, 128])]).unwrap();
    refused(check(&linear, &[facts(F16, [3, 64]), facts(F16, [64, 128])]), "has to have 64 elements");
    refused(check(&linear, &[facts(F16, [3, 64]), facts(Bf16, [128, 64])]), "weight is bf16");
    refused(check(&linear, &[facts(F16, [64]), facts(F16, [128, 64])]), "2 to 3 axes");
    refused(check_on(Chip::I310P, &linear, &[facts(F32, [3, 64]), facts(F32, [128, 64])], &[]), "has to be f16");
    refused(check(&Linear::new(true), &[facts(F16, [3, 64]), facts(F16, [128, 64])]), "bias (input 2)");
    let biased = |bias| check(&Linear::new(true), &[facts(F16, [3, 64]), facts(F16, [128, 64]), bias]);
    biased(facts(F16, [1, 128])).unwrap();
    biased(facts(F32, [128])).unwrap();
    refused(biased(facts(Bf16, [128])), "bias is bf16");
    refused(biased(facts(F16, [64])), "128 elements");
    let sum = Linear { accumulate: true, ..linear };
    check(&sum, &[facts(F16, [3, 64]), facts(F16, [128, 64]), facts(F32, [3, 128])]).unwrap();
    refused(check(&Linear { bias: true, ..sum }, &[]), "no bias");
    refused(check_on(Chip::I310P, &sum, &[], &[]), "takes an A2");
}

#[test]
fn products_of_int8() {
    let channel = |output, bias| Linear { quant: LinearQuant::PerChannel { output }, ..Linear::new(bias) };
    let (x, w) = (|| facts(I8, [3, 64]), || facts(I8, [128, 64]));
    check(&channel(F16, true), &[x(), w(), facts(I32, [128]), facts(U64, [128])]).unwrap();
    check(&channel(Bf16, false), &[x(), w(), facts(F32, [128])]).unwrap();
    // The scales of f16 are bits in u64, those of bf16 numbers: a wrong kind is read as rubbish.
    refused(check(&channel(F16, false), &[x(), w(), facts(F32, [128])]), "has to be u64 or i64");
    refused(check(&channel(Bf16, false), &[x(), w(), facts(U64, [128])]), "has to be f32");
    refused(check(&channel(F16, true), &[x(), w(), facts(F16, [128]), facts(U64, [128])]), "bias is f16");
    refused(check(&channel(F32, false), &[]), "f16 or bf16");
    refused(check_on(Chip::I310P, &channel(F16, false), &[], &[]), "takes a bias");
    refused(check_on(Chip::I310P, &channel(Bf16, true), &[], &[]), "takes an A2");
    let token = |bias| Linear { quant: LinearQuant::PerToken { output: F16 }, ..Linear::new(bias) };
    check(&token(false), &[x(), w(), facts(F32, [128]), facts(F32, [3])]).unwrap();
    refused(check(&token(true), &[]), "no bias");
    refused(check(&token(false), &[x(), w(), facts(F32, [128]), facts(F32, [128])]), "3 elements");
    refused(check(&token(false), &[x(), nz(w()), facts(F32, [128]), facts(F32, [3])]), "ND format");
}

#[test]
fn ropes() {
    let rope = Rope { rotation: Rotation::Halves, tables: RopeTables::PerToken };
    let inputs = |dtype, table, rows, size| {
        let tables = facts(table, [rows, size]);
        [facts(dtype, [5, 128]), facts(dtype, [5, 64]), tables.clone(), tables, facts(I32, [2])]
    };
    check(&rope, &inputs(F16, F32, 5, 32)).unwrap();
    refused(check(&rope, &inputs(Bf16, F32, 5, 32)), "has to be f16 or bf16");
    refused(check(&rope, &inputs(Bf16, F16, 5, 32)), "has to be bf16 like q");
    refused(check(&rope, &inputs(F16, F16, 7, 32)), "a row for each of 5 tokens");
    check(&Rope { tables: RopeTables::ByPosition, ..rope }, &inputs(F16, F16, 7, 32)).unwrap();
    refused(check(&rope, &inputs(F16, F16, 5, 8)), "16 to 4096");
    refused(check(&rope, &inputs(F16, F16, 5, 48)), "multiple of the head size");
    refused(check(&Rope { rotation: Rotation::Pairs { head_size: 8 }, ..rope }, &[]), "16 to 4096");
    let pairs = Rope { rotation: Rotation::Pairs { head_size: 64 }, ..rope };
    refused(check(&pairs, &inputs(F16, F16, 5, 32)), "64 wide");
    let mut wrong = inputs(F16, F16, 5, 32);
    wrong[1] = facts(F16, [5, 96]);
    refused(check(&rope, &wrong), "multiple of k's");
}

#[test]
fn caches() {
    let write = ReshapeAndCache { layout: CacheLayout::Nd };
    let run = |chip, write: &ReshapeAndCache, cache: Facts, slots| {
        let key = facts(F16, [5, 2, 32]);
        let inputs = [key.clone(), key, cache.clone(), cache.clone(), facts(I32, [slots])];
        check_on(chip, write, &inputs, &[cache.clone(), cache])
    };
    run(Chip::A2, &write, facts(F16, [9, 128, 2, 32]), 5).unwrap();
    refused(run(Chip::A2, &write, facts(F16, [9, 128, 4, 32]), 5), "block size, 2, 32");
    refused(run(Chip::A2, &write, facts(Bf16, [9, 128, 2, 32]), 5), "key cache is bf16");
    refused(run(Chip::A2, &write, facts(F16, [9, 128, 2, 32]), 4), "slots");
    refused(run(Chip::I310P, &write, facts(F16, [9, 128, 2, 32]), 5), "NZ layout only");
    let tiled = ReshapeAndCache { layout: CacheLayout::Nz };
    run(Chip::I310P, &tiled, nz(facts(F16, [9, 4, 128, 16])), 5).unwrap();
    refused(run(Chip::I310P, &tiled, facts(F16, [9, 4, 128, 16]), 5), "NZ format");
    refused(run(Chip::I310P, &tiled, nz(facts(F16, [9, 4, 24, 16])), 5), "a multiple of 16");
}

#[test]
fn prefill() {
    let attention =
        SelfAttention { heads: 4, kv_heads: 2, scale: 0.25, mask: PrefillMask::Full, kernel: PrefillKernel::Default };
    let run = |attention: &SelfAttention, size, mask, given: &[i32]| {
        let (q, k) = (facts(F16, [5, 4, size]), facts(F16, [5, 2, size]));
        check(attention, &[q, k.clone(), k, masked(mask, MaskValues::Additive), lengths(given)])
    };
    run(&attention, 32, facts(F16, [3, 3]), &[3, 2]).unwrap();
    refused(run(&attention, 32, facts(F16, [2, 2]), &[3, 2]), "the mask is good for 2");
    refused(run(&attention, 32, facts(F16, [3, 4]), &[3, 2]), "has to be square");
    refused(run(&attention, 32, facts(F16, [3, 3]), &[3, 3]), "sum up to 5");
    refused(run(&attention, 32, facts(F16, [3, 3]), &[5, 0]), "has to be positive");
    refused(run(&attention, 272, facts(F16, [3, 3]), &[3, 2]), "256 is the limit");
    let triangle = SelfAttention { mask: PrefillMask::Triangle, ..attention };
    run(&triangle, 32, facts(F16, [128, 128]), &[3, 2]).unwrap();
    refused(run(&triangle, 32, facts(F16, [64, 64]), &[3, 2]), "[128, 128]");
    refused(check(&SelfAttention { kv_heads: 3, ..attention }, &[]), "multiple of the key-value heads");
    refused(check(&SelfAttention { scale: 0.0, ..attention }, &[]), "1/sqrt(head size)");
}

#[test]
fn paged_attention() {
    let decode = PagedAttention { heads: 4, kv_heads: 2, scale: 0.25, mode: PagedMode::Decode };
    let inputs = |block, size, contexts: &[i32], tokens| {
        let cache = facts(F16, [9, block, 2, size]);
        let tables = facts(I32, [contexts.len(), 3]);
        vec![facts(F16, [tokens, 4, size]), cache.clone(), cache, tables, lengths(contexts)]
    };
    check(&decode, &inputs(128, 128, &[300, 0], 2)).unwrap();
    check(&decode, &inputs(256, 64, &[300, 0], 2)).unwrap();
    refused(check(&decode, &inputs(256, 128, &[300, 0], 2)), "16384 at most");
    refused(check(&decode, &inputs(24, 128, &[3, 0], 2)), "no multiple of 16");
    refused(check(&decode, &inputs(128, 128, &[385, 0], 2)), "0 to 384");
    refused(check(&decode, &inputs(128, 128, &[300, 0], 3)), "one row for each of 2");
    refused(check_on(Chip::I310P, &decode, &inputs(128, 128, &[3, 0], 2), &[]), "NZ format");

    let verify = PagedAttention { mode: PagedMode::Verify, ..decode };
    let verified = |block, size, contexts: &[i32], rows: &[i32]| {
        let tokens = rows.iter().sum::<i32>() as usize;
        let mut inputs = inputs(block, size, contexts, tokens);
        inputs.push(masked(facts(F16, [tokens, 400]), MaskValues::Additive));
        inputs.push(lengths(rows));
        inputs
    };
    check(&verify, &verified(128, 128, &[300, 7], &[3, 1])).unwrap();
    refused(check(&verify, &verified(256, 64, &[300, 7], &[3, 1])), "128 at most");
    refused(check(&PagedAttention { heads: 258, ..verify }, &[]), "256 at most");
    refused(check_on(Chip::A910, &verify, &[], &[]), "no verification");
    let many = vec![1; 2001];
    refused(check(&verify, &verified(128, 128, &many, &many)), "2000");
    let wide = PagedAttention { heads: 130, kv_heads: 130, ..verify };
    let cache = facts(F16, [9, 128, 130, 128]);
    let mask = masked(facts(F16, [1, 128]), MaskValues::Additive);
    let query = facts(F16, [1, 130, 128]);
    let inputs = [query, cache.clone(), cache, facts(I32, [1, 1]), lengths(&[1]), mask, lengths(&[1])];
    refused(check(&wide, &inputs), "more than 16384 elements a row");
}

#[test]
fn functions_of_elements() {
    check(&Activation::Swiglu, &[facts(F32, [3, 64])]).unwrap();
    refused(check(&Activation::Swiglu, &[facts(F16, [3, 63])]), "multiple of 2");
    refused(check_on(Chip::I310P, &Activation::Swiglu, &[facts(F16, [3, 48])], &[]), "multiple of 32");
    refused(check(&Activation::Swish { scale: 1.0 }, &[facts(F32, [3, 64])]), "f16 or bf16");
    let two = |one, other| [facts(one, [3, 64]), facts(other, [1, 64])];
    check(&Elewise::Add, &two(F32, F32)).unwrap();
    refused(check(&Elewise::Multiply, &two(F32, F32)), "f16 or bf16");
    refused(check(&Elewise::Equal, &two(I64, I64)), "f16 or f32 or bf16");
    refused(check(&Elewise::Add, &two(F16, F32)), "y is f32");
    refused(check(&Elewise::Add, &[facts(F16, [3, 64]), facts(F16, [2, 64])]), "broadcast");
    refused(check(&Elewise::Cast { to: I32 }, &[facts(F16, [3])]), "has to be i64");
    refused(check(&Elewise::Cast { to: I8 }, &[]), "nothing is cast to that");
    let quantize = |scale| Elewise::Quantize { scale, offset: Some(3) };
    check(&quantize(0.5), &[facts(F16, [3, 64])]).unwrap();
    refused(check(&quantize(0.5), &[facts(F16, [3, 48])]), "multiple of 32");
    refused(check(&quantize(0.5), &[facts(Bf16, [3, 64])]), "has to be f16");
    refused(check(&quantize(0.0), &[facts(F16, [3, 64])]), "not 0");
    check(&Elewise::DynamicQuantize, &[facts(F16, [3, 26_624])]).unwrap();
    refused(check(&Elewise::DynamicQuantize, &[facts(F16, [3, 26_625])]), "more than 26624");
    refused(check(&Elewise::DynamicQuantize, &[facts(Bf16, [3, 7553])]), "more than 7552");
    check(&Elewise::QuantizePerChannel, &[facts(Bf16, [3, 64]), facts(Bf16, [64]), facts(I8, [64])]).unwrap();
    check(&Elewise::DequantizePerChannel, &[facts(I8, [3, 64]), facts(F16, [64]), facts(I8, [64])]).unwrap();
    refused(check(&Elewise::DequantizePerChannel, &[facts(I8, [3, 64]), facts(I8, [64])]), "has to be f16");
    refused(check(&Elewise::Negate, &[facts(F32, [3])]), "f16 or bf16");
    refused(check(&Softmax, &[facts(I32, [3])]), "f16 or f32 or bf16");
}

#[test]
fn largest_and_draws() {
    check(&Sort { count: 5 }, &[facts(F32, [3, 5])]).unwrap();
    refused(check(&Sort { count: 6 }, &[facts(F16, [3, 5])]), "fewer than 6");
    refused(check(&Sort { count: 0 }, &[]), "1 is the least");
    refused(check_on(Chip::I310P, &Sort { count: 1 }, &[facts(F32, [3, 5])], &[]), "has to be f16");
    refused(check(&Reduce { reduction: Reduction::Max, axis: 1 }, &[facts(F16, [3, 5])]), "i32 or bf16");
    refused(check(&Reduce { reduction: Reduction::Sum, axis: 2 }, &[facts(F16, [3, 5])]), "no axis 2");
    refused(check(&Multinomial { count: 65, seed: 0 }, &[]), "1 to 64");
    refused(check(&Multinomial { count: 4, seed: 0 }, &[facts(F16, [2, 3])]), "fewer than 4");
    refused(check_on(Chip::I310P, &Multinomial { count: 1, seed: 0 }, &[], &[]), "no such operation");
    let rows = |batch| facts(F16, [batch, 50]);
    let uniform = |top_k, seed| Sampling::Uniform { top_k, seed };
    check(&uniform(50, 1), &[rows(2), facts(F16, [1, 1])]).unwrap();
    refused(check(&uniform(51, 1), &[rows(2), facts(F16, [1, 1])]), "fewer than 51");
    refused(check(&uniform(1, u32::MAX), &[]), "the clock");
    refused(check(&uniform(1, 1), &[rows(513), facts(F16, [1, 1])]), "512 rows");
    let seeded = Sampling::Seeded { seeds: vec![1, 2, 3] };
    refused(check(&seeded, &[rows(2), facts(I32, [2, 1]), facts(F16, [2, 1])]), "2 rows for 3 seeds");
    let supplied = |size| Sampling::Supplied { log_probabilities: size };
    let inputs = [rows(2), facts(I32, [2, 1]), facts(F16, [2, 1]), facts(F32, [2, 1])];
    check(&supplied(50), &inputs).unwrap();
    refused(check(&supplied(51), &inputs), "fewer columns");
    refused(check(&supplied(16_385), &inputs), "16384");
    let halves = Split { axis: -1, lengths: vec![64, 32] };
    check(&halves, &[facts(I64, [3, 96])]).unwrap();
    refused(check(&halves, &[facts(F16, [3, 64])]), "96 long");
    refused(check(&Split { axis: 0, lengths: vec![1] }, &[]), "2 or 3");
}

static LINEARS: Mutex<Vec<spec_atb_linear_param>> = Mutex::new(Vec::new());
static SAMPLINGS: Mutex<Vec<(u32, Vec<u32>)>> = Mutex::new(Vec::new());

extern "C" fn create_linear(param: *const spec_atb_linear_param, _: *mut *mut spec_atb_operation) -> Status {
    // SAFETY: `create` passes a valid pointer.
    LINEARS.lock().unwrap().push(unsafe { *param });
    Status::SUCCESS
}

extern "C" fn create_sampling(param: *const spec_atb_sampling_param, _: *mut *mut spec_atb_operation) -> Status {
    // SAFETY: `create` passes a valid pointer, and as many seeds as it says.
    let (param, seeds) = unsafe { (*param, std::slice::from_raw_parts((*param).seeds, (*param).seed_count as usize)) };
    SAMPLINGS.lock().unwrap().push((param.type_.0, seeds.to_vec()));
    Status::SUCCESS
}

#[test]
fn what_atb_keeps_in_8_bits_fits_them() {
    // SAFETY: each function has the signature of its symbol.
    let api = unsafe {
        Api::from_parts(|_, symbol| {
            let address = match symbol {
                "spec_atb_create_linear" => create_linear as *const (),
                "spec_atb_create_sampling" => create_sampling as *const (),
                _ => return None,
            };
            NonNull::new(address.cast_mut().cast::<c_void>())
        })
    };
    let mut operation = std::ptr::null_mut();
    for quant in [LinearQuant::None, LinearQuant::PerChannel { output: Bf16 }, LinearQuant::PerToken { output: F16 }] {
        for (transpose_weight, bias, accumulate) in [(true, true, false), (false, false, true)] {
            let linear = Linear { transpose_weight, bias, accumulate, quant };
            // SAFETY: the pointer is valid.
            unsafe { linear.create(&api, &mut operation) }.unwrap().ok().unwrap();
        }
    }
    let seen = LINEARS.lock().unwrap();
    assert_eq!(seen.len(), 6);
    for param in &*seen {
        for flag in [param.transpose_a, param.transpose_b, param.has_bias, param.accumulate] {
            assert!(flag <= 1);
        }
        assert!(param.matmul.0 <= 127 && param.quant.0 <= 127 && param.reserved == 0);
    }
    // A value in a field that older releases keep reserved is refused there: only the newest kind sets one.
    let kinds: Vec<_> = seen.iter().map(|param| (param.quant.0, param.out_data_type)).collect();
    assert_eq!(kinds, [(0, -1), (0, -1), (0, 27), (0, 27), (2, 1), (2, 1)]);
    // SAFETY: the pointer is valid.
    unsafe { Sampling::Seeded { seeds: vec![4, 5] }.create(&api, &mut operation) }.unwrap().ok().unwrap();
    assert_eq!(*SAMPLINGS.lock().unwrap(), [(1, vec![4, 5])]);
}
