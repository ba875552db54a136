//! JSON of strangers: no key stands twice, and there are not more values than memory is meant for.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::fields::shown;

/// Values in a text, those within others counted. Each takes some eighty bytes, and may be two in the text: a body of a few megabytes
/// would become hundreds.
pub(crate) const MOST_VALUES: usize = 1 << 19;

/// Reads a value whose objects, at any depth, have each key once: of two values one would be dropped in silence.
///
/// # Errors
/// For what is no JSON, for a key that stands twice, and for more than [`MOST_VALUES`] values.
pub(crate) fn read(bytes: &[u8]) -> serde_json::Result<Value> {
    let left = Cell::new(MOST_VALUES);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Reader { left: &left }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    /// Values that there may still be.
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => return Err(D::Error::custom(format_args!("more than {MOST_VALUES} values are in it"))),
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("{} stands twice in an object", shown(&key.into()))));
            }
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_and_keys_that_stand_twice_are_named() {
        for text in [
            "null",
            r#"{"a":[true,-1,18446744073709551615,1.5,1e-400,"é\n",{}],"b":{"a":{"a":null}},"":[]}"#,
            "9007199254740993",
        ] {
            assert_eq!(read(text.as_bytes()).expect("JSON"), serde_json::from_str::<Value>(text).expect("JSON"));
        }
        for (text, key) in [(r#"{"a":1,"b":2,"a":1}"#, "\"a\""), (r#"{"x":[{"long":{"y":1,"y":2}}]}"#, "\"y\"")] {
            let error = read(text.as_bytes()).expect_err("a refusal").to_string();
            assert!(error.contains(key) && error.contains("twice"), "{error}");
        }
        // As deep as the reader goes, and no deeper.
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(nested(100).as_bytes()).is_ok());
        assert!(read(nested(100_000).as_bytes()).is_err());
        assert!(read(b"{} {}").is_err());
    }

    #[test]
    fn more_values_than_memory_is_meant_for_are_refused() {
        let list = |count: usize| format!("[{}1]", "1,".repeat(count - 1));
        assert!(read(list(MOST_VALUES - 1).as_bytes()).is_ok());
        let error = read(list(MOST_VALUES).as_bytes()).expect_err("one too many").to_string();
        assert!(error.contains(&MOST_VALUES.to_string()), "{error}");
    }
}
