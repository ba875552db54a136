//! Typed metadata values.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use super::cursor::{Cursor, Problem};
use crate::{Error, Result};

/// Type of a metadata value, numbered as in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are the format's own")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, Problem> {
        let id = cursor.u32()?;
        Self::ALL
            .get(id as usize)
            .copied()
            .ok_or_else(|| Problem::new(format!("value type {id} is unknown (0 to 12 are)")))
    }

    /// Bytes of a value; `None` for strings and arrays.
    fn size(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// A value with strings and arrays left in place.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Integer(i128, ValueType),
    Float(f64, ValueType),
    Bool(bool),
    String(Range<usize>),
    Array { element: ValueType, count: u64, bytes: Range<usize> },
}

impl Value {
    pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Self, Problem> {
        let value_type = ValueType::parse(cursor)?;
        match value_type {
            ValueType::String => cursor.string().map(Self::String),
            ValueType::Array => Self::parse_array(cursor),
            scalar => Self::parse_scalar(cursor, scalar),
        }
    }

    fn parse_scalar(cursor: &mut Cursor<'_>, value_type: ValueType) -> Result<Self, Problem> {
        let integer = |value| Self::Integer(value, value_type);
        Ok(match value_type {
            ValueType::U8 => integer(u8::from_le_bytes(cursor.array()?).into()),
            ValueType::I8 => integer(i8::from_le_bytes(cursor.array()?).into()),
            ValueType::U16 => integer(u16::from_le_bytes(cursor.array()?).into()),
            ValueType::I16 => integer(i16::from_le_bytes(cursor.array()?).into()),
            ValueType::U32 => integer(u32::from_le_bytes(cursor.array()?).into()),
            ValueType::I32 => integer(i32::from_le_bytes(cursor.array()?).into()),
            ValueType::U64 => integer(u64::from_le_bytes(cursor.array()?).into()),
            ValueType::I64 => integer(i64::from_le_bytes(cursor.array()?).into()),
            ValueType::F32 => Self::Float(f32::from_le_bytes(cursor.array()?).into(), value_type),
            ValueType::F64 => Self::Float(f64::from_le_bytes(cursor.array()?), value_type),
            ValueType::Bool => match cursor.array()? {
                [0] => Self::Bool(false),
                [1] => Self::Bool(true),
                [other] => return Err(Problem::new(format!("boolean is {other}, wanted 0 or 1"))),
            },
            ValueType::String | ValueType::Array => return Err(Problem::new("not a scalar")),
        })
    }

    fn parse_array(cursor: &mut Cursor<'_>) -> Result<Self, Problem> {
        let element = ValueType::parse(cursor)?;
        let count = cursor.u64()?;
        let bytes = match (element, element.size()) {
            (_, Some(size)) => {
                let bytes = count
                    .checked_mul(size)
                    .ok_or_else(|| Problem::new(format!("array of {count} elements overflows")))?;
                cursor.skip(bytes)?
            }
            (ValueType::String, None) => {
                // Each string has a length of eight bytes at least: a count beyond that is refused before the walk.
                if count > cursor.left() as u64 / 8 {
                    return Err(Problem::new(format!(
                        "array of {count} strings cannot fit in the {} bytes left",
                        cursor.left()
                    )));
                }
                let start = cursor.position();
                for i in 0..count {
                    cursor.string().map_err(|p| Problem::new(format!("string {i} of {count}: {}", String::from(p))))?;
                }
                start..cursor.position()
            }
            _ => return Err(Problem::new("arrays of arrays are not supported")),
        };
        Ok(Self::Array { element, count, bytes })
    }

    fn type_name(&self) -> String {
        match self {
            Self::Integer(_, t) | Self::Float(_, t) => t.to_string(),
            Self::Bool(_) => ValueType::Bool.to_string(),
            Self::String(_) => ValueType::String.to_string(),
            Self::Array { element, .. } => format!("array of {element}"),
        }
    }
}

/// The metadata of a file: getters that check the type and name the key when it does not fit.
///
/// `optional_*` is `None` when the key is absent; the plain form then is [`Error::MissingKey`]. Any integer type is
/// accepted where the value fits, since converters differ; a float is never taken for an integer, nor the reverse.
#[derive(Clone, Copy)]
pub struct Metadata<'a> {
    bytes: &'a [u8],
    file: &'a str,
    values: &'a HashMap<String, Value>,
}

/// Defines a required getter from its optional form.
macro_rules! required {
    ($($name:ident from $optional:ident -> $type:ty;)*) => {$(
        #[doc = concat!("As [`", stringify!($optional), "`](Self::", stringify!($optional), "), for a key that must be there.")]
        pub fn $name(&self, key: &str) -> Result<$type> {
            self.$optional(key)?.ok_or_else(|| self.missing(key))
        }
    )*};
}

impl<'a> Metadata<'a> {
    pub(super) fn new(bytes: &'a [u8], file: &'a str, values: &'a HashMap<String, Value>) -> Self {
        Self { bytes, file, values }
    }

