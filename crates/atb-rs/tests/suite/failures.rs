//! Every call that can fail is made to fail once: its name, its meaning and advice reach the caller, and nothing leaks.

use crate::{fake, open, tensor};
use acl_sys::Status;
use atb_rs::parameters::{
    Activation, CacheLayout, Elewise, Gather, Linear, Multinomial, PagedAttention, PagedMode, PrefillKernel,
    PrefillMask, Reduce, Reduction, ReshapeAndCache, RmsNorm, Rope, RopeTables, Rotation, Sampling, SelfAttention,
    Softmax, Sort, Split, Verify,
};
use atb_rs::{
    Context, Device, DeviceBuffer, Error, Event, Executor, GraphBuilder, HostBuffer, Lengths, Operation, Result,
    Runtime, Stream, Tensor, Workspace,
};
use half::f16;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Uses everything.
fn everything(api: acl_sys::Api) -> Result<()> {
    let runtime = Runtime::start(api)?;
    runtime.device_count()?;
    let device = Device::open(&runtime, 0)?;
    let context = Context::new(&device)?;
    let used = use_everything(&context);
    drop((context, device));
    // A failure of the work is what the caller hears of; one of the end comes after it.
    let ended = runtime.shutdown();
    used.and(ended)
}

fn use_everything(context: &Context) -> Result<()> {
    context.memory_info()?;
    context.set_op_timeout(Duration::from_secs(1))?;
    context.set_wait_timeout(Duration::from_secs(1))?;
    let stream = Stream::new(context)?;
    let other = Stream::new(context)?;
    let (mut event, mut end) = (Event::timed(context)?, Event::timed(context)?);
    let buffer = DeviceBuffer::from_slice(context, &[f16::ONE; 32])?;
    let mut pinned = HostBuffer::new(context, 64)?;
    stream.upload(&pinned, &buffer)?;
    stream.fill(&buffer, 0)?;
    stream.record(&mut event)?;
    other.wait(&event)?;
    other.download(&buffer, &mut pinned)?;
    other.record(&mut end)?;
    end.is_complete()?;
    stream.is_idle()?;
    end.synchronize()?;
    end.synchronize_for(Duration::from_secs(1))?;
    end.elapsed_since(&event)?;
    stream.synchronize_for(Duration::from_secs(1))?;
    stream.synchronize()?;
    buffer.read(0, &mut [0u8; 64])?;
    let lengths = Lengths::new(context, 2)?;
    lengths.set(&stream, &[1, 2])?;

    let executor = Executor::new(&stream, Workspace::new(context, 1 << 20))?;
    let mut norm = Operation::new(context, RmsNorm::new(1e-5))?;
    let gamma = Tensor::new(atb_rs::TensorDesc::new(atb_rs::DataType::F16, [32]), &buffer)?;
    let x = Tensor::allocate(context, atb_rs::TensorDesc::new(atb_rs::DataType::F16, [4, 32]))?;
    norm.setup(&executor, vec![x.clone(), gamma.clone()], vec![x.clone()])?.execute()?;
    let mut graph = GraphBuilder::new("two", 2, 1);
    let inner = graph.internal();
    graph.node(Operation::new(context, Linear::new(false))?, &[graph.input(0), graph.input(1)], &[inner]);
    graph.node(norm, &[inner, graph.input(1)], &[graph.output(0)]);
    drop(graph.build(context)?);
    make_the_other_operations(context)?;
    // Something is still queued when everything goes.
    stream.fill(&DeviceBuffer::new(context, 64)?, 0)?;
    Ok(())
}

fn make_the_other_operations(context: &Context) -> Result<()> {
    let (heads, kv_heads, scale) = (4, 2, 0.25);
    Operation::new(context, Gather::ROWS)?;
    Operation::new(context, Rope { rotation: Rotation::Halves, tables: RopeTables::PerToken })?;
    Operation::new(context, ReshapeAndCache { layout: CacheLayout::Nd })?;
    let (mask, kernel) = (PrefillMask::None, PrefillKernel::Default);
    Operation::new(context, SelfAttention { heads, kv_heads, scale, mask, kernel })?;
    Operation::new(context, PagedAttention { heads, kv_heads, scale, mode: PagedMode::Verify })?;
    Operation::new(context, Activation::Swiglu)?;
    Operation::new(context, Elewise::Add)?;
    Operation::new(context, Softmax)?;
    Operation::new(context, Sort { count: 1 })?;
    Operation::new(context, Verify::Greedy)?;
    Operation::new(context, Reduce { reduction: Reduction::Sum, axis: 0 })?;
    Operation::new(context, Multinomial { count: 1, seed: 1 })?;
    Operation::new(context, Sampling::Exponential)?;
    Operation::new(context, Split { axis: -1, lengths: vec![1, 2] })?;
    Ok(())
}

