//! From a request's body to the generations that it asks for.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde_json::Value;
use spec_core::{Fixed, LengthPolicy, RuleName, SamplingParams, Token};
use spec_model::Conversation;
use spec_runtime::{Constraint, DraftWith, Form, Grammar, Grammars, Request, RequestRule, StopRules};

use crate::audit::SampledAudit;
use crate::fields::{Body, shown};
use crate::tools::{self, ToolStyle, Tools};
use crate::{ApiError, Language, Observers};

/// Answers that one request may ask for, over all its prompts.
const MOST_CHOICES: usize = 64;
const MOST_STOPS: usize = 16;
/// Bytes of a stop text: each is looked for behind every token.
const LONGEST_STOP: usize = 1024;
/// Who speaks in a conversation. A template may know fewer, and then refuses in its own words; many drop, without a word, what they do
/// not know, so that no other name may come as far.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
/// Bytes of a JSON schema; the grammar's own limits hold within.
const MOST_SCHEMA: usize = 64 << 10;

/// What bounds requests, and what they get when they do not say.
#[derive(Clone)]
pub struct RequestLimits {
    /// Positions of a sequence, prompt and answer.
    pub context: usize,
    /// Tokens generated at most, and when a request does not say.
    pub max_tokens: usize,
    /// Tokens of a prompt at most.
    pub max_prompt_tokens: usize,
    /// The draft length of requests that name none.
    pub draft_len: Arc<dyn Fn() -> Box<dyn LengthPolicy> + Send + Sync>,
    /// Children that a draft's node may have.
    pub draft_width: usize,
}

/// What a request asks for.
pub(crate) struct Composed {
    /// A generation for each choice, in order.
    pub(crate) requests: Vec<Request>,
    /// Tokens of all prompts.
    pub(crate) prompt_tokens: usize,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) spec_info: bool,
    pub(crate) effective: Effective,
    /// Functions that may be called.
    pub(crate) tools: Option<Tools>,
}

/// What was made of the speculation that a request asks for.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
    /// `auto`, `none`, or the one that was asked for.
    pub(crate) drafter: String,
    /// `None`: as the length policy says.
    pub(crate) draft_len: Option<usize>,
    /// As the request names it; `None`: the one that fits its sampling.
    pub(crate) rule: Option<String>,
    pub(crate) loss_budget: Option<f64>,
}

/// Composes requests for one model.
pub(crate) struct Composer {
    pub(crate) language: Arc<dyn Language>,
    pub(crate) limits: RequestLimits,
    observers: Option<Observers>,
    /// Why there are none, where the vocabulary does not allow grammars.
    pub(crate) grammars: Result<Grammars, String>,
    /// Bytes of the longest token: a text of more than a context of such cannot fit, and need not be read.
    pub(crate) longest: usize,
    /// How the chat template shows tools.
    pub(crate) tool_style: ToolStyle,
    /// Looks at a share of what is generated.
    pub(crate) audit: Option<SampledAudit>,
}

impl Composer {
    pub(crate) fn new(language: Arc<dyn Language>, limits: RequestLimits, observers: Option<Observers>) -> Self {
        let grammars = Grammars::new(&*language, language.end_ids()).map_err(|error| error.to_string());
        let longest =
            (0..language.vocab() as Token).map(|id| language.label(id).len().max(language.bytes(id).len())).max();
        let render = |conversation: &Conversation<'_>| render(&*language, conversation);
        let tool_style = ToolStyle::of(&render);
        Self { language, limits, observers, grammars, longest: longest.unwrap_or(1).max(1), tool_style, audit: None }
    }

    /// Holds a share of what is generated against the target's law.
    pub(crate) fn audited(mut self, share: f64) -> Self {
        self.audit = (share > 0.0).then(|| SampledAudit::new(share));
        self
    }

    /// The generations of a body of `/v1/completions`.
    pub(crate) fn completion(&self, body: &Body) -> Result<Composed, ApiError> {
        let prompts = self.prompts(body)?;
        self.compose(body, prompts, "max_tokens", body.whole("logprobs"), None, None)
    }

