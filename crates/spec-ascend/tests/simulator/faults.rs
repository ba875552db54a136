//! What fails fails with its name, meaning and advice; nothing leaks; a later request works, or says that the device is
//! lost.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use spec_ascend::{AscendDevice, AscendError, AscendModel, AscendStream, DeviceOptions};
use spec_model::Checkpoint;
use spec_runtime::{Model, ModelDrafter, RuntimeError};
use spec_testing::tiny::{self, TinySpec};

use crate::device::{generate, load, options, run, with_device, with_options};

/// Asks for a fault from now on, in the place of all earlier ones.
fn inject(fault: &str) {
    ascend_sim::configure(&format!("delay=0; fault={fault}")).expect("a fault that the simulator knows");
}

fn no_more_faults() {
    ascend_sim::configure("delay=0").expect("a configuration");
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic holds it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[track_caller]
fn assert_says(error: &RuntimeError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// Generates once, under `fault` again, and once more; gives the error between.
fn between(device: &AscendDevice, fault: &str) -> RuntimeError {
    let stream = AscendStream::new(device).expect("a stream");
    let model = load(&stream, TinySpec::llama());
    let own = Arc::clone(&model) as Arc<dyn Model>;
    let copy: Arc<dyn Model> = load(&stream, TinySpec::llama());
    let drafted = || generate(&own, Some(Box::new(ModelDrafter::new(Arc::clone(&copy)))), 30);
    let before = drafted().expect("an answer");
    assert!(before.speculation.accepted > 0);
    inject(fault);
    let error = drafted().expect_err("a fault in the way");
    no_more_faults();
    assert_eq!(model.free_blocks(), model.total_blocks(), "{fault}: blocks leak");
    let after = drafted().unwrap_or_else(|error| panic!("after {fault}: {error}"));
    assert_eq!(after.tokens, before.tokens, "{fault} left something behind");
    error
}

#[test]
fn a_kernel_that_fails_fails_its_request_and_no_other() {
    // In the prompt, in the middle, and where embeddings are looked up.
    for fault in ["task.Linear:3:507015", "task.PagedAttention:40:507015", "task.Gather:30:507015"] {
        with_device("delay=0", |device| {
            let error = between(device, fault);
            assert_says(&error, &["ascend:0", "ACL_ERROR_RT_AICORE_EXCEPTION", "507015", "kernel"]);
        });
    }
}

#[test]
fn a_copy_that_fails_fails_its_request_and_no_other() {
    for fault in ["task.aclrtMemcpyAsync:2:507013", "task.aclrtMemcpyAsync:50:507013"] {
        with_device("delay=0", |device| {
            assert_says(&between(device, fault), &["507013", "ACL_ERROR_RT_SYS_DMA"]);
        });
    }
}

#[test]
fn a_call_that_fails_fails_its_request_and_no_other() {
    for (fault, name) in [
        ("spec_atb_setup:20:26", "ATB_ERROR_OUT_OF_DEVICE_MEMORY"),
        ("spec_atb_execute:31:3", "ATB_ERROR_INTERNAL_ERROR"),
        ("aclrtRecordEvent:5:207005", "207005"),
    ] {
        with_device("delay=0", |device| assert_says(&between(device, fault), &[name]));
    }
}

#[test]
fn a_kernel_that_hangs_is_ended_by_the_device_and_the_request_says_so() {
    let mut limits = DeviceOptions::default();
    limits.kernel_timeout = Duration::from_secs(1);
    with_options("delay=0", limits, |device| {
        let log = Log::default();
        let subscriber = {
            let log = log.clone();
            tracing_subscriber::fmt().with_writer(move || log.clone()).finish()
        };
        let error = tracing::subscriber::with_default(subscriber, || between(device, "task.PagedAttention:9:hang"));
        assert_says(&error, &["ACL_ERROR_RT_AICORE_TIMEOUT", "507014", "did not end"]);
        let log = String::from_utf8(log.0.lock().expect("no panic holds it").clone()).expect("text");
        assert!(log.lines().any(|line| line.contains("kernel timeout") && line.contains("507014")), "{log}");
    });
}

#[test]
fn a_stream_that_hangs_longer_than_the_host_waits_is_said_to() {
    let mut limits = DeviceOptions::default();
    (limits.kernel_timeout, limits.pass_timeout) = (Duration::from_secs(4), Duration::from_secs(1));
    with_options("delay=0", limits, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let model: Arc<dyn Model> = load(&stream, TinySpec::llama());
        inject("task.Linear:9:hang");
        let error = generate(&model, None, 8).expect_err("a stream that hangs");
        assert_says(&error, &["hangs", "restart the process"]);
        no_more_faults();
        std::thread::sleep(Duration::from_secs(5));
        let after = generate(&model, None, 8);
        // The kernel's own failure is told by the stream's next wait; then all is well.
        let after = after.or_else(|_| generate(&model, None, 8)).expect("an answer, once the device ended the kernel");
        assert_eq!(after.tokens.len(), 8);
    });
}

#[test]
fn a_lost_device_is_named_and_takes_no_more_work() {
    let ended = run("delay=0", DeviceOptions::default(), |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let model = load(&stream, TinySpec::llama());
        let own = Arc::clone(&model) as Arc<dyn Model>;
        inject("task.Linear:30:lost");
        let error = generate(&own, None, 30).expect_err("a device that is lost");
        assert_says(&error, &["lost", "507010", "npu-smi info", "spec doctor"]);
        assert!(device.is_lost());
        assert_says(&generate(&own, None, 30).expect_err("a device that stays lost"), &["lost", "507010"]);
        assert!(AscendStream::new(device).is_err(), "a lost device makes no streams");
        assert_eq!(model.free_blocks(), model.total_blocks(), "blocks leak");
        no_more_faults();
    });
    // Ending what the device lost may fail, and says so.
    drop(ended);
}

