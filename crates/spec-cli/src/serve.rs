//! `spec serve`: the model behind an OpenAI-compatible interface.

use std::borrow::Cow;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use spec_core::Token;
use spec_model::{ChatTemplate, Conversation};
use spec_runtime::{MemoryWatch, Scheduler, SchedulerOptions, Service, TokenRole, TokenText};
use spec_server::{Keys, Language, Listening, RequestLimits, Server, ServerError, ServerOptions};

use crate::args::{AnswersArgs, ModelArgs, ServeArgs};
use crate::memory::{Room, Run, Size};
use crate::observers::Observers;
use crate::record;
use crate::session::{Opened, Session, Vocabulary};
use crate::usage;

/// Positions of an answer with its prompt, unless told otherwise.
const CONTEXT: usize = 4096;

/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A model's tokenizer and template, as the service sees them.
pub(crate) struct Speech {
    vocabulary: Arc<Vocabulary>,
    template: Option<ChatTemplate>,
}

impl TokenText for Speech {
    fn vocab(&self) -> usize {
        self.vocabulary.vocab()
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        self.vocabulary.bytes(token)
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        self.vocabulary.label(token)
    }

    fn role(&self, token: Token) -> TokenRole {
        self.vocabulary.role(token)
    }
}

impl Language for Speech {
    fn encode(&self, text: &str, special: bool) -> Result<Vec<Token>, String> {
        self.vocabulary.0.encode(text, special).map_err(|error| error.to_string())
    }

    fn decode(&self, ids: &[Token]) -> String {
        // The ids have been compared with the vocabulary.
        self.vocabulary.0.decode(ids).unwrap_or_default()
    }

    fn render(&self, conversation: &Conversation<'_>) -> Option<Result<String, String>> {
        Some(self.template.as_ref()?.render_json(conversation).map_err(|error| error.to_string()))
    }

    fn end_ids(&self) -> &[Token] {
        self.vocabulary.0.end_ids()
    }
}

pub(crate) fn run(args: ServeArgs) -> Result<ExitCode> {
    let keys = args.api_keys.as_deref().map(Keys::read).transpose()?;
    let (opened, context) = open(&args.model, &args.answers)?;
    // Before what takes long, so that an address that is taken is told at once.
    let listening = Listening::bind(&args.host, args.port)?;
    let address = listening.address()?;
    if keys.is_none() && !address.ip().is_loopback() {
        tracing::warn!("{} is open to other machines, and there are no keys: --api-keys FILE", shown(address.ip()));
    }
    let observers = Observers::open(&args.records, &args.model, &opened)?;
    let name = args.served_model_name.unwrap_or_else(|| opened.checkpoint.config().name.clone());
    let options = ServerOptions {
        served_model_name: name.clone(),
        keys,
        max_body_bytes: args.max_body.0,
        max_connections: args.max_connections.get(),
        log_prompts: args.log_prompts,
        observers: Some(observers.shared()),
        audit_share: args.audit_share,
        ..ServerOptions::default()
    };
    let (server, loading) = Server::loading(listening, options);
    // What watches memory is there as long as the thread's result.
    let loader = std::thread::Builder::new().name("loader".into()).spawn(move || -> Result<MemoryWatch> {
        let progress = |done, total| loading.progress(done, total);
        let Ready { language, service, limits, drafter, watch, plan, .. } =
            load(args.model, &args.answers, &opened, (context, args.max_queue), ("serve", &observers), &progress)?;
        if let Some(plan) = plan {
            eprint!("memory, at most:\n{}", plan.table());
        }
        loading.done(language, service, limits);
        tracing::info!(
            "{name}; drafts: {drafter}; {} answers at once, {context} positions each",
            args.answers.max_batch
        );
        println!("serving {name} at http://{address}");
        Ok(watch)
    })?;
    match server.run() {
        // Whoever was to load it says why.
        Err(ServerError::NotLoaded) => match loader.join() {
            Ok(loaded) => loaded.map(|_| ExitCode::FAILURE),
            Err(panic) => std::panic::resume_unwind(panic),
        },
        // Told to end, it does not wait for a model that is still being loaded.
        outcome => Ok(outcome.map(|()| ExitCode::SUCCESS)?),
    }
}

