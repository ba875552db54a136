//! Operators against numpy, against a plain attention, and against ATB's limits.

mod support;

use acl_sys::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::operations::{create, make};
use support::{Machine, Tensor};

fn dtype(name: &str) -> aclDataType {
    match name {
        "f16" => ACL_FLOAT16,
        "bf16" => ACL_BF16,
        "f32" => ACL_FLOAT,
        "i8" => ACL_INT8,
        "i32" => ACL_INT32,
        "i64" => ACL_INT64,
        "u64" => ACL_UINT64,
        other => panic!("no type {other}"),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn dims(tensor: &Value) -> Vec<usize> {
    numbers(&tensor["dims"]).iter().map(|dim| *dim as usize).collect()
}

fn check(machine: &Machine, case: &Value) -> Result<(), String> {
    let tensor = |tensor: &Value| {
        let values = numbers(&tensor["data"]);
        if tensor["host"] == true {
            machine.lengths(&values.iter().map(|value| *value as i32).collect::<Vec<_>>())
        } else {
            machine.tensor(dtype(tensor["dtype"].as_str().expect("a type")), &dims(tensor), &values)
        }
    };
    let inputs: Vec<Tensor> = case["inputs"].as_array().expect("a list").iter().map(tensor).collect();
    let expected = case["outputs"].as_array().expect("a list");
    let empty = |output: &Value| machine.empty(dtype(output["dtype"].as_str().expect("a type")), &dims(output));
    let outputs: Vec<Tensor> = expected.iter().map(empty).collect();
    let operation = make(machine, case["op"].as_str().expect("a name"), case["param"].clone());
    machine.run(operation, &inputs, &outputs);
    let tolerance = case["tolerance"].as_f64().expect("a number");
    for (at, (output, expected)) in outputs.iter().zip(expected).enumerate() {
        let (found, expected) = (machine.values(output), numbers(&expected["data"]));
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let error = (found - expected).abs();
            if error.is_nan() || error > tolerance * expected.abs().max(1.0) {
                return Err(format!("{}: output {at}, element {place}: {found}, not {expected}", case["name"]));
            }
        }
    }
    Ok(())
}

#[test]
fn operators_agree_with_numpy() {
    let machine = Machine::new("strict=fail");
    let golden: Value = serde_json::from_str(include_str!("golden/operators.json")).expect("JSON");
    let cases = golden["cases"].as_array().expect("a list");
    let failures: Vec<String> = cases.iter().filter_map(|case| check(&machine, case).err()).collect();
    assert!(cases.len() > 40 && failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// Numbers that look random.
fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn half(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| half::f16::from_f64(*value).to_f64()).collect()
}

/// Sequences in a paged cache that ReshapeAndCache filled, in an order that a seed shuffles, and their verification.
struct Paged {
    heads: usize,
    kv_heads: usize,
    size: usize,
    contexts: Vec<usize>,
    rows: Vec<usize>,
    seed: u64,
}

const BLOCK: usize = 16;

impl Paged {
    /// Verified by PagedAttention with a causal mask, and what plain attention over the same numbers gives.
    fn run(&self, machine: &Machine) -> (Vec<f64>, Vec<f64>) {
        let Self { heads, kv_heads, size, .. } = *self;
        let per_sequence: Vec<usize> = self.contexts.iter().map(|context| context.div_ceil(BLOCK)).collect();
        let blocks: usize = per_sequence.iter().sum::<usize>() + 1;
        let mut order: Vec<usize> = (0..blocks).collect();
        let shuffle = noise(blocks, self.seed ^ 7);
        order.sort_by(|a, b| shuffle[*a].total_cmp(&shuffle[*b]));
        let width = per_sequence.iter().max().copied().unwrap_or(1);
        let (mut tables, mut slots, mut next) = (Vec::new(), Vec::new(), 0);
        for (count, context) in per_sequence.iter().zip(&self.contexts) {
            let own = &order[next..next + count];
            next += count;
            tables.extend((0..width).map(|at| own.get(at).copied().unwrap_or(0) as f64));
            slots.extend((0..*context).map(|at| (own[at / BLOCK] * BLOCK + at % BLOCK) as f64));
        }
        let tokens: usize = self.contexts.iter().sum();
        let cells = kv_heads * size;
        let (keys, values) = (half(&noise(tokens * cells, self.seed)), half(&noise(tokens * cells, self.seed ^ 1)));
        let rows: usize = self.rows.iter().sum();
        let queries = half(&noise(rows * heads * size, self.seed ^ 2));

        let cache = || machine.empty(ACL_FLOAT16, &[blocks, BLOCK, kv_heads, size]);
        let (key_cache, value_cache) = (cache(), cache());
        let written = [
            machine.tensor(ACL_FLOAT16, &[tokens, kv_heads, size], &keys),
            machine.tensor(ACL_FLOAT16, &[tokens, kv_heads, size], &values),
            key_cache.clone(),
            value_cache.clone(),
            machine.tensor(ACL_INT32, &[tokens], &slots),
        ];
        let write = make(machine, "reshape_and_cache", json!({}));
        machine.run(write, &written, &[key_cache.clone(), value_cache.clone()]);

        let longest = width * BLOCK;
        let mut mask = vec![-10_000.0; rows * longest];
        let (mut expected, mut row, mut start) = (Vec::new(), 0, 0);
        for (context, count) in self.contexts.iter().zip(&self.rows) {
            for at in 0..*count {
                let seen = context - count + at + 1;
                mask[row * longest..row * longest + seen].fill(0.0);
                for head in 0..heads {
                    let query = &queries[(row * heads + head) * size..][..size];
                    let place = |token: usize| ((start + token) * kv_heads + head / (heads / kv_heads)) * size;
                    expected.extend(plain_attention(query, seen, |token| {
                        (&keys[place(token)..][..size], &values[place(token)..][..size])
                    }));
                }
                row += 1;
            }
            start += context;
        }
        let to_i32 = |values: &[usize]| values.iter().map(|value| *value as i32).collect::<Vec<_>>();
        let inputs = [
            machine.tensor(ACL_FLOAT16, &[rows, heads, size], &queries),
            key_cache,
            value_cache,
            machine.tensor(ACL_INT32, &[self.contexts.len(), width], &tables),
            machine.lengths(&to_i32(&self.contexts)),
            machine.tensor(ACL_FLOAT16, &[rows, longest], &mask),
            machine.lengths(&to_i32(&self.rows)),
        ];
        let output = machine.empty(ACL_FLOAT16, &[rows, heads, size]);
        let scale = 1.0 / (size as f64).sqrt();
        let param = json!({"head_num": heads, "kv_head_num": kv_heads, "qk_scale": scale, "mask": 3, "calc": 1});
        machine.run(make(machine, "paged_attention", param), &inputs, std::slice::from_ref(&output));
        (machine.values(&output), expected)
    }
}

fn plain_attention<'a>(query: &[f64], count: usize, token: impl Fn(usize) -> (&'a [f64], &'a [f64])) -> Vec<f64> {
    let dot = |key: &[f64]| query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (query.len() as f64).sqrt();
    let weights: Vec<f64> = (0..count).map(|at| dot(token(at).0).exp()).collect();
    let total: f64 = weights.iter().sum();
    let of = |column: usize| {
        weights.iter().enumerate().map(|(at, weight)| weight * token(at).1[column]).sum::<f64>() / total
    };
    (0..query.len()).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn paged_verification_is_plain_attention(
        sequences in prop::collection::vec((1usize..5, 0usize..40), 1..4),
        kv_heads in 1usize..3,
        group in 1usize..3,
        seed in any::<u64>(),
    ) {
        let machine = Machine::new("strict=fail");
        let paged = Paged {
            heads: kv_heads * group,
            kv_heads,
            size: 16,
            contexts: sequences.iter().map(|(rows, history)| rows + history).collect(),
            rows: sequences.iter().map(|(rows, _)| *rows).collect(),
            seed,
        };
        let (found, expected) = paged.run(&machine);
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found - expected).abs() < 2e-3, "{found} and {expected}");
        }
    }

    #[test]
    fn a_row_of_a_product_does_not_depend_on_the_others(rows in 2usize..9, seed in any::<u64>()) {
        let machine = Machine::new("");
        let (x, w) = (half(&noise(rows * 48, seed)), half(&noise(24 * 48, seed ^ 3)));
        let product = |first: usize, count: usize| {
            let inputs = [
                machine.tensor(ACL_FLOAT16, &[count, 48], &x[first * 48..][..count * 48]),
                machine.tensor(ACL_FLOAT16, &[24, 48], &w),
            ];
            let output = machine.empty(ACL_FLOAT16, &[count, 24]);
            machine.run(make(&machine, "linear", json!({})), &inputs, std::slice::from_ref(&output));
            machine.values(&output)
        };
        let all = product(0, rows);
        for row in 0..rows {
            prop_assert_eq!(&product(row, 1)[..], &all[row * 24..][..24]);
        }
    }
}

