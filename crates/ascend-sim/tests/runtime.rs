//! AscendCL's documented behaviour: life cycle, memory, streams, events, callbacks, capture.

mod support;

use acl_sys::*;
use std::ffi::{CString, c_void};
use std::io::Write;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{Machine, api};

const INVALID: i32 = 107_000;
const ARGUMENT: i32 = 100_000;

#[test]
fn starts_count_and_ends_report_what_is_left() {
    let machine = Machine::without_device("");
    machine.call(api!(machine, aclInit(ptr::null())));
    machine.fails(api!(machine, aclInit(ptr::null())), 100_002);
    let mut left = 9;
    machine.call(api!(machine, aclFinalizeReference(&mut left)));
    assert_eq!(left, 1);
    machine.call(api!(machine, aclrtSetDevice(0)));
    machine.device(100);
    machine.event();
    machine.call(api!(machine, aclFinalize()));
    machine.fails(api!(machine, aclFinalize()), 100_037);
    let leaks = machine.leaks().join("\n");
    assert!(leaks.contains("100 bytes") && leaks.contains("event"), "{leaks}");
    machine.call(api!(machine, aclInit(ptr::null())));
}

#[test]
fn configurations_are_read_and_checked() {
    let machine = Machine::without_device("");
    let init = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        let path = CString::new(file.path().to_str().expect("text")).expect("no NUL");
        let status = api!(machine, aclInit(path.as_ptr())).expect("exported");
        let _ = api!(machine, aclFinalize());
        status.0
    };
    assert_eq!(init("{\"err_msg_mode\":\"1\"}"), 0);
    assert_eq!(init("{\"err_msg_mode\":\"2\"}"), 100_008);
    assert_eq!(init("not JSON"), 100_006);
    assert_eq!(init(&format!("{}1{}", "[".repeat(11), "]".repeat(11))), 100_006);
    assert_eq!(api!(machine, aclInit(c"/nowhere".as_ptr())).expect("exported").0, 100_003);
}

#[test]
fn devices_are_counted_and_threads_have_none_of_their_own() {
    let machine = Machine::without_device("devices=2");
    machine.fails(api!(machine, aclrtSetDevice(2)), 107_001);
    machine.fails(api!(machine, aclrtSetDevice(-1)), 107_001);
    machine.fails(api!(machine, aclrtResetDevice(0)), 507_007);
    machine.call(api!(machine, aclrtSetDevice(1)));
    machine.call(api!(machine, aclrtSetDevice(1)));
    let mut device = 0;
    machine.call(api!(machine, aclrtGetDevice(&mut device)));
    assert_eq!(device, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pointer = ptr::null_mut();
            let status = api!(machine, aclrtMalloc(&mut pointer, 1, ACL_MEM_MALLOC_HUGE_FIRST)).expect("exported");
            assert_eq!((status.0, pointer.is_null()), (107_002, true));
        });
    });
    machine.call(api!(machine, aclrtResetDevice(1)));
    machine.call(api!(machine, aclrtGetDevice(&mut device)));
    machine.call(api!(machine, aclrtResetDevice(1)));
    machine.fails(api!(machine, aclrtGetDevice(&mut device)), 107_002);
}

#[test]
fn texts_of_errors_are_taken_and_statuses_are_peeked_at() {
    let machine = Machine::without_device("");
    assert_eq!(api!(machine, aclrtSetDevice(7)).expect("exported").0, 107_001);
    assert_eq!(api!(machine, aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL)).expect("exported").0, 107_001);
    assert_eq!(api!(machine, aclrtGetLastError(ACL_RT_THREAD_LEVEL)).expect("exported").0, 107_001);
    assert_eq!(api!(machine, aclrtGetLastError(ACL_RT_THREAD_LEVEL)).expect("exported").0, 0);
    assert!(machine.message().starts_with("EE1001: aclrtSetDevice"));
    assert_eq!(machine.message(), "");
}

