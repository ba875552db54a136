//! SmolLM2 on the simulator: its text with and without drafts, and what types of weights cost.

use std::sync::Arc;

use spec_ascend::{AscendModel, AscendStream, LoadOptions};
use spec_core::Fixed;
use spec_cpu::{CpuModel, KvType, Pool};
use spec_model::Checkpoint;
use spec_runtime::{Completion, Drafter, Engine, Model, NgramDrafter, Request};
use spec_testing::{Letters, models};

use crate::accuracy::{all_logits, difference, greatest};
use crate::conformance::AT_ONCE;
use crate::device::with_device;

const LENGTH: usize = 24;
/// What two logits may be apart to count as a tie between f16 here and eight-bit products on the CPU, as a share of the
/// largest of their row.
const TIE: f32 = 0.02;

fn options<'a>(int8: bool) -> LoadOptions<'a> {
    let mut options = LoadOptions::default();
    (options.context, options.int8) = (Some(128), int8);
    options
}

#[test]
fn real_smollm2_says_the_same_with_drafts_as_without_and_as_on_the_cpu() {
    let checkpoint = Checkpoint::open(models::path(models::Model::SmolLm2)).expect("a legal file");
    let prompt =
        checkpoint.tokenizer().expect("a tokenizer").encode("one two three four one two three four one two", true);
    let prompt = prompt.expect("tokens");
    let mut on_cpu = spec_cpu::LoadOptions::new(Arc::new(Pool::new(2).expect("threads")));
    (on_cpu.kv, on_cpu.context) = (KvType::F32, Some(128));
    let cpu = CpuModel::load(&checkpoint, on_cpu).expect("a model for the CPU");
    with_device(AT_ONCE, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let model = Arc::new(AscendModel::load(&checkpoint, &stream, options(false)).expect("a llama"));
        let run = |drafter: Option<Box<dyn Drafter>>| -> Completion {
            let own = Arc::clone(&model) as Arc<dyn Model>;
            let mut engine = Engine::new(own, Arc::new(Letters(model.config().vocab)));
            if let Some(drafter) = drafter {
                engine = engine.with_drafter(drafter);
            }
            let request = Request { draft_len: Box::new(Fixed(4)), ..Request::new(prompt.clone(), LENGTH) };
            engine.generate(request, &mut |_| {}).expect("an answer")
        };
        let plain = run(None);
        let drafted = run(Some(Box::new(NgramDrafter::new())));
        println!("{} of {} guesses kept", drafted.speculation.accepted, drafted.speculation.drafted);
        assert_eq!(drafted.tokens, plain.tokens);
        assert!(drafted.speculation.accepted > 0, "{:?}", drafted.speculation);

        // The text so far decides; where it parts from the CPU's, two tokens were as good as equal.
        let text: Vec<u32> = prompt.iter().chain(&plain.tokens[..LENGTH - 1]).copied().collect();
        let last = prompt.len() - 1;
        let expected = all_logits(&cpu, &text, |position| position >= last);
        for (at, logits) in expected.iter().enumerate() {
            let largest = logits.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
            let gap = (logits[greatest(logits)] - logits[plain.tokens[at] as usize]) / largest;
            assert!(gap <= TIE, "token {at}: the CPU prefers another by {gap} of the largest logit");
        }
        assert_eq!(model.free_blocks(), model.total_blocks(), "blocks leak");
    });
}

#[test]
fn real_smollm2_in_f16_and_in_int8_beside_the_cpu() {
    let checkpoint = Checkpoint::open(models::path(models::Model::SmolLm2)).expect("a legal file");
    let text = "The river rose in the night, and by morning the lower fields were a lake with fences in it.";
    let text = checkpoint.tokenizer().expect("a tokenizer").encode(text, true).expect("tokens");
    let mut on_cpu = spec_cpu::LoadOptions::new(Arc::new(Pool::new(2).expect("threads")));
    (on_cpu.kv, on_cpu.context) = (KvType::F32, Some(128));
    let expected = all_logits(&CpuModel::load(&checkpoint, on_cpu).expect("a model for the CPU"), &text, |_| true);
    with_device(AT_ONCE, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        // Largest difference of a logit as a share of its row's largest, and rows whose first choice is another.
        for (int8, bound, most) in [(false, 0.05, 1), (true, 0.15, 4)] {
            let model = AscendModel::load(&checkpoint, &stream, options(int8)).expect("a llama");
            let found = all_logits(&model, &text, |_| true);
            let worst =
                found.iter().zip(&expected).map(|(found, expected)| difference(found, expected)).fold(0.0, f32::max);
            let other =
                found.iter().zip(&expected).filter(|(found, expected)| greatest(found) != greatest(expected)).count();
            println!(
                "int8 {int8}: logits differ by {worst:.3} of the largest, {other} of {} rows choose another token",
                text.len()
            );
            assert!(worst <= bound, "int8 {int8}: {worst}");
            assert!(other <= most, "int8 {int8}: {other} of {} rows choose another token", text.len());
        }
    });
}
