//! Logarithm and exponential of our own.
//!
//! The platform's differ in the last bits, and a winner that depends on those bits would make equal seeds write different
//! texts on different machines. These use only IEEE additions, multiplications and divisions in a fixed order, never a
//! fused multiply-add, so they are the same everywhere.

/// ln 2 in two parts; the first has 20 trailing zero bits, so that its product with an exponent is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
const LN_2_LOW: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76);

/// Natural logarithm of a positive normal number, within 2 units in the last place (tests compare with libm).
///
/// `x = 2^k m` with m in [sqrt(1/2), sqrt(2)), then `ln m = 2 atanh(s)`, `s = (m - 1) / (m + 1)`. Near 1 the exponent is 0
/// and `m - 1` is exact, so nothing cancels.
pub(crate) fn ln(x: f64) -> f64 {
    // Adding this moves sqrt(1/2) to an exponent boundary, so that one shift gives k.
    const SQRT_HALF_BITS: u64 = 0x3FE6_A09E_667F_3BCD;
    const ONE_BITS: u64 = 0x3FF0_0000_0000_0000;
    let shifted = x.to_bits().wrapping_add(ONE_BITS - SQRT_HALF_BITS);
    let exponent = (shifted >> 52) as i64 - 1023;
    let mantissa = f64::from_bits((shifted & 0x000F_FFFF_FFFF_FFFF) + SQRT_HALF_BITS);

    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let w = s * s;
    let mut tail = 1.0 / 25.0;
    for odd in [23.0, 21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        tail = tail * w + 1.0 / odd;
    }
    let k = exponent as f64;
    let small = 2.0 * s * w * tail + k * LN_2_LOW;
    k * LN_2_HIGH + (2.0 * s + small)
}

/// `1/13!` down to `1/2!`: the Taylor series of `(exp(r) - 1 - r) / r^2`, for `|r| <= ln(2) / 2` good to 5e-18.
const EXP_SERIES: [f64; 12] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
];

/// Exponential of `x <= 0`, within 2 units in the last place; 0 below -708, where the result would be subnormal.
///
/// `x = k ln(2) + r`: a power of two and a series. No table and no branch, so that compilers turn loops over it into vector
/// code of any width.
#[inline(always)]
pub(crate) fn exp_negative(x: f64) -> f64 {
    // 1.5 * 2^52: adding it leaves the rounded integer in the low bits of the sum.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let clamped = if x > -708.0 { x } else { -708.0 };
    let rounded = clamped * core::f64::consts::LOG2_E + ROUND;
    let k = rounded - ROUND;
    let r = (clamped - k * LN_2_HIGH) - k * LN_2_LOW;
    let mut p = EXP_SERIES[0];
    for coefficient in &EXP_SERIES[1..] {
        p = p * r + coefficient;
    }
    // The exponent of the power alone survives the shift.
    let power = f64::from_bits(rounded.to_bits().wrapping_add(1023) << 52);
    let value = (1.0 + (r + r * r * p)) * power;
    if x > -708.0 { value } else { 0.0 }
}

/// Sum over the logits of `exp((logit - max) * scale)` in f64; `-inf` counts as nothing. Eight partial sums, in a fixed order.
#[inline(always)]
pub(crate) fn exp_sum_exact(logits: &[f32], max: f32, scale: f64) -> f64 {
    let max = f64::from(max);
    let mut sums = [0.0f64; 8];
    let (rows, rest) = logits.as_chunks::<8>();
    for row in rows {
        for lane in 0..8 {
            sums[lane] += exp_negative((f64::from(row[lane]) - max) * scale);
        }
    }
    for (sum, &logit) in sums.iter_mut().zip(rest) {
        *sum += exp_negative((f64::from(logit) - max) * scale);
    }
    sums.iter().sum()
}

/// Writes `exp((logit - max) * scale) / total` for each logit.
#[inline(always)]
pub(crate) fn exp_each(logits: &[f32], max: f32, scale: f64, total: f64, out: &mut [f64]) {
    let max = f64::from(max);
    for (out, &logit) in out.iter_mut().zip(logits) {
        *out = exp_negative((f64::from(logit) - max) * scale) / total;
    }
}

/// The greatest relative error of [`exp_sum`].
pub(crate) const EXP_SUM_ERROR: f64 = 3e-5;

