//! JSON in which no key stands twice.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::fields::shown;

/// A value whose objects, at any depth, have each key once. Of two values one would be dropped in silence.
pub(crate) struct Unique(pub(crate) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
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
        while let Some(Unique(item)) = items.next_element()? {
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
            let Unique(value) = entries.next_value()?;
            map.insert(key, value);
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
            let Unique(value) = serde_json::from_str(text).expect("JSON");
            assert_eq!(value, serde_json::from_str::<Value>(text).expect("JSON"));
        }
        for (text, key) in [(r#"{"a":1,"b":2,"a":1}"#, "\"a\""), (r#"{"x":[{"long":{"y":1,"y":2}}]}"#, "\"y\"")] {
            let error = serde_json::from_str::<Unique>(text).err().expect("a refusal").to_string();
            assert!(error.contains(key) && error.contains("twice"), "{error}");
        }
        // As deep as the reader goes, and no deeper.
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(serde_json::from_str::<Unique>(&nested(100)).is_ok());
        assert!(serde_json::from_str::<Unique>(&nested(100_000)).is_err());
    }
}
