//! What may touch which memory when.

use crate::{executor, fake, halves, open, tensor};
use atb_rs::parameters::{Linear, RmsNorm};
use atb_rs::{DeviceBuffer, Error, Event, HostBuffer, Operation, Stream};
use half::f16;
use std::time::Duration;

#[test]
fn a_use_on_another_stream_needs_an_event_in_between() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let (one, two) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let buffer = DeviceBuffer::new(&context, 64).unwrap();
    let mut result = HostBuffer::new(&context, 64).unwrap();
    one.fill(&buffer, 7).unwrap();
    let error = two.download(&buffer, &mut result).unwrap_err();
    assert!(matches!(error, Error::Unordered { stream: 2, other: 1, using: "writing", .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("let stream 2 wait for it") && text.contains("device memory of 64 bytes"), "{text}");
    let mut event = Event::new(&context).unwrap();
    one.record(&mut event).unwrap();
    // Only what was queued before the event is ordered by it.
    one.fill(&buffer, 8).unwrap();
    two.wait(&event).unwrap();
    assert!(matches!(two.download(&buffer, &mut result), Err(Error::Unordered { .. })));
    one.record(&mut event).unwrap();
    two.wait(&event).unwrap();
    two.download(&buffer, &mut result).unwrap();
    // And now the first stream may not write under the second's copy.
    assert!(matches!(one.fill(&buffer, 9), Err(Error::Unordered { using: "reading", .. })));
    two.synchronize().unwrap();
    one.fill(&buffer, 9).unwrap();
    assert_eq!(result.read::<u8>().unwrap(), [8; 64]);
}

#[test]
fn two_streams_may_read_the_same_memory() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let buffer = halves(&context, 8);
    let streams = [Stream::new(&context).unwrap(), Stream::new(&context).unwrap()];
    let mut results = [HostBuffer::new(&context, 16).unwrap(), HostBuffer::new(&context, 16).unwrap()];
    for (stream, result) in streams.iter().zip(&mut results) {
        stream.download(&buffer, result).unwrap();
    }
    for (stream, result) in streams.iter().zip(&results) {
        stream.synchronize().unwrap();
        assert_eq!(result.read::<f16>().unwrap(), [f16::ONE; 8]);
    }
}

#[test]
fn the_host_touches_nothing_before_it_has_waited() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let stream = Stream::new(&context).unwrap();
    let buffer = halves(&context, 8);
    let mut pinned = HostBuffer::new(&context, 16).unwrap();
    pinned.write::<u16>().unwrap().fill(5);
    stream.upload(&pinned, &buffer).unwrap();
    // Reading what a copy reads is fine; everything else has to wait.
    pinned.read::<u16>().unwrap();
    assert!(matches!(pinned.write::<u16>(), Err(Error::InUse { using: "reading", stream: 1, .. })));
    let mut seen = [0u16; 8];
    let error = buffer.read(0, &mut seen).unwrap_err();
    assert!(matches!(error, Error::InUse { using: "writing", .. }), "{error}");
    assert!(error.to_string().contains("synchronise the stream"), "{error}");
    assert!(matches!(buffer.write(0, &seen), Err(Error::InUse { .. })));
    stream.download(&buffer, &mut pinned).unwrap();
    assert!(matches!(pinned.read::<u16>(), Err(Error::InUse { using: "writing", .. })));
    stream.synchronize_for(Duration::from_millis(100)).unwrap();
    buffer.read(0, &mut seen).unwrap();
    assert_eq!((seen, pinned.read::<u16>().unwrap()), ([5; 8], &[5; 8][..]));
}

#[test]
fn asking_counts_as_waiting_once_the_answer_is_yes() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let (stream, mut event) = (Stream::new(&context).unwrap(), Event::new(&context).unwrap());
    let buffer = halves(&context, 8);
    stream.fill(&buffer, 0).unwrap();
    stream.record(&mut event).unwrap();
    assert!(!event.is_complete().unwrap() && !stream.is_idle().unwrap());
    let mut seen = [1u8; 16];
    buffer.read(0, &mut seen).unwrap_err();
    event.synchronize_for(Duration::from_micros(1)).unwrap();
    assert!(event.is_complete().unwrap() && stream.is_idle().unwrap());
    buffer.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 16]);
}