/// Sum over the row of `exp((logit - max) * scale)`, in f32 lanes, within [`EXP_SUM_ERROR`]; `-inf` counts as nothing.
///
/// The bound is that of the worst term, whose argument is 87 and carries three roundings; terms that matter have small
/// arguments, and the sum is good to about 1e-6.
pub(crate) fn exp_sum(logits: &[f32], max: f32, scale: f64) -> f64 {
    const LANES: usize = 16;
    // Exponentials and additions in loops of their own, which compilers turn into vector code without being coaxed.
    const TERMS: usize = LANES * 4;
    let scale = (scale * core::f64::consts::LOG2_E) as f32;
    let mut total = 0.0f64;
    // Short blocks keep the f32 partial sums within 64 roundings.
    for block in logits.chunks(LANES * 64) {
        let mut sums = [0.0f32; LANES];
        for logits in block.chunks(TERMS) {
            let mut terms = [0.0f32; TERMS];
            for (term, &logit) in terms.iter_mut().zip(logits) {
                *term = exp2_negative((logit - max) * scale);
            }
            for terms in terms.as_chunks::<LANES>().0 {
                for lane in 0..LANES {
                    sums[lane] += terms[lane];
                }
            }
        }
        total += sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
    }
    total
}

/// `2^y` for `y <= 0` in f32; 0 below -126.
#[inline(always)]
fn exp2_negative(y: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23
    let clamped = if y > -126.0 { y } else { -126.0 };
    let rounded = clamped + ROUND;
    let f = clamped - (rounded - ROUND);
    // Taylor coefficients ln(2)^n / n!; |f| <= 1/2 leaves 1.2e-7.
    let mut p = 1.540_353e-4;
    p = p * f + 1.333_355_8e-3;
    p = p * f + 9.618_129e-3;
    p = p * f + 5.550_411e-2;
    p = p * f + 2.402_265e-1;
    p = p * f + core::f32::consts::LN_2;
    p = p * f + 1.0;
    let scale = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    if y > -126.0 { p * scale } else { 0.0 }
}

/// The finaliser of splitmix64: a bijection on 64 bits in which every input bit reaches every output bit.
pub(crate) fn mix64(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// 2^64 over the golden ratio, odd: multiples of it spread consecutive counters over 64 bits.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers spread over the exponents in use, and dense around 1.
    fn positive_numbers() -> impl Iterator<Item = f64> {
        let spread = (0..200_000u64).map(|index| {
            let exponent = 1023 - 40 + mix64(index) % 46;
            f64::from_bits((exponent << 52) | (mix64(!index) >> 12))
        });
        let near_one = (0..100_000i32).map(|index| 1.0 + f64::from(index - 50_000) * 1e-9);
        spread.chain(near_one)
    }

    #[test]
    fn logarithm_agrees_with_libm_to_the_last_bits() {
        for x in positive_numbers() {
            let (ours, theirs) = (ln(x), libm::log(x));
            assert!((ours - theirs).abs() <= 5e-16 * theirs.abs(), "ln({x:e}) = {ours:e}, libm has {theirs:e}");
        }
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn exponential_agrees_with_libm_to_the_last_bits_and_ends_at_zero() {
        for index in 0..300_000u32 {
            let x = -f64::from(index) * (707.9 / 300_000.0);
            let (ours, theirs) = (exp_negative(x), libm::exp(x));
            assert!((ours - theirs).abs() <= 5e-16 * theirs, "exp({x}) = {ours:e}, libm has {theirs:e}");
        }
        assert_eq!(exp_negative(0.0), 1.0);
        assert_eq!(exp_negative(-709.0), 0.0);
        assert_eq!(exp_negative(f64::NEG_INFINITY), 0.0);
    }

    #[test]
    fn the_f32_sum_stays_within_its_bound() {
        for (scale, spread) in [(1.0, 30.0), (1.25, 90.0), (0.01, 1e4), (1e3, 0.05), (1.0, 0.0), (1e20, 1e-19)] {
            for length in [1usize, 15, 16, 17, 255, 257, 20_000] {
                let mut row: alloc::vec::Vec<f32> = (0..length as u64)
                    .map(|index| ((mix64(index) >> 40) as f64 / 16_777_216.0 * spread) as f32)
                    .collect();
                if length > 20 {
                    row[7] = f32::NEG_INFINITY;
                }
                let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let exact: f64 = row.iter().map(|&x| libm::exp((f64::from(x) - f64::from(max)) * scale)).sum();
                let (rough, ours) = (exp_sum(&row, max, scale), exp_sum_exact(&row, max, scale));
                assert!(
                    (rough - exact).abs() <= EXP_SUM_ERROR * exact,
                    "{scale} {spread} {length}: {rough} for {exact}"
                );
                assert!((ours - exact).abs() <= 1e-13 * exact, "{scale} {spread} {length}: {ours} for {exact}");
            }
        }
    }
}
