//! Asynchrony: what is seen before it is waited for, what races, and what the virtual clock says of overlap.

mod support;

use acl_sys::*;
use serde_json::json;
use std::ptr;
use support::operations::make;
use support::{Machine, Tensor, api};

/// Every task waits a tenth of a second first, so that nothing has run yet when the host looks.
const SLOW: &str = "delay=100000";

fn fill(machine: &Machine, block: *mut std::ffi::c_void, value: i32, stream: aclrtStream) {
    machine.call(api!(machine, aclrtMemsetAsync(block, 4, value, 4, stream)));
}

#[test]
fn a_result_is_not_there_before_the_stream_is_waited_for() {
    let machine = Machine::new(SLOW);
    let (stream, block) = (machine.stream(), machine.upload(&[1; 4]));
    fill(&machine, block, 2, stream);
    let mut status = ACL_STREAM_STATUS_RESERVED;
    machine.call(api!(machine, aclrtStreamQuery(stream, &mut status)));
    assert_eq!(status, ACL_STREAM_STATUS_NOT_READY);
    assert_eq!(machine.download(block, 4), [1; 4], "a synchronous copy waits for no stream");
    machine.synchronize(stream);
    assert_eq!(machine.download(block, 4), [2; 4]);
    machine.call(api!(machine, aclrtStreamQuery(stream, &mut status)));
    assert_eq!(status, ACL_STREAM_STATUS_COMPLETE);
}

/// One stream fills and the other copies what is filled, with and without the event between them.
fn filled_and_copied(machine: &Machine, with_event: bool) -> Vec<u8> {
    let (writer, reader, event) = (machine.stream(), machine.stream(), machine.event());
    let (block, host) = (machine.upload(&[1; 4]), machine.pinned(4));
    // The writer has more to do before, so that it is behind.
    fill(machine, machine.device(4), 0, writer);
    fill(machine, block, 2, writer);
    machine.call(api!(machine, aclrtRecordEvent(event, writer)));
    if with_event {
        machine.call(api!(machine, aclrtStreamWaitEvent(reader, event)));
    }
    machine.call(api!(machine, aclrtMemcpyAsync(host, 4, block, 4, ACL_MEMCPY_DEVICE_TO_HOST, reader)));
    machine.synchronize(reader);
    // SAFETY: the copy into these 4 bytes is done.
    let bytes = unsafe { std::slice::from_raw_parts(host.cast::<u8>(), 4) }.to_vec();
    machine.synchronize(writer);
    bytes
}

#[test]
fn an_event_puts_streams_in_order_and_without_it_old_data_is_read() {
    let machine = Machine::new(SLOW);
    assert_eq!(filled_and_copied(&machine, true), [2; 4]);
    assert_eq!(machine.violations(), Vec::<String>::new());
    assert_eq!(filled_and_copied(&machine, false), [1; 4]);
}

#[test]
fn a_missing_wait_is_found_even_when_it_does_no_harm() {
    let machine = Machine::new("delay=0");
    for _ in 0..3 {
        filled_and_copied(&machine, true);
    }
    assert_eq!(machine.violations(), Vec::<String>::new());
    filled_and_copied(&machine, false);
    let violations = machine.violations().join("\n");
    assert!(violations.contains("no event or synchronisation puts them in order"), "{violations}");
}

#[test]
fn reading_back_without_waiting_is_a_violation_and_waiting_is_none() {
    let machine = Machine::new("delay=0");
    let (stream, block) = (machine.stream(), machine.upload(&[1; 4]));
    fill(&machine, block, 2, stream);
    machine.synchronize(stream);
    machine.download(block, 4);
    assert_eq!(machine.violations(), Vec::<String>::new());
    fill(&machine, block, 3, stream);
    std::thread::sleep(std::time::Duration::from_millis(30));
    machine.download(block, 4);
    let violations = machine.violations().join("\n");
    assert!(violations.contains("aclrtMemcpy reads") && violations.contains("aclrtMemsetAsync"), "{violations}");
}