    /// The generations of a body of `/v1/chat/completions`.
    pub(crate) fn chat(&self, body: &Body) -> Result<Composed, ApiError> {
        let parallel = body.get("parallel_tool_calls").and_then(Value::as_bool);
        let tools = Tools::read(body.get("tools"), body.get("tool_choice"), parallel)?;
        let prompt = self.conversation(body, tools.as_ref())?;
        let top = body.whole("top_logprobs");
        let logprobs = match (body.flag("logprobs"), top) {
            (true, top) => Some(top.unwrap_or(0)),
            (false, Some(_)) => {
                return Err(ApiError::field("top_logprobs", "top_logprobs: it needs logprobs to be true"));
            }
            (false, None) => None,
        };
        let limit = match (body.whole("max_completion_tokens"), body.whole("max_tokens")) {
            (Some(a), Some(b)) if a != b => {
                return Err(ApiError::field("max_tokens", "max_tokens: it contradicts max_completion_tokens"));
            }
            (Some(_), _) => "max_completion_tokens",
            _ => "max_tokens",
        };
        self.compose(body, vec![prompt], limit, logprobs, body.get("response_format"), tools)
    }

    fn compose(
        &self,
        body: &Body,
        prompts: Vec<Vec<Token>>,
        limit: &str,
        logprobs: Option<usize>,
        format: Option<&Value>,
        tools: Option<Tools>,
    ) -> Result<Composed, ApiError> {
        let choices = body.whole("n").unwrap_or(1);
        if prompts.len() * choices > MOST_CHOICES {
            return Err(ApiError::field(
                "n",
                format!("n: {} answers are asked for, {MOST_CHOICES} are the most", prompts.len() * choices),
            ));
        }
        if body.get("stream_options").is_some() && !body.flag("stream") {
            return Err(ApiError::field("stream_options", "stream_options: they need stream to be true"));
        }
        let sampling = self.sampling(body)?;
        let rule = body.text("speculation.rule").map(|name| {
            name.parse::<RuleName>()
                .map_err(|error| ApiError::field("speculation.rule", format!("speculation.rule: {error}")))
        });
        let rule = rule.transpose()?;
        let effective = effective(body)?;
        let seed = body.get("seed").and_then(Value::as_i64).map_or_else(fresh_seed, |seed| seed as u64);
        let mut texts = stops(body)?;
        texts.extend(tools.as_ref().and_then(Tools::stop).map(str::to_owned));
        let form = tools.as_ref().and_then(|tools| tools.form(&*self.language));
        let answers_with = format.and_then(|format| format.get("type")).and_then(Value::as_str).unwrap_or("text");
        if form.is_some() && answers_with != "text" {
            let message = "response_format: the answer is to be a call of a tool; leave one of them out";
            return Err(ApiError::field("response_format", message));
        }
        let grammar = match &form {
            Some(form) => Some(self.call(form)?),
            None => format.map_or(Ok(None), |format| self.constraint(format))?,
        };
        let mut requests = Vec::with_capacity(prompts.len() * choices);
        for (place, prompt) in prompts.iter().enumerate() {
            let room = self.room(prompt.len(), limit, body.whole(limit))?;
            for choice in 0..choices {
                let stop =
                    StopRules { end_ids: self.language.end_ids().to_vec(), texts: texts.clone(), max_tokens: room };
                let mut request = Request::new(prompt.clone(), room);
                request.stop = stop;
                request.sampling = sampling.clone();
                request.seed = Some(seed);
                request.choice = choice as u32;
                request.rule = rule.map(RequestRule::from);
                request.loss_budget = effective.loss_budget;
                request.draft_len = match effective.draft_len {
                    Some(tokens) => Box::new(Fixed(tokens)),
                    None => (self.limits.draft_len)(),
                };
                request.draft_with = effective.draft_with();
                request.draft_width = self.limits.draft_width;
                request.logprobs = logprobs;
                request.constraint = grammar.clone().map(|grammar| Box::new(grammar) as Box<dyn Constraint>);
                request.observers = self.observers.as_ref().map_or_else(Vec::new, |observers| observers());
                if let Some(audit) = &self.audit {
                    let is_seeded = body.get("seed").is_some();
                    // The parameters have been checked.
                    audit.attach(&mut request, self.language.vocab(), is_seeded, place).map_err(ApiError::from)?;
                }
                requests.push(request);
            }
        }
        Ok(Composed {
            requests,
            prompt_tokens: prompts.iter().map(Vec::len).sum(),
            stream: body.flag("stream"),
            include_usage: body.flag("stream_options.include_usage"),
            spec_info: body.flag("spec_info"),
            effective,
            tools,
        })
    }

