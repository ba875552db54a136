//! Who lives as long as whom, and where the failures of drops go.

use crate::{executor, fake, halves, open, tensor};
use acl_sys::Status;
use atb_rs::parameters::{Linear, RmsNorm};
use atb_rs::{Chip, Context, Device, DeviceBuffer, Error, GraphBuilder, Operation, Runtime, Stream};

#[test]
fn one_runtime_at_a_time_and_again_after_it_ended() {
    let session = fake::start();
    let runtime = Runtime::start(session.api()).unwrap();
    assert!(matches!(Runtime::start(session.api()), Err(Error::AlreadyStarted)));
    runtime.shutdown().unwrap();
    let runtime = Runtime::start(session.api()).unwrap();
    let device = Device::open(&runtime, 0).unwrap();
    assert!(matches!(runtime.shutdown(), Err(Error::StillInUse { holders: 1 })));
    drop(device);
    assert_eq!((session.calls("aclInit"), session.calls("aclFinalize")), (2, 2));
}

#[test]
fn a_library_that_somebody_else_started_is_not_ended() {
    let session = fake::start();
    session.with(|state| state.initialised = true);
    Runtime::start(session.api()).unwrap().shutdown().unwrap();
    assert_eq!(session.calls("aclFinalize"), 0);
    session.with(|state| state.initialised = false);
}

#[test]
fn a_buffer_keeps_everything_that_it_needs() {
    let session = fake::start();
    let (runtime, context) = open(&session);
    let buffer = halves(&context, 8);
    drop((context, runtime));
    assert_eq!(session.live(), ["context", "device memory"].map(str::to_owned).to_vec());
    let mut seen = [0u16; 8];
    buffer.read(0, &mut seen).unwrap();
    drop(buffer);
    assert_eq!(session.live(), Vec::<&str>::new());
    assert_eq!((session.with(|state| state.devices), session.calls("aclFinalize")), (0, 1));
}

#[test]
fn the_device_is_current_on_every_thread_that_uses_it() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let stream = Stream::new(&context).unwrap();
    let buffer = DeviceBuffer::new(&context, 64).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                // The fake refuses all of these with 107002 without a current context.
                let own = DeviceBuffer::new(&context, 64).unwrap();
                Stream::new(&context).unwrap().fill(&own, 1).unwrap();
                context.set_op_timeout(std::time::Duration::from_secs(5)).unwrap();
                context.set_wait_timeout(std::time::Duration::from_millis(1)).unwrap();
                stream.fill(&buffer, 1).unwrap();
            });
        }
    });
    std::thread::spawn(move || drop((buffer, stream))).join().unwrap();
    assert_eq!(context.memory_info().unwrap().total, 2 << 30);
}

#[test]
fn a_drop_that_failed_is_reported_by_the_next_call() {
    let session = fake::start();
    let (runtime, context) = open(&session);
    session.fail("aclrtFree", 1, Status::ACL_ERROR_RT_PARAM_INVALID);
    drop(halves(&context, 8));
    let error = DeviceBuffer::new(&context, 64).unwrap_err();
    assert!(matches!(error, Error::Dropped(_)), "{error}");
    assert_eq!(error.status(), Some(Status::ACL_ERROR_RT_PARAM_INVALID));
    let text = error.to_string();
    assert!(text.contains("freeing device memory") && text.contains("aclrtFree"), "{text}");
    // Once.
    DeviceBuffer::new(&context, 64).unwrap();
    session.fail("aclrtDestroyContext", 1, Status::ACL_ERROR_RT_PARAM_INVALID);
    drop(context);
    assert_eq!(runtime.shutdown().unwrap_err().status(), Some(Status::ACL_ERROR_RT_PARAM_INVALID));
    // The end of a runtime that nobody shut down is reported by the next start.
    let runtime = Runtime::start(session.api()).unwrap();
    session.fail("aclFinalize", 1, Status::ACL_ERROR_INTERNAL_ERROR);
    drop(runtime);
    assert_eq!(Runtime::start(session.api()).unwrap_err().status(), Some(Status::ACL_ERROR_INTERNAL_ERROR));
    session.with(|state| state.initialised = false);
    Runtime::start(session.api()).unwrap().shutdown().unwrap();
}

#[test]
fn an_executor_goes_after_what_was_executed_in_it() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let mut norm = Operation::new(&context, RmsNorm::new(1e-5)).unwrap();
    let (x, y) = (tensor(&context, [1, 16]), tensor(&context, [1, 16]));
    norm.setup(&executor, vec![x, tensor(&context, [16])], vec![y]).unwrap().execute().unwrap();
    drop(executor);
    assert_eq!(session.calls("aclrtSynchronizeStream"), 1);
}

