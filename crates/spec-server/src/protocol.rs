//! The fields of requests.

use crate::fields::{Field, Kind};

const MOST_TOKENS: i64 = 1 << 24;

/// How a request is speculated upon.
const SPECULATION: &[Field] = &[
    Field::new("enabled", Kind::Boolean, "false decodes without drafts"),
    Field::new(
        "drafter",
        Kind::OneOf(&["auto", "none", "ngram", "suffix", "model"]),
        "auto takes all drafters as far as they pay, none decodes without drafts; or one alone",
    ),
    Field::new(
        "draft_len",
        Kind::Integer { min: 0, max: 64 },
        "tokens drafted a round; as the server was started when not given",
    ),
    Field::new("rule", Kind::Text, "the acceptance rule, such as rejection or epsilon:0.1; lossless when not given"),
    Field::new(
        "loss_budget",
        Kind::Number { min: 0.0, max: 1e9 },
        "nats that a lossy rule may forgive in an answer; it is exact from the token on that would pass it",
    ),
];

const STREAM_OPTIONS: &[Field] = &[
    Field::new("include_usage", Kind::Boolean, "a last chunk without choices has the usage"),
    Field::new("include_obfuscation", Kind::Only(&["false"]), "nothing is obfuscated"),
];

/// What all generations take.
pub(crate) const GENERATION: &[Field] = &[
    Field::new("model", Kind::Text, "any name: one model is served"),
    Field::new(
        "max_tokens",
        Kind::Integer { min: 0, max: MOST_TOKENS },
        "tokens generated at most, the end token included",
    ),
    Field::new(
        "temperature",
        Kind::Number { min: 0.0, max: 100.0 },
        "0 takes the most probable token; 1 when not given",
    ),
    Field::new(
        "top_p",
        Kind::Number { min: 0.0, max: 1.0 },
        "the most probable tokens that together have this probability; 1 is off",
    ),
    Field::new("top_k", Kind::Integer { min: 0, max: MOST_TOKENS }, "the most probable tokens; 0 is off"),
    Field::new(
        "min_p",
        Kind::Number { min: 0.0, max: 1.0 },
        "tokens at least so many times as probable as the first; 0 is off",
    ),
    Field::new(
        "presence_penalty",
        Kind::Number { min: -2.0, max: 2.0 },
        "subtracted from logits of tokens that were seen",
    ),
    Field::new(
        "frequency_penalty",
        Kind::Number { min: -2.0, max: 2.0 },
        "subtracted from logits for each time a token was seen",
    ),
    Field::new(
        "repetition_penalty",
        Kind::Number { min: 0.01, max: 100.0 },
        "divides positive logits of tokens that were seen; 1 is off",
    ),
    Field::new(
        "logit_bias",
        Kind::Own(
            r#"{ "type": "object", "additionalProperties": { "type": "number", "minimum": -100, "maximum": 100 } }"#,
        ),
        "added to the logits of token ids",
    ),
    Field::new(
        "seed",
        Kind::Integer { min: i64::MIN, max: i64::MAX },
        "the same seed gives the same answer; one is drawn and reported when not given",
    ),
    Field::new(
        "stop",
        Kind::Own(
            r#"{ "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "maxItems": 16 }] }"#,
        ),
        "texts that end the answer and are not shown",
    ),
    Field::new("n", Kind::Integer { min: 1, max: 16 }, "answers to each prompt"),
    Field::new("stream", Kind::Boolean, "the answer comes as server-sent events"),
    Field::new("stream_options", Kind::Object(STREAM_OPTIONS), "only with stream"),
    Field::new("speculation", Kind::Object(SPECULATION), "how the request is speculated upon"),
    Field::new("spec_info", Kind::Boolean, "marks every token by what it is to the draft of its round"),
    Field::new("user", Kind::Mark, "without effect"),
    Field::new("metadata", Kind::Mark, "without effect"),
    Field::new("service_tier", Kind::Only(&["\"auto\"", "\"default\""]), "there is one"),
];

/// What `/v1/completions` takes beside.
pub(crate) const COMPLETION: &[Field] = &[
    Field::new(
        "prompt",
        Kind::Own(
            r#"{ "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } },
                { "type": "array", "items": { "type": "integer" } },
                { "type": "array", "items": { "type": "array", "items": { "type": "integer" } } }] }"#,
        ),
        "a text, its token ids, or several of either",
    ),
    Field::new(
        "logprobs",
        Kind::Integer { min: 0, max: 20 },
        "log-probabilities of the tokens and of so many alternatives",
    ),
    Field::new("best_of", Kind::Only(&["1"]), "no answers are thrown away"),
    Field::new("echo", Kind::Only(&["false"]), "the prompt is not repeated"),
    Field::new("suffix", Kind::Only(&["\"\""]), "texts are continued, not filled in"),
];

