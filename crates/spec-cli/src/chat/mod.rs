//! `spec chat`: turns in, answers out, and the keys and values of the text kept between them.

mod command;
mod conversation;
mod input;
mod interrupt;
mod lines;
mod settings;
mod stats;

use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use spec_core::Token;
use spec_model::ChatTemplate;
use spec_runtime::{Completion, DraftWith, Engine, FinishReason, Request, Session as Text};

use crate::args::{ChatArgs, OutputKind};
use crate::color::{self, ColorKind};
use crate::config::CommandLine;
use crate::observers::Observers;
use crate::printer::Printer;
use crate::record::Run;
use crate::session::{Opened, Session};
use crate::{report, usage};
use command::{COMMANDS, Command, Line};
use conversation::Conversation;
use input::{Input, Typed};
use interrupt::Interrupt;
use settings::Settings;
use stats::Stats;

/// Positions that a conversation has room for unless told otherwise.
const CONTEXT: usize = 8192;

pub(crate) fn run(args: ChatArgs, line: &CommandLine) -> Result<ExitCode> {
    let input = Input::open(args.history.as_deref())?;
    let interrupt = Interrupt::new(input.is_terminal())?;
    let mut chat = Chat::open(args, line, interrupt, input.is_terminal())?;
    chat.converse(input)
}

/// A conversation and what answers it.
struct Chat<'a> {
    args: ChatArgs,
    settings: Settings<'a>,
    opened: Opened,
    template: ChatTemplate,
    session: Session,
    engine: Engine,
    observers: Observers,
    /// What is kept of the text from one answer to the next.
    text: Text,
    conversation: Conversation,
    /// Which answer to the last turn is asked for: its number enters the seed.
    choice: u32,
    context: usize,
    stats: Stats,
    interrupt: Interrupt,
    at_terminal: bool,
    /// Whether something that was asked for could not be done.
    failed: bool,
}

impl<'a> Chat<'a> {
    fn open(args: ChatArgs, line: &'a CommandLine, interrupt: Interrupt, at_terminal: bool) -> Result<Self> {
        args.model.lengths().map_err(usage)?;
        let opened = Opened::open(&args.model.model, args.model.text.pre_tokenizer.as_deref())?;
        let vocab = opened.tokenizer().real_vocab_size();
        args.sampling.params(vocab).map_err(usage)?;
        args.stop.rules(opened.tokenizer().end_ids(), vocab, args.max_tokens).map_err(usage)?;
        let template = opened.checkpoint.chat_template()?.ok_or_else(|| {
            usage(format!("{} has no chat template; `spec generate` continues texts", args.model.model.display()))
        })?;
        let mut conversation = args.load.as_deref().map_or_else(|| Ok(Conversation::default()), Conversation::load)?;
        if args.system.is_some() {
            conversation.system.clone_from(&args.system);
        }
        let trained = opened.checkpoint.config().context_length;
        let context = args.context.unwrap_or_else(|| trained.min(CONTEXT));
        if context > trained || context == 0 {
            return Err(usage(format!("--context {context}: the model was trained for {trained} positions")));
        }
        let observers = Observers::open(&args.records, &args.model, &opened)?.keeping(args.last_run);
        let mut session = Session::load(&args.model, &opened, context)?;
        let engine = session.engine();
        let mut chat = Self {
            settings: Settings::new(line),
            template,
            session,
            engine,
            observers,
            text: Text::new(),
            conversation,
            choice: 0,
            context,
            stats: Stats::default(),
            interrupt,
            at_terminal,
            failed: false,
            opened,
            args,
        };
        chat.observe();
        Ok(chat)
    }

    /// Tells observers what answers from now on.
    fn observe(&mut self) {
        let Self { args, opened, session, context, .. } = &*self;
        let drafter = self.engine.drafter().unwrap_or("none");
        let run = Run::of("chat", &args.model, opened, session, (drafter, *context))
            .sampling(args.sampling.rule, args.sampling.temperature);
        self.observers.begin(&run);
        self.observers.watch(&run, self.session.notes.writer());
    }