#[test]
fn memory_is_poisoned_bounded_and_runs_out() {
    let machine = Machine::new("memory=1M");
    let mut pointer = ptr::null_mut::<c_void>();
    machine.fails(api!(machine, aclrtMalloc(&mut pointer, 0, ACL_MEM_MALLOC_HUGE_FIRST)), ARGUMENT);
    machine.fails(api!(machine, aclrtFree(ptr::null_mut())), ARGUMENT);
    let block = machine.device(1000);
    assert_eq!(block as usize % 64, 0);
    assert!(machine.download(block, 1000).iter().all(|byte| *byte == 0xFF));
    let (mut free, mut total) = (0, 0);
    machine.call(api!(machine, aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)));
    assert_eq!((total, total - free), (1 << 20, 1024 + 32), "a multiple of 32, and 32 more");
    machine.fails(api!(machine, aclrtMalloc(&mut pointer, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST)), 207_001);
    assert!(pointer.is_null());

    let mut bytes = [0u8; 8];
    let to = bytes.as_mut_ptr().cast::<c_void>();
    let inside = block.wrapping_byte_add(992);
    machine.call(api!(machine, aclrtMemcpy(to, 8, inside, 8, ACL_MEMCPY_DEVICE_TO_HOST)));
    let text = machine
        .fails(api!(machine, aclrtMemcpy(to, 8, inside.wrapping_byte_add(1), 8, ACL_MEMCPY_DEVICE_TO_HOST)), 507_013);
    assert!(text.contains("leave their allocation of 1000 bytes"), "{text}");
    machine.fails(api!(machine, aclrtMemcpy(to, 4, block, 8, ACL_MEMCPY_DEVICE_TO_HOST)), INVALID);
    machine.fails(api!(machine, aclrtMemcpy(to, 8, block, 8, aclrtMemcpyKind(9))), ARGUMENT);
    machine.fails(api!(machine, aclrtMemcpy(to, 8, block, 0, ACL_MEMCPY_DEVICE_TO_HOST)), INVALID);

    machine.call(api!(machine, aclrtFree(block)));
    let text = machine.fails(api!(machine, aclrtMemcpy(to, 8, block, 8, ACL_MEMCPY_DEVICE_TO_HOST)), 507_013);
    assert!(text.contains("was freed"), "{text}");
    assert!(machine.fails(api!(machine, aclrtFree(block)), INVALID).contains("freed before"));
}

#[test]
fn a_pointer_of_the_device_is_nothing_to_the_host() {
    let machine = Machine::new("");
    let block = machine.device(64);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let rights = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let parse = |text| usize::from_str_radix(text, 16).ok();
        (parse(start)?..parse(end)?)
            .contains(&(block as usize))
            .then(|| rest.split(' ').next().unwrap_or_default().to_owned())
    });
    assert_eq!(rights.as_deref(), Some("---p"), "reading it is a fault");
}

#[test]
fn copies_of_rows_go_where_the_pitches_say() {
    let machine = Machine::new("");
    let from: Vec<u8> = (0..12).collect();
    let block = machine.upload(&[0; 15]);
    let source = from.as_ptr().cast();
    machine.call(api!(machine, aclrtMemcpy2d(block, 5, source, 4, 3, 3, ACL_MEMCPY_HOST_TO_DEVICE)));
    assert_eq!(machine.download(block, 15), [0, 1, 2, 0, 0, 4, 5, 6, 0, 0, 8, 9, 10, 0, 0]);
    machine.fails(api!(machine, aclrtMemcpy2d(block, 2, source, 4, 3, 3, ACL_MEMCPY_HOST_TO_DEVICE)), INVALID);
}

#[test]
fn handles_are_known_or_refused() {
    let machine = Machine::new("max_streams=3;max_events=2");
    let (stream, _) = (machine.stream(), machine.stream());
    let mut more = ptr::null_mut();
    machine.fails(api!(machine, aclrtCreateStream(&mut more)), 207_008);
    machine.call(api!(machine, aclrtDestroyStream(stream)));
    machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 107_017);
    machine.fails(api!(machine, aclrtDestroyStream(ptr::null_mut())), ARGUMENT);
    machine.fails(api!(machine, aclrtCreateEventWithFlag(&mut more, 0)), INVALID);
    machine.fails(api!(machine, aclrtCreateEventWithFlag(&mut more, ACL_EVENT_EXTERNAL | ACL_EVENT_SYNC)), INVALID);
    machine.event();
    machine.event();
    machine.fails(api!(machine, aclrtCreateEvent(&mut more)), 207_007);
    machine.fails(api!(machine, aclrtRecordEvent(ptr::null_mut(), machine.stream())), ARGUMENT);
}

