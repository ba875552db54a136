//! Verify against the operations that the spec-decode module composes it of, and what it refuses.

mod support;

use acl_sys::*;
use serde_json::{Value, json};
use std::slice::from_ref;
use support::operations::{create, make};
use support::{Machine, Tensor, api};

const ROWS: usize = 4;
const WIDTH: usize = 300;

/// Logits with equals among the greatest of every row.
fn logits() -> Vec<f64> {
    let number = |at: usize| ((at * 7919 + at / 13 * 31) % 97) as f64 / 8.0 - 6.0;
    (0..ROWS * WIDTH).map(|at| if at % 101 == 7 { 6.5 } else { number(at) }).collect()
}

#[test]
fn a_greedy_verdict_is_softmax_sort_and_gather() {
    for ties in ["lowest", "highest"] {
        let machine = Machine::new(&format!("strict=fail;sort_ties={ties}"));
        let x = machine.tensor(ACL_FLOAT16, &[ROWS, WIDTH], &logits());
        let (values, tokens) = (machine.empty(ACL_FLOAT16, &[ROWS, 2]), machine.empty(ACL_INT32, &[ROWS, 2]));
        let all = machine.empty(ACL_FLOAT16, &[ROWS, WIDTH]);
        let picked = machine.empty(ACL_FLOAT16, &[ROWS, 2]);
        machine.run(make(&machine, "softmax", json!({"axes": [-1]})), from_ref(&x), from_ref(&all));
        machine.run(make(&machine, "sort", json!({"count": 2})), from_ref(&x), &[values.clone(), tokens.clone()]);
        let gather = make(&machine, "gather", json!({"axis": 1, "batch_dims": 1}));
        machine.run(gather, &[all, tokens.clone()], from_ref(&picked));

        let verdict = [machine.empty(ACL_INT32, &[ROWS, 2]), values.clone(), machine.empty(ACL_FLOAT16, &[ROWS, 2])];
        let composed = machine.values(&values);
        machine.run(make(&machine, "verify", json!({})), &[x], &verdict);
        assert_eq!(machine.values(&verdict[0]), machine.values(&tokens), "{ties}");
        assert_eq!(machine.values(&verdict[1]), composed);
        for (fused, composed) in machine.values(&verdict[2]).iter().zip(machine.values(&picked)) {
            assert!((fused - composed).abs() <= composed / 1024.0, "{fused} and {composed}");
        }
        // Of the equals in row 0, at 7, 108 and 209, the order takes the first two or the last.
        let expected = if ties == "lowest" { [7.0, 108.0] } else { [209.0, 108.0] };
        assert_eq!(machine.values(&tokens)[..2], expected);
    }
}

#[test]
fn a_rejection_verdict_is_a_softmax_and_a_comparison() {
    let machine = Machine::new("strict=fail");
    let rows = logits();
    let x = machine.tensor(ACL_FLOAT, &[ROWS, WIDTH], &rows);
    let law = machine.empty(ACL_FLOAT, &[ROWS, WIDTH]);
    machine.run(make(&machine, "softmax", json!({"axes": [-1]})), from_ref(&x), from_ref(&law));
    let law = machine.values(&law);
    let drafted: Vec<f64> = (0..ROWS).map(|row| (row * 50 + 7) as f64).collect();
    let expected: Vec<f64> =
        drafted.iter().enumerate().map(|(row, token)| law[row * WIDTH + *token as usize]).collect();
    let thresholds: Vec<f64> =
        expected.iter().enumerate().map(|(row, p)| if row % 2 == 0 { p * 0.999 } else { p * 1.001 }).collect();
    let inputs = [x, machine.tensor(ACL_INT32, &[ROWS], &drafted), machine.tensor(ACL_FLOAT, &[ROWS], &thresholds)];
    let outputs = [machine.empty(ACL_INT8, &[ROWS]), machine.empty(ACL_FLOAT, &[ROWS])];
    machine.run(make(&machine, "verify", json!({"rule": 2})), &inputs, &outputs);
    assert_eq!(machine.values(&outputs[0]), [1.0, 0.0, 1.0, 0.0]);
    for (p, expected) in machine.values(&outputs[1]).iter().zip(expected) {
        assert!((p - expected).abs() < 1e-6 * expected);
    }

    // A token that the vocabulary does not have is a bad address, and the next synchronisation says so.
    let bad = [inputs[0].clone(), machine.tensor(ACL_INT32, &[ROWS], &[WIDTH as f64; ROWS]), inputs[2].clone()];
    let stream = machine.stream();
    let context = machine.context(stream);
    let operation = make(&machine, "verify", json!({"rule": 2}));
    let (status, size) = machine.setup(operation, &bad, &outputs, context);
    machine.ok(status);
    let workspace = machine.device(size as usize);
    machine.ok(machine.execute(operation, (&bad, &outputs), (workspace, size), context));
    machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 507_015);
}

fn refusal(machine: &Machine, param: Value, inputs: &[Tensor], outputs: &[Tensor]) -> i32 {
    let (status, operation) = create(machine, "verify", &param);
    if !status.is_success() {
        return status.0;
    }
    machine.setup(operation, inputs, outputs, machine.context(machine.stream())).0.0
}