/// Opens the model, and settles the positions of a text.
pub(crate) fn open(model: &ModelArgs, answers: &AnswersArgs) -> Result<(Opened, usize)> {
    model.lengths().map_err(usage)?;
    if answers.max_tokens == 0 {
        return Err(usage("--max-tokens 0 leaves no answer; give at least 1"));
    }
    let opened = Opened::open(&model.model, model.text.pre_tokenizer.as_deref())?;
    let trained = opened.checkpoint.config().context_length;
    let context = answers.context.unwrap_or_else(|| trained.min(CONTEXT));
    if context > trained || context == 0 {
        return Err(usage(format!("--context {context}: the model was trained for {trained} positions")));
    }
    Ok((opened, context))
}

/// What answers many requests.
pub(crate) struct Ready {
    pub(crate) language: Arc<dyn Language>,
    pub(crate) service: Service,
    pub(crate) limits: RequestLimits,
    /// The model's.
    pub(crate) name: String,
    pub(crate) drafter: String,
    /// Warns while it is there.
    pub(crate) watch: MemoryWatch,
    /// What all of it takes at most.
    pub(crate) plan: Option<Run>,
}

/// Loads the model and its drafters, and starts the thread that schedules them. `progress` is told what is loaded of how much.
pub(crate) fn load(
    model: ModelArgs,
    answers: &AnswersArgs,
    opened: &Opened,
    (context, max_queue): (usize, usize),
    (command, observers): (&str, &Observers),
    progress: &dyn Fn(usize, usize),
) -> Result<Ready> {
    let room = Room { context, parallel: answers.max_batch, kv_tokens: answers.kv_tokens };
    let mut session = Session::load_watched(&model, opened, room, progress)?;
    if let Some(drafter) = &mut session.drafter {
        // Nobody's first answer waits for it.
        drafter.prepare()?;
    }
    session.notes.print();
    let plan = session.plan;
    if let Some(warning) = session.device.warning() {
        tracing::warn!("{warning}");
    }
    let limit = model.mem_limit.map(|Size(bytes)| bytes);
    let watch = MemoryWatch::start(vec![Arc::clone(&session.target)], limit, LOOK_EVERY, |now| {
        let resident = Size(now.resident.unwrap_or_default());
        tracing::warn!("{resident} are resident, more than --mem-limit; lower --max-batch, --context or --draft-cache");
    })?;
    let engine = session.engine();
    let drafter = engine.drafter().unwrap_or("none").to_owned();
    let run = record::Run::of(command, &model, opened, &session, (&drafter, context));
    observers.begin(&run);
    observers.watch(&run, |warning| tracing::warn!("{warning}"));
    let scheduling = SchedulerOptions { max_running: answers.max_batch, max_queue, ..SchedulerOptions::default() };
    let service = Service::start(Scheduler::new(engine, scheduling))?;
    let name = opened.checkpoint.config().name.clone();
    let language =
        Arc::new(Speech { vocabulary: Arc::clone(&opened.vocabulary), template: opened.checkpoint.chat_template()? });
    let limits = limits(model, context, answers.max_tokens.min(context), answers.max_prompt_tokens);
    Ok(Ready { language, service, limits, name, drafter, watch, plan })
}

fn limits(model: ModelArgs, context: usize, max_tokens: usize, max_prompt_tokens: Option<usize>) -> RequestLimits {
    let draft_width = model.draft_width.unwrap_or(usize::MAX);
    // The flags have been checked.
    let draft_len = Arc::new(move || model.lengths().unwrap_or_else(|_| Box::new(spec_core::Goodput::default())));
    let max_prompt_tokens = max_prompt_tokens.unwrap_or(context);
    RequestLimits { context, max_tokens, max_prompt_tokens, draft_len, draft_width }
}

fn shown(ip: IpAddr) -> String {
    if ip.is_unspecified() { "every address of this machine".to_owned() } else { ip.to_string() }
}
