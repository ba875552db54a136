//! From choices to an engine, and from requests to tokens. Nothing here knows of C but the texts of a description.

use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use spec_ascend::{AscendDevice, AscendModel, AscendStream};
use spec_core::{Fixed, LengthPolicyName, RuleName, SamplingParams, Token};
use spec_cpu::{CpuModel, Isa, Pool};
use spec_model::{Checkpoint, Tokenizer};
use spec_runtime::{
    CancelToken, Chooser, Drafter, Emitted, Engine, FinishReason, Model, ModelDrafter, NgramDrafter, Request,
    StopRules, SuffixDrafter, TokenText, VocabularyMap,
};

use crate::ascend::{CallersContext, Started, Wanted};
use crate::error::Error;
use crate::types::{spec_description, spec_finish, spec_request, spec_result};
use crate::vocabulary::Vocabulary;

/// Positions that are made room for unless the caller says otherwise: models that were trained for a hundred thousand would take
/// gigabytes.
const DEFAULT_CONTEXT: usize = 4096;

/// What to load.
pub(crate) struct LoadChoices<'a> {
    pub(crate) model: &'a str,
    pub(crate) draft_model: Option<&'a str>,
    pub(crate) draft: Option<&'a str>,
    pub(crate) device: Option<&'a str>,
    pub(crate) library: Option<&'a str>,
    pub(crate) context: usize,
    pub(crate) threads: usize,
}

/// What to generate; `request` has the numbers.
pub(crate) struct RequestChoices<'a> {
    pub(crate) prompt: Option<&'a str>,
    pub(crate) prompt_tokens: Option<&'a [Token]>,
    pub(crate) end_tokens: Option<&'a [Token]>,
    pub(crate) rule: Option<&'a str>,
    pub(crate) request: &'a spec_request,
}

/// A loaded target with its drafter.
pub(crate) struct Loaded {
    /// Taken by the generation that goes on.
    engine: Mutex<Engine>,
    /// Of the generation that goes on.
    cancel: Mutex<Option<CancelToken>>,
    vocabulary: Arc<Vocabulary>,
    texts: Texts,
    context: usize,
    /// Last, since it may end what the engine uses.
    ascend: Option<Arc<Started>>,
}

/// Texts that a description points to.
struct Texts {
    model: CString,
    device: CString,
    drafter: Option<CString>,
}

/// Where models run.
enum Device {
    Cpu { pool: Arc<Pool>, isa: Isa },
    Ascend(AscendDevice, Arc<Started>),
}

impl Device {
    fn open(choices: &LoadChoices<'_>) -> Result<Self, Error> {
        let name = choices.device.unwrap_or("cpu");
        let unknown =
            || Error::argument("options.device", format!("is `{name}`: give cpu, ascend, ascend:N or ascend-sim"));
        let (number, simulator) = match name {
            "cpu" => return Self::cpu(choices.threads),
            "ascend" => (0, false),
            "ascend-sim" => (0, true),
            _ => (name.strip_prefix("ascend:").and_then(|number| number.parse().ok()).ok_or_else(unknown)?, false),
        };
        let started = Started::get(&Wanted { simulator, library: choices.library.map(str::to_owned) }, name)?;
        let _caller = CallersContext::keep(&started);
        let device = started.open(number, name)?;
        Ok(Self::Ascend(device, Arc::clone(&started)))
    }

    fn cpu(threads: usize) -> Result<Self, Error> {
        let threads = if threads > 0 { threads } else { std::thread::available_parallelism().map_or(1, usize::from) };
        let pool = Pool::new(threads).map_err(|error| Error::device("cpu", error))?;
        let isa = Isa::from_environment().map_err(|error| Error::device("cpu", error))?;
        Ok(Self::Cpu { pool: Arc::new(pool), isa })
    }

    /// Loads a model, with the stream that its passes go to.
    fn load(
        &self,
        path: &str,
        checkpoint: &Checkpoint,
        context: usize,
    ) -> Result<(Arc<dyn Model>, Option<AscendStream>), Error> {
        match self {
            Self::Cpu { pool, isa } => {
                let mut options = spec_cpu::LoadOptions::new(Arc::clone(pool));
                options.context = Some(context);
                options.isa = Some(*isa);
                let model = CpuModel::load(checkpoint, options).map_err(|error| Error::model(path, error))?;
                Ok((Arc::new(model), None))
            }
            Self::Ascend(device, _) => {
                let stream = AscendStream::new(device).map_err(|error| Error::device(device.name(), error))?;
                let mut options = spec_ascend::LoadOptions::default();
                options.context = Some(context);
                let model = AscendModel::load(checkpoint, &stream, options);
                let model = model.map_err(|error| Error::device(device.name(), format!("{path}: {error}")))?;
                Ok((Arc::new(model), Some(stream)))
            }
        }
    }

