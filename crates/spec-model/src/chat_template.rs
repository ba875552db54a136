//! Chat messages to the text a model was trained on, by the Jinja template among its files.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, context};

use crate::gguf::Metadata;
use crate::{Error, Result};

mod clock;
mod python;
#[cfg(test)]
mod tests;

/// Longest template that is compiled, in bytes; published ones have a few thousand.
const MAX_TEMPLATE: usize = 1 << 20;
/// Instructions a rendering may take: a part for the template and a part for each byte of the conversation, which has
/// at least a dozen bytes a message.
const FUEL: u64 = 400_000;
const FUEL_PER_BYTE: u64 = 1_000;
/// Nesting of macros and blocks.
const MAX_NESTING: usize = 64;
const NAME: &str = "chat";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// A conversation in JSON, as chat interfaces exchange it. The order of keys is kept: it is what models were shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conversation<'a> {
    /// An array of messages: objects with `role` and `content`, and whatever else the template reads.
    pub messages: &'a str,
    /// An array of tools, each an object of type `function`.
    pub tools: Option<&'a str>,
    /// An object whose entries are variables of the template, such as `enable_thinking`.
    pub variables: Option<&'a str>,
    /// Whether the text goes on to where the assistant is to answer.
    pub add_generation_prompt: bool,
}

/// A compiled chat template. It is rendered as the Hugging Face library does: blocks are trimmed, values print as in
/// Python, `bos_token` and `eos_token` are set, `tools` and `documents` are none when there are none, and
/// `raise_exception` and `strftime_now` (UTC) exist.
///
/// Templates come from files, so nesting and the number of instructions are bounded, and nothing but the conversation is
/// reachable. The memory of a rendering is not: a template that doubles a string over and over reaches any size within
/// its budget. Render templates of files that you do not trust where memory is limited.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: Box<str>,
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    /// Compiles `tokenizer.chat_template`; `None` when the file has none.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when it does not compile, and the errors about keys.
    pub fn from_metadata(metadata: Metadata<'_>) -> Result<Option<Self>> {
        let Some(source) = metadata.optional_str("tokenizer.chat_template")? else {
            return Ok(None);
        };
        let tokens = metadata.optional_strings("tokenizer.ggml.tokens")?;
        let token = |key: &str| -> Result<String> {
            let id = metadata.optional_u32(key)?;
            let text = id.zip(tokens.clone()).and_then(|(id, mut tokens)| tokens.nth(id as usize));
            Ok(String::from_utf8_lossy(text.unwrap_or_default()).into_owned())
        };
        let (bos, eos) = (token("tokenizer.ggml.bos_token_id")?, token("tokenizer.ggml.eos_token_id")?);
        Self::new(source, &bos, &eos).map(Some)
    }

    /// Compiles the template of a model in the Hugging Face layout: `jinja`, the text of its `chat_template.jinja`, where
    /// there is that file, else the one in the bytes of `tokenizer_config.json`, whose special tokens it gets. Where that
    /// has several by name, `default` is taken. `None` when there is none. `file` stands for the configuration in messages.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when it does not compile, [`Error::Tokenizer`] when the configuration is not such JSON.
    pub fn from_config(config: &[u8], jinja: Option<&str>, file: &str) -> Result<Option<Self>> {
        let config: Config = serde_json::from_slice(config)
            .map_err(|error| Error::Tokenizer { file: file.to_owned(), problem: error.to_string() })?;
        let source = match (jinja, config.chat_template) {
            (Some(jinja), _) => jinja.to_owned(),
            (None, Some(Templates::One(source))) => source,
            (None, Some(Templates::Several(templates))) => {
                match templates.into_iter().find(|template| template.name == "default") {
                    Some(default) => default.template,
                    None => return Ok(None),
                }
            }
            (None, None) => return Ok(None),
        };
        let text = |token: Option<Special>| match token {
            Some(Special::Text(text) | Special::Object { content: text }) => text,
            None => String::new(),
        };
        Self::new(&source, &text(config.bos_token), &text(config.eos_token)).map(Some)
    }

    /// Compiles `source`.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when it does not compile.
    pub fn new(source: &str, bos_token: &str, eos_token: &str) -> Result<Self> {
        if source.len() > MAX_TEMPLATE {
            return Err(Error::ChatTemplate {
                problem: format!("{} bytes long, at most {MAX_TEMPLATE} are accepted", source.len()),
            });
        }
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_recursion_limit(MAX_NESTING);
        environment.set_formatter(python::print);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", python::tojson);
        environment.add_filter("string", |value: Value| python::str(&value));
        environment.add_filter("trim", python::trim);
        environment.add_test("sequence", is_sequence);
        environment.add_function("raise_exception", |message: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| {
            clock::strftime(&format, clock::seconds_now())
                .map_err(|problem| minijinja::Error::new(ErrorKind::InvalidOperation, problem))
        });
        environment.add_template_owned(NAME, without_tracking(source).into_owned()).map_err(engine_error)?;
        let (source, bos_token, eos_token) = (source.into(), bos_token.to_owned(), eos_token.to_owned());
        Ok(Self { environment, source, bos_token, eos_token })
    }

    /// The template as it is written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Text of a conversation up to where the assistant is to answer.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when the template refuses the messages or exceeds its budget.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        self.render_with(messages, true)
    }

    /// As [`Self::render`]; without `add_generation_prompt` the text ends after the last message.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn render_with(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let values = messages.iter().map(|m| context! { role => m.role, content => m.content }).collect();
        let bytes = messages.iter().map(|m| m.role.len() + m.content.len() + 24).sum();
        self.render_values(values, Value::from(()), Value::from(()), add_generation_prompt, bytes)
    }

    /// As [`Self::render`], of messages with tools and whatever else the template reads.
    ///
    /// # Errors
    /// As [`Self::render`], and for text that is not JSON of the right form.
    pub fn render_json(&self, conversation: &Conversation<'_>) -> Result<String> {
        let parse = |part: &str, text: &str| {
            serde_json::from_str::<Value>(text)
                .map_err(|error| Error::ChatTemplate { problem: format!("{part} cannot be read: {error}") })
        };
        let messages = parse("messages", conversation.messages)?;
        let tools = conversation.tools.map_or(Ok(Value::from(())), |text| parse("tools", text))?;
        let variables = conversation.variables.map_or(Ok(Value::from(())), |text| parse("variables", text))?;
        let given = [Some(conversation.messages), conversation.tools, conversation.variables];
        let bytes = given.into_iter().flatten().map(str::len).sum();
        self.render_values(messages, tools, variables, conversation.add_generation_prompt, bytes)
    }

    fn render_values(
        &self,
        messages: Value,
        tools: Value,
        variables: Value,
        add_generation_prompt: bool,
        bytes: usize,
    ) -> Result<String> {
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_PER_BYTE * bytes as u64));
        let template = environment.get_template(NAME).map_err(engine_error)?;
        let own = context! {
            messages,
            tools,
            documents => (),
            add_generation_prompt,
            bos_token => self.bos_token,
            eos_token => self.eos_token,
        };
        let all = if variables.is_none() {
            own
        } else {
            context! { ..own, ..variables }
        };
        // The engine panics on some templates, such as one that walks an empty list backwards (minijinja 2.24).
        let rendered = std::panic::catch_unwind(AssertUnwindSafe(|| template.render(all)));
        rendered.unwrap_or_else(|_| Err(failed())).map_err(engine_error)
    }
}

