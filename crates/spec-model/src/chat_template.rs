//! Chat messages to the text a model was trained on, by the Jinja template in its metadata.

use minijinja::{Environment, ErrorKind, context};

use crate::gguf::Metadata;
use crate::{Error, Result};

mod clock;
#[cfg(test)]
mod tests;

/// Longest template that is compiled, in bytes; published ones have a few thousand.
const MAX_TEMPLATE: usize = 1 << 20;
/// Instructions a rendering may take: a part for the template and a part for each message.
const FUEL: u64 = 200_000;
const FUEL_PER_MESSAGE: u64 = 20_000;
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

/// A compiled chat template. It is rendered as the Hugging Face library does: blocks are trimmed, `bos_token` and
/// `eos_token` are set, `raise_exception` and `strftime_now` (UTC) exist.
///
/// Templates come from files, so nesting and the number of instructions are bounded, and nothing but the messages is
/// reachable. The memory of a rendering is not: a template that doubles a string over and over reaches any size within
/// its budget. Render templates of files that you do not trust where memory is limited.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
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
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| {
            clock::strftime(&format, clock::seconds_now())
                .map_err(|problem| minijinja::Error::new(ErrorKind::InvalidOperation, problem))
        });
        environment.add_template_owned(NAME, source.to_owned()).map_err(engine_error)?;
        Ok(Self { environment, bos_token: bos_token.to_owned(), eos_token: eos_token.to_owned() })
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
        let values: Vec<_> = messages.iter().map(|m| context! { role => m.role, content => m.content }).collect();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * messages.len() as u64));
        let template = environment.get_template(NAME).map_err(engine_error)?;
        template
            .render(context! {
                messages => values,
                add_generation_prompt,
                bos_token => self.bos_token,
                eos_token => self.eos_token,
            })
            .map_err(engine_error)
    }
}

fn engine_error(error: minijinja::Error) -> Error {
    let problem = match error.line() {
        Some(line) => format!("line {line}: {}", error.detail().unwrap_or(&error.kind().to_string())),
        None => error.to_string(),
    };
    Error::ChatTemplate { problem }
}
