//! The JSON table of a safetensors file.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// Most tensors a file may have; the largest published models have some thousands in all their files.
const MAX_TENSORS: usize = 1 << 20;

/// A line of the table, not yet checked.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    pub(super) begin: u64,
    pub(super) end: u64,
}

#[derive(serde::Deserialize)]
struct Fields {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

struct Table(Vec<Entry>);

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lines;

        impl<'de> Visitor<'de> for Lines {
            type Value = Table;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Table, A::Error> {
                let (mut entries, mut names) = (Vec::new(), HashSet::new());
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let Fields { dtype, shape, data_offsets: [begin, end] } =
                        map.next_value().map_err(|error| A::Error::custom(format!("tensor `{name}`: {error}")))?;
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("tensor `{name}` is given twice")));
                    }
                    if entries.len() == MAX_TENSORS {
                        return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
                    }
                    entries.push(Entry { name, dtype, shape, begin, end });
                }
                Ok(Table(entries))
            }
        }

        deserializer.deserialize_map(Lines)
    }
}

/// The lines of a header; a text on what is wrong with it.
pub(super) fn parse(header: &[u8]) -> Result<Vec<Entry>, String> {
    serde_json::from_slice::<Table>(header).map(|table| table.0).map_err(|error| error.to_string())
}
