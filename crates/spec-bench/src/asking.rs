//! One request as a client makes it, with the times at which its answer came.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::Position;
use crate::events::Events;
use crate::http::{Answer, Endpoint};

/// Where OpenAI's protocol has what is asked here.
pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Ending {
    Answered(Box<Answered>),
    Refused(Refusal),
}

#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) retry_after: Option<u64>,
}

/// A whole answer that was streamed.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    pub(crate) text: String,
    pub(crate) finish_reason: String,
    /// From the sending of the request to the first piece of text, and to the end.
    pub(crate) first: Duration,
    pub(crate) whole: Duration,
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) completion_tokens: usize,
    /// What our server says of its drafts; other servers say nothing.
    pub(crate) speculation: Speculation,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Speculation {
    pub(crate) drafted: usize,
    #[serde(default)]
    pub(crate) by_position: Vec<Position>,
}

/// Asks for `body` as a stream with usage and reads it to its end.
///
/// # Errors
/// The connection fails, or the answer breaks off or is none of the protocol's.
pub(crate) fn ask(endpoint: &Endpoint, path: &str, body: &Value) -> Result<Ending> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let begun = Instant::now();
    let answer = endpoint.send(path, Some(body.to_string().as_bytes()))?;
    if answer.status != 200 {
        let status = answer.status;
        let whole = answer.whole()?;
        return Ok(Ending::Refused(Refusal { status, reason: whole.reason(), retry_after: whole.retry_after }));
    }
    read(answer, begun)
}

fn read(answer: Answer, begun: Instant) -> Result<Ending> {
    let mut answered = Answered::default();
    let mut ended = false;
    for event in Events::new(answer.body) {
        let data = event.context("the stream broke off")?;
        if data == "[DONE]" {
            ended = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(&data).with_context(|| format!("`{data}` is no chunk"))?;
        if let Some(reason) = chunk["error"]["message"].as_str() {
            // Accepted and failed later, with a reason: the protocol has no status for it any more.
            return Ok(Ending::Refused(Refusal { status: 500, reason: reason.to_owned(), retry_after: None }));
        }
        answered.take(&chunk, begun)?;
    }
    answered.whole = begun.elapsed();
    if !ended || answered.finish_reason.is_empty() {
        bail!("the stream ended without saying why, after {:?}", answered.text);
    }
    Ok(Ending::Answered(Box::new(answered)))
}

impl Answered {
    fn take(&mut self, chunk: &Value, begun: Instant) -> Result<()> {
        let choice = &chunk["choices"][0];
        if let Some(piece) = choice["delta"]["content"].as_str().or_else(|| choice["text"].as_str())
            && !piece.is_empty()
        {
            if self.text.is_empty() {
                self.first = begun.elapsed();
            }
            self.text.push_str(piece);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            reason.clone_into(&mut self.finish_reason);
        }
        let usage = &chunk["usage"];
        if usage.is_object() {
            let count = |value: &Value| value.as_u64().unwrap_or(0) as usize;
            self.prompt_tokens = count(&usage["prompt_tokens"]);
            self.cached_tokens = count(&usage["prompt_tokens_details"]["cached_tokens"]);
            self.completion_tokens = count(&usage["completion_tokens"]);
        }
        if chunk["speculation"].is_object() {
            self.speculation = Speculation::deserialize(&chunk["speculation"]).context("the account of drafts")?;
        }
        Ok(())
    }
}

impl Ending {
    /// # Errors
    /// It was refused.
    pub(crate) fn answered(self) -> Result<Answered> {
        match self {
            Self::Answered(answered) => Ok(*answered),
            Self::Refused(refusal) => bail!("refused with {}: {}", refusal.status, refusal.reason),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Ending, read};
    use crate::http::tests::answer;
    use std::time::Instant;

    fn ending(events: &[&str]) -> anyhow::Result<Ending> {
        let body: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
        read(
            answer(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).unwrap(),
            Instant::now(),
        )
    }

    #[test]
    fn a_streamed_answer_is_put_together_from_either_protocol() {
        let chat = [
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"length"}],"speculation":{"drafted":4,"accepted":3,"by_position":[{"drafted":4,"accepted":3}],"more":1}}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}"#,
            "[DONE]",
        ];
        let answered = ending(&chat).unwrap().answered().unwrap();
        assert_eq!((answered.text.as_str(), answered.finish_reason.as_str()), ("ab", "length"));
        assert_eq!((answered.prompt_tokens, answered.cached_tokens, answered.completion_tokens), (9, 8, 2));
        assert_eq!((answered.speculation.drafted, answered.speculation.by_position[0].accepted), (4, 3));
        let completion = [r#"{"choices":[{"text":"x","finish_reason":"stop"}]}"#, "[DONE]"];
        assert_eq!(ending(&completion).unwrap().answered().unwrap().text, "x");
    }

    #[test]
    fn an_answer_without_an_end_is_an_error_and_a_failure_keeps_its_reason() {
        assert!(ending(&[r#"{"choices":[{"text":"x"}]}"#]).is_err());
        assert!(ending(&[r#"{"choices":[{"text":"x"}]}"#, "[DONE]"]).is_err());
        let failed = ending(&[r#"{"choices":[{"text":"x"}]}"#, r#"{"error":{"message":"the pass failed"}}"#]).unwrap();
        assert!(failed.answered().unwrap_err().to_string().contains("the pass failed"));
    }
}
