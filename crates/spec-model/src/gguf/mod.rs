//! The GGUF container: typed metadata and a table of tensors, in front of the tensors' bytes.
//!
//! Layout (version 2 and 3, little-endian; the published format description of ggml): magic `GGUF`, u32 version, u64 tensor
//! count, u64 key count, the keys, the tensor table, padding to the alignment, tensor data. A string is a u64 length and
//! that many bytes; a tensor is a name, a u32 number of dimensions, the dimensions (u64, fastest first), a u32 type and
//! a u64 offset from the start of the data.
//!
//! [`Gguf::parse`] is a pure function of the bytes. Each number is checked against the bytes left before it is used, and
//! arrays stay where they are: a vocabulary of 150,000 strings costs its walk, no copy.

mod cursor;
mod metadata;
#[cfg(test)]
mod tests;
pub mod write;

use std::collections::HashMap;
use std::ops::Range;

pub use crate::tensor_info::TensorInfo;
pub use metadata::{Metadata, Strings, ValueType};

use crate::{Error, Result, TensorType};
use cursor::{Cursor, Problem};
use metadata::Value;

/// Bytes at the start of a GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// Most keys a file may have; published files have about thirty.
const MAX_KEYS: u64 = 1 << 16;
/// Most tensors a file may have; the largest published models have a few thousand.
const MAX_TENSORS: u64 = 1 << 20;
/// Longest key or tensor name in bytes, by the format.
const MAX_NAME: usize = 65_535;
/// Largest `general.alignment`; larger ones only waste space.
const MAX_ALIGNMENT: u32 = 1 << 16;
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;
/// Fewest bytes of a key entry (length, no name, type, one-byte value) and of a tensor entry (one dimension).
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// A parsed GGUF file over the bytes it was parsed from.
#[derive(Debug)]
pub struct Gguf<B> {
    bytes: B,
    name: String,
    version: u32,
    alignment: u32,
    keys: Vec<String>,
    /// Where each value is, its type in front.
    stored: Vec<Range<usize>>,
    values: HashMap<String, Value>,
    tensors: Vec<TensorInfo>,
    tensor_index: HashMap<String, usize>,
}

impl<B: AsRef<[u8]>> Gguf<B> {
    /// Parses and checks the whole header. `name` is the file name for messages.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`], [`Error::ByteOrder`], [`Error::Version`], [`Error::Malformed`], [`Error::TensorType`] and
    /// [`Error::Truncated`].
    pub fn parse(bytes: B, name: &str) -> Result<Self> {
        let data = bytes.as_ref();
        let file = || name.to_owned();
        let malformed = |place: String| {
            move |problem: Problem| Error::Malformed { file: name.to_owned(), place, problem: problem.into() }
        };
        if data.get(..4) != Some(&MAGIC[..]) {
            if data.get(..4) == Some(&b"FUGG"[..]) {
                return Err(Error::ByteOrder { file: file() });
            }
            let seems = crate::sniff::describe(data);
            return Err(Error::UnknownFormat { file: file(), seems });
        }
        let mut cursor = Cursor::new(data, 4);
        let version = cursor.u32().map_err(malformed("version".into()))?;
        check_version(version, name)?;
        let counts = "counts of tensors and keys";
        let tensor_count = cursor.u64().map_err(malformed(counts.into()))?;
        let key_count = cursor.u64().map_err(malformed(counts.into()))?;
        let needed =
            u128::from(tensor_count) * u128::from(MIN_TENSOR_BYTES) + u128::from(key_count) * u128::from(MIN_KEY_BYTES);
        if tensor_count > MAX_TENSORS || key_count > MAX_KEYS || needed > cursor.left() as u128 {
            let problem = Problem::new(format!(
                "{tensor_count} tensors and {key_count} keys cannot fit in the {} bytes left (at most {MAX_TENSORS} \
                 and {MAX_KEYS} are accepted)",
                cursor.left()
            ));
            return Err(malformed(counts.into())(problem));
        }

        let mut keys = Vec::with_capacity(key_count as usize);
        let mut stored = Vec::with_capacity(key_count as usize);
        let mut values = HashMap::with_capacity(key_count as usize);
        for i in 0..key_count {
            let key = cursor.name(MAX_NAME).map_err(|p| malformed(format!("name of metadata key {i}"))(p))?;
            let start = cursor.position();
            let value = Value::parse(&mut cursor).map_err(|p| malformed(format!("metadata key `{key}`"))(p))?;
            stored.push(start..cursor.position());
            if values.insert(key.to_owned(), value).is_some() {
                return Err(malformed(format!("metadata key `{key}`"))(Problem::new("given twice")));
            }
            keys.push(key.to_owned());
        }
        let alignment =
            Metadata::new(data, name, &values).optional_u32("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
        if !alignment.is_power_of_two() || !(8..=MAX_ALIGNMENT).contains(&alignment) {
            return Err(Error::KeyValue {
                file: file(),
                key: "general.alignment".into(),
                problem: format!("{alignment} is not a power of two from 8 to {MAX_ALIGNMENT}"),
            });
        }

        let mut entries = Vec::with_capacity(tensor_count as usize);
        for i in 0..tensor_count {
            let tensor = cursor.name(MAX_NAME).map_err(|p| malformed(format!("name of tensor {i}"))(p))?;
            let entry = Entry::parse(&mut cursor, alignment).map_err(|p| malformed(format!("tensor `{tensor}`"))(p))?;
            let Some(tensor_type) = TensorType::from_id(entry.type_id) else {
                return Err(Error::TensorType {
                    file: file(),
                    tensor: tensor.to_owned(),
                    found: TensorType::name_of(entry.type_id),
                    supported: TensorType::supported(),
                });
            };
            entries.push((tensor.to_owned(), tensor_type, entry));
        }
        let data_start = cursor
            .position()
            .checked_next_multiple_of(alignment as usize)
            .ok_or_else(|| malformed("header".into())(Problem::new("size overflows")))?;

        let mut tensors = Vec::with_capacity(entries.len());
        let mut tensor_index = HashMap::with_capacity(entries.len());
        let mut last: Option<(u64, usize)> = None;
        for (tensor, tensor_type, entry) in entries {
            let place = |p: Problem| malformed(format!("tensor `{tensor}`"))(p);
            let size = entry.size(tensor_type).map_err(place)?;
            let end = (data_start as u64)
                .checked_add(entry.offset)
                .and_then(|start| start.checked_add(size))
                .ok_or_else(|| place(Problem::new(format!("offset {} overflows", entry.offset))))?;
            if last.is_none_or(|(furthest, _)| end > furthest) {
                last = Some((end, tensors.len()));
            }
            if tensor_index.insert(tensor.clone(), tensors.len()).is_some() {
                return Err(place(Problem::new("given twice")));
            }
            // Meaningless while `end` is past the file; refused below before anyone sees it.
            let range = (end - size) as usize..end as usize;
            let dims = entry.dims();
            tensors.push(TensorInfo { name: tensor, tensor_type, dims, range });
        }
        if let Some((expected, index)) = last.filter(|&(end, _)| end > data.len() as u64) {
            return Err(Error::Truncated {
                file: file(),
                tensor: tensors.swap_remove(index).name,
                expected,
                found: data.len() as u64,
            });
        }
        let name = file();
        Ok(Self { bytes, name, version, alignment, keys, stored, values, tensors, tensor_index })
    }

    /// Name the file was parsed under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// The typed metadata.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::new(self.bytes.as_ref(), &self.name, &self.values)
    }

