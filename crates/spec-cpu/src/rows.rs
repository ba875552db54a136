//! The passes over rows of logits that rules and sampling ask for, compiled for an instruction set.

use std::sync::Arc;

use spec_core::{NoiseScan, Race, RowKernels, ScalarScan, Token};

use crate::Isa;
use crate::kernels::simd::Vectorize;
use crate::scan;

/// The fastest passes over rows of an instruction set. They give the bits of [`ScalarScan`], whose loops they are, and name the
/// same winners.
#[must_use]
pub fn row_kernels(isa: Isa) -> Arc<dyn RowKernels> {
    match isa {
        Isa::Portable => Arc::new(ScalarScan),
        _ => Arc::new(Rows(isa)),
    }
}

struct Rows(Isa);

impl NoiseScan for Rows {
    fn scan(&self, logits: &[f32], ids: Option<&[Token]>, race: &mut Race) {
        scan::scan(self.0, logits, ids, race);
    }
}

impl RowKernels for Rows {
    fn greatest(&self, logits: &[f32]) -> (f32, bool) {
        self.0.vectorize(Greatest(logits))
    }

    fn exp_sum(&self, logits: &[f32], max: f32, inverse_temperature: f64) -> f64 {
        self.0.vectorize(ExpSum { logits, max, inverse_temperature })
    }

    fn exp_each(&self, logits: &[f32], max: f32, inverse_temperature: f64, total: f64, out: &mut [f64]) {
        self.0.vectorize(ExpEach { logits, max, inverse_temperature, total, out });
    }
}

struct Greatest<'a>(&'a [f32]);

impl Vectorize for Greatest<'_> {
    type Output = (f32, bool);

    #[inline(always)]
    fn run(self) -> (f32, bool) {
        ScalarScan.greatest(self.0)
    }
}

struct ExpSum<'a> {
    logits: &'a [f32],
    max: f32,
    inverse_temperature: f64,
}

impl Vectorize for ExpSum<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        ScalarScan.exp_sum(self.logits, self.max, self.inverse_temperature)
    }
}

struct ExpEach<'a> {
    logits: &'a [f32],
    max: f32,
    inverse_temperature: f64,
    total: f64,
    out: &'a mut [f64],
}

impl Vectorize for ExpEach<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        ScalarScan.exp_each(self.logits, self.max, self.inverse_temperature, self.total, self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_definition() {
        let noise = spec_core::Noise::new(5);
        for length in [1usize, 7, 8, 9, 64, 2047, 2048, 5001] {
            let mut row: Vec<f32> = (0..length as Token).map(|id| noise.gumbel(3, id) as f32 * 4.0).collect();
            if length > 8 {
                row[8] = f32::NEG_INFINITY;
            }
            for isa in Isa::available() {
                let kernels = row_kernels(isa);
                for scale in [1.0, 1.25, 1e-3, 1e3] {
                    let (max, proper) = kernels.greatest(&row);
                    assert_eq!((max, proper), ScalarScan.greatest(&row), "{isa:?}, {length} logits");
                    let total = kernels.exp_sum(&row, max, scale);
                    assert_eq!(total.to_bits(), ScalarScan.exp_sum(&row, max, scale).to_bits(), "{isa:?}, {length}");
                    let (mut found, mut expected) = (vec![0.0; length], vec![0.0; length]);
                    kernels.exp_each(&row, max, scale, total, &mut found);
                    ScalarScan.exp_each(&row, max, scale, total, &mut expected);
                    assert!(found.iter().map(|p| p.to_bits()).eq(expected.iter().map(|p| p.to_bits())), "{isa:?}");
                }
                let mut improper = row.clone();
                improper[length - 1] = f32::NAN;
                assert!(!kernels.greatest(&improper).1, "{isa:?}, {length} logits");
            }
        }
    }
}