#[test]
fn a_stream_of_another_context_is_refused() {
    let machine = Machine::new("");
    let (stream, event) = (machine.stream(), machine.event());
    let mut context = ptr::null_mut();
    machine.call(api!(machine, aclrtCreateContext(&mut context, 0)));
    machine.fails(api!(machine, aclrtRecordEvent(event, stream)), 107_003);
    machine.fails(api!(machine, aclrtDestroyStream(stream)), 107_003);
    machine.call(api!(machine, aclrtSynchronizeStream(stream)));
    machine.call(api!(machine, aclrtDestroyContext(context)));
}

#[test]
fn events_of_both_kinds_say_what_the_vendor_says() {
    let machine = Machine::new("");
    let (stream, ex) = (machine.stream(), machine.event());
    let mut recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    machine.call(api!(machine, aclrtQueryEventStatus(ex, &mut recorded)));
    assert_eq!(recorded, ACL_EVENT_RECORDED_STATUS_COMPLETE, "nothing to wait for");
    machine.fails(api!(machine, aclrtResetEvent(ex, stream)), 207_000);
    let mut status = ACL_EVENT_STATUS_RESERVED;
    machine.fails(api!(machine, aclrtQueryEvent(ex, &mut status)), 207_000);

    let mut flag = ptr::null_mut();
    machine.call(api!(machine, aclrtCreateEvent(&mut flag)));
    machine.call(api!(machine, aclrtQueryEventStatus(flag, &mut recorded)));
    assert_eq!(recorded, ACL_EVENT_RECORDED_STATUS_NOT_READY);
    let mut elapsed = 0.0;
    machine.fails(api!(machine, aclrtEventElapsedTime(&mut elapsed, ex, flag)), 507_000);
    machine.call(api!(machine, aclrtRecordEvent(flag, stream)));
    machine.call(api!(machine, aclrtSynchronizeEvent(flag)));
    machine.call(api!(machine, aclrtRecordEvent(ex, stream)));
    machine.call(api!(machine, aclrtSynchronizeEvent(ex)));
    machine.call(api!(machine, aclrtQueryEvent(flag, &mut status)));
    assert_eq!(status, ACL_EVENT_STATUS_COMPLETE);

    let mut plain = ptr::null_mut();
    machine.call(api!(machine, aclrtCreateEventWithFlag(&mut plain, ACL_EVENT_SYNC)));
    machine.call(api!(machine, aclrtRecordEvent(plain, stream)));
    machine.synchronize(stream);
    machine.fails(api!(machine, aclrtEventElapsedTime(&mut elapsed, flag, plain)), 107_006);
    let mut timed = ptr::null_mut();
    machine.call(api!(machine, aclrtCreateEventWithFlag(&mut timed, ACL_EVENT_TIME_LINE)));
    machine.fails(api!(machine, aclrtStreamWaitEvent(stream, timed)), 207_000);
    machine.fails(api!(machine, aclrtSynchronizeEventWithTimeout(flag, 0)), INVALID);
    machine.fails(api!(machine, aclrtSynchronizeStreamWithTimeout(stream, -2)), INVALID);
}

#[test]
fn a_flag_waits_for_a_record_that_comes_later_and_an_ex_event_does_not() {
    let machine = Machine::new("");
    let (first, second) = (machine.stream(), machine.stream());
    let mut flag = ptr::null_mut();
    machine.call(api!(machine, aclrtCreateEventWithFlag(&mut flag, ACL_EVENT_SYNC)));
    machine.call(api!(machine, aclrtStreamWaitEvent(second, flag)));
    machine.fails(api!(machine, aclrtSynchronizeStreamWithTimeout(second, 30)), 507_046);
    let mut waiting = ACL_EVENT_WAIT_STATUS_COMPLETE;
    machine.call(api!(machine, aclrtQueryEventWaitStatus(flag, &mut waiting)));
    assert_eq!(waiting, ACL_EVENT_WAIT_STATUS_NOT_READY);
    machine.call(api!(machine, aclrtRecordEvent(flag, first)));
    machine.synchronize(second);
    // It stays up until it is reset.
    machine.call(api!(machine, aclrtStreamWaitEvent(second, flag)));
    machine.call(api!(machine, aclrtResetEvent(flag, second)));
    machine.synchronize(second);
    machine.call(api!(machine, aclrtStreamWaitEventWithTimeout(second, flag, 20)));
    machine.fails(api!(machine, aclrtSynchronizeStream(second)), 107_019);

    let ex = machine.event();
    machine.call(api!(machine, aclrtStreamWaitEvent(second, ex)));
    machine.synchronize(second);
}

