//! The OpenAPI document, made of the tables by which requests are read.

use serde_json::{Value, json};

use crate::fields::{Field, schema};
use crate::protocol::{CHAT, COMPLETION, DETOKENIZE, GENERATION, TOKENIZE};

/// The document.
pub fn document() -> Value {
    let asks = |about: &str, answer: &str, fields: &[&[Field]], required: &[&str]| {
        json!({ "post": {
            "summary": about,
            "requestBody": { "required": true, "content": { "application/json": { "schema": schema(fields, required) } } },
            "responses": responses(answer),
        } })
    };
    let gives = |about: &str, kind: &str| json!({ "get": { "summary": about, "responses": { "200": { "description": about, "content": { kind: {} } } } } });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "spec", "version": env!("CARGO_PKG_VERSION"), "license": { "name": "MIT OR Apache-2.0" } },
        "paths": {
            "/v1/completions": asks("Continue texts", "the answer, or its parts as server-sent events", &[GENERATION, COMPLETION], &["prompt"]),
            "/v1/chat/completions": asks("Answer a conversation", "the answer, or its parts as server-sent events", &[GENERATION, CHAT], &["messages"]),
            "/tokenize": asks("Split a text into tokens", "tokens, count", &[TOKENIZE], &["prompt"]),
            "/detokenize": asks("Join tokens to a text", "prompt", &[DETOKENIZE], &["tokens"]),
            "/v1/models": gives("The model that is served", "application/json"),
            "/health": gives("Whether the device works; 503 when it is lost, and while the model is loaded", "application/json"),
            "/ready": gives("Whether requests are taken; 503 when not", "application/json"),
            "/metrics": gives("Figures for Prometheus", "text/plain"),
            "/openapi.json": gives("This document", "application/json"),
        },
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Error": { "type": "object", "required": ["error"], "properties": { "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": { "type": "string" },
                    "type": { "type": "string" },
                    "param": { "type": ["string", "null"], "description": "the field that it is about" },
                    "code": { "type": "string" },
                },
            } } } },
        },
        "security": [{}, { "key": [] }],
    })
}

fn responses(answer: &str) -> Value {
    let refusal = |about: &str| json!({ "description": about, "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } } });
    json!({
        "200": { "description": answer },
        "400": refusal("a field is wrong, or not supported"),
        "401": refusal("a key is needed"),
        "408": refusal("the body took too long"),
        "413": refusal("the body is too large"),
        "415": refusal("the body is no JSON"),
        "429": refusal("the queue is full; Retry-After says when to come again"),
        "500": refusal("the generation failed"),
        "503": refusal("the device failed, the model is not loaded yet, or the server is shutting down"),
    })
}