#[test]
fn what_is_dropped_in_use_is_freed_once_it_is_not() {
    let session = fake::start();
    let (runtime, context) = open(&session);
    let stream = Stream::new(&context).unwrap();
    let buffer = DeviceBuffer::new(&context, 64).unwrap();
    let pinned = HostBuffer::new(&context, 64).unwrap();
    stream.upload(&pinned, &buffer).unwrap();
    drop((buffer, pinned));
    assert_eq!((session.calls("aclrtFree"), session.calls("aclrtFreeHost")), (0, 0));
    stream.synchronize().unwrap();
    assert_eq!((session.calls("aclrtFree"), session.calls("aclrtFreeHost")), (1, 1));
    // The same for an operation, its workspace and its tensors.
    let executor = executor(&context);
    let mut norm = Operation::new(&context, RmsNorm::new(1e-5)).unwrap();
    let (x, y) = (tensor(&context, [2, 16]), tensor(&context, [2, 16]));
    norm.setup(&executor, vec![x, tensor(&context, [16])], vec![y]).unwrap().execute().unwrap();
    drop(norm);
    assert_eq!(session.calls("spec_atb_destroy_operation"), 0);
    drop(executor);
    assert_eq!(session.calls("spec_atb_destroy_operation"), 1);
    // What nobody waits for goes with its stream and its context.
    stream.fill(&DeviceBuffer::new(&context, 64).unwrap(), 0).unwrap();
    drop((stream, context));
    assert_eq!(session.live(), Vec::<&str>::new());
    assert_eq!(session.with(|state| state.faults.clone()), Vec::<String>::new());
    runtime.shutdown().unwrap();
}

#[test]
fn an_event_says_nothing_before_it_is_recorded() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let (stream, mut event) = (Stream::new(&context).unwrap(), Event::new(&context).unwrap());
    assert!(matches!(stream.wait(&event), Err(Error::EventNotRecorded { .. })));
    assert!(matches!(event.synchronize(), Err(Error::EventNotRecorded { .. })));
    assert!(matches!(event.is_complete(), Err(Error::EventNotRecorded { .. })));
    stream.record(&mut event).unwrap();
    let timed = Event::timed(&context).unwrap();
    assert!(matches!(event.elapsed_since(&timed), Err(Error::EventNotTimed { .. })));
    assert!(matches!(timed.elapsed_since(&timed), Err(Error::EventNotRecorded { .. })));
}

#[test]
fn things_of_two_contexts_do_not_mix() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let other = atb_rs::Context::new(context.device()).unwrap();
    let stream = Stream::new(&context).unwrap();
    assert!(matches!(stream.fill(&halves(&other, 8), 0), Err(Error::OtherContext { .. })));
    assert!(matches!(stream.record(&mut Event::new(&other).unwrap()), Err(Error::OtherContext { .. })));
    let executor = executor(&other);
    let mut linear = Operation::new(&context, Linear::new(false)).unwrap();
    assert!(matches!(linear.setup(&executor, vec![], vec![]), Err(Error::OtherContext { .. })));
}

#[test]
fn bytes_that_do_not_exist_are_not_touched() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let stream = Stream::new(&context).unwrap();
    let buffer = halves(&context, 8);
    let pinned = HostBuffer::new(&context, 15).unwrap();
    assert!(matches!(stream.upload(&pinned, &buffer), Err(Error::OutOfRange { .. })));
    assert!(matches!(stream.copy(&buffer, 0..9, &buffer, 8..17), Err(Error::OutOfRange { .. })));
    assert!(matches!(stream.copy(&buffer, 0..8, &buffer, 4..12), Err(Error::OutOfRange { .. })));
    assert!(matches!(buffer.read(1, &mut [0u16; 8]), Err(Error::OutOfRange { .. })));
    assert!(matches!(pinned.read::<u16>(), Err(Error::OutOfRange { .. })));
    assert!(matches!(DeviceBuffer::new(&context, 0), Err(Error::OutOfRange { .. })));
    stream.copy(&buffer, 0..8, &buffer, 8..16).unwrap();
}