/// What is used of `tokenizer_config.json`.
#[derive(serde::Deserialize)]
struct Config {
    chat_template: Option<Templates>,
    bos_token: Option<Special>,
    eos_token: Option<Special>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Several(Vec<Named>),
}

#[derive(serde::Deserialize)]
struct Named {
    name: String,
    template: String,
}

/// A special token, by its text alone or as an object.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Special {
    Text(String),
    Object { content: String },
}

/// In Jinja everything with a length and items is a sequence, texts and maps too.
fn is_sequence(value: &Value) -> bool {
    use minijinja::value::ValueKind::{Iterable, Map, Seq, String};
    matches!(value.kind(), Seq | Iterable | Map | String)
}

/// `source` with the tags that mark what the model said, which training alone uses, made into tags without effect on
/// the text: `{% generation %}` to `{% if true %}`.
fn without_tracking(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{%") {
        out.push_str(before);
        out.push_str("{%");
        let inner = tag.split_once("%}").map_or(tag, |(inner, _)| inner);
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let plain = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => word,
        };
        out.push_str(&inner.replacen(word, plain, usize::from(!word.is_empty())));
        rest = &tag[inner.len()..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn failed() -> minijinja::Error {
    minijinja::Error::new(
        ErrorKind::InvalidOperation,
        "the template engine failed; are there no messages, or an empty list?",
    )
}

fn engine_error(error: minijinja::Error) -> Error {
    let problem = match error.line() {
        Some(line) => format!("line {line}: {}", error.detail().unwrap_or(&error.kind().to_string())),
        None => error.to_string(),
    };
    Error::ChatTemplate { problem }
}
