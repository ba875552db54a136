//! The service over sockets: what a client sends, byte for byte, and what it gets.

mod answers;
mod audit;
mod client;
mod faults;
mod loading;
mod refusals;
mod streams;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spec_core::{Fixed, Token};
use spec_model::Conversation;
use spec_runtime::{Engine, NgramDrafter, Scheduler, SchedulerOptions, Service, TokenText};
use spec_server::{Language, Listening, Loading, RequestLimits, Server, ServerError, ServerOptions};
use spec_testing::{HashModel, HashSpec};
use tokio::sync::oneshot;

/// Characters of several bytes, of which a token has one.
const WIDE: &str = "🎉你好é";

/// A token is a byte: those of ASCII that are printed, and those of some wide characters; the last ends answers.
struct Bytes {
    bytes: Vec<u8>,
    ends: [Token; 1],
}

impl Bytes {
    fn new() -> Self {
        let mut bytes: Vec<u8> = (b' '..=b'~').chain(WIDE.bytes()).collect();
        let end = bytes.len() as Token;
        bytes.push(0);
        Self { bytes, ends: [end] }
    }
}

impl TokenText for Bytes {
    fn vocab(&self) -> usize {
        self.bytes.len()
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        let at = token as usize;
        Cow::Borrowed(if token == self.ends[0] { &[] } else { &self.bytes[at..=at] })
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        if token == self.ends[0] {
            "<end>".into()
        } else {
            String::from_utf8_lossy(&self.bytes(token)).into_owned().into()
        }
    }
}

impl Language for Bytes {
    fn encode(&self, text: &str, _: bool) -> Result<Vec<Token>, String> {
        let token = |byte: u8| self.bytes.iter().position(|&known| known == byte).map(|at| at as Token);
        text.bytes().map(|byte| token(byte).ok_or_else(|| format!("no token has the byte {byte}"))).collect()
    }

    fn render(&self, conversation: &Conversation<'_>) -> Option<Result<String, String>> {
        assert!(!conversation.messages.contains("panic, please"), "a template that panics");
        if conversation.messages.contains("no system, please") {
            return Some(Err("System role not supported".into()));
        }
        let kept = conversation.messages.chars().filter(|c| c.is_ascii() || WIDE.contains(*c));
        Some(Ok(kept.collect()))
    }

    fn end_ids(&self) -> &[Token] {
        &self.ends
    }
}

/// What differs between the servers of tests.
struct Setup {
    context: usize,
    max_tokens: usize,
    service: SchedulerOptions,
    options: ServerOptions,
}

impl Default for Setup {
    fn default() -> Self {
        let options = ServerOptions { served_model_name: "hash".into(), ..ServerOptions::default() };
        Self { context: 512, max_tokens: 200, service: SchedulerOptions::default(), options }
    }
}

impl Setup {
    /// Room for answers that do not end by themselves while a test runs.
    fn endless() -> Self {
        Self { context: 100_000, max_tokens: 90_000, ..Self::default() }
    }

    fn start(self) -> Running {
        let (running, loading, parts) = self.listen();
        parts.fulfil(loading);
        running
    }

    /// A server that has no model yet, and what it is to have.
    fn listen(self) -> (Running, Loading, Parts) {
        let blocks = (2 * self.context).div_ceil(16).max(1024);
        let language = Bytes::new();
        let vocab = language.vocab();
        let target = HashModel::new(HashSpec { vocab, context: self.context, blocks, order: 2, ..HashSpec::default() });
        let language: Arc<dyn Language> = Arc::new(language);
        let engine = Engine::new(Arc::clone(&target) as _, Arc::clone(&language) as _)
            .with_drafter(Box::new(NgramDrafter::new()));
        let service = Service::start(Scheduler::new(engine, self.service)).expect("a thread");
        let listening = Listening::bind("127.0.0.1", 0).expect("a port");
        let address = listening.address().expect("an address");
        let limits = RequestLimits {
            context: self.context,
            max_tokens: self.max_tokens,
            max_prompt_tokens: self.context,
            draft_len: Arc::new(|| Box::new(Fixed(4))),
            draft_width: 1,
        };
        let (server, loading) = Server::loading(listening, self.options);
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(server.run_until(async move { _ = stopped.await }))
        });
        let running = Running { address, target, stop: Some(stop), thread: Some(thread) };
        (running, loading, Parts { language, service, limits })
    }
}

/// What answers requests.
struct Parts {
    language: Arc<dyn Language>,
    service: Service,
    limits: RequestLimits,
}

impl Parts {
    fn fulfil(self, loading: Loading) {
        loading.done(self.language, self.service, self.limits);
    }
}

/// A server of a test.
struct Running {
    address: SocketAddr,
    target: Arc<HashModel>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<Result<(), ServerError>>>,
}

impl Running {
    /// Tells it to end.
    fn stop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
    }

    /// Whether it has ended within a time.
    fn ended(&mut self, within: Duration) -> bool {
        let until = std::time::Instant::now() + within;
        while std::time::Instant::now() < until {
            if self.thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// How it has ended.
    fn outcome(&mut self) -> Result<(), ServerError> {
        self.thread.take().expect("it has run").join().expect("the server does not panic")
    }

    /// Waits until nothing runs and nothing waits.
    fn comes_to_rest(&self) -> bool {
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while std::time::Instant::now() < until {
            let health = self.get("/health");
            if health.status == 200 && health.json()["running"] == 0 && health.json()["queued"] == 0 {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if self.thread.is_some() && !std::thread::panicking() {
            self.outcome().expect("the server ends in order");
        }
    }
}
