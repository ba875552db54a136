//! Quantisation of rows, while a model is loaded or a file is written.
//!
//! Q8_0 and Q4_0 give the bytes that the Python package `gguf` gives. Q4_K and Q3_K have no such definition: their formats leave
//! the search for scales and minima to the writer, and ours looks for the least square error (see [`Quantizer::Q4K`]).

use half::f16;

use crate::{Error, Result, TensorType};

#[cfg(test)]
mod tests;

/// A type that rows of floats can be quantised to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantizer {
    /// 8.5 bits an element: the largest magnitude of 32 becomes 127.
    Q8_0,
    /// 4.5 bits: the element of the largest magnitude of 32 becomes -8.
    Q4_0,
    /// 4.5 bits in super-blocks of 256. For each 32 elements, straight lines through 21 assignments of codes are fitted by
    /// least squares, and the one with the least error is kept; then scales and minima are rounded to their six bits, their
    /// neighbours tried as well, and the codes chosen anew for what the file will hold.
    Q4K,
    /// 3.4 bits in super-blocks of 256. For each 16 elements, fourteen scales are tried that bring the element of the largest
    /// magnitude to either end of the codes, each fitted by least squares; the best is rounded to its six bits as those of Q4_K.
    Q3K,
}

impl Quantizer {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Q8_0, Self::Q4_0, Self::Q4K, Self::Q3K];

    /// The type of the blocks.
    pub const fn tensor_type(self) -> TensorType {
        match self {
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q4_0 => TensorType::Q4_0,
            Self::Q4K => TensorType::Q4K,
            Self::Q3K => TensorType::Q3K,
        }
    }

    /// The quantiser for rows of `elements`: this one, or where they are no whole number of its blocks the next wider one,
    /// [`Q4_0`](Self::Q4_0) for [`Q3K`](Self::Q3K) and [`Q8_0`](Self::Q8_0) for the others; `None` where they are no whole
    /// number of any.
    pub const fn for_row(self, elements: usize) -> Option<Self> {
        let wider = match self {
            Self::Q3K => Self::Q4_0,
            Self::Q8_0 | Self::Q4_0 | Self::Q4K => Self::Q8_0,
        };
        if elements.is_multiple_of(self.tensor_type().block_size()) {
            Some(self)
        } else if elements.is_multiple_of(wider.tensor_type().block_size()) {
            Some(wider)
        } else {
            None
        }
    }

    /// Whether a quantised element takes fewer bits than one of `stored`.
    #[must_use]
    pub const fn is_narrower_than(self, stored: TensorType) -> bool {
        let to = self.tensor_type();
        to.block_bytes() * stored.block_size() < stored.block_bytes() * to.block_size()
    }

    /// Quantises a row. A block with an element that is no finite number, or too large for an f16 scale, dequantises to
    /// nothing finite, so that no such weight passes unseen.
    ///
    /// # Errors
    /// [`Error::RowLength`] unless `out` takes exactly the whole blocks of `values`.
    pub fn quantize(self, values: &[f32], out: &mut [u8]) -> Result<()> {
        let tensor_type = self.tensor_type();
        if tensor_type.row_bytes(values.len()) != Some(out.len()) {
            return Err(Error::RowLength { tensor_type, bytes: out.len(), elements: values.len() });
        }
        let block: fn(&[f32], &mut [u8]) = match self {
            Self::Q8_0 => q8_0,
            Self::Q4_0 => q4_0,
            Self::Q4K => q4_k,
            Self::Q3K => q3_k,
        };
        // What every element is a multiple of.
        let scale_at = if self == Self::Q3K { Q3_K_SCALE } else { 0 };
        let blocks = values.chunks_exact(tensor_type.block_size());
        for (x, b) in blocks.zip(out.chunks_exact_mut(tensor_type.block_bytes())) {
            if x.iter().all(|value| value.is_finite()) {
                block(x, b);
            } else {
                b.fill(0);
                put_half(b, scale_at, f32::NAN);
            }
        }
        Ok(())
    }
}

