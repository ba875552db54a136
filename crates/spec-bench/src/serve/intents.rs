//! A hundred labelled queries, their answers bound to the labels: drafting must change none of them, and how many are right.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{Client, Mode};
use crate::http::Endpoint;
use crate::progress::Progress;

/// Clients at once.
const TOGETHER: usize = 4;
/// Longer than any label with its braces.
const MAX_TOKENS: usize = 32;

#[derive(Deserialize)]
pub(super) struct Intents {
    pub(super) system: String,
    pub(super) labels: Vec<String>,
    pub(super) queries: Vec<Query>,
}

#[derive(Deserialize)]
pub(super) struct Query {
    pub(super) text: String,
    pub(super) label: String,
}

#[derive(Serialize)]
pub(super) struct Figures {
    pub(super) queries: usize,
    /// Queries with the same label in both modes.
    pub(super) agreed: usize,
    pub(super) right: usize,
    /// Queries per second, plain and speculative.
    pub(super) per_second: [f64; 2],
}

pub(super) fn read() -> Result<Intents> {
    serde_json::from_str(include_str!("../../data/intents.json")).context("the labelled queries")
}

pub(super) fn body(client: &Client, intents: &Intents, query: &Query) -> Value {
    let messages = json!([
        { "role": "system", "content": intents.system },
        { "role": "user", "content": query.text },
    ]);
    let schema = json!({
        "type": "object",
        "properties": { "intent": { "type": "string", "enum": intents.labels } },
        "required": ["intent"],
        "additionalProperties": false,
    });
    let mut body = client.body(&messages, MAX_TOKENS);
    body["response_format"] = json!({ "type": "json_schema", "json_schema": { "name": "intent", "schema": schema } });
    body
}

pub(super) fn measure(endpoint: &Endpoint, intents: &Intents, most: usize, progress: &mut Progress) -> Result<Figures> {
    let queries: Vec<&Query> = spread(&intents.queries, most);
    let mut seconds = [0.0; 2];
    let mut answers: [Vec<String>; 2] = [Vec::new(), Vec::new()];
    for (at, together) in queries.chunks(TOGETHER).enumerate() {
        for mode in Mode::in_turn(at) {
            let client = Client::of(endpoint, mode);
            let bodies: Vec<Value> = together.iter().map(|query| body(&client, intents, query)).collect();
            let (of_mode, took) = client.ask_together(&bodies)?;
            seconds[mode as usize] += took.as_secs_f64();
            for answer in of_mode {
                answers[mode as usize].push(label(&answer.text, &intents.labels)?);
            }
        }
    }
    progress.done(&format!("{} labelled queries in both modes", queries.len()));
    let [plain, speculative] = &answers;
    Ok(Figures {
        queries: queries.len(),
        agreed: plain.iter().zip(speculative).filter(|(plain, speculative)| plain == speculative).count(),
        right: plain.iter().zip(&queries).filter(|(given, query)| **given == query.label).count(),
        per_second: seconds.map(|seconds| queries.len() as f64 / seconds),
    })
}

/// At most this many, from everywhere in the list.
fn spread(queries: &[Query], most: usize) -> Vec<&Query> {
    let step = queries.len().div_ceil(most.max(1)).max(1);
    queries.iter().step_by(step).collect()
}

/// # Errors
/// The grammar was not kept to.
fn label(text: &str, labels: &[String]) -> Result<String> {
    let answer: Value = serde_json::from_str(text).with_context(|| format!("{text:?} is not the JSON asked for"))?;
    match answer["intent"].as_str() {
        Some(label) if labels.iter().any(|known| known == label) => Ok(label.to_owned()),
        _ => bail!("{text:?} has none of the labels"),
    }
}

#[cfg(test)]
mod tests {
    use super::{label, read, spread};

    #[test]
    fn the_queries_are_a_hundred_half_chinese_and_every_label_has_some_of_both_languages() {
        let intents = read().unwrap();
        let is_chinese = |text: &str| text.chars().any(|c| ('\u{4e00}'..'\u{9fff}').contains(&c));
        assert_eq!(intents.queries.len(), 100);
        assert_eq!(intents.queries.iter().filter(|query| is_chinese(&query.text)).count(), 50);
        for name in &intents.labels {
            let of = |chinese| {
                intents
                    .queries
                    .iter()
                    .filter(|query| query.label == *name && is_chinese(&query.text) == chinese)
                    .count()
            };
            assert!(of(true) >= 5 && of(false) >= 5, "{name}");
            assert!(intents.system.contains(name.as_str()), "{name} is not explained");
        }
        assert!(intents.queries.iter().all(|query| intents.labels.contains(&query.label)));
        assert_eq!((spread(&intents.queries, 10).len(), spread(&intents.queries, 500).len()), (10, 100));
    }

    #[test]
    fn an_answer_outside_the_labels_is_an_error() {
        let labels = ["a".to_owned()];
        assert_eq!(label(r#"{"intent": "a"}"#, &labels).unwrap(), "a");
        for text in [r#"{"intent": "b"}"#, r#"{"intent": "a""#, "a"] {
            assert!(label(text, &labels).is_err(), "{text}");
        }
    }
}