static RUNS: AtomicU32 = AtomicU32::new(0);

/// # Safety
/// None is needed: the argument is a number.
unsafe extern "C" fn count(argument: *mut c_void) {
    RUNS.fetch_add(argument as u32, Ordering::SeqCst);
}

#[test]
fn callbacks_run_in_order_on_the_thread_that_subscribed() {
    let machine = Machine::new("");
    let stream = machine.stream();
    RUNS.store(0, Ordering::SeqCst);
    let one = ptr::without_provenance_mut(1);
    machine.fails(api!(machine, aclrtLaunchCallback(Some(count), one, ACL_CALLBACK_BLOCK, stream)), 107_015);
    machine.fails(api!(machine, aclrtProcessReport(0)), INVALID);
    machine.fails(api!(machine, aclrtProcessReport(5)), 107_012);
    // SAFETY: it has no preconditions.
    let thread = unsafe { libc::pthread_self() } as u64;
    machine.call(api!(machine, aclrtSubscribeReport(thread, stream)));
    machine.fails(api!(machine, aclrtSubscribeReport(thread, stream)), 107_012);
    machine.fails(api!(machine, aclrtSubscribeReport(thread + 1, stream)), 107_011);
    machine.fails(api!(machine, aclrtProcessReport(5)), 507_012);
    machine.call(api!(machine, aclrtLaunchCallback(Some(count), one, ACL_CALLBACK_BLOCK, stream)));
    machine.fails(api!(machine, aclrtSynchronizeStreamWithTimeout(stream, 20)), 507_046);
    machine.call(api!(machine, aclrtProcessReport(1000)));
    machine.synchronize(stream);
    assert_eq!(RUNS.load(Ordering::SeqCst), 1);
    machine.call(api!(machine, aclrtUnSubscribeReport(thread, stream)));
    machine.call(api!(machine, aclrtLaunchHostFunc(stream, Some(count), ptr::without_provenance_mut(10))));
    machine.synchronize(stream);
    assert_eq!(RUNS.load(Ordering::SeqCst), 11);
}

#[test]
fn captured_work_runs_when_it_is_executed_and_not_before() {
    let machine = Machine::new("");
    let stream = machine.stream();
    let block = machine.upload(&[0; 4]);
    machine.call(api!(machine, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL)));
    machine.call(api!(machine, aclrtMemsetAsync(block, 4, 7, 4, stream)));
    let mut graph = ptr::null_mut();
    machine.call(api!(machine, aclmdlRICaptureEnd(stream, &mut graph)));
    machine.synchronize(stream);
    assert_eq!(machine.download(block, 4), [0; 4]);
    machine.call(api!(machine, aclmdlRIExecuteAsync(graph, stream)));
    machine.synchronize(stream);
    assert_eq!(machine.download(block, 4), [7; 4]);
    machine.call(api!(machine, aclmdlRIDestroy(graph)));

    machine.call(api!(machine, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL)));
    machine.fails(api!(machine, aclrtSynchronizeStream(stream)), 107_027);
    machine.fails(api!(machine, aclmdlRICaptureEnd(stream, &mut graph)), 507_903);
}

#[test]
fn versions_are_those_of_the_configuration() {
    let machine = Machine::without_device("cann=9.1.2;soc=910B1");
    assert_eq!(machine.api.cann_version().expect("exported"), Some(Version::new(9, 1, 2)));
    let name = api!(machine, aclrtGetSocName()).expect("exported");
    // SAFETY: it is a C string of the simulator's.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"Ascend910B1");
}

#[test]
fn halves_are_widened_exactly_and_narrowed_to_what_is_finite() {
    let machine = Machine::without_device("");
    let narrow = |value: f32| api!(machine, aclFloatToFloat16(value)).expect("exported");
    assert_eq!(api!(machine, aclFloat16ToFloat(narrow(1.5))).expect("exported"), 1.5);
    assert_eq!(api!(machine, aclFloat16ToFloat(narrow(1e6))).expect("exported"), 65_504.0);
    assert_eq!(api!(machine, aclFloat16ToFloat(narrow(f32::NEG_INFINITY))).expect("exported"), -65_504.0);
    assert_eq!(api!(machine, aclDataTypeSize(ACL_BF16)).expect("exported"), 2);
    assert_eq!(api!(machine, aclDataTypeSize(aclDataType(5))).expect("exported"), 0);
}