    /// Answers turns until there are no more.
    fn converse(&mut self, mut input: Input) -> Result<ExitCode> {
        self.greet();
        let mut leaving = false;
        loop {
            self.interrupt.waiting();
            let typed = input.next()?;
            let interrupted = typed == Typed::Interrupted;
            match typed {
                Typed::End => break,
                Typed::Interrupted if leaving => break,
                Typed::Interrupted => note("Ctrl-C again, or Ctrl-D, leaves; during an answer it stops the answer"),
                Typed::Turn(text) => match self.hear(&text) {
                    Ok(true) => {}
                    Ok(false) => break,
                    // The reader of the answers has gone.
                    Err(error) if crate::is_broken_pipe(&error) => return Err(error),
                    Err(error) => {
                        self.failed = true;
                        note(&crate::one_line(&format!("{error:#}")));
                    }
                },
            }
            leaving = interrupted;
        }
        // At a terminal whoever typed has seen it; a script has not.
        Ok(ExitCode::from(u8::from(self.failed && !self.at_terminal)))
    }

    fn greet(&self) {
        if let Some(warning) = self.session.device.warning() {
            note(warning);
        }
        if self.at_terminal {
            let model = &self.session.target.config().name;
            let drafter = self.engine.drafter().unwrap_or("none");
            note(&format!("{model}; drafts: {drafter}; {} positions", self.context));
            note("/help lists commands; Ctrl-C stops an answer, Ctrl-D leaves");
        }
    }

    /// Does what a line asks for; `false` leaves.
    fn hear(&mut self, line: &str) -> Result<bool> {
        match command::read(line).map_err(|problem| anyhow!(problem))? {
            Line::Nothing => {}
            Line::Say(turn) => {
                self.choice = 0;
                self.ask(turn)?;
            }
            Line::Do(Command::Exit) => return Ok(false),
            Line::Do(command) => self.obey(command)?,
        }
        Ok(true)
    }

    fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Help => {
                for entry in COMMANDS {
                    eprintln!("  {:<22} {}", format!("/{} {}", entry.name, entry.takes), entry.does);
                }
                eprintln!(
                    "  A backslash at the end of a line, or \"\"\" before and after, makes turns of several lines."
                );
            }
            Command::Clear => {
                self.conversation.clear();
                self.text.clear(&mut self.engine);
            }
            Command::System(None) => note(self.conversation.system.as_deref().unwrap_or("no system message")),
            Command::System(Some(text)) => self.conversation.system = (text != "off").then_some(text),
            Command::Save(path) => {
                self.conversation.save(&path)?;
                note(&format!("{} turns are in {}", self.conversation.turns(), path.display()));
            }
            Command::Load(path) => {
                self.conversation = Conversation::load(&path)?;
                note(&format!("{} turns are from {}", self.conversation.turns(), path.display()));
            }
            Command::Retry => {
                let turn = self.conversation.undo().context("nothing was asked yet")?;
                self.choice += 1;
                let sampling = self.args.sampling.params(self.opened.tokenizer().real_vocab_size()).map_err(usage)?;
                if sampling.is_greedy() {
                    note("at temperature 0 the answer is always the same; /set temperature 0.8");
                }
                self.ask(turn)?;
            }
            Command::Undo => {
                let turn = self.conversation.undo().context("nothing was asked yet")?;
                note(&format!("taken back: {}", crate::one_line(&turn)));
            }
            Command::Set(None) => self.settings.show(),
            Command::Set(Some((name, value))) => self.set(&name, &value)?,
            Command::Stats => eprint!("{}", self.stats.text(self.context, self.text.tokens().len())),
            Command::Exit => {}
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let args = self.settings.with(name, value)?;
        let vocab = self.opened.tokenizer().real_vocab_size();
        args.model.lengths().map_err(usage)?;
        args.sampling.params(vocab).map_err(usage)?;
        args.stop.rules(self.opened.tokenizer().end_ids(), vocab, args.max_tokens).map_err(usage)?;
        if args.model.draft != self.args.model.draft {
            let mut session = self.session.redraft(&args.model, &self.opened, self.context)?;
            self.engine = session.engine();
            self.session = session;
            note(&format!("drafts: {}", self.engine.drafter().unwrap_or("none")));
        }
        self.args = args;
        self.settings.keep(name, value);
        self.observe();
        Ok(())
    }

    /// Answers a turn. One that cannot be answered is not kept.
    fn ask(&mut self, turn: String) -> Result<()> {
        self.conversation.ask(turn);
        match self.answer() {
            Ok(completion) if completion.finish == FinishReason::Cancelled && completion.tokens.is_empty() => {
                self.conversation.undo();
                note("stopped before the answer began; the turn is not kept");
                Ok(())
            }
            Ok(completion) => {
                self.conversation.answer(completion.text.clone());
                self.close(&completion)
            }
            Err(error) => {
                self.conversation.undo();
                Err(error)
            }
        }
    }

    /// Generates the answer to the conversation, and prints it as it comes.
    fn answer(&mut self) -> Result<Completion> {
        let prompt = self.prompt()?;
        let tokenizer = self.opened.tokenizer();
        let vocab = tokenizer.real_vocab_size();
        let cancel = self.interrupt.answering();
        let sampling = &self.args.sampling;
        let (rule, draft_len) = sampling.rule(self.args.model.lengths().map_err(usage)?);
        let request = Request {
            prompt,
            sampling: sampling.params(vocab).map_err(usage)?,
            seed: sampling.seed,
            choice: self.choice,
            stop: self.args.stop.rules(tokenizer.end_ids(), vocab, self.args.max_tokens).map_err(usage)?,
            rule,
            loss_budget: sampling.loss_budget,
            draft_len,
            draft_width: self.args.model.draft_width.unwrap_or(usize::MAX),
            logprobs: None,
            constraint: None,
            observers: self.observers.for_request(),
            cancel: cancel.clone(),
            tenant: crate::session::TENANT,
            draft_with: DraftWith::All,
        };
        let mut printer = match self.args.json {
            true => None,
            false => {
                let mut printer = Printer::new(OutputKind::Text, std::io::stdout(), cancel)?;
                if let Some(shown) = self.args.show.on(&std::io::stdout()) {
                    printer.show(shown, Arc::clone(&self.session.vocabulary) as _);
                }
                Some(printer)
            }
        };
        let result = self.text.generate(&mut self.engine, request, &mut |emitted| {
            if let Some(printer) = &mut printer {
                printer.print(emitted);
            }
        });
        printer.map_or(Ok(()), |printer| printer.finish(true))?;
        Ok(result?)
    }

    /// The tokens of the conversation, as the model's template writes it. They are made anew from its text at every turn, so that an
    /// answer is the one that a program started on the same conversation would give.
    fn prompt(&self) -> Result<Vec<Token>> {
        let prompt = self.opened.tokenizer().encode(&self.template.render(&self.conversation.messages())?, true)?;
        match prompt.len() < self.context {
            true => Ok(prompt),
            false => Err(anyhow!(
                "the conversation has {} tokens with this turn, and --context {} leaves no room for an answer; the turn is not \
                 kept: /undo or /clear makes room, or start with a larger --context",
                prompt.len(),
                self.context
            )),
        }
    }

    /// What is printed behind an answer.
    fn close(&mut self, completion: &Completion) -> Result<()> {
        let drafter = self.engine.drafter().unwrap_or("none");
        self.stats.add(completion, drafter);
        self.session.notes.print();
        if self.args.json {
            // It says why the answer ended, and all the rest.
            return Ok(writeln!(std::io::stdout(), "{}", report::json(completion, drafter, self.session.load))?);
        }
        if completion.text.is_empty() {
            // Who reads lines gets one for every turn.
            writeln!(std::io::stdout())?;
        }
        match completion.finish {
            FinishReason::Cancelled | FinishReason::Deadline => note("stopped; the answer stays as far as it came"),
            FinishReason::Length if completion.completion_tokens >= self.args.max_tokens => {
                note(&format!("cut at --max-tokens {}: /set max-tokens changes it", self.args.max_tokens));
            }
            FinishReason::Length => note("the context is full: /undo or /clear makes room"),
            FinishReason::Stop => {}
        }
        if let Some(shown) = self.args.show.on(&std::io::stdout()) {
            eprintln!("{}", color::legend(shown));
            eprintln!("{}", report::footer(completion, drafter, None));
        }
        Ok(())
    }
}

/// Something that is not part of an answer.
fn note(text: &str) {
    let dim = ColorKind::Auto.applies_to(&std::io::stderr());
    let (on, off) = if dim && std::io::stdin().is_terminal() { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
    eprintln!("{on}[{text}]{off}");
}
