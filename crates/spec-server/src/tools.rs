//! Tool calling: what the model is told of the functions, what it may be held to, and how its calls are read.
//!
//! One form of calls is read, that of Hermes and Qwen: `<tool_call>{"name": NAME, "arguments": {...}}</tool_call>`. A model whose
//! template teaches that form is shown its tools by the template. Any other is told in a system message of ours, so that tools
//! work with every model that has a chat template. `tool_choice` `required`, or a function's name, is enforced by a grammar.

mod parser;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use spec_core::Token;
use spec_model::Conversation;
use spec_runtime::{Form, TokenText};

use crate::ApiError;

pub use parser::{Collected, Delta, ToolParser};

/// The tags around a call.
const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Functions that a request may have.
const MOST_TOOLS: usize = 128;
/// Bytes of all that is said of them.
const MOST_BYTES: usize = 1 << 18;
/// Characters of a function's name, as elsewhere.
const LONGEST_NAME: usize = 64;

/// A model's chat template: the text of a conversation, or why there is none, in words.
pub type Template<'a> = dyn Fn(&Conversation<'_>) -> Result<String, String> + 'a;

/// Whether calls are made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ToolChoice {
    /// No call is read; the model is not told of the tools.
    None,
    /// As the model likes.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// One call of this function.
    Named(String),
}

/// How a chat template shows tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToolStyle {
    /// By itself, in the form that is read here.
    Template,
    /// Not at all, or in another form: a system message is added, and calls and results become text.
    Message,
}

impl ToolStyle {
    /// Finds it out by rendering a conversation with a tool.
    pub fn of(template: &Template<'_>) -> Self {
        const NAME: &str = "is_this_tool_shown";
        let tools = json!([{ "type": "function", "function": {
            "name": NAME, "description": "None", "parameters": { "type": "object", "properties": {} },
        } }]);
        let shown = template(&Conversation {
            messages: r#"[{ "role": "user", "content": "Hi" }]"#,
            tools: Some(&tools.to_string()),
            variables: None,
            add_generation_prompt: true,
        });
        match shown {
            Ok(text) if text.contains(NAME) && text.contains(OPEN) => Self::Template,
            _ => Self::Message,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Tool {
    name: String,
    /// The whole entry of the request, as templates are shown it.
    entry: Value,
    /// The schema of the arguments.
    parameters: Value,
}

/// The tools of a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Tools {
    list: Vec<Tool>,
    choice: ToolChoice,
    parallel: bool,
}

impl Tools {
    /// Reads the fields `tools`, `tool_choice` and `parallel_tool_calls`. `None` without tools.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn read(
        tools: Option<&Value>,
        choice: Option<&Value>,
        parallel: Option<bool>,
    ) -> Result<Option<Self>, ApiError> {
        let entries = match tools.filter(|value| !value.is_null()) {
            None => &Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(ApiError::field("tools", "tools: a list is expected")),
        };
        if entries.len() > MOST_TOOLS {
            let message = format!("tools: {} functions are given, at most {MOST_TOOLS} are taken", entries.len());
            return Err(ApiError::field("tools", message));
        }
        let mut list: Vec<Tool> = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let tool = Tool::read(index, entry)?;
            if list.iter().any(|known| known.name == tool.name) {
                let path = format!("tools[{index}].function.name");
                return Err(ApiError::field(&path, format!("{path}: {} is given twice", tool.name)));
            }
            list.push(tool);
        }
        if list.iter().map(|tool| tool.entry.to_string().len()).sum::<usize>() > MOST_BYTES {
            return Err(ApiError::field("tools", format!("tools: more than {MOST_BYTES} bytes are said of them")));
        }
        let choice = read_choice(choice, &list)?;
        let strict = |tool: &Tool| tool.entry.pointer("/function/strict") == Some(&Value::Bool(true));
        if choice == ToolChoice::Auto
            && let Some(index) = list.iter().position(strict)
        {
            let path = format!("tools[{index}].function.strict");
            let message = format!("{path}: true is kept to with tool_choice `required` or a function's name only");
            return Err(ApiError::field(path, message).with_code("unsupported_value"));
        }
        Ok((!list.is_empty()).then_some(Self { list, choice, parallel: parallel.unwrap_or(true) }))
    }

    /// Whether calls are made.
    pub fn choice(&self) -> &ToolChoice {
        &self.choice
    }

    /// The parser of an answer, `None` where calls are not read. Calls are named after `id`.
    pub fn parser(&self, id: &str) -> Option<ToolParser> {
        (self.choice != ToolChoice::None).then(|| ToolParser::new(self.list.iter().map(|tool| tool.name.clone()), id))
    }

