//! The safetensors container: a JSON table of tensors, in front of their bytes.
//!
//! Layout (the published format description): a u64 length, little-endian; that many bytes of a JSON object that names
//! each tensor with its `dtype`, `shape` (slowest first) and `data_offsets` (from the end of the header), and may hold
//! texts under `__metadata__`; the tensors' bytes, one after the other, without holes.
//!
//! The header is read here and not by the `safetensors` crate, which stops at a type that it does not know, keeps
//! the last of two tensors of one name, and answers a truncated file without saying which tensor is cut; the crate
//! writes the files of our tests.

mod header;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::tensor_info::TensorInfo;
use crate::{Error, Result, TensorType};
use header::Entry;

/// Longest header, in bytes, by the format.
const MAX_HEADER: u64 = 100_000_000;

/// A type of the format: name, bits of an element, and ours, by its number in GGUF.
struct Dtype(&'static str, u64, Option<u32>);

const DTYPES: [Dtype; 20] = [
    Dtype("F32", 32, Some(0)),
    Dtype("F16", 16, Some(1)),
    Dtype("BF16", 16, Some(30)),
    Dtype("BOOL", 8, None),
    Dtype("U8", 8, None),
    Dtype("I8", 8, None),
    Dtype("F8_E5M2", 8, None),
    Dtype("F8_E4M3", 8, None),
    Dtype("F8_E8M0", 8, None),
    Dtype("F4", 4, None),
    Dtype("F6_E2M3", 6, None),
    Dtype("F6_E3M2", 6, None),
    Dtype("I16", 16, None),
    Dtype("U16", 16, None),
    Dtype("I32", 32, None),
    Dtype("U32", 32, None),
    Dtype("I64", 64, None),
    Dtype("U64", 64, None),
    Dtype("F64", 64, None),
    Dtype("C64", 64, None),
];

/// Names of the types that tensors of a decoder may have.
pub(crate) const SUPPORTED: &str = "F32, F16, BF16";

/// A parsed file over the bytes it was parsed from.
#[derive(Debug)]
pub struct Safetensors<B> {
    bytes: B,
    name: String,
    tensors: Vec<TensorInfo>,
    tensor_index: HashMap<String, usize>,
    others: Vec<(String, &'static str)>,
}

impl<B: AsRef<[u8]>> Safetensors<B> {
    /// Parses and checks the whole header. `name` is the file name for messages.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`], [`Error::Malformed`], [`Error::TensorType`] and [`Error::Truncated`].
    pub fn parse(bytes: B, name: &str) -> Result<Self> {
        let data = bytes.as_ref();
        let malformed = |place: String, problem: String| Error::Malformed { file: name.to_owned(), place, problem };
        let Some((length, rest)) = data.split_first_chunk::<8>().filter(|(_, rest)| rest.first() == Some(&b'{')) else {
            let seems = crate::sniff::describe(data);
            return Err(Error::UnknownFormat { file: name.to_owned(), seems });
        };
        let length = u64::from_le_bytes(*length);
        if length > MAX_HEADER || length > rest.len() as u64 {
            let problem = format!(
                "{length} bytes are announced, but {} are left, and at most {MAX_HEADER} accepted; download it again",
                rest.len()
            );
            return Err(malformed("header".into(), problem));
        }
        let (header, content) = rest.split_at(length as usize);
        let mut entries = header::parse(header).map_err(|problem| malformed("header".into(), problem))?;
        entries.sort_by_key(|entry| (entry.begin, entry.end));

        let start = data.len() - content.len();
        let mut tensors = Vec::with_capacity(entries.len());
        let mut tensor_index = HashMap::with_capacity(entries.len());
        let mut others = Vec::new();
        let mut end = 0_u64;
        for entry in entries {
            let place = |problem: String| malformed(format!("tensor `{}`", entry.name), problem);
            let Some(&Dtype(dtype, bits, id)) = DTYPES.iter().find(|dtype| dtype.0 == entry.dtype) else {
                return Err(type_error(name, &entry.name, &entry.dtype));
            };
            let size = size(&entry, bits).map_err(place)?;
            if entry.end.checked_sub(entry.begin) != Some(size) {
                let problem = format!("offsets {} to {}, but {size} bytes by shape and type", entry.begin, entry.end);
                return Err(place(problem));
            }
            if entry.begin != end {
                return Err(place(format!("starts at {}, where the one before it ends at {end}", entry.begin)));
            }
            end = entry.end;
            if end > content.len() as u64 {
                return Err(Error::Truncated {
                    file: name.to_owned(),
                    tensor: entry.name,
                    expected: (start as u64).saturating_add(end),
                    found: data.len() as u64,
                });
            }
            match id.and_then(TensorType::from_id) {
                Some(tensor_type) => {
                    // A single number is a vector of one. Sizes fit: they are those of bytes that are there.
                    let mut dims: Vec<usize> = entry.shape.iter().rev().map(|&dim| dim as usize).collect();
                    if dims.is_empty() {
                        dims.push(1);
                    }
                    let range = start + entry.begin as usize..start + entry.end as usize;
                    tensor_index.insert(entry.name.clone(), tensors.len());
                    tensors.push(TensorInfo { name: entry.name, tensor_type, dims, range });
                }
                None => others.push((entry.name, dtype)),
            }
        }
        if end != content.len() as u64 {
            let problem = format!("the table describes {end} bytes of tensors, and {} follow it", content.len());
            return Err(malformed("header".into(), problem));
        }
        Ok(Self { bytes, name: name.to_owned(), tensors, tensor_index, others })
    }

    /// Name the file was parsed under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tensors of types that can be read, in the order of their bytes.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Index into [`Self::tensors`] of the tensor with this name.
    pub fn tensor_index(&self, name: &str) -> Option<usize> {
        self.tensor_index.get(name).copied()
    }

    /// Names and types of the tensors that no decoder can use.
    pub fn others(&self) -> &[(String, &'static str)] {
        &self.others
    }

    /// Data of the tensor at `index` of [`Self::tensors`].
    ///
    /// # Panics
    /// When `index` is not an index of that table.
    pub fn tensor_bytes(&self, index: usize) -> &[u8] {
        &self.bytes.as_ref()[self.tensors[index].range.clone()]
    }

    pub(crate) fn bytes(&self) -> &B {
        &self.bytes
    }
}

pub(crate) fn type_error(file: &str, tensor: &str, found: &str) -> Error {
    // The name of a type comes from the file, and may be long.
    let found = found.chars().take(32).collect();
    Error::TensorType { file: file.to_owned(), tensor: tensor.to_owned(), found, supported: SUPPORTED.to_owned() }
}

/// Bytes of an entry's data by its shape and the bits of an element.
fn size(entry: &Entry, bits: u64) -> Result<u64, String> {
    if entry.shape.len() > 4 {
        return Err(format!("{} dimensions, wanted at most 4", entry.shape.len()));
    }
    if entry.shape.contains(&0) {
        return Err("a dimension is zero".into());
    }
    let bits = entry.shape.iter().try_fold(bits, |size, &dim| size.checked_mul(dim));
    match bits {
        Some(bits) if bits.is_multiple_of(8) => Ok(bits / 8),
        Some(bits) => Err(format!("{bits} bits are no whole number of bytes")),
        None => Err(format!("dimensions {:?} overflow", entry.shape)),
    }
}