    /// What holds an answer to calls of tools.
    fn call(&self, form: &Form) -> Result<Grammar, ApiError> {
        let bad = |reason: String| ApiError::field("tools", format!("tools: {reason}"));
        let grammars = self.grammars.as_ref().map_err(|reason| bad(reason.clone()))?;
        grammars.form(form).map_err(|error| bad(error.to_string()))
    }

    /// Tokens that may be generated behind a prompt.
    fn room(&self, prompt: usize, name: &str, wanted: Option<usize>) -> Result<usize, ApiError> {
        let RequestLimits { context, max_tokens, max_prompt_tokens, .. } = self.limits;
        let too_long = |message: String| Err(ApiError::field("prompt", message).with_code("context_length_exceeded"));
        if prompt > max_prompt_tokens {
            return too_long(format!("the prompt has {prompt} tokens, and this server takes {max_prompt_tokens}"));
        }
        if prompt >= context {
            return too_long(format!(
                "the prompt has {prompt} tokens, and the context of {context} leaves no room for an answer"
            ));
        }
        match wanted {
            Some(wanted) if wanted > context - prompt => {
                too_long(format!("the prompt has {prompt} tokens and {name} is {wanted}; the context holds {context}"))
            }
            Some(wanted) if wanted > max_tokens => {
                Err(ApiError::field(name, format!("{name}: {wanted} is more than the {max_tokens} of this server")))
            }
            Some(wanted) => Ok(wanted),
            None => Ok(max_tokens.min(context - prompt)),
        }
    }

    fn sampling(&self, body: &Body) -> Result<SamplingParams, ApiError> {
        let plain = SamplingParams::default();
        let sampling = SamplingParams {
            temperature: body.number("temperature").unwrap_or(1.0),
            top_k: body.whole("top_k").unwrap_or(plain.top_k),
            top_p: body.number("top_p").unwrap_or(plain.top_p),
            min_p: body.number("min_p").unwrap_or(plain.min_p),
            repeat_penalty: body.number("repetition_penalty").unwrap_or(plain.repeat_penalty),
            presence_penalty: body.number("presence_penalty").unwrap_or(plain.presence_penalty),
            frequency_penalty: body.number("frequency_penalty").unwrap_or(plain.frequency_penalty),
            penalty_window: plain.penalty_window,
            logit_bias: biases(body)?,
        };
        sampling.validate(self.language.vocab()).map_err(|error| {
            let message = error.to_string();
            let named = ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"];
            let name = named.into_iter().find(|name| message.contains(name)).unwrap_or("logit_bias");
            ApiError::field(name, message)
        })?;
        Ok(sampling)
    }

    /// The tokens of a text, if there can be room for them.
    pub(crate) fn encode(&self, name: &str, text: &str, special: bool) -> Result<Vec<Token>, ApiError> {
        let most = self.longest.saturating_mul(self.limits.context);
        if text.len() > most {
            let message = format!(
                "{name} has {} bytes, more than a context of {} tokens can hold",
                text.len(),
                self.limits.context
            );
            return Err(ApiError::field(name, message).with_code("context_length_exceeded"));
        }
        self.language.encode(text, special).map_err(|problem| ApiError::field(name, format!("{name}: {problem}")))
    }