    /// The kernels for rows of logits, which are the host's to go through wherever they come from.
    fn row_isa(&self) -> Isa {
        match self {
            Self::Cpu { isa, .. } => *isa,
            Self::Ascend(..) => Isa::detect(),
        }
    }
}

/// Who drafts.
struct DraftChoice {
    copies: bool,
    ngram: bool,
    model: bool,
}

impl DraftChoice {
    fn new(choices: &LoadChoices<'_>) -> Result<Self, Error> {
        let has_model = choices.draft_model.is_some();
        let choice = |copies, ngram, model| Ok(Self { copies, ngram, model });
        match choices.draft.unwrap_or("auto") {
            "auto" => choice(true, true, has_model),
            "none" => choice(false, false, false),
            "suffix" => choice(true, false, false),
            "ngram" => choice(false, true, false),
            "model" if has_model => choice(false, false, true),
            "model" => {
                Err(Error::argument("options.draft", "is `model`, and options.draft_model is null: name a file"))
            }
            other => {
                Err(Error::argument("options.draft", format!("is `{other}`: give auto, model, suffix, ngram or none")))
            }
        }
    }
}

/// Loads what is asked for.
pub(crate) fn load(choices: &LoadChoices<'_>) -> Result<Loaded, Error> {
    let draft = DraftChoice::new(choices)?;
    let (checkpoint, tokenizer) = open(choices.model)?;
    let vocabulary = Arc::new(Vocabulary(tokenizer));
    let draft_file = match choices.draft_model.filter(|_| draft.model) {
        Some(path) => Some(DraftFile::open(path, &vocabulary)?),
        None => None,
    };
    let trained = checkpoint.config().context_length;
    let context = if choices.context > 0 { choices.context } else { trained.min(DEFAULT_CONTEXT) };
    if context > trained {
        let reason = format!("is {context}, and {} was trained for {trained} positions", choices.model);
        return Err(Error::argument("options.context", reason));
    }

    let device = Device::open(choices)?;
    let ascend = match &device {
        Device::Ascend(_, started) => Some(Arc::clone(started)),
        Device::Cpu { .. } => None,
    };
    let caller = ascend.as_deref().map(CallersContext::keep);
    let built = build(choices, &draft, (&checkpoint, draft_file), &vocabulary, &device, context);
    drop(device);
    drop(caller);
    let (engine, target) = match (built, ascend.clone()) {
        (Ok(built), _) => built,
        (Err(error), Some(started)) => {
            drop(ascend);
            started.release(());
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    let config = target.config();
    let texts = Texts {
        model: c_text(checkpoint.name()),
        device: c_text(&config.device),
        drafter: engine.drafter().map(c_text),
    };
    Ok(Loaded { engine: Mutex::new(engine), cancel: Mutex::default(), vocabulary, texts, context, ascend })
}

/// The engine, and the target in it.
fn build(
    choices: &LoadChoices<'_>,
    draft: &DraftChoice,
    (checkpoint, draft_file): (&Checkpoint, Option<DraftFile<'_>>),
    vocabulary: &Arc<Vocabulary>,
    device: &Device,
    context: usize,
) -> Result<(Engine, Arc<dyn Model>), Error> {
    let (target, stream) = device.load(choices.model, checkpoint, context)?;
    let text = Arc::clone(vocabulary) as Arc<dyn TokenText>;
    let mut engine = Engine::new(Arc::clone(&target), text).with_row_kernels(spec_cpu::row_kernels(device.row_isa()));
    if let Some(stream) = stream {
        engine = engine.on_stream(Box::new(stream));
    }
    let mut drafters: Vec<Box<dyn Drafter>> = Vec::new();
    if draft.copies {
        drafters.push(Box::new(SuffixDrafter::new()));
    }
    if draft.ngram {
        drafters.push(Box::new(NgramDrafter::new()));
    }
    if let Some(file) = draft_file {
        drafters.push(file.load(device, context)?);
    }
    if !drafters.is_empty() {
        engine = engine.with_drafter(Box::new(Chooser::new(drafters)));
    }
    Ok((engine, target))
}

fn open(path: &str) -> Result<(Checkpoint, Tokenizer), Error> {
    let checkpoint = Checkpoint::open(path).map_err(|error| Error::model(path, error))?;
    let tokenizer = checkpoint.tokenizer().map_err(|error| Error::model(path, error))?;
    Ok((checkpoint, tokenizer))
}

/// A text for C. Ours have no NUL but in a file's metadata, and end there.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// A draft model's file, compared with the target and not yet loaded.
struct DraftFile<'a> {
    path: &'a str,
    checkpoint: Checkpoint,
    map: VocabularyMap,
}

impl<'a> DraftFile<'a> {
    fn open(path: &'a str, target: &Arc<Vocabulary>) -> Result<Self, Error> {
        let checkpoint = Checkpoint::open(path).map_err(|error| Error::model(path, error))?;
        let tokens = Vocabulary(checkpoint.vocabulary().map_err(|error| Error::model(path, error))?);
        let map = VocabularyMap::new(Arc::clone(target) as Arc<dyn TokenText>, &tokens);
        let map = map.map_err(|error| Error::model(path, error))?;
        Ok(Self { path, checkpoint, map })
    }

    fn load(self, device: &Device, context: usize) -> Result<Box<dyn Drafter>, Error> {
        // One with a smaller context stops drafting there.
        let own = context.min(self.checkpoint.config().context_length);
        let (model, stream) = device.load(self.path, &self.checkpoint, own)?;
        let mut drafter = ModelDrafter::new(model).with_vocabulary(self.map);
        if let Some(stream) = stream {
            drafter = drafter.on_stream(Box::new(stream));
        }
        Ok(Box::new(drafter.with_shortlist()))
    }
}

impl Loaded {
    pub(crate) fn description(&self) -> spec_description {
        let end_token = self.vocabulary.0.end_ids().first();
        spec_description {
            model: self.texts.model.as_ptr(),
            device: self.texts.device.as_ptr(),
            drafter: self.texts.drafter.as_ref().map_or(std::ptr::null(), |name| name.as_ptr()),
            vocab: self.vocabulary.vocab(),
            context: self.context,
            end_token: end_token.map_or(-1, |&id| i64::from(id)),
        }
    }

    /// Runs a request; `on_token` says whether to go on.
    pub(crate) fn generate(
        &self,
        choices: &RequestChoices<'_>,
        on_token: &mut dyn FnMut(&Emitted) -> bool,
    ) -> Result<spec_result, Error> {
        let mut engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::WouldBlock) => return Err(Error::Busy),
            Err(TryLockError::Poisoned(_)) => return Err(Error::Broken),
        };
        let request = self.request(choices)?;
        let cancel = request.cancel.clone();
        *self.cancelling() = Some(cancel.clone());
        let _caller = self.ascend.as_deref().map(CallersContext::keep);
        let outcome = engine.generate(request, &mut |emitted| {
            // Tokens of a block that come behind a refusal are not told any more.
            if !cancel.is_cancelled() && !on_token(emitted) {
                cancel.cancel();
            }
        });
        *self.cancelling() = None;
        let completion = outcome?;
        let finish = match completion.finish {
            FinishReason::Stop => spec_finish::Stop,
            FinishReason::Length => spec_finish::Length,
            // From outside, whoever it was.
            _ => spec_finish::Cancelled,
        };
        Ok(spec_result {
            finish,
            prompt_tokens: completion.prompt_tokens,
            completion_tokens: completion.completion_tokens,
            rounds: completion.speculation.rounds,
            drafted: completion.speculation.drafted,
            accepted: completion.speculation.accepted,
            prefill_seconds: completion.timings.prefill.as_secs_f64(),
            decode_seconds: completion.timings.decode.as_secs_f64(),
        })
    }

    fn request(&self, choices: &RequestChoices<'_>) -> Result<Request, Error> {
        let numbers = choices.request;
        let prompt = match (choices.prompt, choices.prompt_tokens) {
            (Some(text), None) => {
                let encoded = self.vocabulary.0.encode(text, true);
                encoded.map_err(|error| Error::argument("request.prompt", error.to_string()))?
            }
            (None, Some(tokens)) => tokens.to_vec(),
            (None, None) => {
                return Err(Error::argument("request.prompt", "and request.prompt_tokens are null: give one"));
            }
            (Some(_), Some(_)) => {
                return Err(Error::argument("request.prompt", "and request.prompt_tokens are both given: give one"));
            }
        };
        let mut request = Request::new(prompt, numbers.max_tokens);
        request.sampling = SamplingParams {
            temperature: numbers.temperature,
            top_k: numbers.top_k,
            top_p: numbers.top_p,
            min_p: numbers.min_p,
            ..SamplingParams::default()
        };
        request.seed = Some(numbers.seed);
        request.draft_len = match numbers.draft_len {
            0 => LengthPolicyName::default().build(),
            tokens => Box::new(Fixed(tokens)),
        };
        let end_ids = choices.end_tokens.unwrap_or(self.vocabulary.0.end_ids()).to_vec();
        request.stop = StopRules { end_ids, ..request.stop };
        if let Some(rule) = choices.rule {
            let name: RuleName =
                rule.parse().map_err(|error| Error::argument("request.rule", format!("is `{rule}`: {error}")))?;
            request.rule = Some(name.into());
        }
        Ok(request)
    }

    /// Ends the generation that goes on.
    pub(crate) fn cancel(&self) {
        if let Some(cancel) = &*self.cancelling() {
            cancel.cancel();
        }
    }

    fn cancelling(&self) -> std::sync::MutexGuard<'_, Option<CancelToken>> {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees everything.
    pub(crate) fn free(self) {
        let Self { engine, ascend, .. } = self;
        match ascend {
            Some(started) => started.release(engine),
            None => drop(engine),
        }
    }
}