fn put_half(bytes: &mut [u8], at: usize, value: f32) {
    bytes[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

fn q8_0(x: &[f32], b: &mut [u8]) {
    let scale = x.iter().fold(0.0_f32, |most, value| most.max(value.abs())) / 127.0;
    let inverse = inverse(scale);
    put_half(b, 0, scale);
    for (code, value) in b[2..].iter_mut().zip(x) {
        // Half away from zero.
        *code = ((value * inverse).round() as i8).cast_unsigned();
    }
}

fn q4_0(x: &[f32], b: &mut [u8]) {
    // Of equal magnitudes the first one decides on the sign.
    let largest = x.iter().fold(0.0_f32, |most, &value| if value.abs() > most.abs() { value } else { most });
    let scale = largest / -8.0;
    let inverse = inverse(scale);
    put_half(b, 0, scale);
    let code = |value: f32| ((value * inverse + 8.5) as u8).min(15);
    for (j, codes) in b[2..].iter_mut().enumerate() {
        *codes = code(x[j]) | code(x[j + 16]) << 4;
    }
}

/// Elements that share a scale and a minimum.
const SUB_BLOCK: usize = 32;
const LARGEST_CODE: f32 = 15.0;
/// Of six bits.
const LARGEST_SCALE: f32 = 63.0;

/// `scale * code - minimum` for 32 elements, neither below zero.
#[derive(Clone, Copy, Debug)]
struct Line {
    scale: f32,
    minimum: f32,
}

/// Sums are kept apart by element, modulo this, so that they vectorise.
const LANES: usize = 8;

/// The nearest codes, and what is left over, squared.
fn codes(x: &[f32; SUB_BLOCK], line: Line, out: &mut [f32; SUB_BLOCK]) -> f32 {
    // At 1.5 * 2^23 an f32 has no fraction bits left: adding it rounds.
    const ROUND: f32 = 12_582_912.0;
    let inverse = inverse(line.scale);
    let mut errors = [0.0; LANES];
    for (out, x) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(x.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            out[lane] = ((x[lane] + line.minimum) * inverse).clamp(0.0, LARGEST_CODE) + ROUND - ROUND;
            let left = line.scale * out[lane] - line.minimum - x[lane];
            errors[lane] += left * left;
        }
    }
    errors.iter().sum()
}

/// The line of least squares through `(code, x)` whose minimum is not below zero.
fn fit(x: &[f32; SUB_BLOCK], codes: &[f32; SUB_BLOCK]) -> Option<Line> {
    let n = SUB_BLOCK as f32;
    let mut sums = [[0.0_f32; LANES]; 4];
    for (codes, x) in codes.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[0][lane] += codes[lane];
            sums[1][lane] += codes[lane] * codes[lane];
            sums[2][lane] += codes[lane] * x[lane];
            sums[3][lane] += x[lane];
        }
    }
    let [q, qq, qx, sum] = sums.map(|lanes| lanes.into_iter().sum::<f32>());
    let determinant = n * qq - q * q;
    if determinant <= 0.0 {
        return None;
    }
    let mut line = Line { scale: (n * qx - q * sum) / determinant, minimum: (q * qx - qq * sum) / determinant };
    if line.minimum < 0.0 {
        line = Line { scale: qx / qq, minimum: 0.0 };
    }
    (line.scale > 0.0).then_some(line)
}

fn best_line(x: &[f32; SUB_BLOCK]) -> Line {
    let (least, most) = x.iter().fold((0.0_f32, f32::MIN), |(least, most), &x| (least.min(x), most.max(x)));
    let range = most - least;
    let mut best = Line { scale: 0.0, minimum: -least };
    if range <= 0.0 {
        return best;
    }
    let mut room = [0.0; SUB_BLOCK];
    let mut best_error = f32::INFINITY;
    // From 14 to 16 steps over the range: the outermost elements may be worth an error.
    for tenth in 140..=160_u8 {
        let guess = Line { scale: range / (f32::from(tenth) / 10.0), minimum: -least };
        codes(x, guess, &mut room);
        // Where all codes are the same, many lines fit.
        let line = fit(x, &room).unwrap_or(guess);
        let error = codes(x, line, &mut room);
        if error < best_error {
            (best, best_error) = (line, error);
        }
    }
    best
}

/// A six-bit step, and its neighbours.
fn steps(value: f32, step: f32) -> std::ops::RangeInclusive<u8> {
    let nearest = (value * inverse(step)).round().clamp(0.0, LARGEST_SCALE) as u8;
    nearest.saturating_sub(1)..=(nearest + 1).min(LARGEST_SCALE as u8)
}

fn q4_k(x: &[f32], b: &mut [u8]) {
    let x: &[[f32; SUB_BLOCK]] = x.as_chunks().0;
    let mut lines = [Line { scale: 0.0, minimum: 0.0 }; 8];
    for (line, x) in lines.iter_mut().zip(x) {
        *line = best_line(x);
    }
    let (scale, minimum) = lines
        .iter()
        .fold((0.0_f32, 0.0_f32), |(scale, minimum), line| (scale.max(line.scale), minimum.max(line.minimum)));
    // As the file holds them.
    let [scale, minimum] = [scale, minimum].map(|largest| f16::from_f32(largest / LARGEST_SCALE).to_f32());
    b.fill(0);
    put_half(b, 0, scale);
    put_half(b, 2, minimum);
    for (j, (line, x)) in lines.iter().zip(x).enumerate() {
        let (mut room, mut best_codes, mut best, mut best_error) = ([0.0; 32], [0.0; 32], (0, 0), f32::INFINITY);
        for s in steps(line.scale, scale) {
            for m in steps(line.minimum, minimum) {
                let line = Line { scale: scale * f32::from(s), minimum: minimum * f32::from(m) };
                let error = codes(x, line, &mut room);
                if error < best_error {
                    (best_codes, best, best_error) = (room, (s, m), error);
                }
            }
        }
        put_scale_and_minimum(&mut b[4..16], j, best);
        for (l, code) in best_codes.into_iter().enumerate() {
            b[16 + j / 2 * 32 + l] |= (code as u8) << (4 * (j % 2));
        }
    }
}