#[test]
fn rounding_by_shape_moves_results_by_a_unit_and_depends_on_the_number_of_rows() {
    let (x, w) = (half(&noise(4 * 64, 5)), half(&noise(64 * 64, 6)));
    let product = |config: &str, rows: usize| {
        let machine = Machine::new(config);
        let inputs =
            [machine.tensor(ACL_FLOAT16, &[rows, 64], &x[..rows * 64]), machine.tensor(ACL_FLOAT16, &[64, 64], &w)];
        let output = machine.empty(ACL_FLOAT16, &[rows, 64]);
        machine.run(make(&machine, "linear", json!({})), &inputs, std::slice::from_ref(&output));
        machine.download(output.device, output.size)
    };
    let units = |a: &[u8], b: &[u8]| {
        let bits =
            |bytes: &[u8]| bytes.chunks(2).map(|b| i32::from(u16::from_le_bytes([b[0], b[1]]))).collect::<Vec<_>>();
        bits(a).iter().zip(bits(b)).map(|(a, b)| (a - b).abs()).max()
    };
    let exact = product("", 4);
    assert_eq!(product("", 1), exact[..128]);
    assert_eq!(units(&product("rounding=by-shape", 4), &exact), Some(1));
    assert_eq!(product("rounding=by-shape", 4), product("rounding=by-shape", 4), "it is no noise");
    assert_ne!(product("rounding=by-shape", 1), product("rounding=by-shape", 4)[..128]);
}

