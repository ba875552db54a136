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

fn log_probability(logits: &[f32], token: usize) -> f64 {
    let greatest = logits[greatest(logits)];
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - greatest).exp()).sum();
    f64::from(logits[token] - greatest) - sum.ln()
}

/// Rows whose first choice is another, and how much less likely the text's next tokens are, in nats on average.
fn compare(found: &[Vec<f32>], expected: &[Vec<f32>], text: &[u32], what: &str) -> (usize, f64) {
    let pairs = || found.iter().zip(expected);
    let other = pairs().filter(|(found, expected)| greatest(found) != greatest(expected)).count();
    let next = pairs().zip(&text[1..]).map(|((found, expected), &next)| {
        log_probability(expected, next as usize) - log_probability(found, next as usize)
    });
    let lost = next.sum::<f64>() / (text.len() - 1) as f64;
    let worst = pairs().map(|(found, expected)| difference(found, expected)).fold(0.0, f32::max);
    println!(
        "{what}: {other} of {} rows choose another token, the text loses {lost:.4} nats a token, a logit is {worst:.3} \
         of the largest off at worst",
        found.len()
    );
    (other, lost)
}

#[test]
fn real_smollm2_in_int8_stays_close_to_f16_and_that_to_the_cpu() {
    let checkpoint = Checkpoint::open(models::path(models::Model::SmolLm2)).expect("a legal file");
    let text = "The river rose in the night, and by morning the lower fields were a lake with fences in it.";
    let text = checkpoint.tokenizer().expect("a tokenizer").encode(text, true).expect("tokens");
    let mut on_cpu = spec_cpu::LoadOptions::new(Arc::new(Pool::new(2).expect("threads")));
    (on_cpu.kv, on_cpu.context) = (KvType::F32, Some(128));
    let cpu = all_logits(&CpuModel::load(&checkpoint, on_cpu).expect("a model for the CPU"), &text, |_| true);
    with_device(AT_ONCE, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let logits = |int8| {
            let model = AscendModel::load(&checkpoint, &stream, options(int8)).expect("a llama");
            all_logits(&model, &text, |_| true)
        };
        let f16 = logits(false);
        // The CPU rounds activations to eight bits for its four-bit weights.
        let (other, lost) = compare(&f16, &cpu, &text, "f16 and the CPU");
        assert!(other <= 3 && lost.abs() <= 0.05, "{other}, {lost}");
        let (other, lost) = compare(&logits(true), &f16, &text, "int8 and f16");
        assert!(other <= 4 && lost.abs() <= 0.3, "{other}, {lost}");
    });
}