/// Every function that `everything` calls, with how often.
fn calls() -> Vec<(&'static str, u64)> {
    let session = fake::start();
    everything(session.api()).unwrap();
    assert_eq!(session.live(), Vec::<&str>::new());
    session.with(|state| state.calls.iter().map(|(&name, &count)| (name, count)).collect())
}

/// Functions of the table that the sources of atb-rs call.
fn functions() -> BTreeSet<String> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut functions = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            for (at, call) in text.match_indices("api.acl").chain(text.match_indices("api.spec_atb_")) {
                let name: String =
                    text[at + 4..].chars().take_while(|&letter| letter == '_' || letter.is_alphanumeric()).collect();
                assert!(name.starts_with(&call[4..]));
                functions.insert(name);
            }
        }
    }
    functions
}

#[test]
fn every_function_that_can_fail_is_made_to() {
    // These return no status.
    let answers = ["aclGetRecentErrMsg", "spec_atb_last_error", "aclrtGetSocName"];
    // Called only after another failure; see the test below.
    let last_resorts = ["aclrtSynchronizeDevice"];
    // A range without markers is nothing, and nobody's failure; the simulator's tests leave some out.
    let markers =
        ["aclprofCreateStamp", "aclprofSetStampTraceMessage", "aclprofPush", "aclprofPop", "aclprofDestroyStamp"];
    let called: BTreeSet<String> = calls().into_iter().map(|(name, _)| name.to_owned()).collect();
    let missing: Vec<String> = functions()
        .into_iter()
        .filter(|name| {
            !called.contains(name) && ![&answers[..], &last_resorts, &markers].concat().contains(&name.as_str())
        })
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_context_whose_work_nobody_can_wait_for_goes_all_the_same() {
    for fails_twice in [false, true] {
        let session = fake::start();
        let (runtime, context) = open(&session);
        let stream = Stream::new(&context).unwrap();
        stream.fill(&DeviceBuffer::new(&context, 64).unwrap(), 0).unwrap();
        session.fail("aclrtDestroyStream", 1, Status::ACL_ERROR_RT_LOST_HEARTBEAT);
        if fails_twice {
            session.fail("aclrtSynchronizeDevice", 1, Status::ACL_ERROR_RT_INTERNAL_ERROR);
        }
        drop((stream, context));
        assert_eq!(session.calls("aclrtSynchronizeDevice"), 1);
        // The stream is what the library refused to free.
        assert_eq!(session.live(), ["stream"]);
        // The first failure explains the others.
        let error = runtime.shutdown().unwrap_err();
        assert_eq!(error.status(), Some(Status::ACL_ERROR_RT_LOST_HEARTBEAT));
    }
}

#[test]
fn every_failure_reaches_the_caller_and_nothing_leaks() {
    let calls = calls();
    assert!(calls.len() > 50, "{calls:?}");
    for (function, count) in calls {
        // The first, one in the middle, and the last: beginnings, work, and drops.
        for nth in [1, count.div_ceil(2), count] {
            let session = fake::start();
            let status = if function.starts_with("spec_atb") {
                Status::ATB_ERROR_RT_FAIL
            } else {
                Status::ACL_ERROR_RT_MEMORY_ALLOCATION
            };
            session.with(|state| {
                state.messages.insert("acl", c"EE9999: because");
                state.messages.insert("shim", c"atb::Thing: because");
            });
            session.fail(function, nth, status);
            let error = match everything(session.api()) {
                Err(error) => error,
                // The last thing that could have reported it is gone: the next start does.
                Ok(()) => Runtime::start(session.api()).expect_err("nobody has heard of the failure"),
            };
            let text = error.to_string();
            assert_eq!(error.status(), Some(status), "call {nth} of {function}: {text}");
            for part in [function, status.name().unwrap(), status.meaning(), status.advice(), "because"] {
                assert!(text.contains(part), "call {nth} of {function}: no {part:?} in {text}");
            }
            let frees = ["Free", "Destroy", "destroy", "Reset", "Finalize"].iter().any(|word| function.contains(word));
            // What the library refused to free is all that may be left: one thing, or a graph with its two nodes.
            let live = session.live();
            assert!(live.is_empty() || frees, "call {nth} of {function}: {live:?} leaked after {text}");
            let is_graph = live == ["operation"; 3];
            assert!(live.len() <= 1 || is_graph, "call {nth} of {function}: {live:?} leaked after {text}");
        }
    }
}

#[test]
fn a_function_that_is_not_there_is_named() {
    let session = fake::start();
    // The fake has no such function, as CANN before 8.5 has not.
    let (_runtime, context) = open(&session);
    let error = context.device().runtime().api().cann_version();
    assert_eq!(error.unwrap(), None);
    drop(context);
    // SAFETY: nothing is resolved.
    let empty = unsafe { acl_sys::Api::from_parts(|_, _| None) };
    drop(_runtime);
    let error = Runtime::start(empty).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }));
    assert!(error.to_string().contains("starting AscendCL: `aclInit` is in none of the libraries"), "{error}");
}

