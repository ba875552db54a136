//! What is asked for in both modes, and how several clients ask at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::asking::{Answered, CHAT, ask};
use crate::http::Endpoint;

/// With drafts or without. Each mode has a key of its own, and a key is a tenant: neither reuses prefixes of the other's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    Plain,
    Speculative,
}

impl Mode {
    pub(super) const BOTH: [Self; 2] = [Self::Plain, Self::Speculative];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Speculative => "speculative",
        }
    }

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Plain => "bench-plain",
            Self::Speculative => "bench-speculative",
        }
    }

    /// Both modes in an order that changes with every call number: neither is always the first to meet a cold cache.
    pub(super) fn in_turn(number: usize) -> [Self; 2] {
        if number.is_multiple_of(2) { Self::BOTH } else { [Self::Speculative, Self::Plain] }
    }
}

/// Our server, seen by the clients of one mode; or another one, which knows no modes.
#[derive(Clone)]
pub(super) struct Client {
    endpoint: Endpoint,
    mode: Option<Mode>,
}

impl Client {
    pub(super) fn of(endpoint: &Endpoint, mode: Mode) -> Self {
        Self { endpoint: endpoint.with_key(mode.key()), mode: Some(mode) }
    }

    pub(super) fn of_peer(endpoint: &Endpoint) -> Self {
        Self { endpoint: endpoint.clone(), mode: None }
    }

    /// A greedy answer of at most `max_tokens`.
    pub(super) fn body(&self, messages: &Value, max_tokens: usize) -> Value {
        let mut body = json!({ "model": "any", "messages": messages, "max_tokens": max_tokens, "temperature": 0 });
        if let Some(mode) = self.mode {
            body["speculation"] = json!({ "enabled": mode == Mode::Speculative });
        }
        body
    }

    pub(super) fn ask(&self, body: &Value) -> Result<Answered> {
        ask(&self.endpoint, CHAT, body)?.answered()
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A client for each body, all at once; their answers in order, and the time until the last had its.
    pub(super) fn ask_together(&self, bodies: &[Value]) -> Result<(Vec<Answered>, Duration)> {
        let begun = Instant::now();
        let answers: Result<Vec<Answered>> = std::thread::scope(|scope| {
            let clients: Vec<_> = bodies.iter().map(|body| scope.spawn(|| self.ask(body))).collect();
            clients
                .into_iter()
                .map(|client| client.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked"))))
                .collect()
        });
        Ok((answers.context("of several clients at once")?, begun.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Client, Mode};
    use crate::http::Endpoint;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn modes_differ_in_drafting_and_in_their_tenant_alone() {
        let endpoint = Endpoint { address: ([127, 0, 0, 1], 1).into(), key: None, patience: Duration::from_secs(1) };
        let [plain, speculative] = Mode::BOTH.map(|mode| Client::of(&endpoint, mode));
        let bodies = [&plain, &speculative].map(|client| client.body(&json!([]), 5));
        assert_eq!(bodies[0]["speculation"], json!({ "enabled": false }));
        assert_eq!(bodies[1]["speculation"], json!({ "enabled": true }));
        assert_ne!(plain.endpoint().key, speculative.endpoint().key);
        assert!(Client::of_peer(&endpoint).body(&json!([]), 5)["speculation"].is_null());
        assert_ne!(Mode::in_turn(0)[0], Mode::in_turn(1)[0]);
    }
}
