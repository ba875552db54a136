//! The passes over rows of logits that rules and sampling ask for, on this device.

use std::sync::Arc;

use spec_core::{NoiseScan, Race, RowKernels, ScalarScan, Token};

use crate::{Isa, noise_scan};

/// The fastest passes over rows of an instruction set. They give the bits of [`ScalarScan`]: the loops are its own, compiled
/// for wider vectors.
#[must_use]
pub fn row_kernels(isa: Isa) -> Arc<dyn RowKernels> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni(token) => Arc::new(avx512::Rows { token, scan: noise_scan(isa) }),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2Vnni(token) => Arc::new(avx2_vnni::Rows { token, scan: noise_scan(isa) }),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => Arc::new(avx2::Rows { token, scan: noise_scan(isa) }),
        Isa::Portable => Arc::new(Portable(noise_scan(isa))),
    }
}

/// The definition, with the scan of the instruction set.
struct Portable(Arc<dyn NoiseScan>);

impl NoiseScan for Portable {
    fn scan(&self, logits: &[f32], ids: Option<&[Token]>, race: &mut Race) {
        self.0.scan(logits, ids, race);
    }
}

impl RowKernels for Portable {}

/// A type whose methods run [`ScalarScan`]'s loops, compiled with the instructions that its token proves.
macro_rules! recompiled {
    ($module:ident, $token:ty, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        mod $module {
            use super::*;

            pub(super) struct Rows {
                pub(super) token: $token,
                pub(super) scan: Arc<dyn NoiseScan>,
            }

            impl NoiseScan for Rows {
                fn scan(&self, logits: &[f32], ids: Option<&[Token]>, race: &mut Race) {
                    self.scan.scan(logits, ids, race);
                }
            }

            impl RowKernels for Rows {
                fn greatest(&self, logits: &[f32]) -> (f32, bool) {
                    let _ = self.token;
                    // SAFETY: the token proves support.
                    unsafe { greatest(logits) }
                }

                fn exp_sum(&self, logits: &[f32], max: f32, inverse_temperature: f64) -> f64 {
                    // SAFETY: the token proves support.
                    unsafe { exp_sum(logits, max, inverse_temperature) }
                }

                fn exp_each(&self, logits: &[f32], max: f32, inverse_temperature: f64, total: f64, out: &mut [f64]) {
                    // SAFETY: the token proves support.
                    unsafe { exp_each(logits, max, inverse_temperature, total, out) }
                }
            }

            #[target_feature(enable = $features)]
            fn greatest(logits: &[f32]) -> (f32, bool) {
                ScalarScan.greatest(logits)
            }

            #[target_feature(enable = $features)]
            fn exp_sum(logits: &[f32], max: f32, inverse_temperature: f64) -> f64 {
                ScalarScan.exp_sum(logits, max, inverse_temperature)
            }

            #[target_feature(enable = $features)]
            fn exp_each(logits: &[f32], max: f32, inverse_temperature: f64, total: f64, out: &mut [f64]) {
                ScalarScan.exp_each(logits, max, inverse_temperature, total, out);
            }
        }
    };
}

recompiled!(avx2, crate::Avx2, "avx2,fma");
recompiled!(avx2_vnni, crate::Avx2Vnni, "avx2,fma");
recompiled!(avx512, crate::Avx512Vnni, "avx512f,avx512bw,avx512dq,avx512vl");

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