    /// What ends an answer of a free model that is to make one call at most: the tag behind the first.
    pub fn stop(&self) -> Option<&'static str> {
        (self.choice == ToolChoice::Auto && !self.parallel).then_some(CLOSE)
    }

    /// What the answer is held to; `None` where the model is free.
    pub fn form(&self, text: &dyn TokenText) -> Option<Form> {
        let chosen: Vec<&Tool> = match &self.choice {
            ToolChoice::None | ToolChoice::Auto => return None,
            ToolChoice::Required => self.list.iter().collect(),
            ToolChoice::Named(name) => self.list.iter().filter(|tool| tool.name == *name).collect(),
        };
        let call = |tool: &&Tool| {
            Form::Sequence(vec![
                Form::Text(format!("\n{{\"name\": {}, \"arguments\": ", json!(tool.name))),
                Form::Json(tool.parameters.to_string()),
            ])
        };
        let calls = Form::Either(chosen.iter().map(call).collect());
        let tagged = |before: Option<&str>| {
            let before = before.map(|text| Form::Text(text.to_owned()));
            let parts = [tag(text, OPEN), calls.clone(), Form::Text("}\n".into()), tag(text, CLOSE)];
            Form::Sequence(before.into_iter().chain(parts).collect())
        };
        if self.choice == ToolChoice::Required && self.parallel {
            let more = Form::Repeated(Box::new(tagged(Some("\n"))));
            return Some(Form::Either(vec![tagged(None), Form::Sequence(vec![tagged(None), more])]));
        }
        Some(tagged(None))
    }
}

/// A tag as the vocabulary has it: a token of its own, where that is part of the text, or its characters.
fn tag(text: &dyn TokenText, tag: &str) -> Form {
    let whole = (0..text.vocab() as Token).find(|&id| text.label(id) == tag && *text.bytes(id) == *tag.as_bytes());
    whole.map_or_else(|| Form::Text(tag.to_owned()), Form::Token)
}

impl Tool {
    fn read(index: usize, entry: &Value) -> Result<Self, ApiError> {
        let at = |field: &str| format!("tools[{index}]{field}");
        let wrong = |field: &str, what: &str| {
            let path = at(field);
            Err(ApiError::field(&path, format!("{path}: {what}")))
        };
        let Some(fields) = entry.as_object() else { return wrong("", "an object is expected") };
        if fields.get("type").and_then(Value::as_str) != Some("function") {
            return wrong(".type", "only `function` is supported");
        }
        if let Some(other) = fields.keys().find(|key| !["type", "function"].contains(&key.as_str())) {
            return wrong(&format!(".{other}"), "this field is not supported");
        }
        let Some(function) = fields.get("function").and_then(Value::as_object) else {
            return wrong(".function", "an object is expected");
        };
        const KNOWN: [&str; 4] = ["name", "description", "parameters", "strict"];
        if let Some(other) = function.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            return wrong(&format!(".function.{other}"), "this field is not supported");
        }
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_name) {
            let what = format!("letters, digits, `_` and `-` are expected, at most {LONGEST_NAME}");
            return wrong(".function.name", &what);
        }
        let given = |key: &str| function.get(key).filter(|value| !value.is_null());
        if given("description").is_some_and(|value| !value.is_string()) {
            return wrong(".function.description", "a text is expected");
        }
        if given("strict").is_some_and(|value| !value.is_boolean()) {
            return wrong(".function.strict", "true or false is expected");
        }
        let parameters = match given("parameters") {
            None => json!({ "type": "object", "properties": {}, "additionalProperties": false }),
            Some(Value::Object(schema)) => {
                let mut schema = schema.clone();
                // Arguments are an object, whether the schema says so or leaves it open.
                if !schema.contains_key("$ref") {
                    schema.entry("type").or_insert_with(|| "object".into());
                }
                if schema.get("type").is_some_and(|kind| kind != "object") {
                    return wrong(".function.parameters", "a schema of type `object` is expected");
                }
                Value::Object(schema)
            }
            Some(_) => return wrong(".function.parameters", "a JSON schema is expected"),
        };
        Ok(Self { name: name.to_owned(), entry: entry.clone(), parameters })
    }
}

