//! Element types of stored tensors.

use std::fmt;

/// How a tensor's elements are stored. A row is a whole number of blocks; integers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// 32 elements: f16 scale, 4-bit codes offset by 8.
    Q4_0,
    /// 32 elements: f16 scale, f16 minimum, 4-bit codes.
    Q4_1,
    /// 32 elements: f16 scale, fifth bits, 4 low bits; codes are offset by 16.
    Q5_0,
    /// 32 elements: f16 scale, f16 minimum, fifth bits, 4 low bits.
    Q5_1,
    /// 32 elements: f16 scale, signed bytes.
    Q8_0,
    /// 256 elements: 4-bit scale and minimum per 16, 2-bit codes, f16 super-scale and super-minimum.
    Q2K,
    /// 256 elements: third bits, 2 low bits, 6-bit scale per 16, f16 super-scale; codes are offset by 4, scales by 32.
    Q3K,
    /// 256 elements: f16 super-scale and super-minimum, 6-bit scale and minimum per 32, 4-bit codes.
    Q4K,
    /// 256 elements: as [`Q4K`](Self::Q4K), with fifth bits before the 4 low bits.
    Q5K,
    /// 256 elements: 4 low and 2 high bits, signed byte scale per 16, f16 super-scale; codes are offset by 32.
    Q6K,
    /// 32 elements: f16 scale, 4-bit indices into 16 unevenly spaced values.
    IQ4NL,
    /// 256 elements: f16 super-scale, 6-bit scale per 32 offset by 32, indices as [`IQ4NL`](Self::IQ4NL).
    IQ4XS,
    /// The upper half of a single-precision number.
    BF16,
}

/// A row of the table below: type, name, number in the file, elements and bytes per block.
struct Row(TensorType, &'static str, u32, usize, usize);

const TABLE: [Row; 15] = [
    Row(TensorType::F32, "F32", 0, 1, 4),
    Row(TensorType::F16, "F16", 1, 1, 2),
    Row(TensorType::Q4_0, "Q4_0", 2, 32, 2 + 16),
    Row(TensorType::Q4_1, "Q4_1", 3, 32, 2 + 2 + 16),
    Row(TensorType::Q5_0, "Q5_0", 6, 32, 2 + 4 + 16),
    Row(TensorType::Q5_1, "Q5_1", 7, 32, 2 + 2 + 4 + 16),
    Row(TensorType::Q8_0, "Q8_0", 8, 32, 2 + 32),
    Row(TensorType::Q2K, "Q2_K", 10, 256, 16 + 64 + 2 + 2),
    Row(TensorType::Q3K, "Q3_K", 11, 256, 32 + 64 + 12 + 2),
    Row(TensorType::Q4K, "Q4_K", 12, 256, 2 + 2 + 12 + 128),
    Row(TensorType::Q5K, "Q5_K", 13, 256, 2 + 2 + 12 + 32 + 128),
    Row(TensorType::Q6K, "Q6_K", 14, 256, 128 + 64 + 16 + 2),
    Row(TensorType::IQ4NL, "IQ4_NL", 20, 32, 2 + 16),
    Row(TensorType::IQ4XS, "IQ4_XS", 23, 256, 2 + 2 + 4 + 128),
    Row(TensorType::BF16, "BF16", 30, 1, 2),
];

/// Types of the format that are recognised only to be refused by name.
const OTHER_NAMES: [(u32, &str); 19] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
];

impl TensorType {
    /// Every supported type, in the order of the format's numbers.
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [Self::F32; TABLE.len()];
        let mut i = 0;
        while i < TABLE.len() {
            all[i] = TABLE[i].0;
            i += 1;
        }
        all
    };

    const fn row(self) -> &'static Row {
        // The enum's order is the table's: asserted below for every type at compile time.
        &TABLE[self as usize]
    }

    /// Name as the format spells it, such as `Q4_K`.
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// Number in the file.
    pub const fn id(self) -> u32 {
        self.row().2
    }

    /// Elements per block.
    pub const fn block_size(self) -> usize {
        self.row().3
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of `elements` elements; `None` unless they are whole blocks and the size is representable.
    pub const fn row_bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_size()) {
            return None;
        }
        (elements / self.block_size()).checked_mul(self.block_bytes())
    }

    /// The supported type with this number.
    pub fn from_id(id: u32) -> Option<Self> {
        TABLE.iter().find(|row| row.2 == id).map(|row| row.0)
    }

    /// Name of any number, supported or not, for messages.
    pub(crate) fn name_of(id: u32) -> String {
        match (Self::from_id(id), OTHER_NAMES.iter().find(|o| o.0 == id)) {
            (Some(known), _) => known.name().to_owned(),
            (None, Some((_, name))) => (*name).to_owned(),
            (None, None) => format!("number {id} (unknown)"),
        }
    }

    /// Names of the supported types, for messages.
    pub(crate) fn supported() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

const _: () = {
    let mut i = 0;
    while i < TABLE.len() {
        assert!(TABLE[i].0 as usize == i, "table order must be the enum's");
        i += 1;
    }
};

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
