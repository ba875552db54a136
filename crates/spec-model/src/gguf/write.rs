//! Writing GGUF files: small ones as a whole, fixtures for tests here and in the layers above, and the headers of large ones.
//!
//! The writer lays out what it is given and checks nothing, so that tests can also write files that must be refused.

use super::{DEFAULT_ALIGNMENT, MAGIC, ValueType};
use crate::TensorType;

/// A metadata value to write.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are the format's own")]
pub enum Value {
    U8(u8),
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Strings(Vec<String>),
    U8s(Vec<u8>),
    Bools(Vec<bool>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
}

macro_rules! from {
    ($($source:ty => $variant:ident;)*) => {$(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

from! {
    u32 => U32;
    f32 => F32;
    bool => Bool;
    &str => String;
    String => String;
    Vec<String> => Strings;
    Vec<bool> => Bools;
    Vec<i32> => I32s;
    Vec<f32> => F32s;
}

impl From<&[&str]> for Value {
    fn from(strings: &[&str]) -> Self {
        Self::Strings(strings.iter().map(ToString::to_string).collect())
    }
}

/// Collects keys and tensors, then lays them out.
///
/// ```
/// use spec_model::{TensorType, gguf::{Gguf, write::Writer}};
///
/// let bytes = Writer::new()
///     .key("general.architecture", "llama")
///     .tensor("output_norm.weight", TensorType::F32, &[2], &[0; 8])
///     .finish();
/// let file = Gguf::parse(bytes, "two.gguf")?;
/// assert_eq!(file.metadata().str("general.architecture")?, "llama");
/// # Ok::<(), spec_model::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Writer {
    keys: Vec<(String, Value)>,
    tensors: Vec<(String, TensorType, Vec<u64>, Vec<u8>)>,
}

impl Writer {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a key, or replaces the value it already has.
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        match self.keys.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.keys.push((key.to_owned(), value)),
        }
        self
    }

    /// Removes a key.
    pub fn without_key(mut self, key: &str) -> Self {
        self.keys.retain(|(k, _)| k != key);
        self
    }

    /// Appends a tensor, or replaces the one of this name. `dims` are in file order, fastest first.
    pub fn tensor(mut self, name: &str, tensor_type: TensorType, dims: &[u64], data: &[u8]) -> Self {
        let tensor = (name.to_owned(), tensor_type, dims.to_vec(), data.to_vec());
        match self.tensors.iter_mut().find(|t| t.0 == name) {
            Some(entry) => *entry = tensor,
            None => self.tensors.push(tensor),
        }
        self
    }

    /// Appends or replaces a tensor of f32 values.
    pub fn f32_tensor(self, name: &str, dims: &[u64], values: &[f32]) -> Self {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensor(name, TensorType::F32, dims, &data)
    }

    /// Removes a tensor.
    pub fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|t| t.0 != name);
        self
    }

    /// The file's bytes. Tensor data is aligned as `general.alignment` says when it was set to a u32, else to 32.
    pub fn finish(self) -> Vec<u8> {
        let alignment = self.keys.iter().find_map(|(key, value)| match value {
            Value::U32(v) if key == "general.alignment" && *v > 0 => Some(*v),
            _ => None,
        });
        let alignment = alignment.unwrap_or(DEFAULT_ALIGNMENT) as usize;
        let keys: Vec<(&str, Vec<u8>)> = self.keys.iter().map(|(key, value)| (&**key, value.stored())).collect();
        let lines = self.tensors.iter().map(|(name, tensor_type, dims, data)| Line {
            name,
            tensor_type: *tensor_type,
            dims,
            bytes: data.len(),
        });
        let mut out = header(&keys, &lines.collect::<Vec<_>>(), alignment);
        for (_, _, _, data) in &self.tensors {
            out.resize(out.len().next_multiple_of(alignment), 0);
            out.extend(data);
        }
        out
    }
}

/// A line of a tensor table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) tensor_type: TensorType,
    /// Fastest first.
    pub(crate) dims: &'a [u64],
    /// Bytes of the data.
    pub(crate) bytes: usize,
}

/// What stands before the tensors' data, without padding. Values are as [`Value::stored`] gives them; the data of each tensor begins at a
/// multiple of `alignment`.
pub(crate) fn header<K: AsRef<str>, V: AsRef<[u8]>>(
    keys: &[(K, V)],
    tensors: &[Line<'_>],
    alignment: usize,
) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(3_u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        put_string(&mut out, key.as_ref());
        out.extend(value.as_ref());
    }
    let mut offset = 0;
    for Line { name, tensor_type, dims, bytes } in tensors {
        put_string(&mut out, name);
        out.extend((dims.len() as u32).to_le_bytes());
        out.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        out.extend(tensor_type.id().to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset = (offset + bytes).next_multiple_of(alignment);
    }
    out
}

impl Value {
    /// Its type and its bytes.
    pub(crate) fn stored(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_value(&mut out, self);
        out
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let scalar = |out: &mut Vec<u8>, value_type: ValueType, bytes: &[u8]| {
        out.extend((value_type as u32).to_le_bytes());
        out.extend(bytes);
    };
    let array = |out: &mut Vec<u8>, element: ValueType, count: usize| {
        out.extend((ValueType::Array as u32).to_le_bytes());
        out.extend((element as u32).to_le_bytes());
        out.extend((count as u64).to_le_bytes());
    };
    match value {
        Value::U8(v) => scalar(out, ValueType::U8, &[*v]),
        Value::U32(v) => scalar(out, ValueType::U32, &v.to_le_bytes()),
        Value::I32(v) => scalar(out, ValueType::I32, &v.to_le_bytes()),
        Value::U64(v) => scalar(out, ValueType::U64, &v.to_le_bytes()),
        Value::F32(v) => scalar(out, ValueType::F32, &v.to_le_bytes()),
        Value::F64(v) => scalar(out, ValueType::F64, &v.to_le_bytes()),
        Value::Bool(v) => scalar(out, ValueType::Bool, &[u8::from(*v)]),
        Value::String(v) => {
            scalar(out, ValueType::String, &[]);
            put_string(out, v);
        }
        Value::Strings(strings) => {
            array(out, ValueType::String, strings.len());
            strings.iter().for_each(|text| put_string(out, text));
        }
        Value::U8s(v) => {
            array(out, ValueType::U8, v.len());
            out.extend(v);
        }
        Value::Bools(v) => {
            array(out, ValueType::Bool, v.len());
            out.extend(v.iter().map(|&flag| u8::from(flag)));
        }
        Value::I32s(v) => {
            array(out, ValueType::I32, v.len());
            out.extend(v.iter().flat_map(|v| v.to_le_bytes()));
        }
        Value::F32s(v) => {
            array(out, ValueType::F32, v.len());
            out.extend(v.iter().flat_map(|v| v.to_le_bytes()));
        }
    }
}