fn read_choice(choice: Option<&Value>, list: &[Tool]) -> Result<ToolChoice, ApiError> {
    let wrong = |message: String| Err(ApiError::field("tool_choice", format!("tool_choice: {message}")));
    let choice = match choice.filter(|value| !value.is_null()) {
        None => return Ok(ToolChoice::Auto),
        Some(Value::String(name)) => match name.as_str() {
            "none" => return Ok(ToolChoice::None),
            "auto" => ToolChoice::Auto,
            "required" => ToolChoice::Required,
            _ => return wrong("`none`, `auto`, `required` or a function is expected".into()),
        },
        Some(value) => {
            let name = value.pointer("/function/name").and_then(Value::as_str);
            let is_function = value.get("type").and_then(Value::as_str) == Some("function");
            match name.filter(|_| is_function) {
                Some(name) => ToolChoice::Named(name.to_owned()),
                None => {
                    return wrong(r#"a function is given as {"type": "function", "function": {"name": NAME}}"#.into());
                }
            }
        }
    };
    match &choice {
        ToolChoice::None | ToolChoice::Auto => Ok(choice),
        _ if list.is_empty() => wrong("there are no tools".into()),
        ToolChoice::Named(name) if !list.iter().any(|tool| tool.name == *name) => {
            wrong(format!("{name} is not among the tools"))
        }
        _ => Ok(choice),
    }
}

/// The text of a conversation in which there may be tools, up to where the assistant is to answer.
///
/// `messages` are those of the request, their content a text or null. Calls in them are given to templates with their arguments
/// as objects, which is what templates were written for.
///
/// # Errors
/// 400 for calls and results that are not of the interface's form, and for what the template refuses.
pub fn prompt(
    template: &Template<'_>,
    style: ToolStyle,
    messages: &[Value],
    tools: Option<&Tools>,
    variables: Option<&str>,
) -> Result<String, ApiError> {
    let mut messages =
        messages.iter().enumerate().map(|(index, message)| opened(index, message)).collect::<Result<Vec<_>, _>>()?;
    let shown: Option<Vec<&Value>> = tools
        .filter(|tools| tools.choice != ToolChoice::None)
        .map(|tools| tools.list.iter().map(|tool| &tool.entry).collect());
    if style == ToolStyle::Message {
        messages = as_text(messages);
        if let Some(tools) = &shown {
            tell(&mut messages, tools);
        }
    }
    let tools = shown.filter(|_| style == ToolStyle::Template).map(|tools| json!(tools).to_string());
    let conversation = Conversation {
        messages: &Value::Array(messages).to_string(),
        tools: tools.as_deref(),
        variables,
        add_generation_prompt: true,
    };
    template(&conversation).map_err(|error| ApiError::field("messages", format!("messages: {error}")))
}

/// A message with the arguments of its calls as objects.
fn opened(index: usize, message: &Value) -> Result<Value, ApiError> {
    let mut message = message.clone();
    if message.get("tool_calls").is_some_and(Value::is_null) {
        message.as_object_mut().and_then(|fields| fields.remove("tool_calls"));
    }
    let wrong = |path: String, what: &str| Err(ApiError::field(&path, format!("{path}: {what}")));
    let Some(calls) = message.get_mut("tool_calls") else { return Ok(message) };
    let Some(calls) = calls.as_array_mut() else {
        return wrong(format!("messages[{index}].tool_calls"), "a list is expected");
    };
    for (number, call) in calls.iter_mut().enumerate() {
        let path = |field: &str| format!("messages[{index}].tool_calls[{number}].function{field}");
        if call.pointer("/function/name").is_none_or(|name| !name.is_string()) {
            return wrong(path(".name"), "a text is expected");
        }
        let Some(arguments) = call.pointer_mut("/function/arguments") else {
            return wrong(path(".arguments"), "they are missing");
        };
        let parsed = match &*arguments {
            Value::String(text) if text.trim().is_empty() => Some(Value::Object(Map::new())),
            Value::String(text) => serde_json::from_str::<Value>(text).ok(),
            other => Some(other.clone()),
        };
        match parsed.filter(Value::is_object) {
            Some(object) => *arguments = object,
            None => return wrong(path(".arguments"), "a JSON object, as a text, is expected"),
        }
    }
    Ok(message)
}

/// Calls and results as text, for templates that know none. Results are what the user says next, several in one message: many
/// templates want user and assistant to take turns.
fn as_text(messages: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(messages.len());
    let mut results = false;
    for message in messages {
        let content = message.get("content").and_then(Value::as_str).unwrap_or_default();
        let is_result = message.get("role").and_then(Value::as_str) == Some("tool");
        if is_result {
            let text = format!("<tool_response>\n{content}\n</tool_response>");
            match out.last_mut().filter(|_| results).and_then(|last| last.get_mut("content")) {
                Some(Value::String(before)) => *before += &format!("\n{text}"),
                _ => out.push(json!({ "role": "user", "content": text })),
            }
        } else if let Some(calls) = message.get("tool_calls").and_then(Value::as_array) {
            let mut text = content.to_owned();
            for call in calls {
                let function = &call["function"];
                let object = json!({ "name": function["name"], "arguments": function["arguments"] });
                let line = if text.is_empty() { "" } else { "\n" };
                // Writing to a text cannot fail.
                let _ = write!(text, "{line}{OPEN}\n{object}\n{CLOSE}");
            }
            out.push(json!({ "role": "assistant", "content": text }));
        } else {
            out.push(message);
        }
        results = is_result;
    }
    out
}

/// Tells of the tools, in the system message that is there or in one of ours.
fn tell(messages: &mut Vec<Value>, tools: &[&Value]) {
    let mut text = String::from("You can call these functions. Each line describes one:\n");
    for tool in tools {
        let _ = writeln!(text, "{}", tool["function"]);
    }
    text += "To call one, answer with its name and its arguments in this form and nothing else:\n\
             <tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call>\n\
             Several calls stand one below the other. Results come back as <tool_response>. \
             Answer in words when no function is needed.";
    let first = messages.first_mut().filter(|message| message["role"] == "system");
    match first.and_then(|message| message.get_mut("content")) {
        Some(Value::String(content)) => *content += &format!("\n\n{text}"),
        _ => messages.insert(0, json!({ "role": "system", "content": text })),
    }
}
