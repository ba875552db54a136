//! Bodies of requests, read by tables: which fields there are, of which kind, within which range.
//!
//! The tables are what the OpenAPI document is made of too, so that it says what the server does.

use serde_json::{Map, Value, json};

use crate::ApiError;

/// A field of a request's body.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it takes; `null` stands for the default everywhere.
    pub(crate) kind: Kind,
    /// What it does.
    pub(crate) about: &'static str,
}

/// What a field takes.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer {
        /// The least.
        min: i64,
        /// The most.
        max: i64,
    },
    /// A number.
    Number {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// A text.
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Understood, and refused with other values than these, given as JSON.
    Only(&'static [&'static str]),
    /// A mark of the caller's own, without effect.
    Mark,
    /// An object with these fields.
    Object(&'static [Field]),
    /// Read by a function of its own; its JSON schema is this.
    Own(&'static str),
}

impl Field {
    /// A line of a table.
    pub(crate) const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, about }
    }

    fn schema(&self) -> Value {
        let mut schema = match &self.kind {
            Kind::Boolean => json!({ "type": "boolean" }),
            Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Kind::Number { min, max } => json!({ "type": "number", "minimum": min, "maximum": max }),
            Kind::Text => json!({ "type": "string" }),
            Kind::OneOf(names) => json!({ "enum": names }),
            Kind::Only(values) => json!({ "enum": values.iter().map(|text| parsed(text)).collect::<Vec<_>>() }),
            Kind::Mark => json!({}),
            Kind::Object(fields) => schema(&[fields], &[]),
            Kind::Own(schema) => parsed(schema),
        };
        schema["description"] = self.about.into();
        schema
    }

    fn check(&self, path: &str, value: &Value) -> Result<(), ApiError> {
        let wrong = |what: String| Err(ApiError::field(path, format!("{path}: {what}, and it is {}", shown(value))));
        match &self.kind {
            Kind::Boolean if !value.is_boolean() => wrong("true or false is expected".into()),
            Kind::Integer { min, max } if value.as_i64().is_none_or(|number| number < *min || number > *max) => {
                wrong(format!("a whole number from {min} to {max} is expected"))
            }
            Kind::Number { min, max } if value.as_f64().is_none_or(|number| !(*min..=*max).contains(&number)) => {
                wrong(format!("a number from {min} to {max} is expected"))
            }
            Kind::Text if !value.is_string() => wrong("a text is expected".into()),
            Kind::OneOf(names) if value.as_str().is_none_or(|name| !names.contains(&name)) => {
                wrong(format!("one of {} is expected", names.join(", ")))
            }
            Kind::Only(values) if !values.iter().any(|text| parsed(text) == *value) => Err(ApiError::field(
                path,
                format!("{path}: {} is not supported, only {}", shown(value), values.join(", ")),
            )
            .with_code("unsupported_value")),
            Kind::Object(fields) => match value {
                Value::Object(map) => check(map, &[fields], path),
                _ => wrong("an object is expected".into()),
            },
            _ => Ok(()),
        }
    }
}

/// The JSON schema of an object with these fields.
pub(crate) fn schema(fields: &[&[Field]], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().copied().flatten().map(|field| (field.name.to_owned(), field.schema())).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn check(map: &Map<String, Value>, fields: &[&[Field]], path: &str) -> Result<(), ApiError> {
    for (name, value) in map {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let Some(field) = fields.iter().copied().flatten().find(|field| field.name == name) else {
            let short: String = path.chars().take(80).collect();
            let message = format!("{short}: this field is not supported");
            return Err(ApiError::field(short, message).with_code("unsupported_field"));
        };
        if !value.is_null() {
            field.check(&path, value)?;
        }
    }
    Ok(())
}

/// A body whose fields have been checked.
#[derive(Debug)]
pub(crate) struct Body(Map<String, Value>);

impl Body {
    /// Reads a body by its table.
    ///
    /// # Errors
    /// 400 for what is no JSON object, for a key that stands twice, for too many values, and for the first field that is unknown, of
    /// another kind, or out of its range.
    pub(crate) fn read(bytes: &[u8], fields: &[&[Field]]) -> Result<Self, ApiError> {
        let value = crate::json::read(bytes).map_err(|error| {
            ApiError::new(axum::http::StatusCode::BAD_REQUEST, "invalid_json", format!("the body is no JSON: {error}"))
        })?;
        let Value::Object(map) = value else {
            let message = "the body is no JSON object";
            return Err(ApiError::new(axum::http::StatusCode::BAD_REQUEST, "invalid_json", message));
        };
        check(&map, fields, "")?;
        Ok(Self(map))
    }

    /// The value of a field that is there and not null. A dot leads into an object.
    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        let mut names = path.split('.');
        let first = names.next().and_then(|name| self.0.get(name))?;
        names.try_fold(first, |value, name| value.get(name)).filter(|value| !value.is_null())
    }

    /// A field that is a text.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.get(path)?.as_str()
    }

    /// A field that is a number.
    pub(crate) fn number(&self, path: &str) -> Option<f32> {
        self.get(path)?.as_f64().map(|number| number as f32)
    }

    /// A field that is a whole number and by its table not negative.
    pub(crate) fn whole(&self, path: &str) -> Option<usize> {
        self.get(path)?.as_u64().and_then(|number| usize::try_from(number).ok())
    }

    /// Whether a field is true.
    pub(crate) fn flag(&self, path: &str) -> bool {
        self.get(path).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// A value, short enough for a message.
pub(crate) fn shown(value: &Value) -> String {
    let text = match value {
        Value::Array(items) => return format!("a list of {}", items.len()),
        Value::Object(_) => return "an object".to_owned(),
        other => other.to_string(),
    };
    if text.chars().count() <= 60 { text } else { text.chars().take(57).chain("...".chars()).collect() }
}

/// A literal of a table.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("tables of fields hold JSON, which a test reads")
}
