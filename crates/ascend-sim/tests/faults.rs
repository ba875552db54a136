//! Faults on demand, one family each, and what the ATB interface refuses at execution.

mod support;

use acl_sys::*;
use serde_json::json;
use std::ptr;
use support::operations::make;
use support::{Machine, Tensor, api};

#[test]
fn the_nth_call_returns_what_was_asked_for_and_the_others_work() {
    let machine =
        Machine::new("fault=aclrtMalloc:2:207001;fault=aclrtCreateEvent:*:507899;fault=aclrtMallocHost:2+:207001");
    machine.device(8);
    let mut pointer = ptr::null_mut();
    let text = machine.fails(api!(machine, aclrtMalloc(&mut pointer, 8, ACL_MEM_MALLOC_HUGE_FIRST)), 207_001);
    assert!(text.contains("asked for"), "{text}");
    machine.device(8);
    for _ in 0..2 {
        machine.fails(api!(machine, aclrtCreateEvent(&mut pointer)), 507_899);
    }
    machine.pinned(8);
    for _ in 0..2 {
        machine.fails(api!(machine, aclrtMallocHost(&mut pointer, 8)), 207_001);
    }
}

#[test]
fn a_task_that_fails_shows_at_the_next_synchronisation_only() {
    let machine = Machine::new("fault=task.aclrtMemsetAsync:1:507015");
    let (stream, block) = (machine.stream(), machine.upload(&[0; 4]));
    for value in [1, 2] {
        machine.call(api!(machine, aclrtMemsetAsync(block, 4, value, 4, stream)));
    }
    let text = machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 507_015);
    assert!(text.contains("aclrtMemsetAsync on stream"), "{text}");
    machine.synchronize(stream);
    assert_eq!(machine.download(block, 4), [2; 4], "later tasks run");
}

#[test]
fn a_stream_that_stops_on_failure_skips_what_comes_after() {
    let machine = Machine::new("fault=task.aclrtMemsetAsync:1:507015;delay=2000");
    let (stream, block) = (machine.stream(), machine.upload(&[0; 4]));
    machine.call(api!(machine, aclrtSetStreamFailureMode(stream, 1)));
    for value in [1, 2] {
        machine.call(api!(machine, aclrtMemsetAsync(block, 4, value, 4, stream)));
    }
    machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 507_015);
    assert_eq!(machine.download(block, 4), [0; 4]);
}

#[test]
fn a_stream_that_hangs_times_out_can_be_aborted_and_is_given_up_in_the_end() {
    let machine = Machine::new("fault=task.*:1:hang");
    let (stream, block) = (machine.stream(), machine.device(4));
    machine.call(api!(machine, aclrtMemsetAsync(block, 4, 1, 4, stream)));
    machine.fails(api!(machine, aclrtSynchronizeStreamWithTimeout(stream, 30)), 507_046);
    machine.call(api!(machine, aclrtStreamAbort(stream)));
    machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 107_023);
    machine.call(api!(machine, aclrtDestroyStreamForce(stream)));

    machine.ok(machine.configure("fault=task.*:1:hang"));
    machine.call(api!(machine, aclrtSetOpExecuteTimeOut(1)));
    let stream = machine.stream();
    machine.call(api!(machine, aclrtMemsetAsync(block, 4, 1, 4, stream)));
    machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 507_014);
}

#[test]
fn a_lost_device_fails_everything_but_cleaning_up() {
    let machine = Machine::new("fault=task.*:2:lost");
    let (stream, block, event) = (machine.stream(), machine.device(4), machine.event());
    machine.call(api!(machine, aclrtMemsetAsync(block, 4, 1, 4, stream)));
    machine.synchronize(stream);
    machine.call(api!(machine, aclrtMemsetAsync(block, 4, 2, 4, stream)));
    machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 507_010);
    let mut pointer = ptr::null_mut();
    machine.fails(api!(machine, aclrtMalloc(&mut pointer, 8, ACL_MEM_MALLOC_HUGE_FIRST)), 507_010);
    machine.call(api!(machine, aclrtFree(block)));
    machine.call(api!(machine, aclrtDestroyEvent(event)));
    machine.call(api!(machine, aclrtDestroyStream(stream)));
    machine.call(api!(machine, aclrtResetDevice(0)));
    assert_eq!(machine.alive(), Vec::<String>::new());
}

#[test]
fn absent_symbols_and_old_drivers_are_what_acl_sys_says_they_are() {
    let machine = Machine::without_device("absent=aclrtLaunchHostFunc;driver=old");
    let result = api!(machine, aclrtLaunchHostFunc(ptr::null_mut(), None, ptr::null_mut()));
    assert!(matches!(result, Err(Error::SymbolMissing { symbol: "aclrtLaunchHostFunc", .. })), "{result:?}");
    let text = machine.fails(api!(machine, aclInit(ptr::null())), 207_000);
    assert!(text.starts_with("EE1015") && text.contains("driver version capability is insufficient"), "{text}");
}

#[test]
fn nonsense_in_a_configuration_is_refused_and_changes_nothing() {
    let machine = Machine::new("memory=4096");
    for bad in ["fault=aclrtMalloc", "fault=aclrtMalloc:x:1", "fault=aclrtMalloc:1:hang", "memory=much"] {
        assert_eq!(machine.configure(bad).0, 100_000, "{bad}");
    }
    let mut pointer = ptr::null_mut();
    machine.fails(api!(machine, aclrtMalloc(&mut pointer, 8192, ACL_MEM_MALLOC_HUGE_FIRST)), 207_001);
}