#[test]
fn a_graph_owns_its_operations_and_goes_with_them() {
    let session = fake::start();
    let (runtime, context) = open(&session);
    let executor = executor(&context);
    let mut graph = GraphBuilder::new("product_and_norm", 3, 1);
    let (x, w, gamma, product) = (graph.input(0), graph.input(1), graph.input(2), graph.internal());
    graph.node(Operation::new(&context, Linear::new(false)).unwrap(), &[x, w], &[product]);
    graph.node(Operation::new(&context, RmsNorm::new(1e-5)).unwrap(), &[product, gamma], &[graph.output(0)]);
    let mut graph = graph.build(&context).unwrap();
    assert_eq!(graph.arity(), (3, 1));
    let inputs = vec![tensor(&context, [2, 32]), tensor(&context, [64, 32]), tensor(&context, [64])];
    let y = tensor(&context, [2, 64]);
    graph.setup(&executor, inputs.clone(), vec![y.clone()]).unwrap().execute().unwrap();
    // Limits of the nodes hold inside, with what the nodes before them give.
    let wrong = vec![inputs[0].clone(), inputs[1].clone(), tensor(&context, [48])];
    let error = graph.setup(&executor, wrong, vec![y]).unwrap_err();
    assert!(matches!(error, Error::Tensor { operation: "RmsNorm", .. }), "{error}");
    drop((graph, inputs, executor, context));
    assert_eq!(session.live(), Vec::<&str>::new());
    assert_eq!(session.calls("spec_atb_destroy_operation"), 1);
    runtime.shutdown().unwrap();
}

#[test]
fn a_node_sees_an_input_in_another_shape() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let mut graph = GraphBuilder::new("view", 2, 1);
    let norm = Operation::new(&context, RmsNorm::new(1e-5)).unwrap();
    let flat = Box::new(|shape: &[usize]| vec![shape[0], shape[1] * shape[2]]);
    let inputs = vec![(graph.input(0), Some(flat as atb_rs::View)), (graph.input(1), None)];
    let output = graph.output(0);
    graph.node_with_views(norm, inputs, &[output]);
    let mut graph = graph.build(&context).unwrap();
    let (x, gamma) = (tensor(&context, [2, 4, 16]), tensor(&context, [64]));
    graph.setup(&executor, vec![x, gamma], vec![tensor(&context, [2, 64])]).unwrap().execute().unwrap();
}

#[test]
fn graphs_that_atb_would_refuse_are_refused_here() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let norm = || Operation::new(&context, RmsNorm::new(1e-5)).unwrap();
    let refused = |graph: GraphBuilder| {
        let error = graph.build(&context).unwrap_err();
        assert!(matches!(error, Error::Graph { .. }), "{error}");
        error.to_string()
    };
    let mut graph = GraphBuilder::new("early", 2, 1);
    let inner = graph.internal();
    graph.node(norm(), &[inner, graph.input(1)], &[graph.output(0)]);
    assert!(refused(graph).contains("nothing has written before"));
    let mut graph = GraphBuilder::new("never", 2, 2);
    graph.node(norm(), &[graph.input(0), graph.input(1)], &[graph.output(0)]);
    assert!(refused(graph).contains("nothing writes tensor 3"));
    let mut graph = GraphBuilder::new("twice", 2, 1);
    for _ in 0..2 {
        graph.node(norm(), &[graph.input(0), graph.input(1)], &[graph.output(0)]);
    }
    assert!(refused(graph).contains("was written before"));
    let mut graph = GraphBuilder::new("arity", 2, 1);
    graph.node(norm(), &[graph.input(0)], &[graph.output(0)]);
    assert!(refused(graph).contains("takes (2, 1)"));
    assert!(refused(GraphBuilder::new("none", 1, 1)).contains("0 nodes"));
    assert!(refused(GraphBuilder::new("a name", 1, 1)).contains("letters"));
    assert!(refused(GraphBuilder::new("many", 257, 1)).contains("nodes"));
    // What was refused is freed.
    assert_eq!(session.live(), ["context"]);
}

#[test]
fn chips_are_told_apart_as_atb_does() {
    for (name, chip) in [
        ("Ascend910B1", Chip::A2),
        ("Ascend910_9382", Chip::A2),
        ("Ascend910B", Chip::A910),
        ("Ascend910ProA", Chip::A910),
        ("Ascend310P3", Chip::I310P),
        ("Ascend310B4", Chip::I310B),
        ("Ascend950", Chip::Other),
    ] {
        assert_eq!(Chip::from_name(name), chip, "{name}");
    }
    let session = fake::start();
    session.with(|state| state.chip = Some(c"Ascend310P3"));
    let (runtime, _context): (_, Context) = open(&session);
    assert_eq!(runtime.chip(), Chip::I310P);
}