    fn prompts(&self, body: &Body) -> Result<Vec<Vec<Token>>, ApiError> {
        let bad = |message: String| ApiError::field("prompt", message);
        let prompts = match body.get("prompt") {
            None => return Err(bad("prompt: it is missing".into())),
            Some(Value::String(text)) => vec![self.encode("prompt", text, true)?],
            Some(Value::Array(items)) if items.iter().all(Value::is_number) => vec![self.ids("prompt", items)?],
            Some(Value::Array(items)) if items.len() > MOST_CHOICES => {
                return Err(bad(format!("prompt: {} prompts, {MOST_CHOICES} are the most", items.len())));
            }
            Some(Value::Array(items)) => {
                let prompt = |item: &Value| match item {
                    Value::String(text) => self.encode("prompt", text, true),
                    Value::Array(ids) => self.ids("prompt", ids),
                    other => Err(bad(format!(
                        "prompt: a text or token ids are expected in the list, and there is {}",
                        shown(other)
                    ))),
                };
                items.iter().map(prompt).collect::<Result<_, _>>()?
            }
            Some(other) => {
                return Err(bad(format!(
                    "prompt: a text, token ids or a list of either is expected, and it is {}",
                    shown(other)
                )));
            }
        };
        match prompts.iter().any(Vec::is_empty) {
            true => Err(bad("prompt: it is empty; give at least one token".into())),
            false => Ok(prompts),
        }
    }

    /// Token ids of a list.
    pub(crate) fn ids(&self, name: &str, items: &[Value]) -> Result<Vec<Token>, ApiError> {
        let vocab = self.language.vocab();
        let id = |item: &Value| {
            let id = item.as_u64().filter(|&id| id < vocab as u64).and_then(|id| Token::try_from(id).ok());
            id.ok_or_else(|| {
                ApiError::field(
                    name,
                    format!("{name}: token ids below {vocab} are expected, and there is {}", shown(item)),
                )
            })
        };
        items.iter().map(id).collect()
    }

    fn conversation(&self, body: &Body, tools: Option<&Tools>) -> Result<Vec<Token>, ApiError> {
        let bad = |message: String| ApiError::field("messages", message);
        let Some(Value::Array(messages)) = body.get("messages") else {
            return Err(bad("messages: a list of objects with role and content is expected".into()));
        };
        if messages.is_empty() {
            return Err(bad("messages: there are none".into()));
        }
        let messages: Vec<Value> =
            messages.iter().enumerate().map(|(at, message)| plain_message(at, message)).collect::<Result<_, _>>()?;
        let variables = match body.get("chat_template_kwargs") {
            Some(object @ Value::Object(_)) => Some(object.to_string()),
            Some(_) => {
                return Err(ApiError::field("chat_template_kwargs", "chat_template_kwargs: an object is expected"));
            }
            None => None,
        };
        let bytes: usize = messages.iter().map(|message| message.to_string().len()).sum();
        if bytes > self.longest.saturating_mul(self.limits.context).saturating_mul(2) {
            let message = format!(
                "messages have {} bytes, more than a context of {} tokens can hold",
                bytes, self.limits.context
            );
            return Err(bad(message).with_code("context_length_exceeded"));
        }
        let render = |conversation: &Conversation<'_>| render(&*self.language, conversation);
        let text = tools::prompt(&render, self.tool_style, &messages, tools, variables.as_deref())?;
        self.encode("messages", &text, true)
    }