#[test]
fn what_is_refused_has_atbs_status() {
    let machine = Machine::new("");
    let t = |dtype, dims: &[usize]| machine.empty(dtype, dims);
    let (h, f, i) = (ACL_FLOAT16, ACL_FLOAT, ACL_INT32);
    let greedy = |x: Tensor, outputs: &[Tensor]| refusal(&machine, json!({}), &[x], outputs);
    let two = |dtype| [t(i, &[3, 2]), t(dtype, &[3, 2]), t(dtype, &[3, 2])];

    for param in [json!({"rule": 0}), json!({"rule": 3}), json!({"inverse_temperature": 0.5})] {
        assert_eq!(refusal(&machine, param, &[], &[]), 1);
    }
    for factor in [0.0, -1.0] {
        assert_eq!(refusal(&machine, json!({"rule": 2, "inverse_temperature": factor}), &[], &[]), 1);
    }
    assert_eq!(greedy(t(h, &[3, 8]), &two(h)), 0);
    assert_eq!(greedy(t(f, &[3, 8]), &two(f)), 0);
    assert_eq!(greedy(t(h, &[3, 8]), &two(h)[..2]), 5);
    assert_eq!(refusal(&machine, json!({"rule": 2}), &[t(h, &[3, 8])], &two(h)), 5);
    let mut none = t(h, &[3, 8]);
    none.desc.shape.dims[1] = 0;
    assert_eq!(greedy(none, &two(h)), 9);
    assert_eq!(greedy(t(i, &[3, 8]), &two(i)), 13);
    assert_eq!(greedy(t(h, &[3, 8]), &two(f)), 13);
    assert_eq!(greedy(t(h, &[3, 1]), &two(h)), 8);
    assert_eq!(greedy(t(h, &[1, 3, 8]), &two(h)), 8);
    assert_eq!(greedy(t(h, &[4, 8]), &two(h)), 8);
    let judged = [t(ACL_INT8, &[3]), t(f, &[3])];
    let reject = |inputs: &[Tensor]| refusal(&machine, json!({"rule": 2}), inputs, &judged);
    assert_eq!(reject(&[t(ACL_BF16, &[3, 8]), t(i, &[3]), t(f, &[3])]), 0);
    assert_eq!(reject(&[t(h, &[3, 8]), t(ACL_INT64, &[3]), t(f, &[3])]), 13);
    assert_eq!(reject(&[t(h, &[3, 8]), t(i, &[3]), t(h, &[3])]), 13);
    assert_eq!(reject(&[t(h, &[3, 8]), t(i, &[2]), t(f, &[3])]), 8);

    machine.ok(machine.configure("soc=310P3"));
    assert_eq!(greedy(t(h, &[3, 8]), &two(h)), 0);
    assert_eq!(greedy(t(f, &[3, 8]), &two(f)), 13, "a 310P sorts no f32");
    assert_eq!(greedy(t(ACL_BF16, &[3, 8]), &two(ACL_BF16)), 6);
}

#[test]
fn the_composition_costs_its_launches_and_the_kernel_one() {
    // The link and the memory take no time worth speaking of.
    let cost = |verify: &str, rule: u32, dtype: aclDataType, factor: f64| {
        let machine = Machine::new(&format!(
            "delay=0;launch=1000000;call=0;memory_bandwidth=1e9;link_bandwidth=1e9;verify={verify}"
        ));
        let x = machine.empty(dtype, &[2, 8]);
        let zeros = |dtype| machine.tensor(dtype, &[2], &[0.0, 0.0]);
        let (inputs, outputs) = match rule {
            1 => (
                vec![x],
                vec![machine.empty(ACL_INT32, &[2, 2]), machine.empty(dtype, &[2, 2]), machine.empty(dtype, &[2, 2])],
            ),
            _ => (
                vec![x, zeros(ACL_INT32), zeros(ACL_FLOAT)],
                vec![machine.empty(ACL_INT8, &[2]), machine.empty(ACL_FLOAT, &[2])],
            ),
        };
        let stream = machine.stream();
        let context = machine.context(stream);
        let operation = make(&machine, "verify", json!({"rule": rule, "inverse_temperature": factor}));
        let (status, size) = machine.setup(operation, &inputs, &outputs, context);
        machine.ok(status);
        let workspace = if size == 0 { std::ptr::null_mut() } else { machine.device(size as usize) };
        let run = || {
            machine.ok(machine.execute(operation, (&inputs, &outputs), (workspace, size), context));
            machine.synchronize(stream);
            machine.virtual_time(stream)
        };
        // The first begins when the host, which has copied things, is ready for it.
        let begun = run();
        (run() - begun) / 1_000_000
    };
    assert_eq!(cost("composed", 1, ACL_FLOAT16, 1.0), 3);
    assert_eq!(cost("composed", 2, ACL_FLOAT16, 0.5), 5);
    assert_eq!(cost("composed", 2, ACL_FLOAT, 1.0), 3);
    assert_eq!(cost("kernel", 1, ACL_FLOAT16, 1.0), 1);
    assert_eq!(cost("kernel", 2, ACL_FLOAT16, 0.5), 1);
}