#[test]
fn asking_until_it_is_done_and_destroying_the_stream_are_waits_too() {
    let machine = Machine::new("delay=0..2000");
    let block = machine.upload(&[1; 4]);
    let stream = machine.stream();
    fill(&machine, block, 2, stream);
    let mut status = ACL_STREAM_STATUS_NOT_READY;
    while status == ACL_STREAM_STATUS_NOT_READY {
        machine.call(api!(machine, aclrtStreamQuery(stream, &mut status)));
    }
    machine.download(block, 4);
    let event = machine.event();
    fill(&machine, block, 3, stream);
    machine.call(api!(machine, aclrtRecordEvent(event, stream)));
    let mut recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    while recorded == ACL_EVENT_RECORDED_STATUS_NOT_READY {
        machine.call(api!(machine, aclrtQueryEventStatus(event, &mut recorded)));
    }
    assert_eq!(machine.download(block, 4), [3; 4]);
    fill(&machine, block, 4, stream);
    machine.call(api!(machine, aclrtDestroyStream(stream)));
    machine.call(api!(machine, aclrtFree(block)));
    assert_eq!(machine.violations(), Vec::<String>::new());
}

#[test]
fn what_one_thread_waited_for_another_may_use() {
    let machine = Machine::new("delay=0..2000");
    let (block, stream) = (machine.upload(&[1; 4]), machine.stream());
    fill(&machine, block, 2, stream);
    std::thread::scope(|scope| {
        let (machine, address) = (&machine, stream.addr());
        let waiting = scope.spawn(move || {
            api!(machine, aclrtSynchronizeStream(ptr::without_provenance_mut(address))).expect("exported")
        });
        assert_eq!(waiting.join().expect("no panic"), Status::SUCCESS);
    });
    assert_eq!(machine.download(block, 4), [2; 4]);
    assert_eq!(machine.violations(), Vec::<String>::new());
}

#[test]
fn a_copy_takes_what_is_in_pinned_memory_when_it_runs() {
    let machine = Machine::new(SLOW);
    let (stream, block, host) = (machine.stream(), machine.device(1), machine.pinned(1));
    // SAFETY: one byte of pinned memory, which the copy reads later.
    unsafe { host.cast::<u8>().write(1) };
    machine.call(api!(machine, aclrtMemcpyAsync(block, 1, host, 1, ACL_MEMCPY_HOST_TO_DEVICE, stream)));
    // SAFETY: as above; the stream still waits.
    unsafe { host.cast::<u8>().write(2) };
    machine.synchronize(stream);
    assert_eq!(machine.download(block, 1), [2]);
}

#[test]
fn a_copy_from_pageable_memory_waits_and_is_reported() {
    let machine = Machine::new(SLOW);
    let (stream, block, host) = (machine.stream(), machine.device(4), [5u8; 4]);
    machine.call(api!(machine, aclrtMemcpyAsync(block, 4, host.as_ptr().cast(), 4, ACL_MEMCPY_HOST_TO_DEVICE, stream)));
    assert_eq!(machine.peek(block, 4), [5; 4]);
    assert!(machine.violations()[0].contains("not pinned"));
    let mut other = [0u8; 4];
    let to = other.as_mut_ptr().cast();
    machine.fails(
        api!(machine, aclrtMemcpyAsync(to, 4, host.as_ptr().cast(), 4, ACL_MEMCPY_HOST_TO_HOST, stream)),
        207_000,
    );
}

#[test]
fn freeing_what_is_still_needed_is_a_violation_and_the_task_fails() {
    let machine = Machine::new(SLOW);
    let (stream, block, host) = (machine.stream(), machine.device(4), machine.pinned(4));
    fill(&machine, machine.device(4), 0, stream);
    machine.call(api!(machine, aclrtMemcpyAsync(block, 4, host, 4, ACL_MEMCPY_HOST_TO_DEVICE, stream)));
    machine.call(api!(machine, aclrtFree(block)));
    let violations = machine.violations().join("\n");
    assert!(violations.contains("freed while aclrtMemcpyAsync"), "{violations}");
    let text = machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 507_013);
    assert!(text.contains("was freed"), "{text}");
}