/// What `/v1/chat/completions` takes beside.
pub(crate) const CHAT: &[Field] = &[
    Field::new(
        "messages",
        Kind::Own(
            r#"{ "type": "array", "minItems": 1, "items": { "type": "object", "required": ["role"], "properties": {
                "role": { "enum": ["system", "developer", "user", "assistant", "tool"] },
                "content": { "oneOf": [{ "type": ["string", "null"] }, { "type": "array", "items": {
                    "type": "object", "required": ["type", "text"], "properties": { "type": { "enum": ["text"] }, "text": { "type": "string" } } } }] },
                "name": { "type": "string" },
                "tool_calls": { "type": "array", "items": { "type": "object", "required": ["function"], "properties": {
                    "id": { "type": "string" }, "type": { "enum": ["function"] },
                    "function": { "type": "object", "required": ["name", "arguments"], "properties": {
                        "name": { "type": "string" }, "arguments": { "type": "string" } } } } } },
                "tool_call_id": { "type": "string" },
                "refusal": { "type": "null" } } } }"#,
        ),
        "the conversation: objects with role and content",
    ),
    Field::new("max_completion_tokens", Kind::Integer { min: 0, max: MOST_TOKENS }, "as max_tokens"),
    Field::new("logprobs", Kind::Boolean, "log-probabilities of the tokens"),
    Field::new("top_logprobs", Kind::Integer { min: 0, max: 20 }, "and of so many alternatives"),
    Field::new(
        "response_format",
        Kind::Own(
            r#"{ "type": "object", "required": ["type"], "properties": {
                "type": { "enum": ["text", "json_object", "json_schema"] }, "json_schema": { "type": "object", "required": ["schema"], "properties": {
                    "name": { "type": "string" }, "description": { "type": "string" }, "schema": { "type": ["object", "boolean"] },
                    "strict": { "type": "boolean" } } } } }"#,
        ),
        "text, a JSON object, or what a JSON schema describes",
    ),
    Field::new("chat_template_kwargs", Kind::Own(r#"{ "type": "object" }"#), "variables of the chat template"),
    Field::new(
        "tools",
        Kind::Own(
            r#"{ "type": "array", "maxItems": 128, "items": { "type": "object", "required": ["type", "function"], "properties": {
                "type": { "enum": ["function"] },
                "function": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$" }, "description": { "type": "string" },
                    "parameters": { "type": "object" }, "strict": { "type": "boolean" } } } } } }"#,
        ),
        "functions that the model may call",
    ),
    Field::new(
        "tool_choice",
        Kind::Own(
            r#"{ "oneOf": [{ "enum": ["none", "auto", "required"] }, { "type": "object", "required": ["type", "function"], "properties": {
                "type": { "enum": ["function"] },
                "function": { "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } } } }] }"#,
        ),
        "whether functions are called; required, and a function, are enforced",
    ),
    Field::new("functions", Kind::Only(&["[]"]), "functions are not called"),
    Field::new("function_call", Kind::Only(&["\"none\"", "\"auto\""]), "functions are not called"),
    Field::new("parallel_tool_calls", Kind::Boolean, "false: one call at most"),
    Field::new("modalities", Kind::Only(&["[\"text\"]"]), "answers are text"),
    Field::new("store", Kind::Only(&["false"]), "nothing is stored"),
    Field::new("safety_identifier", Kind::Mark, "without effect"),
    Field::new("prompt_cache_key", Kind::Mark, "without effect"),
];

/// What `/tokenize` takes.
pub(crate) const TOKENIZE: &[Field] = &[
    Field::new("model", Kind::Text, "any name: one model is served"),
    Field::new("prompt", Kind::Text, "the text"),
    Field::new(
        "add_special_tokens",
        Kind::Boolean,
        "whether control tokens are read, and the text begins as the model's texts do; true when not given",
    ),
];

/// What `/detokenize` takes.
pub(crate) const DETOKENIZE: &[Field] = &[
    Field::new("model", Kind::Text, "any name: one model is served"),
    Field::new("tokens", Kind::Own(r#"{ "type": "array", "items": { "type": "integer" } }"#), "token ids"),
];