    /// Metadata keys in file order.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Keys in file order, with their values as they are stored: a u32 type and the bytes behind it.
    pub fn stored_values(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let bytes = self.bytes.as_ref();
        self.keys.iter().zip(&self.stored).map(|(key, range)| (key.as_str(), &bytes[range.clone()]))
    }

    /// The tensor table in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Index into [`Self::tensors`] of the tensor with this name.
    pub fn tensor_index(&self, name: &str) -> Option<usize> {
        self.tensor_index.get(name).copied()
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

fn check_version(version: u32, name: &str) -> Result<()> {
    let file = name.to_owned();
    match version {
        2 | 3 => Ok(()),
        v if (1..=3).contains(&v.swap_bytes()) => Err(Error::ByteOrder { file }),
        0 | 1 => Err(Error::Version { file, version, advice: "convert the model again with a current converter" }),
        _ => Err(Error::Version { file, version, advice: "it is newer than this program, or damaged" }),
    }
}

/// A tensor's entry as stored, checked for itself but not yet against the file's size.
struct Entry {
    dims: [u64; 4],
    n_dims: usize,
    type_id: u32,
    offset: u64,
}

impl Entry {
    fn parse(cursor: &mut Cursor<'_>, alignment: u32) -> Result<Self, Problem> {
        let n_dims = cursor.u32()?;
        if !(1..=4).contains(&n_dims) {
            return Err(Problem::new(format!("{n_dims} dimensions, wanted 1 to 4")));
        }
        let n_dims = n_dims as usize;
        let mut dims = [1; 4];
        for dim in &mut dims[..n_dims] {
            *dim = cursor.u64()?;
            if *dim == 0 {
                return Err(Problem::new("a dimension is zero"));
            }
        }
        let type_id = cursor.u32()?;
        let offset = cursor.u64()?;
        if !offset.is_multiple_of(u64::from(alignment)) {
            return Err(Problem::new(format!("offset {offset} is not a multiple of the alignment {alignment}")));
        }
        Ok(Self { dims, n_dims, type_id, offset })
    }

    /// Bytes of the data. All dimensions fit `usize` when this is `Ok`.
    fn size(&self, tensor_type: TensorType) -> Result<u64, Problem> {
        let dims = &self.dims[..self.n_dims];
        let too_large = || Problem::new(format!("dimensions {dims:?} overflow"));
        let cols = usize::try_from(dims[0]).map_err(|_| too_large())?;
        let block = tensor_type.block_size();
        if !cols.is_multiple_of(block) {
            return Err(Problem::new(format!("rows of {cols} are not whole {tensor_type} blocks of {block}")));
        }
        let row = tensor_type.row_bytes(cols).ok_or_else(too_large)?;
        let size = dims[1..].iter().try_fold(row as u64, |size, &dim| size.checked_mul(dim));
        size.filter(|&size| isize::try_from(size).is_ok()).ok_or_else(too_large)
    }

    fn dims(&self) -> Vec<usize> {
        self.dims[..self.n_dims].iter().map(|&dim| dim as usize).collect()
    }
}
