//! Values written as Python writes them, which templates rely on: `None` for none, JSON with spaces behind its commas.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State};

/// Nesting of values that is written; deeper ones are refused.
const MAX_DEPTH: usize = 100;

/// Writes what `{{ value }}` prints.
pub(super) fn print(output: &mut Output<'_>, _: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    output.write_str(&str(value)?).map_err(Error::from)
}

/// `str(value)`; nothing for what is not defined.
pub(super) fn str(value: &Value) -> Result<String, Error> {
    match (value.kind(), value.as_str()) {
        (ValueKind::Undefined, _) => Ok(String::new()),
        (_, Some(text)) => Ok(text.to_owned()),
        _ => {
            let mut out = String::new();
            Repr.write(&mut out, value, 0)?;
            Ok(out)
        }
    }
}

/// The filter `trim`: of the text that a value prints as.
pub(super) fn trim(value: &Value, characters: Option<String>) -> Result<String, Error> {
    let text = str(value)?;
    Ok(match characters {
        Some(characters) => text.trim_matches(|character| characters.contains(character)).to_owned(),
        None => text.trim().to_owned(),
    })
}

/// The filter `tojson`: `json.dumps` without escaping of what is not ASCII, by default.
pub(super) fn tojson(value: &Value, arguments: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = arguments.get("indent")?;
    let separators: Option<Vec<String>> = arguments.get("separators")?;
    let ascii = arguments.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sorted = arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    arguments.assert_all_used()?;
    let indent = match indent {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(value)?.min(MAX_DEPTH)),
        }),
    };
    let (comma, colon) = match separators.as_deref() {
        Some([comma, colon]) => (comma.clone(), colon.clone()),
        Some(_) => return Err(invalid("separators are two texts")),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let mut out = String::new();
    Json { indent, comma, colon, ascii, sorted }.write(&mut out, value, 0)?;
    Ok(out)
}

fn invalid(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.into())
}

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth < MAX_DEPTH { Ok(()) } else { Err(invalid(format!("a value is nested more than {MAX_DEPTH} deep"))) }
}

/// The items of a map, in order.
fn items(map: &Value) -> Result<Vec<(Value, Value)>, Error> {
    map.try_iter()?.map(|key| map.get_item(&key).map(|value| (key, value))).collect()
}

/// A number as `repr` and `json.dumps` write it.
fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() { Ok(value.to_string()) } else { f64::try_from(value.clone()).map(float) }
}

fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e').filter(|_| value.is_finite()) else {
        return value.to_string().to_lowercase();
    };
    // Rust's exponents have no sign and no second digit.
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

struct Json {
    indent: Option<String>,
    comma: String,
    colon: String,
    ascii: bool,
    sorted: bool,
}

impl Json {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => match number(value)?.as_str() {
                "nan" => out.push_str("NaN"),
                "inf" => out.push_str("Infinity"),
                "-inf" => out.push_str("-Infinity"),
                finite => out.push_str(finite),
            },
            ValueKind::String => self.text(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(out, ['[', ']'], depth, items.iter(), |out, item| self.write(out, item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut items = items(value)?;
                if self.sorted {
                    items.sort_by(|(one, _), (other, _)| one.cmp(other));
                }
                self.list(out, ['{', '}'], depth, items.iter(), |out, (key, value)| {
                    let key = match key.kind() {
                        ValueKind::String => key.to_string(),
                        // Other keys are written as their JSON, in quotes.
                        _ => {
                            let mut text = String::new();
                            self.write(&mut text, key, depth + 1)?;
                            text
                        }
                    };
                    self.text(out, &key);
                    out.push_str(&self.colon);
                    self.write(out, value, depth + 1)
                })?;
            }
            kind => return Err(invalid(format!("{kind} has no form in JSON"))),
        }
        Ok(())
    }

    fn list<T>(
        &self,
        out: &mut String,
        [open, close]: [char; 2],
        depth: usize,
        items: impl ExactSizeIterator<Item = T>,
        mut put: impl FnMut(&mut String, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |out: &mut String, depth: usize| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                out.push_str(&indent.repeat(depth));
            }
        };
        out.push(open);
        let empty = items.len() == 0;
        for (at, item) in items.enumerate() {
            if at > 0 {
                out.push_str(&self.comma);
            }
            line(out, depth + 1);
            put(out, item)?;
        }
        if !empty {
            line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn text(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// Python's `repr`.
struct Repr;

impl Repr {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        match value.kind() {
            ValueKind::Undefined => out.push_str("Undefined"),
            ValueKind::None => out.push_str("None"),
            ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
            ValueKind::Number => out.push_str(&number(value)?),
            ValueKind::String => text(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                out.push('[');
                for (at, item) in value.try_iter()?.enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    self.write(out, &item, depth + 1)?;
                }
                out.push(']');
            }
            ValueKind::Map => {
                out.push('{');
                for (at, (key, value)) in items(value)?.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    self.write(out, key, depth + 1)?;
                    out.push_str(": ");
                    self.write(out, value, depth + 1)?;
                }
                out.push('}');
            }
            _ => out.push_str(&value.to_string()),
        }
        Ok(())
    }
}

fn text(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == '\\' || c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => out.push_str(&match c as u32 {
                code @ ..0x100 => format!("\\x{code:02x}"),
                code @ ..0x1_0000 => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
        }
    }
    out.push(quote);
}

/// As Python sees it: no separator but the space, no control or format character.
fn is_printable(character: char) -> bool {
    match character {
        ' ' => true,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' => false,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => false,
        '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}' => false,
        c => !c.is_control() && !c.is_whitespace(),
    }
}
