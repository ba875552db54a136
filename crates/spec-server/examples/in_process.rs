//! The service over a model of one's own, asked without a network: the same requests, the same answers.
//!
//! A model needs an [`Engine`] and a [`Language`]; here both come from the tests' model, whose text is nonsense. With
//! [`Server`](spec_server::Server) in the place of [`Local`] the same parts listen on a port.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;
use spec_core::{Fixed, Token};
use spec_model::Conversation;
use spec_runtime::{Engine, NgramDrafter, Scheduler, SchedulerOptions, Service, TokenText};
use spec_server::{Language, Local, RequestLimits, ServerError, ServerOptions};
use spec_testing::{HashModel, HashSpec, Letters};

const VOCAB: usize = 26;
const CONTEXT: usize = 512;

/// A token is a letter, and none ends an answer.
struct Alphabet(Letters);

impl TokenText for Alphabet {
    fn vocab(&self) -> usize {
        self.0.vocab()
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        self.0.bytes(token)
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        self.0.label(token)
    }
}

impl Language for Alphabet {
    fn encode(&self, text: &str, _: bool) -> Result<Vec<Token>, String> {
        let token = |letter: u8| match letter {
            b'a'..=b'z' => Ok(Token::from(letter - b'a')),
            other => Err(format!("there is no token of the byte {other}")),
        };
        text.bytes().map(token).collect()
    }

    fn render(&self, _: &Conversation<'_>) -> Option<Result<String, String>> {
        None
    }

    fn end_ids(&self) -> &[Token] {
        &[]
    }
}

fn main() -> Result<(), ServerError> {
    let language: Arc<dyn Language> = Arc::new(Alphabet(Letters(VOCAB)));
    let model = HashModel::new(HashSpec { vocab: VOCAB, context: CONTEXT, order: 2, ..HashSpec::default() });
    let engine = Engine::new(model, Arc::clone(&language) as _).with_drafter(Box::new(NgramDrafter::new()));
    let service = Service::start(Scheduler::new(engine, SchedulerOptions::default()))
        .map_err(|source| ServerError::System { what: "starting the scheduler's thread", source })?;
    let limits = RequestLimits {
        context: CONTEXT,
        max_tokens: 100,
        max_prompt_tokens: CONTEXT,
        draft_len: Arc::new(|| Box::new(Fixed(4))),
        draft_width: 1,
    };
    let local = Local::new(language, service, limits, ServerOptions::default())?;
    let ask = |body| local.answer("/v1/completions", &body);
    let speculative = ask(json!({ "prompt": "abcabc", "temperature": 0 }));
    let plain = ask(json!({ "prompt": "abcabc", "temperature": 0, "speculation": { "enabled": false } }));
    assert_eq!(speculative.body["choices"], plain.body["choices"], "speculation changes time and nothing else");
    println!("{}", speculative.body["choices"][0]["text"]);
    println!(
        "{} of {} drafted tokens accepted",
        speculative.body["speculation"]["accepted"], speculative.body["speculation"]["drafted"]
    );
    println!("and a field that is not there: {}", ask(json!({ "prompt": "a", "luck": 7 })).body);
    Ok(())
}
