//! Models of which only the listed part of the head is packed.

use std::sync::Arc;

use spec_cpu::{CpuModel, LoadOptions, MemoryPlan, Pool};
use spec_model::{Checkpoint, Quantizer};
use spec_runtime::{Batch, HostStream, Model as _, RuntimeError, Want};
use spec_testing::tiny::{self, TinySpec};

/// Tokens of a panel, which are listed together.
const PANEL: usize = 16;

fn load(spec: TinySpec, trimmed_head: bool, quant: Option<Quantizer>) -> CpuModel {
    let checkpoint = Checkpoint::from_bytes(tiny::gguf(spec), "tiny.gguf").expect("a legal file");
    let mut options = LoadOptions::new(Arc::new(Pool::new(2).expect("threads")));
    (options.trimmed_head, options.quant, options.requantize) = (trimmed_head, quant, quant.is_some());
    let plan = MemoryPlan::of(&checkpoint, &options).expect("kernels take it");
    let model = CpuModel::load(&checkpoint, options).expect("a model that the kernels take");
    assert_eq!(plan.weights, model.weight_bytes(), "{}, {quant:?}", spec.arch);
    // The checkpoint goes, and what is read from its file stays.
    model
}

fn logits(model: &CpuModel, want: Want) -> Result<Vec<f32>, RuntimeError> {
    let tokens: Vec<u32> = (0..20).map(|i| i * 13 % 299).collect();
    let seq = model.open()?;
    model.reserve(seq, tokens.len())?;
    let rows = model.submit(&HostStream, &Batch::chain(seq, &tokens, 0, None, want))?.wait()?;
    Ok(rows.logits(tokens.len() - 1)?.to_vec())
}

#[test]
fn what_is_listed_is_scored_as_by_the_whole_head_and_nothing_else_is() {
    // Heads that are the embedding, and one of its own.
    for spec in [TinySpec::llama(), TinySpec::qwen_k(), TinySpec::qwen_mixed(), TinySpec::gemma(), TinySpec::gpt2()] {
        let (whole, trimmed) = (load(spec, false, None), load(spec, true, None));
        assert!(trimmed.weight_bytes() < whole.weight_bytes(), "{}", spec.arch);
        let refused = logits(&trimmed, Want::Logits).expect_err("nothing is listed").to_string();
        assert!(refused.contains("shortlist"), "{refused}");
        let expected = logits(&whole, Want::Logits).expect("a pass");
        // The last panel is not a full one.
        let mut listed = vec![5, 40, 41, spec.vocab as u32 - 1];
        for more in [None, Some(200)] {
            listed.extend(more);
            assert!(trimmed.shortlist(&listed).expect("room"));
            for want in [Want::Shortlist, Want::Logits] {
                let found = logits(&trimmed, want).expect("a pass");
                for (token, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let is_listed = listed.iter().any(|&listed| listed as usize / PANEL == token / PANEL);
                    let expected = if is_listed { *expected } else { f32::NEG_INFINITY };
                    assert_eq!(found.to_bits(), expected.to_bits(), "{}: token {token}", spec.arch);
                }
            }
        }
    }
}

#[test]
fn a_list_that_outgrows_its_room_keeps_what_it_had() {
    // More than the 2048 panels that there is room for at first.
    let spec = TinySpec { vocab: 40_000, ..TinySpec::llama() };
    let (whole, trimmed) = (load(spec, false, None), load(spec, true, None));
    for token in (0..40_000).rev().step_by(PANEL) {
        assert!(trimmed.shortlist(&[token]).expect("room"));
    }
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let found = bits(logits(&trimmed, Want::Shortlist).expect("a pass"));
    assert!(found == bits(logits(&whole, Want::Logits).expect("a pass")), "all of it is listed");
}

#[test]
fn a_trimmed_head_may_be_quantised_anew() {
    let trimmed = load(TinySpec::llama(), true, Some(Quantizer::Q4_0));
    assert!(trimmed.shortlist(&[7]).expect("room"));
    let found = logits(&trimmed, Want::Shortlist).expect("a pass");
    assert!(found[..PANEL].iter().all(|logit| logit.is_finite()));
    // Q8_0 in the file.
    trimmed.shortlist(&(0..331).collect::<Vec<_>>()).expect("room");
    let all = logits(&trimmed, Want::Shortlist).expect("a pass");
    let exact = load(TinySpec::llama(), true, None);
    exact.shortlist(&(0..331).collect::<Vec<_>>()).expect("room");
    assert!(all != logits(&exact, Want::Shortlist).expect("a pass"), "something was rounded");
}