#[test]
fn negative_slots_are_left_out_and_untouched_slots_stay_as_they_were() {
    let machine = Machine::new("");
    let cache = machine.tensor(ACL_FLOAT16, &[2, 16, 1, 16], &vec![9.0; 512]);
    let tokens = machine.tensor(ACL_FLOAT16, &[2, 1, 16], &[vec![1.0; 16], vec![2.0; 16]].concat());
    let slots = machine.tensor(ACL_INT32, &[2], &[-1.0, 17.0]);
    let inputs = [tokens.clone(), tokens, cache.clone(), cache.clone(), slots];
    machine.run(make(&machine, "reshape_and_cache", json!({})), &inputs, &[cache.clone(), cache.clone()]);
    let values = machine.values(&cache);
    assert!(values[..272].iter().all(|value| *value == 9.0));
    assert!(values[272..288].iter().all(|value| *value == 2.0));
    assert!(values[288..].iter().all(|value| *value == 9.0));
}

#[test]
fn a_mask_of_minus_ten_thousand_is_nonsense_to_the_prefill_kernel_of_bf16() {
    let machine = Machine::new("");
    let heads = |seed| machine.tensor(ACL_BF16, &[3, 1, 16], &noise(48, seed));
    let mask: Vec<f64> = (0..9).map(|at| if at % 3 > at / 3 { -10_000.0 } else { 0.0 }).collect();
    let inputs = [heads(1), heads(2), heads(3), machine.tensor(ACL_BF16, &[3, 3], &mask), machine.lengths(&[3])];
    let output = machine.empty(ACL_BF16, &[3, 1, 16]);
    let operation = make(&machine, "self_attention", json!({"head_num": 1, "qk_scale": 0.25}));
    machine.run(operation, &inputs, std::slice::from_ref(&output));
    assert!(machine.values(&output)[..16].iter().all(|value| value.is_nan()));
}

