//! Measures what one row of a 152k vocabulary costs beside the model's pass: `cargo run --release --example row_costs`.

use std::hint::black_box;
use std::time::Instant;

use spec_core::{
    KeyedChoices, Noise, Pipeline, SamplingParams, ScalarScan, Scratch, SharedNoise, top_log_probabilities,
};

const VOCAB: usize = 151_936;
const ROWS: usize = 8;
const RUNS: usize = 20;

/// Logits of a normal body (mean 0, deviation 2) and a few tokens standing out by `lead`.
fn row(seed: u64, lead: f32) -> Vec<f32> {
    let choices = KeyedChoices::new(seed, 0);
    let bits = |index: usize| {
        choices.bits(spec_core::ChoiceKey { position: index, node: None, purpose: spec_core::Purpose::Draft, draw: 0 })
    };
    let mut logits: Vec<f32> = (0..VOCAB)
        .map(|token| {
            // The sum of four 16-bit uniforms is normal enough.
            let bits = bits(token);
            let sum: f32 = (0..4).map(|part| ((bits >> (16 * part)) & 0xFFFF) as f32 / 65_536.0).sum();
            (sum - 2.0) * 1.732 * 2.0
        })
        .collect();
    for rank in 0..40 {
        let token = (bits(VOCAB + rank) % VOCAB as u64) as usize;
        logits[token] = 8.0 + lead / (1.0 + rank as f32 * 0.5);
    }
    logits
}

/// Fifth percentile and median time of `work` over the rows, in microseconds: the first is what an idle machine takes.
fn time(rows: &[Vec<f32>], mut work: impl FnMut(usize, &[f32])) -> String {
    let mut times: Vec<f64> = (0..RUNS)
        .flat_map(|_| rows.iter().enumerate())
        .map(|(index, row)| {
            let start = Instant::now();
            work(index, row);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    format!("{:8.1} {:8.1} us/row", times[times.len() / 20], times[times.len() / 2])
}

fn main() -> Result<(), spec_core::SamplingError> {
    for (shape, lead) in [("confident", 12.0), ("uncertain", 6.0), ("flat", 0.0)] {
        let rows: Vec<Vec<f32>> = (0..ROWS as u64).map(|seed| row(seed, lead)).collect();
        let noise = SharedNoise { noise: Noise::new(1), scan: &ScalarScan };
        let hot = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
        let settings = [
            ("greedy", SamplingParams::default()),
            ("T 0.8", hot.clone()),
            ("T 0.8, top-p 0.95", SamplingParams { top_p: 0.95, ..hot.clone() }),
            ("T 0.8, top-k 40", SamplingParams { top_k: 40, ..hot.clone() }),
            ("T 0.8, min-p 0.05", SamplingParams { min_p: 0.05, ..hot.clone() }),
            ("T 0.8, repeat penalty 1.1", SamplingParams { repeat_penalty: 1.1, ..hot.clone() }),
        ];
        println!("{shape}:");
        let taken = time(&rows, |_, row| {
            black_box(row.as_chunks::<16>().0.iter().fold([0.0f32; 16], |mut sums, lanes| {
                sums.iter_mut().zip(lanes).for_each(|(sum, lane)| *sum += lane);
                sums
            }));
        });
        println!("  {:26} {taken}", "only adding up the row");
        for (name, params) in settings {
            let mut pipeline = Pipeline::new(params, VOCAB)?;
            pipeline.extend(&(0..500).collect::<Vec<_>>());
            let mut scratch = Scratch::default();
            let mut kept = 0;
            let taken = time(&rows, |index, row| {
                if let Ok(law) = pipeline.law(row, None, &mut scratch) {
                    kept += law.kept().map_or(VOCAB, <[_]>::len);
                    black_box(law.sample(&noise, index));
                }
            });
            println!("  {name:26} {taken}, {} tokens kept", kept / (RUNS * ROWS));
        }
        let taken = time(&rows, |_, row| {
            black_box(top_log_probabilities(row, VOCAB, 7, 5).is_ok());
        });
        println!("  {:26} {taken}", "log-probabilities, top 5");
    }
    Ok(())
}
