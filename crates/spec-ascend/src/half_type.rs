//! The two half-precision types, and rows of them.

use atb_rs::DataType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Element type of weights, activations and cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfType {
    /// IEEE half: 11 bits of precision, up to 65,504.
    F16,
    /// The upper half of an IEEE single: 8 bits of precision, its whole range. Not on 310P.
    Bf16,
}

impl HalfType {
    /// Bytes of an element.
    pub const SIZE: usize = 2;

    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::F16 => DataType::F16,
            Self::Bf16 => DataType::Bf16,
        }
    }

    /// Rounds `values` to `bits`, of the same length. `false` when one of them is out of range.
    pub(crate) fn encode(self, values: &[f32], bits: &mut [u16]) -> bool {
        let infinity = match self {
            Self::F16 => {
                bits.iter_mut().zip(values).for_each(|(bits, &value)| *bits = f16::from_f32(value).to_bits());
                f16::INFINITY.to_bits()
            }
            Self::Bf16 => {
                bits.iter_mut().zip(values).for_each(|(bits, &value)| *bits = bf16::from_f32(value).to_bits());
                bf16::INFINITY.to_bits()
            }
        };
        // Infinity and NaN are the largest magnitudes.
        bits.iter().all(|bits| bits & 0x7FFF < infinity)
    }

    /// Widens `bits` to `values`, of the same length.
    pub(crate) fn decode(self, bits: &[u16], values: &mut [f32]) {
        use half::slice::HalfBitsSliceExt;
        match self {
            Self::F16 => bits.reinterpret_cast::<f16>().convert_to_f32_slice(values),
            Self::Bf16 => bits.reinterpret_cast::<bf16>().convert_to_f32_slice(values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_noticed_and_others_come_back() {
        let mut bits = [0; 3];
        assert!(HalfType::F16.encode(&[1.5, -65_504.0, 0.0], &mut bits));
        let mut values = [0.0; 3];
        HalfType::F16.decode(&bits, &mut values);
        assert_eq!(values, [1.5, -65_504.0, 0.0]);
        assert!(!HalfType::F16.encode(&[1.0, 70_000.0, 0.0], &mut bits));
        assert!(HalfType::Bf16.encode(&[1.0, 70_000.0, 0.0], &mut bits));
        assert!(!HalfType::Bf16.encode(&[f32::NAN, 0.0, 0.0], &mut bits));
    }
}