#[test]
fn one_mask_of_128_serves_every_length() {
    let machine = Machine::new("");
    let length = 200;
    let heads = |seed| machine.tensor(ACL_FLOAT16, &[length, 1, 16], &half(&noise(length * 16, seed)));
    let (query, key, value) = (heads(1), heads(2), heads(3));
    let square = |side: usize| {
        let mask: Vec<f64> = (0..side * side).map(|at| if at % side > at / side { -10_000.0 } else { 0.0 }).collect();
        machine.tensor(ACL_FLOAT16, &[side, side], &mask)
    };
    let run = |mask: Tensor, triangular: i32| {
        let inputs = [query.clone(), key.clone(), value.clone(), mask, machine.lengths(&[length as i32])];
        let output = machine.empty(ACL_FLOAT16, &[length, 1, 16]);
        let param = json!({"head_num": 1, "qk_scale": 0.25, "is_triu_mask": triangular});
        machine.run(make(&machine, "self_attention", param), &inputs, std::slice::from_ref(&output));
        machine.values(&output)
    };
    assert_eq!(run(square(128), 1), run(square(length), 0));
}

/// What setup says to tensors of these types and shapes.
fn refusal(machine: &Machine, op: &str, param: Value, inputs: &[Tensor], outputs: &[Tensor]) -> i32 {
    let (status, operation) = create(machine, op, &param);
    if !status.is_success() {
        return status.0;
    }
    let context = machine.context(machine.stream());
    machine.setup(operation, inputs, outputs, context).0.0
}