#[test]
fn a_shim_or_a_libatb_that_does_not_fit_is_refused_before_it_is_used() {
    let session = fake::start();
    session.with(|state| {
        state.atb_status = Status::SPEC_ATB_ERROR_ABI.0;
        state.messages.insert("shim", c"libatb.so is of cxx_abi_1, the shim of cxx_abi_0");
    });
    let (_runtime, context) = open(&session);
    let error = Operation::new(&context, Linear::new(false)).unwrap_err();
    assert_eq!(error.status(), Some(Status::SPEC_ATB_ERROR_ABI));
    assert!(error.to_string().contains("the shim of cxx_abi_0"), "{error}");
    assert_eq!(session.calls("spec_atb_create_linear"), 0);
    session.with(|state| {
        state.atb_status = 0;
        state.abi_version = 7;
    });
    let error = Operation::new(&context, Linear::new(false)).unwrap_err().to_string();
    assert!(error.contains("version 7") && error.contains("cargo xtask build-atb"), "{error}");
    session.with(|state| state.abi_version = acl_sys::SPEC_ATB_ABI_VERSION);
    let found = context.device().runtime().atb().unwrap().clone();
    assert_eq!((found.path.to_str(), found.cxx11_abi), (Some("/opt/libatb.so"), 1));
    // It has no NUL, and is read to its end all the same.
    assert_eq!(found.version, "9".repeat(128));
}

#[test]
fn a_timed_out_wait_leaves_memory_in_use() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let stream = Stream::new(&context).unwrap();
    let buffer = DeviceBuffer::new(&context, 64).unwrap();
    stream.fill(&buffer, 3).unwrap();
    session.fail("aclrtSynchronizeStreamWithTimeout", 1, Status::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    let error = stream.synchronize_for(Duration::from_millis(2)).unwrap_err().to_string();
    assert!(error.contains("waiting 2 ms for stream 1") && error.contains("507046"), "{error}");
    assert!(matches!(buffer.read(0, &mut [0u8; 64]), Err(Error::InUse { .. })));
    stream.synchronize().unwrap();
    buffer.read(0, &mut [0u8; 64]).unwrap();
}

#[test]
fn an_operation_that_was_refused_still_counts_as_queued() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = crate::executor(&context);
    let mut norm = Operation::new(&context, RmsNorm::new(1e-5)).unwrap();
    let y = tensor(&context, [2, 16]);
    session.fail("spec_atb_execute", 1, Status::ATB_ERROR_RT_FAIL);
    let inputs = vec![tensor(&context, [2, 16]), tensor(&context, [16])];
    let error = norm.setup(&executor, inputs, vec![y.clone()]).unwrap().execute().unwrap_err();
    assert!(error.to_string().contains("executing RmsNorm on stream 1"), "{error}");
    // A part of it may have been queued.
    assert!(matches!(y.buffer().unwrap().read(0, &mut [0u8; 64]), Err(Error::InUse { .. })));
}

#[test]
fn a_wait_that_may_have_failed_orders_nothing() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let (one, two) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let buffer = DeviceBuffer::new(&context, 64).unwrap();
    one.fill(&buffer, 3).unwrap();
    let mut event = Event::new(&context).unwrap();
    one.record(&mut event).unwrap();
    two.wait(&event).unwrap();
    // The stream gave the wait up (`set_wait_timeout`), says so once, and goes on.
    session.fail("aclrtSynchronizeStream", 1, Status::ACL_ERROR_RT_TASK_TIMEOUT);
    two.synchronize().unwrap_err();
    two.synchronize().unwrap();
    assert!(matches!(buffer.read(0, &mut [0u8; 64]), Err(Error::InUse { stream: 1, .. })));
    assert!(matches!(two.fill(&buffer, 4), Err(Error::Unordered { .. })));
}