#[test]
fn a_context_takes_96_mib_or_says_that_there_is_not_enough() {
    let machine = Machine::new("memory=100M");
    let mut context = ptr::null_mut();
    machine.call(api!(machine, spec_atb_create_context(ptr::null(), &mut context)));
    let mut second = ptr::null_mut();
    machine.fails(api!(machine, spec_atb_create_context(ptr::null(), &mut second)), 26);
    machine.call(api!(machine, spec_atb_destroy_context(context)));
    assert_eq!(machine.alive(), Vec::<String>::new());
}

#[test]
fn execute_wants_what_setup_saw() {
    let machine = Machine::new("");
    let (stream, other) = (machine.stream(), machine.stream());
    let (context, second) = (machine.context(stream), machine.context(other));
    let x = machine.tensor(ACL_FLOAT16, &[4, 16], &[0.5; 64]);
    let operation = make(&machine, "linear", json!({}));
    let (inputs, outputs) = ([x.clone(), x.clone()], [machine.empty(ACL_FLOAT16, &[4, 4])]);
    let workspace = machine.device(4096);
    let execute = |inputs: &[Tensor], workspace, size, context| {
        machine.execute(operation, (inputs, &outputs), (workspace, size), context).0
    };
    assert_eq!(execute(&inputs, workspace, 4096, context), 1, "no setup");
    assert_eq!(machine.setup(operation, &inputs, &outputs, ptr::null_mut()).0.0, 1, "no context");
    let (status, size) = machine.setup(operation, &inputs, &outputs, context);
    machine.ok(status);
    assert!(size > 0 && size % 512 == 0);
    assert_eq!(execute(&inputs, workspace, 4096, second), 1, "another context");
    assert_eq!(execute(&inputs, workspace, size - 1, context), 1, "too small a workspace");
    assert_eq!(execute(&inputs, ptr::null_mut(), size, context), 1, "no workspace");
    assert_eq!(execute(&[x.clone(), Tensor { size: 127, ..x.clone() }], workspace, size, context), 1, "another size");
    assert_eq!(execute(&[x.clone(), Tensor { device: ptr::null_mut(), ..x.clone() }], workspace, size, context), 1);
    assert_eq!(execute(&inputs[..1], workspace, size, context), 5);
    assert_eq!(execute(&inputs, workspace, size, context), 0);
    machine.synchronize(stream);

    // What a device cannot see when it is queued shows when it runs.
    let host = machine.pinned(4096);
    assert_eq!(execute(&[x.clone(), Tensor { device: host, ..x.clone() }], workspace, size, context), 0);
    assert!(machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 507_015).contains("pinned host memory"));
    assert_eq!(execute(&inputs, machine.device(8), size, context), 0);
    assert!(machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 507_015).contains("workspace"));
    machine.call(api!(machine, spec_atb_destroy_operation(operation)));
    machine.fails(api!(machine, spec_atb_destroy_operation(operation)), 24);
}

#[test]
fn blocks_and_slots_that_lead_nowhere_trap() {
    let machine = Machine::new("");
    let cache = machine.tensor(ACL_FLOAT16, &[2, 16, 1, 16], &vec![0.25; 512]);
    let query = machine.tensor(ACL_FLOAT16, &[1, 1, 16], &[0.5; 16]);
    let stream = machine.stream();
    let context = machine.context(stream);
    let workspace = machine.device(4096);
    let attempt = |operation, inputs: &[Tensor], outputs: &[Tensor]| {
        let (status, size) = machine.setup(operation, inputs, outputs, context);
        machine.ok(status);
        machine.ok(machine.execute(operation, (inputs, outputs), (workspace, size), context));
        api!(machine, aclrtSynchronizeStream(stream)).expect("exported").0
    };
    let attention = make(&machine, "paged_attention", json!({"head_num": 1}));
    let output = machine.empty(ACL_FLOAT16, &[1, 1, 16]);
    let with_table = |table: &[f64], context: i32| {
        let tables = machine.tensor(ACL_INT32, &[1, 2], table);
        let inputs = [query.clone(), cache.clone(), cache.clone(), tables, machine.lengths(&[context])];
        attempt(attention, &inputs, std::slice::from_ref(&output))
    };
    assert_eq!(with_table(&[0.0, 2.0], 17), 507_015);
    assert_eq!(with_table(&[0.0, 2.0], 16), 0, "the second block is not needed");
    let write = make(&machine, "reshape_and_cache", json!({}));
    let slots = machine.tensor(ACL_INT32, &[1], &[32.0]);
    let inputs = [query.clone(), query.clone(), cache.clone(), cache.clone(), slots];
    assert_eq!(attempt(write, &inputs, &[cache.clone(), cache.clone()]), 507_015);
    let apart = [query.clone(), query, cache.clone(), cache.clone(), machine.tensor(ACL_INT32, &[1], &[0.0])];
    let copies = [machine.empty(ACL_FLOAT16, &[2, 16, 1, 16]), cache];
    assert_eq!(machine.setup(write, &apart, &copies, context).0.0, 1, "a cache is one memory");
}