#[test]
fn limits_and_types_are_refused_as_atb_refuses_them() {
    let machine = Machine::new("");
    let t = |dtype, dims: &[usize]| machine.empty(dtype, dims);
    let no_host = |values: &[i32]| Tensor { host: None, ..machine.lengths(values) };
    let h = ACL_FLOAT16;
    let refuse = |op, param, inputs: &[Tensor], outputs: &[Tensor]| refusal(&machine, op, param, inputs, outputs);

    // Creating.
    assert_eq!(refuse("linear", json!({"reserved": 1}), &[], &[]), 1);
    assert_eq!(refuse("gather", json!({"axis": -1}), &[], &[]), 1);
    assert_eq!(refuse("gather", json!({"batch_dims": 1}), &[], &[]), 1);
    assert_eq!(refuse("rms_norm", json!({"epsilon": 0.0}), &[], &[]), 1);
    assert_eq!(refuse("sort", json!({"count": 0}), &[], &[]), 1);
    assert_eq!(refuse("multinomial", json!({"sample_count": 65}), &[], &[]), 1);
    assert_eq!(refuse("paged_attention", json!({"head_num": 3, "kv_head_num": 2}), &[], &[]), 1);
    assert_eq!(refuse("paged_attention", json!({"head_num": 2, "calc": 1}), &[], &[]), 1, "SPEC needs a mask");
    assert_eq!(
        refuse("paged_attention", json!({"head_num": 2, "calc": 1, "mask": 3, "batch_run_status_enable": 1}), &[], &[]),
        1
    );
    assert_eq!(refuse("self_attention", json!({"head_num": 2, "mask": 0, "is_triu_mask": 1}), &[], &[]), 1);

    // Counts, before shapes, before types.
    assert_eq!(refuse("linear", json!({}), &[t(h, &[2, 16])], &[t(h, &[2, 4])]), 5);
    let mut nine = t(h, &[2, 16]);
    nine.desc.shape.dim_num = 9;
    assert_eq!(refuse("linear", json!({}), &[nine, t(ACL_INT8, &[4, 16])], &[t(h, &[2, 4])]), 8);
    let mut none = t(h, &[2, 16]);
    none.desc.shape.dims[0] = 0;
    assert_eq!(refuse("linear", json!({}), &[none, t(ACL_INT8, &[4, 16])], &[t(h, &[2, 4])]), 9);
    assert_eq!(refuse("linear", json!({}), &[t(h, &[2, 16]), t(ACL_INT8, &[4, 16])], &[t(h, &[2, 4])]), 13);
    assert_eq!(refuse("linear", json!({}), &[t(h, &[2, 16]), t(h, &[4, 32])], &[t(h, &[2, 4])]), 8);
    assert_eq!(refuse("linear", json!({}), &[t(h, &[2, 16]), t(h, &[4, 16])], &[t(h, &[2, 5])]), 8);

    // Types that ATB has no kernel for, though a CPU could.
    let f = ACL_FLOAT;
    assert_eq!(refuse("elewise", json!({"type": 9}), &[t(f, &[4]), t(f, &[4])], &[t(f, &[4])]), 13, "MUL of f32");
    assert_eq!(
        refuse("elewise", json!({"type": 16}), &[t(ACL_INT32, &[4]), t(ACL_INT32, &[4])], &[t(ACL_INT8, &[4])]),
        13
    );
    assert_eq!(refuse("elewise", json!({"type": 1, "out_data_type": 0}), &[t(ACL_INT32, &[4])], &[t(f, &[4])]), 13);
    assert_eq!(refuse("reduce", json!({"type": 1, "axes": [0]}), &[t(h, &[4, 2])], &[t(h, &[2])]), 13, "MAX of f16");
    assert_eq!(refuse("multinomial", json!({}), &[t(f, &[2, 8])], &[t(ACL_INT32, &[2, 1])]), 13);
    assert_eq!(refuse("rms_norm", json!({}), &[t(h, &[2, 24]), t(h, &[24])], &[t(h, &[2, 24])]), 8, "48 bytes");

    // Verification.
    let verify = |heads: usize, size: usize, block: usize, contexts: Tensor, rows: Tensor, mask: &[usize]| {
        let count: usize = rows.host.as_ref().map_or(2, |rows| rows.iter().sum::<i32>() as usize);
        let cache = t(h, &[2, block, heads, size]);
        let inputs =
            [t(h, &[count, heads, size]), cache.clone(), cache, t(ACL_INT32, &[1, 2]), contexts, t(h, mask), rows];
        let output = t(h, &[count, heads, size]);
        refuse("paged_attention", json!({"head_num": heads, "mask": 3, "calc": 1}), &inputs, &[output])
    };
    let good = || (machine.lengths(&[9]), machine.lengths(&[2]));
    assert_eq!(verify(2, 16, 16, good().0, good().1, &[2, 32]), 0);
    assert_eq!(verify(2, 16, 16, no_host(&[9]), good().1, &[2, 32]), 1, "contextLens without hostData");
    assert_eq!(verify(2, 16, 16, good().0, no_host(&[2]), &[2, 32]), 1, "qSeqLen without hostData");
    assert_eq!(verify(2, 16, 24, good().0, good().1, &[2, 48]), 1, "blocks of 24");
    assert_eq!(verify(2, 16, 256, good().0, good().1, &[2, 512]), 1, "blocks of 256");
    assert_eq!(verify(256, 128, 16, good().0, good().1, &[2, 32]), 1, "heads times their size");
    assert_eq!(verify(2, 16, 16, good().0, good().1, &[3, 32]), 8, "mask rows");
    assert_eq!(verify(2, 16, 16, machine.lengths(&[30]), good().1, &[2, 16]), 8, "mask columns");
    assert_eq!(verify(2, 16, 16, machine.lengths(&[33]), good().1, &[2, 48]), 1, "more than the block table holds");
    let lengths = (machine.lengths(&[9]), Tensor { host: Some(vec![3]), ..machine.lengths(&[2]) });
    assert_eq!(verify(2, 16, 16, lengths.0, lengths.1, &[3, 32]), 0, "the host's copy is what counts at setup");
}

