//! Greedy drafts that the device judges, so that their logits stay there.

use std::sync::Arc;

use spec_ascend::AscendStream;
use spec_runtime::{Batch, HostStream, Model, ModelDrafter, Want};

use crate::device::{SPECS, checkpoint, generate, load, options, with_device};

#[test]
fn verdicts_change_no_token() {
    for ties in ["lowest", "highest"] {
        for spec in SPECS {
            let mut answers = Vec::new();
            for module in [true, false] {
                let absent = if module { "" } else { ";absent=spec_atb_create_verify" };
                with_device(&format!("delay=0;sort_ties={ties}{absent}"), |device| {
                    let stream = AscendStream::new(device).expect("a stream");
                    let target: Arc<dyn Model> = load(&stream, spec);
                    assert_eq!(target.gives_verdicts(), module);
                    let drafter = Box::new(ModelDrafter::new(load(&stream, spec)));
                    let plain = generate(&target, None, 40).expect("an answer").tokens;
                    let drafted = generate(&target, Some(drafter), 40).expect("an answer");
                    assert!(drafted.speculation.accepted > 20, "{}: {:?}", spec.arch, drafted.speculation);
                    assert_eq!(drafted.tokens, plain, "{}", spec.arch);
                    answers.push(plain);
                });
            }
            assert_eq!(answers[0], answers[1], "{}, {ties}", spec.arch);
        }
    }
}

#[test]
fn rows_that_were_judged_can_still_be_read() {
    with_device("delay=0..100;sort_ties=highest", |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let spec = SPECS[0];
        let model = spec_ascend::AscendModel::load(&checkpoint(spec), &stream, options(spec)).expect("a model");
        let pass = |want: Want| {
            let seq = model.open().expect("room");
            model.reserve(seq, 5).expect("room");
            let mut batch = Batch::chain(seq, &[3, 1, 4, 1, 5], 0, None, want);
            batch.rows.iter_mut().for_each(|row| row.want = want);
            let rows = model.submit(&HostStream, &batch).expect("legal rows").wait().expect("a pass");
            model.close(seq);
            rows
        };
        // The rows of the first pass outlive the second, which needs memory for its own.
        let (judged, again, plain) = (pass(Want::Verdict), pass(Want::Verdict), pass(Want::Logits));
        for row in 0..5 {
            let logits = plain.logits(row).expect("wanted");
            assert_eq!(plain.verdict(row).expect("wanted"), None, "nobody has judged it");
            for rows in [&judged, &again] {
                let token = rows.verdict(row).expect("wanted").expect("no tie");
                let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(logits[token as usize], best);
                assert_eq!(rows.logits(row).expect("there still"), logits);
            }
        }
    });
}
