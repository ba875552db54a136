//! Answers as JSON: one writer for whole answers and for streams, for both ways of asking.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use spec_core::{Token, TokenLogProb};
use spec_runtime::{Completion, SpeculationStats, Timings, TokenSource};

use crate::Language;
use crate::answers::Piece;
use crate::compose::Effective;
use crate::tools::{Collected, Delta, ToolParser};

/// How was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Api {
    Completion,
    Chat,
}

/// Writes the answers to one request.
pub(crate) struct Writer {
    pub(crate) api: Api,
    pub(crate) language: Arc<dyn Language>,
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) prompt_tokens: usize,
    pub(crate) spec_info: bool,
    pub(crate) effective: Effective,
    pub(crate) totals: Totals,
}

/// What of a choice has come and is not yet written.
#[derive(Default)]
pub(crate) struct Part {
    text: String,
    logprobs: Vec<(TokenLogProb, usize)>,
    spec_tokens: Vec<Value>,
    /// Characters of the text before this part.
    offset: usize,
    begun: bool,
    /// Reads calls of tools in the text, where there may be such.
    parser: Option<ToolParser>,
    /// What it has read, in the place of the text.
    read: Collected,
}

impl Part {
    /// The beginning of a choice.
    pub(crate) fn of(parser: Option<ToolParser>) -> Self {
        Self { parser, ..Self::default() }
    }

    /// Takes the end in; why the choice ended, calls counted.
    pub(crate) fn end(&mut self, finish: &'static str) -> &'static str {
        let Some(parser) = &mut self.parser else { return finish };
        let deltas = parser.finish();
        let called = parser.calls() > 0 && finish == "stop";
        self.take(deltas);
        if called { "tool_calls" } else { finish }
    }

    fn take(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Content(text) => self.text.push_str(&text),
                call => self.read.take(call),
            }
        }
    }

    /// Takes a token in.
    pub(crate) fn add(&mut self, piece: Piece, writer: &Writer) {
        let offset = self.offset + self.text.chars().count();
        if writer.spec_info && (piece.shown || !piece.text.is_empty()) {
            let rejected: Vec<String> = piece.rejected.iter().map(|&id| writer.token_text(id)).collect();
            let source = match piece.source {
                TokenSource::Target => "target",
                TokenSource::Accepted => "accepted",
                TokenSource::Corrected => "corrected",
                TokenSource::Bonus => "bonus",
            };
            self.spec_tokens
                .push(json!({ "id": piece.token, "text": piece.text, "source": source, "rejected": rejected }));
        }
        match &mut self.parser {
            None => self.text.push_str(&piece.text),
            Some(parser) => {
                let deltas = parser.push(&piece.text);
                self.take(deltas);
            }
        }
        self.logprobs.extend(piece.logprob.map(|logprob| (logprob, offset)));
    }

    /// Whether there is something to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.read.is_empty() && self.logprobs.is_empty() && self.spec_tokens.is_empty()
    }
}

/// Sums over the choices of a request.
#[derive(Default)]
pub(crate) struct Totals {
    stats: SpeculationStats,
    timings: Timings,
    generated: usize,
    cached: usize,
    /// Prompt tokens, each choice's own.
    prompts: usize,
    queued: Duration,
    seed: u64,
    rule: &'static str,
    speed: f64,
}

impl Totals {
    /// Takes a choice in that has ended.
    pub(crate) fn add(&mut self, completion: &Completion, queued: Duration) {
        self.stats += &completion.speculation;
        self.timings += completion.timings;
        self.generated += completion.completion_tokens;
        self.cached = self.cached.max(completion.cached_tokens);
        self.prompts += completion.prompt_tokens;
        self.queued = self.queued.max(queued);
        self.seed = completion.seed;
        self.rule = completion.rule;
        self.speed += completion.timings.tokens_per_second(completion.completion_tokens);
    }
}

impl Writer {
    fn token_text(&self, id: Token) -> String {
        String::from_utf8_lossy(&self.language.bytes(id)).into_owned()
    }