#[test]
fn the_310p_has_no_bf16_and_no_plain_caches() {
    let machine = Machine::new("soc=310P3");
    let t = |dtype, dims: &[usize]| machine.empty(dtype, dims);
    let b = ACL_BF16;
    let refuse = |op, param, inputs: &[Tensor], outputs: &[Tensor]| refusal(&machine, op, param, inputs, outputs);
    assert_eq!(refuse("linear", json!({}), &[t(b, &[2, 16]), t(b, &[4, 16])], &[t(b, &[2, 4])]), 6);
    let cache = t(ACL_FLOAT16, &[2, 16, 1, 16]);
    let tokens = t(ACL_FLOAT16, &[2, 1, 16]);
    let inputs = [tokens.clone(), tokens, cache.clone(), cache.clone(), t(ACL_INT32, &[2])];
    assert_eq!(refuse("reshape_and_cache", json!({}), &inputs, &[cache.clone(), cache]), 13);
    assert_eq!(refuse("paged_attention", json!({"head_num": 2, "calc": 1}), &[], &[]), 5, "a mask is not demanded yet");
    assert_eq!(refuse("linear", json!({"out_data_type": 27}), &[], &[]), 1);
    assert_eq!(refuse("multinomial", json!({}), &[t(ACL_FLOAT16, &[2, 8])], &[t(ACL_INT32, &[2, 1])]), 13);
}

#[test]
fn draws_follow_the_seed_and_the_law() {
    let machine = Machine::new("");
    let probabilities = machine.tensor(ACL_FLOAT16, &[2, 4], &[0.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.5]);
    let mut seen = Vec::new();
    for seed in 0..40 {
        let output = machine.empty(ACL_INT32, &[2, 1]);
        let operation = make(&machine, "multinomial", json!({"seed": seed}));
        machine.run(operation, std::slice::from_ref(&probabilities), std::slice::from_ref(&output));
        let drawn = machine.values(&output);
        assert_eq!(drawn[0], 1.0);
        assert!(drawn[1] == 0.0 || drawn[1] == 3.0);
        seen.push(drawn[1]);
    }
    let threes = seen.iter().filter(|token| **token == 3.0).count();
    assert!((8..=32).contains(&threes), "{threes} of 40");

    // Numbers of the caller's: inverting the cumulative sum, largest first, of the two that topk keeps.
    let inputs = |number: f64, topk: f64| {
        [
            machine.tensor(ACL_FLOAT16, &[1, 4], &[0.1, 0.4, 0.2, 0.3]),
            machine.tensor(ACL_INT32, &[1, 1], &[topk]),
            machine.tensor(ACL_FLOAT16, &[1, 1], &[1.0]),
            machine.tensor(ACL_FLOAT, &[1, 1], &[number]),
        ]
    };
    let sample = |number: f64, topk: f64| {
        let outputs =
            [machine.empty(ACL_INT32, &[1, 1]), machine.empty(ACL_FLOAT16, &[1, 1]), machine.empty(ACL_FLOAT, &[1, 2])];
        let operation = make(&machine, "sampling", json!({"type": 3, "log_probs_size": 2}));
        machine.run(operation, &inputs(number, topk), &outputs);
        machine.values(&outputs[0])[0]
    };
    assert_eq!(sample(0.5, 1.0), 1.0, "0.35 of 0.7 is within the first");
    assert_eq!(sample(0.6, 1.0), 3.0);
    assert_eq!(sample(0.999, 0.0), 1.0, "topk is an index: 0 keeps one");
    assert_eq!(sample(0.95, 3.0), 0.0);
}

fn tiled(machine: &Machine, dims: &[usize]) -> Tensor {
    let mut tensor = machine.empty(ACL_FLOAT16, dims);
    tensor.desc.format = ACL_FORMAT_FRACTAL_NZ.0;
    tensor
}