    fn constraint(&self, format: &Value) -> Result<Option<Grammar>, ApiError> {
        let bad = |message: String| ApiError::field("response_format", message);
        let extra = |known: &[&str], value: &Value| {
            unknown_key(value, known).map(|key| {
                bad(format!("response_format: {} is not supported", shown(&key.into()))).with_code("unsupported_field")
            })
        };
        if let Some(error) = extra(&["type", "json_schema"], format) {
            return Err(error);
        }
        let grammars = || self.grammars.as_ref().map_err(|reason| bad(format!("response_format: {reason}")));
        let grammar = match (format.get("type").and_then(Value::as_str), format.get("json_schema")) {
            (Some("text"), None) => return Ok(None),
            (Some("json_object"), None) => grammars()?.json_object(),
            (Some("json_schema"), Some(described)) => {
                if let Some(error) = extra(&["name", "description", "schema", "strict"], described) {
                    return Err(error);
                }
                let schema =
                    described.get("schema").ok_or_else(|| bad("response_format: json_schema has no schema".into()))?;
                let schema = schema.to_string();
                if schema.len() > MOST_SCHEMA {
                    return Err(bad(format!(
                        "response_format: the schema has {} bytes, {MOST_SCHEMA} are the most",
                        schema.len()
                    )));
                }
                grammars()?.json_schema(&schema)
            }
            _ => {
                return Err(bad(
                    "response_format: its type is text, json_object or json_schema, the last with a json_schema".into(),
                ));
            }
        };
        Ok(Some(grammar?))
    }
}

/// The text of a conversation, or why there is none.
fn render(language: &dyn Language, conversation: &Conversation<'_>) -> Result<String, String> {
    let without = || Err("this model has no chat template; /v1/completions continues texts".into());
    language.render(conversation).unwrap_or_else(without)
}

/// The first key of an object that is none of `known`.
fn unknown_key<'a>(value: &'a Value, known: &[&str]) -> Option<&'a str> {
    let mut keys = value.as_object()?.keys().map(String::as_str);
    keys.find(|key| !known.contains(key))
}

/// A message whose content is a text: parts are joined, and parts that are no text are refused.
fn plain_message(at: usize, message: &Value) -> Result<Value, ApiError> {
    let path = |name: &str| format!("messages[{at}].{name}");
    let bad = |name: &str, what: &str| ApiError::field(path(name), format!("{}: {what}", path(name)));
    let Value::Object(fields) = message else {
        return Err(ApiError::field(format!("messages[{at}]"), format!("messages[{at}]: an object is expected")));
    };
    let unsupported = |name: &str| {
        let name: String = name.chars().take(80).collect();
        bad(&name, "this field is not supported").with_code("unsupported_field")
    };
    if let Some(name) = unknown_key(message, &["role", "content", "name", "refusal", "tool_calls", "tool_call_id"]) {
        return Err(unsupported(name));
    }
    let role = fields.get("role").and_then(Value::as_str).ok_or_else(|| bad("role", "a text is expected"))?;
    if !ROLES.contains(&role) {
        let what = format!("one of {} is expected, and it is {}", ROLES.join(", "), shown(&role.into()));
        return Err(bad("role", &what).with_code("unsupported_value"));
    }
    if fields.get("refusal").is_some_and(|refusal| !refusal.is_null()) {
        return Err(unsupported("refusal"));
    }
    let calls = fields.get("tool_calls").filter(|calls| !calls.is_null());
    if calls.is_some() && role != "assistant" {
        return Err(bad("tool_calls", "the assistant alone calls tools"));
    }
    let answered = fields.get("tool_call_id").filter(|id| !id.is_null());
    if answered.is_some_and(|id| !id.is_string()) || answered.is_some() != (role == "tool") {
        return Err(bad("tool_call_id", "a message of role tool, and no other, has one, and it is a text"));
    }
    let content = match fields.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| match (
                part.get("type").and_then(Value::as_str),
                part.get("text").and_then(Value::as_str),
            ) {
                (Some("text"), Some(text)) => Ok(text.to_owned()),
                _ => Err(bad("content", "parts of type text are supported, no others").with_code("unsupported_value")),
            };
            let texts = parts.iter().map(text).collect::<Result<Vec<_>, _>>()?;
            if let Some(name) = parts.iter().find_map(|part| unknown_key(part, &["type", "text"])) {
                return Err(unsupported(&format!("content.{name}")));
            }
            texts.concat()
        }
        None | Some(Value::Null) if calls.is_some() => String::new(),
        _ => return Err(bad("content", "a text is expected")),
    };
    // What the developer says is what systems are told, under an older name that templates know.
    let role = if role == "developer" { "system" } else { role };
    let mut plain = serde_json::json!({ "role": role, "content": content });
    if let Some(name) = fields.get("name").filter(|name| !name.is_null()) {
        if !name.is_string() {
            return Err(bad("name", "a text is expected"));
        }
        plain["name"] = name.clone();
    }
    for (name, value) in [("tool_calls", calls), ("tool_call_id", answered)] {
        if let Some(value) = value {
            plain[name] = value.clone();
        }
    }
    Ok(plain)
}

