//! The service without a network.

mod mutations;
mod tools;

use std::borrow::Cow;
use std::sync::Arc;

use spec_core::{Fixed, Token};
use spec_model::Conversation;
use spec_runtime::{Engine, NgramDrafter, Scheduler, SchedulerOptions, Service, TokenText};
use spec_server::{Language, Local, RequestLimits, ServerOptions};
use spec_testing::{HashModel, HashSpec};

/// A token is a byte of ASCII; the last ends answers.
struct Ascii;

const END: Token = 128;

impl TokenText for Ascii {
    fn vocab(&self) -> usize {
        END as usize + 1
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        if token == END { Cow::Borrowed(&[]) } else { Cow::Owned(vec![token as u8]) }
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        if token == END { "<end>".into() } else { char::from(token as u8).to_string().into() }
    }
}

impl Language for Ascii {
    fn encode(&self, text: &str, _: bool) -> Result<Vec<Token>, String> {
        Ok(text.bytes().filter(u8::is_ascii).map(Token::from).collect())
    }

    fn render(&self, conversation: &Conversation<'_>) -> Option<Result<String, String>> {
        Some(Ok(conversation.messages.to_owned()))
    }

    fn end_ids(&self) -> &[Token] {
        &[END]
    }
}

fn parts() -> (Arc<dyn Language>, Service, RequestLimits, ServerOptions) {
    let (vocab, context) = (Ascii.vocab(), 4096);
    let language: Arc<dyn Language> = Arc::new(Ascii);
    let target = HashModel::new(HashSpec { vocab, context, blocks: 4096, order: 2, ..HashSpec::default() });
    let engine = Engine::new(target, Arc::clone(&language) as _).with_drafter(Box::new(NgramDrafter::new()));
    let service = Service::start(Scheduler::new(engine, SchedulerOptions::default())).expect("a thread");
    let limits = RequestLimits {
        context,
        max_tokens: 1000,
        max_prompt_tokens: context,
        draft_len: Arc::new(|| Box::new(Fixed(4))),
        draft_width: 1,
    };
    (language, service, limits, ServerOptions::default())
}

fn local() -> Local {
    let (language, service, limits, options) = parts();
    Local::new(language, service, limits, options).expect("threads")
}