#[test]
fn tiles_have_16_columns_and_a_product_takes_them_for_a_weight() {
    let machine = Machine::new("strict=fail");
    let (rows, columns) = (20, 40);
    let values = half(&noise(rows * columns, 9));
    let plain = machine.tensor(ACL_FLOAT16, &[rows, columns], &values);
    let tiles = tiled(&machine, &[1, 3, 32, 16]);
    machine.run(make(&machine, "transdata", json!({})), std::slice::from_ref(&plain), std::slice::from_ref(&tiles));
    let found = machine.values(&tiles);
    for (row, column) in [(0, 0), (3, 15), (3, 16), (19, 39)] {
        assert_eq!(found[(column / 16 * 32 + row) * 16 + column % 16], values[row * columns + column]);
    }
    assert_eq!((found[31 * 16], found[(2 * 32) * 16 + 8]), (0.0, 0.0), "padding");
    let back = machine.empty(ACL_FLOAT16, &[1, rows, columns]);
    let cropped = make(&machine, "transdata", json!({"type": 1, "rows": rows, "columns": columns}));
    machine.run(cropped, std::slice::from_ref(&tiles), std::slice::from_ref(&back));
    assert_eq!(machine.values(&back), values);

    // The padding is part of a tiled weight, so that it makes columns of zeros.
    let x = machine.tensor(ACL_FLOAT16, &[2, columns], &half(&noise(2 * columns, 10)));
    let product = |weight: &Tensor, width: usize| {
        let output = machine.empty(ACL_FLOAT16, &[2, width]);
        machine.run(make(&machine, "linear", json!({})), &[x.clone(), weight.clone()], std::slice::from_ref(&output));
        machine.values(&output)
    };
    let (wide, narrow) = (product(&tiles, 32), product(&plain, rows));
    assert_eq!(&wide[..rows], &narrow[..rows]);
    assert_eq!(&wide[32..32 + rows], &narrow[rows..]);
    assert!(wide[rows..32].iter().all(|value| *value == 0.0));
}

#[test]
fn the_310p_attends_over_tiled_caches_as_the_a2_does_over_plain_ones() {
    let (tokens, heads, size) = (21, 2, 16);
    let fill = |seed| half(&noise(tokens * heads * size, seed));
    let run = |soc: &str, is_tiled: bool| {
        let machine = Machine::new(&format!("strict=fail;soc={soc}"));
        let cache = || match is_tiled {
            true => tiled(&machine, &[3, heads * size / 16, 16, 16]),
            false => machine.empty(ACL_FLOAT16, &[3, 16, heads, size]),
        };
        let (keys, values) = (cache(), cache());
        let slots: Vec<f64> = (0..tokens).map(|at| ((2 - at / 16) * 16 + at % 16) as f64).collect();
        let inputs = [
            machine.tensor(ACL_FLOAT16, &[tokens, heads, size], &fill(1)),
            machine.tensor(ACL_FLOAT16, &[tokens, heads, size], &fill(2)),
            keys.clone(),
            values.clone(),
            machine.tensor(ACL_INT32, &[tokens], &slots),
        ];
        machine.run(make(&machine, "reshape_and_cache", json!({})), &inputs, &[keys.clone(), values.clone()]);
        let rows = 3;
        let mask: Vec<f64> =
            (0..rows * 32).map(|at| if at % 32 > tokens - rows + at / 32 { -10_000.0 } else { 0.0 }).collect();
        let inputs = [
            machine.tensor(ACL_FLOAT16, &[rows, heads, size], &half(&noise(rows * heads * size, 3))),
            keys,
            values,
            machine.tensor(ACL_INT32, &[1, 2], &[2.0, 1.0]),
            machine.lengths(&[tokens as i32]),
            machine.tensor(ACL_FLOAT16, &[rows, 32], &mask),
            machine.lengths(&[rows as i32]),
        ];
        let output = machine.empty(ACL_FLOAT16, &[rows, heads, size]);
        let param = json!({"head_num": heads, "qk_scale": 0.25, "mask": 3, "calc": 1});
        machine.run(make(&machine, "paged_attention", param), &inputs, std::slice::from_ref(&output));
        machine.values(&output)
    };
    assert_eq!(run("310P3", true), run("910B1", false));
}