/// Field report 169: 507035 for hours. A device that fails every pass is lost, and says what to do.
#[test]
fn faults_without_end_are_a_lost_device() {
    let ended = run("delay=0", DeviceOptions::default(), |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let model: Arc<dyn Model> = load(&stream, TinySpec::llama());
        inject("task.RmsNorm:*:507035");
        let errors: Vec<RuntimeError> =
            (0..4).map(|_| generate(&model, None, 4).expect_err("a device that fails")).collect();
        assert_says(&errors[0], &["507035", "ACL_ERROR_RT_VECTOR_CORE_EXCEPTION"]);
        assert_says(&errors[3], &["lost", "3 faults in a row", "507035"]);
        assert!(device.is_lost());
        no_more_faults();
    });
    drop(ended);
}

#[test]
fn logits_that_are_no_numbers_fail_the_request() {
    // A last norm of 60,000 makes logits that f16 does not hold.
    let mut bytes = tiny::gguf(TinySpec::llama());
    let range = Checkpoint::from_bytes(bytes.clone(), "tiny.gguf")
        .expect("a legal file")
        .tensor("output_norm.weight")
        .expect("it is there")
        .file_range();
    bytes[range].chunks_exact_mut(4).for_each(|value| value.copy_from_slice(&60_000.0f32.to_le_bytes()));
    let checkpoint = Checkpoint::from_bytes(bytes, "tiny.gguf").expect("a legal file");
    with_device("delay=0", |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let model = AscendModel::load(&checkpoint, &stream, options(TinySpec::llama())).expect("a model");
        let model = Arc::new(model);
        let error = generate(&(Arc::clone(&model) as Arc<dyn Model>), None, 4).expect_err("infinite logits");
        assert_says(&error, &["not finite", "f16", "bf16"]);
        assert_eq!(model.free_blocks(), model.total_blocks(), "blocks leak");
        let other: Arc<dyn Model> = load(&stream, TinySpec::llama());
        generate(&other, None, 4).expect("another model's answer");
    });
}

#[test]
fn memory_that_runs_out_while_loading_is_said_with_the_plan_and_given_back() {
    with_device("delay=0", |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let checkpoint = crate::device::checkpoint(TinySpec::llama());
        for nth in [1, 5, 12, 25] {
            inject(&format!("aclrtMalloc:{nth}:207001"));
            let error = AscendModel::load(&checkpoint, &stream, options(TinySpec::llama())).expect_err("no memory");
            assert!(matches!(error, AscendError::Memory { .. }), "allocation {nth}: {error}");
            let text = error.to_string();
            for word in ["bytes free", "lower the context", "weights", "KV cache", "workspace"] {
                assert!(text.contains(word), "`{word}` is not in: {text}");
            }
        }
        no_more_faults();
        let model: Arc<dyn Model> = load(&stream, TinySpec::llama());
        generate(&model, None, 4).expect("an answer, with memory");
    });
}
