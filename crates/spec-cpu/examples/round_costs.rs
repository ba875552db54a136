//! Measures what a round costs beside the passes of the models, rule by rule and by instruction set, at a vocabulary of 152k
//! and 7 draft tokens: `cargo run --release -p spec-cpu --example round_costs`.
//!
//! Drafter and target rows are alike but not equal, so that some drafts are kept and some are not.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use spec_core::{
    ChoiceKey, DraftTree, KeyedChoices, Noise, NoiseScan, PathLaws, Pipeline, Purpose, RULES, RowKernels, RowSummary,
    RuleName, SamplingParams, Scratch,
};
use spec_cpu::{Isa, row_kernels};

const VOCAB: usize = 151_936;
const DRAFT: usize = 7;
const RUNS: usize = 40;

/// Logits of a normal body and a few tokens that stand out; `mixed` is the share that another seed has in them.
fn row(seed: u64, mixed: f32) -> Vec<f32> {
    let unit = |seed: u64, index: usize| {
        let key = ChoiceKey { position: index, node: None, purpose: Purpose::Draft, draw: 0 };
        let bits = KeyedChoices::new(seed, 0).bits(key);
        (0..4).map(|part| ((bits >> (16 * part)) & 0xFFFF) as f32 / 65_536.0).sum::<f32>() - 2.0
    };
    let mut logits: Vec<f32> =
        (0..VOCAB).map(|token| 3.5 * ((1.0 - mixed) * unit(seed, token) + mixed * unit(seed + 999, token))).collect();
    for rank in 0..30 {
        let token = ((unit(seed, VOCAB + rank) + 2.0) * 0.25 * VOCAB as f32) as usize % VOCAB;
        logits[token] = 8.0 + 9.0 / (1.0 + rank as f32 * 0.6) + mixed * unit(seed + 999, VOCAB + rank);
    }
    logits
}

fn percentile(times: &mut [f64], share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() as f64 * share) as usize]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target: Vec<Vec<f32>> = (0..=DRAFT as u64).map(|seed| row(seed, 0.0)).collect();
    let drafter: Vec<Vec<f32>> = (0..=DRAFT as u64).map(|seed| row(seed, 0.2)).collect();
    for isa in Isa::available() {
        println!("{}", isa.name());
        measure(&target, &drafter, &row_kernels(isa))?;
    }
    Ok(())
}

fn measure(
    target: &Vec<Vec<f32>>,
    drafter: &[Vec<f32>],
    kernels: &Arc<dyn RowKernels>,
) -> Result<(), Box<dyn std::error::Error>> {
    let scan: Arc<dyn NoiseScan> = Arc::clone(kernels) as _;

    let mut times: Vec<f64> = (0..RUNS)
        .map(|index| {
            let start = Instant::now();
            black_box(RowSummary::with_kernels(&**kernels, &target[index % target.len()], 1.25).is_ok());
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    println!("summary of a row (maximum, argmax, log-sum-exp): {:.0} us", percentile(&mut times, 0.05));

    println!("a round of {DRAFT} draft tokens and {} rows, in ms:", DRAFT + 1);
    println!("{:24} {:>22} {:>8} {:>8} {:>8} {:>9}", "rule", "sampling", "draft", "verify", "both", "accepted");
    for entry in &RULES {
        for (setting, temperature, top_p) in [("T 0", 0.0, 1.0), ("T 0.8", 0.8, 1.0), ("T 0.8, top-p 0.95", 0.8, 0.95)]
        {
            if (entry.name == "greedy") != (temperature == 0.0) {
                continue;
            }
            let params = SamplingParams { temperature, top_p, ..SamplingParams::default() };
            let mut pipeline = Pipeline::new(params, VOCAB)?.with_kernels(Arc::clone(kernels));
            let name: RuleName = entry.name.parse()?;
            let (mut drafting, mut verifying, mut accepted) = (Vec::new(), Vec::new(), 0);
            for round in 0..RUNS {
                let rule = name.build(Noise::new(round as u64), &scan);
                let mut choices = KeyedChoices::new(round as u64, 0);
                let (mut tree, mut parent, mut scratch) = (DraftTree::new(), None, Scratch::default());
                let start = Instant::now();
                for (position, row) in drafter[..DRAFT].iter().enumerate() {
                    let law = pipeline.law(row, None, &mut scratch)?;
                    let nodes = rule.proposal().propose(&mut tree, parent, &law, 1, position, &mut choices)?;
                    parent = nodes.first().copied();
                }
                let drafted = Instant::now();
                let mut laws = PathLaws::new(&tree, target, &mut pipeline, 0, None);
                let outcome = rule.verify(&tree, &mut laws, &mut choices)?;
                drop(laws);
                verifying.push(drafted.elapsed().as_secs_f64() * 1e3);
                drafting.push((drafted - start).as_secs_f64() * 1e3);
                accepted += outcome.accepted.len();
            }
            let (draft, verify) = (percentile(&mut drafting, 0.25), percentile(&mut verifying, 0.25));
            println!(
                "{:24} {setting:>22} {draft:8.2} {verify:8.2} {:8.2} {:9.2}",
                entry.name,
                draft + verify,
                accepted as f64 / RUNS as f64
            );
        }
    }
    Ok(())
}