fn effective(body: &Body) -> Result<Effective, ApiError> {
    let enabled = body.get("speculation.enabled").and_then(Value::as_bool);
    let drafter = body.text("speculation.drafter");
    let draft_len = body.whole("speculation.draft_len");
    let made = |drafter: &str, draft_len| Effective {
        drafter: drafter.to_owned(),
        draft_len,
        rule: body.text("speculation.rule").map(str::to_owned),
        loss_budget: body.get("speculation.loss_budget").and_then(Value::as_f64),
    };
    match (enabled, drafter) {
        (Some(true), Some("none")) => {
            Err(ApiError::field("speculation.drafter", "speculation.drafter: none contradicts enabled"))
        }
        (Some(false), _) | (_, Some("none")) => Ok(made("none", Some(0))),
        _ if draft_len == Some(0) => Ok(made("none", draft_len)),
        (_, drafter) => Ok(made(drafter.unwrap_or("auto"), draft_len)),
    }
}

impl Effective {
    fn draft_with(&self) -> DraftWith {
        match &*self.drafter {
            "none" => DraftWith::Nothing,
            "auto" => DraftWith::All,
            name => DraftWith::Only(name.to_owned()),
        }
    }
}

fn stops(body: &Body) -> Result<Vec<String>, ApiError> {
    let bad = |message: &str| ApiError::field("stop", format!("stop: {message}"));
    let texts = match body.get("stop") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) if items.len() > MOST_STOPS => {
            return Err(bad(&format!("{} texts, {MOST_STOPS} are the most", items.len())));
        }
        Some(Value::Array(items)) => {
            let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            texts.ok_or_else(|| bad("texts are expected in the list"))?
        }
        Some(_) => return Err(bad("a text or a list of texts is expected")),
    };
    if let Some(text) = texts.iter().find(|text| text.len() > LONGEST_STOP) {
        return Err(bad(&format!("a text of {} bytes, {LONGEST_STOP} are the most", text.len())));
    }
    match texts.iter().any(String::is_empty) {
        true => Err(bad("a stop text is empty; it would end every answer at once")),
        false => Ok(texts),
    }
}

fn biases(body: &Body) -> Result<Vec<(Token, f32)>, ApiError> {
    let bad = |message: String| ApiError::field("logit_bias", format!("logit_bias: {message}"));
    let Some(value) = body.get("logit_bias") else { return Ok(Vec::new()) };
    let Value::Object(map) = value else { return Err(bad("an object of token ids and numbers is expected".into())) };
    let bias = |(id, bias): (&String, &Value)| {
        let token = id.parse::<Token>().map_err(|_| bad(format!("{} is no token id", shown(&id.as_str().into()))))?;
        let number = bias.as_f64().filter(|number| (-100.0..=100.0).contains(number));
        match number {
            // By the API's convention the least bans a token.
            Some(-100.0) => Ok((token, f32::NEG_INFINITY)),
            Some(number) => Ok((token, number as f32)),
            None => Err(bad(format!("a number from -100 to 100 is expected for {token}, and it is {}", shown(bias)))),
        }
    };
    map.iter().map(bias).collect()
}

/// Entropy of the operating system, by way of the standard library's hash keys; one that JSON's readers keep exactly.
fn fresh_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) >> 11
}