#[test]
fn a_workspace_shared_by_two_streams_is_a_violation() {
    let machine = Machine::new("");
    let x = machine.tensor(ACL_FLOAT16, &[16, 16], &[0.5; 256]);
    let operation = [make(&machine, "linear", json!({})), make(&machine, "linear", json!({}))];
    let mut workspace: *mut std::ffi::c_void = ptr::null_mut();
    for operation in operation {
        let stream = machine.stream();
        let context = machine.context(stream);
        let (inputs, outputs) = ([x.clone(), x.clone()], [machine.empty(ACL_FLOAT16, &[16, 16])]);
        let (status, size) = machine.setup(operation, &inputs, &outputs, context);
        machine.ok(status);
        if workspace.is_null() {
            workspace = machine.device(size as usize);
        }
        machine.ok(machine.execute(operation, (&inputs, &outputs), (workspace, size), context));
    }
    machine.call(api!(machine, aclrtSynchronizeDevice()));
    assert!(machine.violations().join("\n").contains("Linear writes"), "{:?}", machine.violations());
}

#[test]
fn the_virtual_clock_shows_overlap_whatever_the_host_does() {
    // A kernel of 1 ms and a copy of 1 ms, each on its stream, or both on one.
    let config = "delay=0..3000;link_bandwidth=1;multiply_adds=1;launch=0;call=0";
    let times = |together: bool, seed: u32| {
        let machine = Machine::new(&format!("{config};seed={seed}"));
        let compute = machine.stream();
        let copy = if together { compute } else { machine.stream() };
        let (host, block) = (machine.pinned(1_000_000), machine.device(1_000_000));
        let context = machine.context(compute);
        let square = |rows: usize| machine.tensor(ACL_FLOAT16, &[rows, 100], &vec![0.5; rows * 100]);
        let (inputs, outputs) = ([square(100), square(100)], [machine.empty(ACL_FLOAT16, &[100, 100])]);
        let operation = make(&machine, "linear", json!({}));
        let (status, size) = machine.setup(operation, &inputs, &outputs, context);
        machine.ok(status);
        let workspace = machine.device(size as usize);
        let (start, end) = (machine.event(), machine.event());
        machine.call(api!(machine, aclrtRecordEvent(start, copy)));
        machine.ok(machine.execute(operation, (&inputs, &outputs), (workspace, size), context));
        let kind = ACL_MEMCPY_HOST_TO_DEVICE;
        machine.call(api!(machine, aclrtMemcpyAsync(block, 1_000_000, host, 1_000_000, kind, copy)));
        machine.call(api!(machine, aclrtRecordEvent(end, copy)));
        machine.call(api!(machine, aclrtSynchronizeDevice()));
        let mut elapsed = 0.0;
        machine.call(api!(machine, aclrtEventElapsedTime(&mut elapsed, start, end)));
        (elapsed, machine.virtual_time(compute).max(machine.virtual_time(copy)))
    };
    let (apart, ends) = times(false, 1);
    assert_eq!(apart, 1.0, "milliseconds");
    assert_eq!(times(false, 2), (apart, ends), "delays of the host do not count");
    assert_eq!(times(true, 1).0, 2.0);
}

#[test]
fn lengths_that_differ_between_host_and_device_are_reported() {
    let machine = Machine::new("");
    let cache = machine.tensor(ACL_FLOAT16, &[2, 16, 1, 16], &vec![0.25; 512]);
    let contexts = Tensor { host: Some(vec![7]), ..machine.lengths(&[9]) };
    let query = machine.tensor(ACL_FLOAT16, &[1, 1, 16], &[0.5; 16]);
    let inputs = [query, cache.clone(), cache, machine.tensor(ACL_INT32, &[1, 2], &[0.0, 1.0]), contexts];
    let output = machine.empty(ACL_FLOAT16, &[1, 1, 16]);
    machine.run(make(&machine, "paged_attention", json!({"head_num": 1})), &inputs, std::slice::from_ref(&output));
    assert!(machine.violations()[0].contains("contextLens differ"), "{:?}", machine.violations());
}