    fn envelope(&self, streaming: bool, choices: Vec<Value>) -> Value {
        let object = match (self.api, streaming) {
            (Api::Completion, _) => "text_completion",
            (Api::Chat, true) => "chat.completion.chunk",
            (Api::Chat, false) => "chat.completion",
        };
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    /// A choice, as far as it has come since it was last written.
    fn choice(&self, streaming: bool, index: usize, part: &mut Part, finish: Option<&str>) -> Value {
        let offset = part.offset + part.text.chars().count();
        let begun = std::mem::replace(&mut part.begun, true);
        let parser = part.parser.take();
        let Part { text, logprobs, spec_tokens, read, .. } =
            std::mem::replace(part, Part { offset, begun: true, parser, ..Part::default() });
        let mut choice = Map::new();
        choice.insert("index".into(), index.into());
        match (self.api, streaming) {
            (Api::Completion, _) => _ = choice.insert("text".into(), text.into()),
            (Api::Chat, false) => {
                let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
                if !read.is_empty() {
                    if text.is_empty() {
                        message["content"] = Value::Null;
                    }
                    message["tool_calls"] = read.whole();
                }
                choice.insert("message".into(), message);
            }
            (Api::Chat, true) => {
                let mut delta = Map::new();
                if !begun {
                    delta.insert("role".into(), "assistant".into());
                }
                if !read.is_empty() {
                    delta.insert("tool_calls".into(), read.part());
                }
                if (finish.is_none() && read.is_empty()) || !text.is_empty() {
                    delta.insert("content".into(), text.into());
                }
                choice.insert("delta".into(), delta.into());
            }
        }
        choice.insert("logprobs".into(), self.logprobs(&logprobs));
        choice.insert("finish_reason".into(), finish.map_or(Value::Null, Value::from));
        if self.spec_info {
            choice.insert("spec_tokens".into(), spec_tokens.into());
        }
        Value::Object(choice)
    }

    fn logprobs(&self, all: &[(TokenLogProb, usize)]) -> Value {
        if all.is_empty() {
            return Value::Null;
        }
        // JSON has no infinities; a token that a row masks has the least that it can say.
        let finite = |logprob: f64| if logprob.is_finite() { logprob } else { f64::from(f32::MIN) };
        match self.api {
            Api::Chat => {
                let entry = |id: Token, logprob: f64| json!({ "token": self.token_text(id), "logprob": finite(logprob), "bytes": &*self.language.bytes(id) });
                let content = all.iter().map(|(token, _)| {
                    let mut own = entry(token.id, token.logprob);
                    own["top_logprobs"] = token.top.iter().map(|&(id, logprob)| entry(id, logprob)).collect();
                    own
                });
                json!({ "content": content.collect::<Vec<_>>(), "refusal": null })
            }
            Api::Completion => {
                let top = |token: &TokenLogProb| -> Map<String, Value> {
                    token.top.iter().map(|&(id, logprob)| (self.token_text(id), finite(logprob).into())).collect()
                };
                json!({
                    "tokens": all.iter().map(|(token, _)| self.token_text(token.id)).collect::<Vec<_>>(),
                    "token_logprobs": all.iter().map(|(token, _)| finite(token.logprob)).collect::<Vec<_>>(),
                    "top_logprobs": all.iter().map(|(token, _)| top(token)).collect::<Vec<_>>(),
                    "text_offset": all.iter().map(|&(_, offset)| offset).collect::<Vec<_>>(),
                })
            }
        }
    }

    /// A chunk of a stream.
    pub(crate) fn chunk(&self, index: usize, part: &mut Part) -> Value {
        self.envelope(true, vec![self.choice(true, index, part, None)])
    }

    /// The last chunk of a choice; that of the last choice has the figures.
    pub(crate) fn last_chunk(&self, index: usize, part: &mut Part, finish: &str, is_last: bool) -> Value {
        let mut chunk = self.envelope(true, vec![self.choice(true, index, part, Some(finish))]);
        if is_last {
            self.add_figures(&mut chunk);
        }
        chunk
    }

    /// The chunk with the usage.
    pub(crate) fn usage_chunk(&self) -> Value {
        let mut chunk = self.envelope(true, Vec::new());
        chunk["usage"] = self.usage();
        self.add_figures(&mut chunk);
        chunk
    }

    /// A whole answer.
    pub(crate) fn whole(&self, parts: &mut [(Part, String)]) -> Value {
        let choices = parts.iter_mut().enumerate();
        let choices = choices.map(|(index, (part, finish))| self.choice(false, index, part, Some(finish))).collect();
        let mut answer = self.envelope(false, choices);
        answer["usage"] = self.usage();
        self.add_figures(&mut answer);
        answer
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.totals.generated,
            "total_tokens": self.prompt_tokens + self.totals.generated,
            "prompt_tokens_details": { "cached_tokens": self.totals.cached },
        })
    }

    fn add_figures(&self, answer: &mut Value) {
        let Totals { stats, timings, queued, .. } = &self.totals;
        let positions = stats.by_position.iter().map(|p| json!({ "drafted": p.drafted, "accepted": p.accepted }));
        answer["speculation"] = json!({
            "drafter": self.effective.drafter,
            "rule": self.effective.rule.as_deref().unwrap_or(self.totals.rule),
            "loss_budget": self.effective.loss_budget,
            "draft_len": self.effective.draft_len.map_or_else(|| "auto".into(), Value::from),
            // As requests give it.
            "seed": self.totals.seed as i64,
            "rounds": stats.rounds,
            "drafted": stats.drafted,
            "accepted": stats.accepted,
            "acceptance_rate": stats.acceptance_rate(),
            "mean_accepted_length": stats.mean_accepted_length(),
            "tokens_per_round": stats.tokens_per_round(),
            "by_position": positions.collect::<Vec<_>>(),
            "forgiven": { "count": stats.forgiven.count, "log_ratio": stats.forgiven.log_ratio },
            "cached_tokens": self.totals.cached,
        });
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        answer["timings"] = json!({
            "prompt_n": self.totals.prompts,
            "prompt_ms": ms(timings.prefill),
            "predicted_n": self.totals.generated,
            "predicted_ms": ms(timings.decode),
            "predicted_per_second": self.totals.speed,
            "draft_n": stats.drafted,
            "draft_n_accepted": stats.accepted,
            "draft_ms": ms(timings.draft),
            "verify_ms": ms(timings.verify),
            "sample_ms": ms(timings.sample),
            "queue_ms": ms(*queued),
        });
    }
}