    /// Name of the file, for messages.
    pub fn file(&self) -> &'a str {
        self.file
    }

    /// True when the key is present, whatever its type.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    required! {
        u32 from optional_u32 -> u32;
        f32 from optional_f32 -> f32;
        bool from optional_bool -> bool;
        str from optional_str -> &'a str;
        strings from optional_strings -> Strings<'a>;
        i32s from optional_i32s -> Vec<i32>;
        f32s from optional_f32s -> Vec<f32>;
    }

    /// An integer that fits `u32`.
    pub fn optional_u32(&self, key: &str) -> Result<Option<u32>> {
        self.get(key, "an integer", |value| match value {
            Value::Integer(v, _) => Some(u32::try_from(*v).map_err(|_| format!("{v} does not fit 32 bits unsigned"))),
            _ => None,
        })
    }

    /// A finite float; an f64 is rounded.
    pub fn optional_f32(&self, key: &str) -> Result<Option<f32>> {
        self.get(key, "a float", |value| match value {
            Value::Float(v, _) if (*v as f32).is_finite() => Some(Ok(*v as f32)),
            Value::Float(v, _) => Some(Err(format!("{v} is not a finite number"))),
            _ => None,
        })
    }

    /// A boolean.
    pub fn optional_bool(&self, key: &str) -> Result<Option<bool>> {
        self.get(key, "a boolean", |value| match value {
            Value::Bool(v) => Some(Ok(*v)),
            _ => None,
        })
    }

    /// A string of valid UTF-8.
    pub fn optional_str(&self, key: &str) -> Result<Option<&'a str>> {
        self.get(key, "a string", |value| match value {
            Value::String(range) => {
                Some(std::str::from_utf8(&self.bytes[range.clone()]).map_err(|_| "not UTF-8".to_owned()))
            }
            _ => None,
        })
    }

    /// An array of strings, read in place.
    pub fn optional_strings(&self, key: &str) -> Result<Option<Strings<'a>>> {
        self.get(key, "an array of strings", |value| match value {
            Value::Array { element: ValueType::String, count, bytes } => {
                Some(Ok(Strings { bytes: &self.bytes[bytes.clone()], left: *count as usize }))
            }
            _ => None,
        })
    }

    /// An array of 32-bit integers, signed or not, whose values fit `i32`.
    pub fn optional_i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.get(key, "an array of i32", |value| match value {
            Value::Array { element: ValueType::I32, bytes, .. } => Some(Ok(self.words(bytes, i32::from_le_bytes))),
            Value::Array { element: ValueType::U32, bytes, .. } => {
                let wide = self.words(bytes, u32::from_le_bytes);
                Some(wide.into_iter().map(i32::try_from).collect::<Result<_, _>>().map_err(|e| e.to_string()))
            }
            _ => None,
        })
    }

    /// An array of f32.
    pub fn optional_f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.get(key, "an array of f32", |value| match value {
            Value::Array { element: ValueType::F32, bytes, .. } => Some(Ok(self.words(bytes, f32::from_le_bytes))),
            _ => None,
        })
    }

    /// An array of booleans, or of 32-bit integers that stand for them. `None`, too, for a single integer: some keys
    /// give a period in the place of a list.
    pub(crate) fn optional_flags(&self, key: &str) -> Result<Option<Vec<bool>>> {
        let flags = self.get(key, "an array of booleans or an integer", |value| match value {
            Value::Array { element: ValueType::Bool, bytes, .. } => {
                Some(Ok(Some(self.bytes[bytes.clone()].iter().map(|&byte| byte != 0).collect())))
            }
            Value::Array { element: ValueType::I32 | ValueType::U32, bytes, .. } => {
                Some(Ok(Some(self.words(bytes, u32::from_le_bytes).into_iter().map(|word| word != 0).collect())))
            }
            Value::Integer(..) => Some(Ok(None)),
            _ => None,
        })?;
        Ok(flags.flatten())
    }

    /// A short text of any value, for display: long strings and arrays are only measured.
    pub fn describe(&self, key: &str) -> Option<String> {
        const SHOWN: usize = 64;
        Some(match self.values.get(key)? {
            Value::Integer(v, _) => v.to_string(),
            Value::Float(v, _) => v.to_string(),
            Value::Bool(v) => v.to_string(),
            Value::String(range) if range.len() > SHOWN => format!("string of {} bytes", range.len()),
            Value::String(range) => format!("{:?}", String::from_utf8_lossy(&self.bytes[range.clone()])),
            Value::Array { element, count, .. } => format!("{count} x {element}"),
        })
    }

    fn words<T>(&self, range: &Range<usize>, convert: fn([u8; 4]) -> T) -> Vec<T> {
        let words = self.bytes[range.clone()].chunks_exact(4);
        words.map(|w| convert([w[0], w[1], w[2], w[3]])).collect()
    }

    /// `read` answers `None` for another type and an error text for a bad value.
    fn get<T>(
        &self,
        key: &str,
        wanted: &'static str,
        read: impl FnOnce(&Value) -> Option<Result<T, String>>,
    ) -> Result<Option<T>> {
        let Some(value) = self.values.get(key) else {
            return Ok(None);
        };
        match read(value) {
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(problem)) => Err(self.bad(key, problem)),
            None => Err(Error::KeyType {
                file: self.file.to_owned(),
                key: key.to_owned(),
                found: value.type_name(),
                wanted,
            }),
        }
    }

    fn missing(&self, key: &str) -> Error {
        Error::MissingKey { file: self.file.to_owned(), key: key.to_owned() }
    }

    pub(crate) fn bad(&self, key: &str, problem: impl Into<String>) -> Error {
        Error::KeyValue { file: self.file.to_owned(), key: key.to_owned(), problem: problem.into() }
    }
}

/// Iterator over an array of strings in the file: raw bytes, not yet checked to be UTF-8.
#[derive(Clone)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        // The walk at parse time has shown that every string is whole; `?` here cannot cut the iteration short.
        let (length, rest) = self.bytes.split_first_chunk::<8>()?;
        let (string, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        self.bytes = rest;
        Some(string)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strings<'_> {}