/// Six bits each: those of the first four sub-blocks whole, of the others the low nibbles, with two high bits above the first
/// four's.
fn put_scale_and_minimum(packed: &mut [u8], j: usize, (scale, minimum): (u8, u8)) {
    if j < 4 {
        packed[j] |= scale;
        packed[j + 4] |= minimum;
    } else {
        packed[j + 4] |= scale & 0xf | minimum << 4;
        packed[j - 4] |= scale >> 4 << 6;
        packed[j] |= minimum >> 4 << 6;
    }
}

/// Where a block of Q3_K has its super-scale; before it lie third bits, low bits and twelve bytes of scales.
const Q3_K_SCALE: usize = 108;
const Q3_K_SCALES: usize = 96;
const Q3_K_LOW_BITS: usize = 32;
/// Elements that share a scale.
const Q3_K_SUB_BLOCK: usize = 16;

/// The nearest codes of -4 to 3, and what is left over, squared.
fn signed_codes(x: &[f32; Q3_K_SUB_BLOCK], scale: f32) -> ([f32; Q3_K_SUB_BLOCK], f32) {
    let inverse = inverse(scale);
    let codes = x.map(|x| (x * inverse).round().clamp(-4.0, 3.0));
    let left = std::array::from_fn::<f32, Q3_K_SUB_BLOCK, _>(|l| scale * codes[l] - x[l]);
    (codes, left.iter().map(|left| left * left).sum())
}

/// The scale of least square error, among those tried; negative where the largest element wants the code -4.
fn best_scale(x: &[f32; Q3_K_SUB_BLOCK]) -> f32 {
    let largest = x.iter().fold(0.0_f32, |most, &value| if value.abs() > most.abs() { value } else { most });
    let (mut best, mut best_error) = (0.0, f32::INFINITY);
    // The largest element is a code of -4 or of 3, give or take what it may err by.
    for code in [-4.8, -4.6, -4.4, -4.2, -4.0, -3.8, -3.6, -3.4, -3.2, 2.6, 2.8, 3.0, 3.2, 3.4] {
        let guess = largest / code;
        let (codes, _) = signed_codes(x, guess);
        let square: f32 = codes.iter().map(|code| code * code).sum();
        let product: f32 = codes.iter().zip(x).map(|(code, x)| code * x).sum();
        let scale = if square > 0.0 { product / square } else { guess };
        let (_, error) = signed_codes(x, scale);
        if error < best_error {
            (best, best_error) = (scale, error);
        }
    }
    best
}

fn q3_k(x: &[f32], b: &mut [u8]) {
    let x: &[[f32; Q3_K_SUB_BLOCK]] = x.as_chunks().0;
    let mut scales = [0.0_f32; 16];
    for (scale, x) in scales.iter_mut().zip(x) {
        *scale = best_scale(x);
    }
    // Six-bit scales reach from -32 to 31: the largest is at the end that reaches further.
    let largest = scales.iter().fold(0.0_f32, |most, &scale| if scale.abs() > most.abs() { scale } else { most });
    let step = f16::from_f32(largest / -32.0).to_f32();
    b.fill(0);
    put_half(b, Q3_K_SCALE, step);
    for (j, (scale, x)) in scales.iter().zip(x).enumerate() {
        let nearest = (scale * inverse(step)).round().clamp(-32.0, 31.0) as i8;
        let (mut codes, mut best, mut best_error) = ([0.0; Q3_K_SUB_BLOCK], 0, f32::INFINITY);
        for candidate in (nearest - 1).max(-32)..=(nearest + 1).min(31) {
            let (tried, error) = signed_codes(x, step * f32::from(candidate));
            if error < best_error {
                (codes, best, best_error) = (tried, candidate, error);
            }
        }
        put_signed_scale(&mut b[Q3_K_SCALES..Q3_K_SCALE], j, best);
        for (l, code) in codes.into_iter().enumerate() {
            let (lane, code) = (j % 2 * Q3_K_SUB_BLOCK + l, (code + 4.0) as u8);
            b[Q3_K_LOW_BITS + j / 8 * 32 + lane] |= (code & 3) << (2 * (j % 8 / 2));
            b[lane] |= (code >> 2) << (j / 2);
        }
    }
}

/// Six bits, offset by 32: low nibbles in eight bytes, two high bits in the four behind them.
fn put_signed_scale(packed: &mut [u8], j: usize, scale: i8) {
    let code = (scale + 32) as u8;
    packed[j % 8] |= (code & 0xf) << (j / 8 * 4);
    packed[8 + j % 4] |= (code >> 4) << (j / 4 * 2);
}
