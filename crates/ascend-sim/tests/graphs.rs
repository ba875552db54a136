//! Graphs, plugins, event operations, launch types.

mod support;

use acl_sys::*;
use serde_json::json;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use support::operations::make;
use support::{Machine, Tensor, api};

struct Node<'a> {
    operation: *mut spec_atb_operation,
    inputs: &'a [u32],
    outputs: &'a [u32],
    views: Option<&'a [spec_atb_view]>,
}

impl<'a> Node<'a> {
    fn new(operation: *mut spec_atb_operation, inputs: &'a [u32], outputs: &'a [u32]) -> Self {
        Self { operation, inputs, outputs, views: None }
    }
}

fn graph(
    machine: &Machine,
    (inputs, outputs, internals): (u32, u32, u32),
    nodes: &[Node<'_>],
) -> Result<*mut spec_atb_operation, i32> {
    let nodes: Vec<spec_atb_node> = nodes
        .iter()
        .map(|node| spec_atb_node {
            operation: node.operation,
            inputs: node.inputs.as_ptr(),
            input_count: node.inputs.len() as u64,
            outputs: node.outputs.as_ptr(),
            output_count: node.outputs.len() as u64,
            views: node.views.map_or(ptr::null(), <[_]>::as_ptr),
        })
        .collect();
    let param = spec_atb_graph_param {
        name: c"layer_0".as_ptr(),
        nodes: nodes.as_ptr(),
        node_count: nodes.len() as u64,
        input_count: inputs,
        output_count: outputs,
        internal_count: internals,
        reserved: 0,
        infer_shape: None,
        user_data: ptr::null_mut(),
        release: None,
    };
    let mut made = ptr::null_mut();
    match api!(machine, spec_atb_create_graph(&param, &mut made)).expect("exported") {
        Status::SUCCESS => Ok(made),
        status => Err(status.0),
    }
}

fn add(machine: &Machine) -> *mut spec_atb_operation {
    make(machine, "elewise", json!({"type": 8}))
}

/// # Safety
/// The simulator calls it with pointers that are valid during the call.
unsafe extern "C" fn flatten(_: *mut c_void, old: *const spec_atb_dims, new: *mut spec_atb_dims) {
    // SAFETY: both are valid during the call.
    let (old, new) = unsafe { (&*old, &mut *new) };
    let count = old.dims[..old.dim_num as usize].iter().product();
    *new = spec_atb_dims { dims: [count, 0, 0, 0, 0, 0, 0, 0], dim_num: 1 };
}

#[test]
fn a_graph_runs_its_nodes_in_order_through_its_workspace() {
    let machine = Machine::new("strict=fail");
    // (x + y) + x, where the second sum sees both flat.
    let view = [spec_atb_view { reshape: Some(flatten), user_data: ptr::null_mut() }; 2];
    let second = Node { views: Some(&view), ..Node::new(add(&machine), &[3, 0], &[2]) };
    let made = graph(&machine, (2, 1, 1), &[Node::new(add(&machine), &[0, 1], &[3]), second]).expect("a graph");
    let x = machine.tensor(ACL_FLOAT16, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let y = machine.tensor(ACL_FLOAT16, &[3], &[10.0, 20.0, 30.0]);
    let out = machine.empty(ACL_FLOAT16, &[6]);
    machine.run(made, &[x, y], std::slice::from_ref(&out));
    assert_eq!(machine.values(&out), [12.0, 24.0, 36.0, 18.0, 30.0, 42.0]);
    machine.call(api!(machine, spec_atb_destroy_operation(made)));
    let left = machine.alive();
    assert!(left.iter().all(|line| !line.contains("operation")), "nodes go with their graph: {left:?}");
}

#[test]
fn broken_graphs_are_refused_and_their_nodes_stay_the_callers() {
    let machine = Machine::new("");
    let node = add(&machine);
    let refused = |counts, nodes: &[Node<'_>]| graph(&machine, counts, nodes).err();
    assert_eq!(refused((2, 1, 1), &[Node::new(node, &[0, 3], &[2])]), Some(2), "3 is never written");
    assert_eq!(refused((2, 2, 0), &[Node::new(node, &[0, 1], &[2])]), Some(2), "3 is never written");
    assert_eq!(refused((2, 1, 0), &[Node::new(node, &[0, 9], &[2])]), Some(2));
    assert_eq!(refused((2, 1, 0), &[Node::new(node, &[0], &[2])]), Some(2), "two inputs");
    assert_eq!(refused((2, 1, 0), &[]), Some(2));
    assert_eq!(refused((257, 1, 0), &[Node::new(node, &[0, 1], &[257])]), Some(2));
    let good = graph(&machine, (2, 1, 0), &[Node::new(node, &[0, 1], &[2])]).expect("a graph");
    machine.fails(api!(machine, spec_atb_destroy_operation(node)), 24);
    assert_eq!(refused((2, 1, 0), &[Node::new(node, &[0, 1], &[2])]), Some(2), "taken");
    machine.call(api!(machine, spec_atb_destroy_operation(good)));
}

struct Doubler {
    api: *const Machine,
    setups: AtomicU32,
    released: AtomicU32,
}

/// # Safety
/// The simulator calls it with pointers that are valid during the call.
unsafe extern "C" fn same_shape(
    _: *mut c_void,
    inputs: *const spec_atb_tensor_desc,
    _: u64,
    outputs: *mut spec_atb_tensor_desc,
    _: u64,
) -> Status {
    // SAFETY: one input and one output, as the plugin says of itself.
    unsafe { *outputs = *inputs };
    Status::SUCCESS
}

/// # Safety
/// The simulator calls it with pointers that are valid during the call.
unsafe extern "C" fn count_setup(data: *mut c_void, pack: *const spec_atb_pack, workspace: *mut u64) -> Status {
    // SAFETY: the data is the test's, and the pointers are valid during the call.
    unsafe {
        (*data.cast::<Doubler>()).setups.fetch_add(1, Ordering::SeqCst);
        assert!((*(*pack).outputs).device_data.is_null(), "inside a graph there is no memory yet");
        *workspace = 100;
    }
    Status::SUCCESS
}

/// # Safety
/// The simulator calls it with pointers that are valid during the call.
unsafe extern "C" fn copy(
    data: *mut c_void,
    pack: *const spec_atb_pack,
    _: *mut c_void,
    size: u64,
    stream: *mut c_void,
) -> Status {
    // SAFETY: the data is the test's, which outlives the call, and so are the tensors.
    let (input, output, machine) = unsafe { (*(*pack).inputs, *(*pack).outputs, &*(*data.cast::<Doubler>()).api) };
    assert_eq!(size, 100);
    let (count, kind) = (input.data_size as usize, ACL_MEMCPY_DEVICE_TO_DEVICE);
    api!(machine, aclrtMemcpyAsync(output.device_data, count, input.device_data, count, kind, stream))
        .expect("exported")
}

/// # Safety
/// The simulator calls it with pointers that are valid during the call.
unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: the data is the test's, which outlives the operation.
    unsafe { (*data.cast::<Doubler>()).released.fetch_add(1, Ordering::SeqCst) };
}

#[test]
fn a_plugin_is_a_node_like_any_other_and_is_released_once() {
    let machine = Machine::new("strict=fail");
    let doubler = Doubler { api: &machine, setups: AtomicU32::new(0), released: AtomicU32::new(0) };
    let param = spec_atb_plugin_param {
        name: c"copy".as_ptr(),
        input_count: 1,
        output_count: 1,
        infer_shape: Some(same_shape),
        setup: Some(count_setup),
        execute: Some(copy),
        user_data: ptr::from_ref(&doubler).cast_mut().cast(),
        release: Some(release),
    };
    let mut plugin = ptr::null_mut();
    machine.call(api!(machine, spec_atb_create_plugin(&param, &mut plugin)));
    let made = graph(&machine, (1, 1, 1), &[Node::new(plugin, &[0], &[2]), Node::new(add(&machine), &[0, 2], &[1])]);
    let made = made.expect("a graph");
    let x = machine.tensor(ACL_FLOAT16, &[4], &[1.0, 2.0, 3.0, 4.0]);
    let out = machine.empty(ACL_FLOAT16, &[4]);
    machine.run(made, &[x], std::slice::from_ref(&out));
    assert_eq!(machine.values(&out), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!((doubler.setups.load(Ordering::SeqCst), doubler.released.load(Ordering::SeqCst)), (1, 0));
    machine.call(api!(machine, spec_atb_destroy_operation(made)));
    assert_eq!(doubler.released.load(Ordering::SeqCst), 1);
}

#[test]
fn nodes_on_two_streams_are_put_in_order_by_event_operations() {
    for with_events in [true, false] {
        let machine = Machine::new("delay=5000..20000");
        let (first, second) = (machine.stream(), machine.stream());
        let context = machine.context(first);
        let streams = [first, second];
        machine.call(api!(machine, spec_atb_set_execute_streams(context, streams.as_ptr(), 2)));
        let mut event = ptr::null_mut();
        machine.call(api!(machine, aclrtCreateEventWithFlag(&mut event, ACL_EVENT_SYNC)));
        let step = |action| {
            let mut made = ptr::null_mut();
            let param = spec_atb_event_param { event, action, reserved: 0 };
            machine.call(api!(machine, spec_atb_create_event(&param, &mut made)));
            made
        };
        let (sum, last) = (add(&machine), add(&machine));
        machine.call(api!(machine, spec_atb_set_stream_id(last, 1)));
        let (record, wait) = (step(SPEC_ATB_EVENT_RECORD), step(SPEC_ATB_EVENT_WAIT));
        machine.call(api!(machine, spec_atb_set_stream_id(wait, 1)));
        let mut nodes = vec![Node::new(sum, &[0, 0], &[2])];
        if with_events {
            nodes.extend([Node::new(record, &[], &[]), Node::new(wait, &[], &[])]);
        }
        nodes.push(Node::new(last, &[2, 0], &[1]));
        let made = graph(&machine, (1, 1, 1), &nodes).expect("a graph");
        let x = machine.tensor(ACL_FLOAT16, &[4], &[1.0, 2.0, 3.0, 4.0]);
        let out = machine.empty(ACL_FLOAT16, &[4]);
        let (inputs, outputs) = ([x], [out.clone()]);
        let (status, size) = machine.setup(made, &inputs, &outputs, context);
        machine.ok(status);
        let workspace = machine.device(size as usize);
        machine.ok(machine.execute(made, (&inputs, &outputs), (workspace, size), context));
        machine.synchronize(second);
        if with_events {
            assert_eq!(machine.values(&out), [3.0, 6.0, 9.0, 12.0]);
            assert_eq!(machine.violations(), Vec::<String>::new());
        } else {
            machine.synchronize(first);
            assert!(machine.violations().join("\n").contains("Elewise"), "{:?}", machine.violations());
        }
    }
}

#[test]
fn an_ex_event_in_a_wait_operation_fails_because_it_cannot_be_reset() {
    let machine = Machine::new("");
    let context = machine.context(machine.stream());
    let mut made = ptr::null_mut();
    let param = spec_atb_event_param { event: machine.event(), action: SPEC_ATB_EVENT_WAIT, reserved: 0 };
    machine.call(api!(machine, spec_atb_create_event(&param, &mut made)));
    machine.ok(machine.setup(made, &[], &[], context).0);
    assert_eq!(machine.execute(made, (&[], &[]), (ptr::null_mut(), 0), context).0, 207_000);
}

#[test]
fn a_prelaunch_queues_nothing_and_a_launch_takes_what_it_was_given() {
    let machine = Machine::new("");
    let stream = machine.stream();
    let context = machine.context(stream);
    let operation = add(&machine);
    let x = machine.tensor(ACL_FLOAT16, &[2], &[1.0, 2.0]);
    let out = machine.tensor(ACL_FLOAT16, &[2], &[0.0, 0.0]);
    let (inputs, outputs) = ([x.clone(), x], [out.clone()]);
    machine.ok(machine.setup(operation, &inputs, &outputs, context).0);
    let execute = |inputs: &[Tensor], kind| {
        machine.call(api!(machine, spec_atb_set_execute_type(context, kind)));
        let status = machine.execute(operation, (inputs, &outputs), (ptr::null_mut(), 0), context);
        machine.call(api!(machine, spec_atb_set_execute_type(context, SPEC_ATB_EXECUTE_NORMAL)));
        machine.synchronize(stream);
        status.0
    };
    assert_eq!(execute(&inputs, SPEC_ATB_EXECUTE_LAUNCH), 1, "nothing is prepared");
    assert_eq!(execute(&inputs, SPEC_ATB_EXECUTE_PRELAUNCH), 0);
    assert_eq!(machine.values(&out), [0.0, 0.0]);
    assert_eq!(execute(&inputs, SPEC_ATB_EXECUTE_LAUNCH), 0);
    assert_eq!(machine.values(&out), [2.0, 4.0]);
}

#[test]
fn shapes_of_a_captured_graph_may_not_change() {
    let machine = Machine::new("");
    let stream = machine.stream();
    let context = machine.context(stream);
    machine.call(api!(machine, spec_atb_set_launch_mode(context, SPEC_ATB_LAUNCH_GRAPH)));
    let made = graph(&machine, (2, 1, 0), &[Node::new(add(&machine), &[0, 1], &[2])]).expect("a graph");
    let of = |count: usize| machine.tensor(ACL_FLOAT16, &[count], &vec![1.0; count]);
    let setup = |count| machine.setup(made, &[of(count), of(count)], &[of(count)], context);
    machine.ok(setup(4).0);
    machine.ok(setup(5).0);
    machine.ok(machine.execute(made, (&[of(5), of(5)], &[of(5)]), (ptr::null_mut(), 0), context));
    machine.synchronize(stream);
    machine.ok(setup(5).0);
    assert_eq!(setup(4).0.0, 8);
}

#[test]
fn a_captured_stream_replays_operations() {
    let machine = Machine::new("");
    let stream = machine.stream();
    let context = machine.context(stream);
    let x = machine.tensor(ACL_FLOAT16, &[2], &[1.0, 2.0]);
    let (inputs, outputs) = ([x.clone(), x.clone()], [x.clone()]);
    let operation = add(&machine);
    machine.ok(machine.setup(operation, &inputs, &outputs, context).0);
    machine.call(api!(machine, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED)));
    machine.ok(machine.execute(operation, (&inputs, &outputs), (ptr::null_mut(), 0), context));
    let mut captured = ptr::null_mut();
    machine.call(api!(machine, aclmdlRICaptureEnd(stream, &mut captured)));
    for _ in 0..3 {
        machine.call(api!(machine, aclmdlRIExecuteAsync(captured, stream)));
    }
    machine.synchronize(stream);
    assert_eq!(machine.values(&x), [8.0, 16.0], "doubled in place three times");
}

#[test]
fn linear_is_fast_enough_to_run_models() {
    let machine = Machine::new("delay=0");
    let (rows, size) = (8, 2048);
    let x = machine.tensor(ACL_FLOAT16, &[rows, size], &vec![0.25; rows * size]);
    let w = machine.tensor(ACL_FLOAT16, &[size, size], &vec![0.5; size * size]);
    let out = machine.empty(ACL_FLOAT16, &[rows, size]);
    let operation = make(&machine, "linear", json!({}));
    let stream = machine.stream();
    let context = machine.context(stream);
    let (inputs, outputs) = ([x, w], [out]);
    let (status, bytes) = machine.setup(operation, &inputs, &outputs, context);
    machine.ok(status);
    let workspace = machine.device(bytes as usize);
    let once = |_| {
        let start = std::time::Instant::now();
        machine.ok(machine.execute(operation, (&inputs, &outputs), (workspace, bytes), context));
        machine.synchronize(stream);
        start.elapsed().as_secs_f64()
    };
    let best = (0..20).map(once).fold(f64::INFINITY, f64::min);
    let rate = (rows * size * size) as f64 / best / 1e9;
    println!("{rate:.1} GMAC/s");
    assert!(rate > 0.5, "{rate:.2} GMAC/s, on a host that may be busy");
}
