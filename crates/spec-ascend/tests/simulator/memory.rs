//! The memory plan against what the simulator counts.

use std::sync::Arc;

use spec_ascend::{AscendError, AscendModel, AscendStream, MemoryPlan};
use spec_runtime::{Batch, HostStream, Model, ModelDrafter, Want};
use spec_testing::tiny::TinySpec;

use crate::conformance::AT_ONCE;
use crate::device::{SPECS, checkpoint, generate, load, options, with_device};

#[test]
fn a_model_takes_what_its_plan_says_and_little_less() {
    with_device(AT_ONCE, |device| {
        for spec in SPECS {
            for int8 in [false, true] {
                // Of its own, since a workspace stays with its stream.
                let stream = AscendStream::new(device).expect("a stream");
                let free = || device.context().memory_info().expect("the device's memory").free as u64;
                let mut options = options(spec);
                options.int8 = int8;
                let before = free();
                let model = AscendModel::load(&checkpoint(spec), &stream, options).expect("a model");
                // The widest pass there is, as far as workspaces are concerned.
                let seq = model.open().expect("room");
                let rows = model.config().max_rows;
                model.reserve(seq, rows).expect("room");
                let tokens: Vec<u32> = (0..rows as u32).collect();
                let batch = Batch::chain(seq, &tokens, 0, None, Want::Logits);
                model.submit(&HostStream, &batch).expect("legal rows").wait().expect("a pass");
                model.close(seq);
                let taken = before - free();
                let planned = model.plan().device_bytes_without_stream();
                let share = taken as f64 / planned as f64;
                println!("{}, int8 {int8}: {taken} bytes of {planned} planned, {share:.3}", spec.arch);
                assert!(
                    (0.85..=1.0).contains(&share),
                    "{}, int8 {int8}: {taken} of {planned}\n{}",
                    spec.arch,
                    model.plan()
                );
            }
        }
    });
}

/// Field report 179: numbers and three suggestions, not a negative amount of memory.
#[test]
fn a_device_that_is_too_small_is_told_before_anything_is_taken() {
    // ATB's context takes 96 MiB of it.
    with_device("delay=0; memory=97M", |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let free = device.context().memory_info().expect("the device's memory").free;
        let spec = TinySpec::llama();
        let mut large = options(spec);
        large.kv_blocks = Some(4096);
        let plan = MemoryPlan::new(&checkpoint(spec), device.chip(), &large).expect("a plan");
        let error = AscendModel::load(&checkpoint(spec), &stream, large).expect_err("more than there is");
        let AscendError::Memory { needed, free: told, .. } = &error else { panic!("{error}") };
        assert_eq!((*needed, *told as usize), (plan.device_bytes_without_stream(), free));
        let text = error.to_string();
        for word in ["lower the context", "KV blocks", "int8", "npu-smi", "weights", "KV cache, 4097 blocks", "MiB"] {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
        let now = device.context().memory_info().expect("the device's memory").free;
        assert_eq!(now, free, "a refusal takes nothing");
    });
}

/// Field report 174: a target and a draft model do with the streams that they were given, however long they run.
#[test]
fn two_models_take_two_streams_and_no_more() {
    // Two of the four are the default streams of the device and of its context.
    with_device("delay=0; max_streams=4; max_events=64", |device| {
        let streams = [AscendStream::new(device).expect("a stream"), AscendStream::new(device).expect("a stream")];
        let target: Arc<dyn Model> = load(&streams[0], TinySpec::llama());
        let draft: Arc<dyn Model> = load(&streams[1], TinySpec { seed: 99, ..TinySpec::llama() });
        for _ in 0..4 {
            let drafter = Box::new(ModelDrafter::new(Arc::clone(&draft)));
            let stats = generate(&target, Some(drafter), 40).expect("an answer").speculation;
            assert!(stats.drafted > 100, "{stats:?}");
        }
    });
}
