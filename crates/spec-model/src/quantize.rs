//! Quantisation of rows while a model is loaded.
//!
//! Q8_0 and Q4_0 give the bytes that the Python package `gguf` gives. Q4_K has no such definition: its format leaves the
//! search for scales and minima to the writer, and ours looks for the least square error (see [`Quantizer::Q4K`]).

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
}

impl Quantizer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Q8_0, Self::Q4_0, Self::Q4K];

    /// The type of the blocks.
    pub const fn tensor_type(self) -> TensorType {
        match self {
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q4_0 => TensorType::Q4_0,
            Self::Q4K => TensorType::Q4K,
        }
    }

    /// The quantiser for rows of `elements`: this one, or [`Q8_0`](Self::Q8_0) where they are no whole number of its
    /// blocks; `None` where they are no whole number of any.
    pub const fn for_row(self, elements: usize) -> Option<Self> {
        if elements.is_multiple_of(self.tensor_type().block_size()) {
            Some(self)
        } else if elements.is_multiple_of(TensorType::Q8_0.block_size()) {
            Some(Self::Q8_0)
        } else {
            None
        }
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
        };
        let blocks = values.chunks_exact(tensor_type.block_size());
        for (x, b) in blocks.zip(out.chunks_exact_mut(tensor_type.block_bytes())) {
            if x.iter().all(|value| value.is_finite()) {
                block(x, b);
            } else {
                // All three begin with the scale that every element is a multiple of.
                b.fill(0);
                put_half(b, 0, f32::NAN);
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
