//! From flags to an engine: files opened, models loaded, drafter chosen.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use spec_ascend::AscendStream;
use spec_core::{RowKernels, Token};
use spec_cpu::{CpuModel, Isa, LoadOptions, Pool};
use spec_model::{Checkpoint, Error, TokenKind, Tokenizer};
use spec_runtime::audit::PlainLaws;
use spec_runtime::{
    CachedDrafter, Chooser, DraftCache, Drafter, Engine, HostStream, LazyModel, Model, ModelConfig, ModelDrafter,
    NgramDrafter, RuntimeError, Stream, SuffixDrafter, TokenRole, TokenText, VocabularyMap, resident_memory,
};

use crate::args::{DraftKind, ModelArgs};
use crate::ascend::Ascend;
use crate::device::{CUDA_IS_NOT_BUILT, DeviceName};
use crate::memory::{Models, Room, Run};
use crate::record::{DraftFacts, ModelFacts};
use crate::storage::Storage;
use crate::{memory, pull, usage};

/// Whoever types at this program: what is kept of one text may be of use to the next. Measurements have no tenant, so that nothing of an
/// earlier run is used in a later one.
pub(crate) const TENANT: Option<u64> = Some(0);

/// A tokenizer, or its tokens alone, as the engine sees it.
pub(crate) struct Vocabulary<T = Tokenizer>(pub(crate) T);

impl<T: AsRef<spec_model::Vocabulary> + Send + Sync> TokenText for Vocabulary<T> {
    fn vocab(&self) -> usize {
        self.0.as_ref().real_len()
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        Cow::Owned(self.0.as_ref().bytes(token, false).unwrap_or_default())
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        Cow::Borrowed(self.0.as_ref().text(token).unwrap_or_default())
    }

    fn role(&self, token: Token) -> TokenRole {
        match self.0.as_ref().kind(token) {
            Ok(TokenKind::Normal | TokenKind::Byte) => TokenRole::Text,
            // Ids that no text uses mean nothing, whatever a converter called them.
            Ok(TokenKind::Unused) | Err(_) => TokenRole::Unused,
            Ok(_) => TokenRole::Marker,
        }
    }
}

/// A model file, opened and not yet loaded.
pub(crate) struct Opened {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) vocabulary: Arc<Vocabulary>,
}

impl Opened {
    /// Opens a file, or what `hf:ORG/REPO` names; `pre_tokenizer` overrides what the file says about splitting.
    pub(crate) fn open(path: &Path, pre_tokenizer: Option<&str>) -> Result<Self> {
        let checkpoint = Checkpoint::open(pull::resolve(path)?)?;
        let tokenizer = checkpoint.tokenizer_with(pre_tokenizer).map_err(|error| match error {
            Error::PreTokenizer { .. } => usage(format!("{error}: --pre-tokenizer NAME")),
            other => other.into(),
        })?;
        let vocabulary = Arc::new(Vocabulary(tokenizer));
        Ok(Self { checkpoint, vocabulary })
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.vocabulary.0
    }
}

/// Where models run.
#[derive(Clone)]
pub(crate) enum Device {
    Cpu(CpuDevice),
    Ascend(Arc<Ascend>),
}

impl Device {
    /// Opens what `--device` names.
    fn open(args: &ModelArgs, room: Room) -> Result<Self> {
        let Room { parallel, kv_tokens, .. } = room;
        match args.device {
            DeviceName::Cpu => Ok(Self::Cpu(CpuDevice { parallel, kv_tokens, ..CpuDevice::new(args.threads)? })),
            DeviceName::Cuda => Err(usage(CUDA_IS_NOT_BUILT)),
            name => Ok(Self::Ascend(Arc::new(Ascend::open(name, args.trace.is_some())?))),
        }
    }

    /// Loads a model, with the stream that its passes go to. `watch` is told what is loaded of how much, where that is known.
    fn load(
        &self,
        checkpoint: &Checkpoint,
        storage: Storage,
        context: usize,
        watch: &dyn Fn(usize, usize),
    ) -> Result<(Arc<dyn Model>, Option<AscendStream>)> {
        match self {
            Self::Cpu(device) => Ok((device.load_watched(checkpoint, storage, context, watch)?, None)),
            Self::Ascend(device) => {
                let stream = device.stream()?;
                Ok((device.load(&stream, checkpoint, storage, context)?, Some(stream)))
            }
        }
    }

    /// Loads a draft model: on the processor when it is first used, behind the first token.
    fn load_draft(
        &self,
        checkpoint: Checkpoint,
        storage: Storage,
        context: usize,
        notes: &Notes,
    ) -> Result<(Arc<dyn Model>, Option<AscendStream>)> {
        match self {
            Self::Cpu(device) => Ok((Arc::new(device.load_later(checkpoint, storage, context, notes.clone())?), None)),
            Self::Ascend(_) => self.load(&checkpoint, storage, context, &|_, _| {}),
        }
    }

    /// What a run will take of the processor's memory; refuses what `--mem-limit` does not allow.
    fn check_memory(
        &self,
        args: &ModelArgs,
        target: &Checkpoint,
        draft: Option<(&Checkpoint, Storage)>,
        room: Room,
    ) -> Result<Option<Run>> {
        match self {
            Self::Cpu(device) => {
                let (outline, draft) = (target.outline(), draft.map(|(draft, storage)| (draft.outline(), storage)));
                let models = Models {
                    device,
                    target: (&outline, args.storage.into()),
                    draft: draft.as_ref().map(|(outline, storage)| (outline, *storage)),
                    // The vocabulary is there by now, which is most of what the program takes for itself.
                    program: resident_memory().unwrap_or(0),
                };
                memory::check(args.mem_limit, &models, room, target.name())?;
                models.run(models.choice(room)).map(Some)
            }
            Self::Ascend(_) if args.mem_limit.is_some() => Err(usage(
                "--mem-limit is for --device cpu; on Ascend a model that does not fit is refused with its plan in any case",
            )),
            Self::Ascend(_) => Ok(None),
        }
    }

    /// What to tell a user whose device runs slowly.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        match self {
            Self::Cpu(device) => device.warning(),
            Self::Ascend(_) => None,
        }
    }
}

/// The processor: one pool of threads, one family of kernels.
#[derive(Clone)]
pub(crate) struct CpuDevice {
    pool: Arc<Pool>,
    isa: Isa,
    /// Texts at a time, and tokens of all of them.
    parallel: usize,
    kv_tokens: Option<usize>,
}

impl CpuDevice {
    /// For one text at a time.
    pub(crate) fn new(threads: Option<usize>) -> Result<Self> {
        let threads = match threads {
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let (pool, isa) = (Arc::new(Pool::new(threads)?), Isa::from_environment()?);
        Ok(Self { pool, isa, parallel: 1, kv_tokens: None })
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// What to tell a user whose machine runs the slow kernels.
    fn warning(&self) -> Option<&'static str> {
        (self.isa == Isa::Portable)
            .then_some("portable kernels ran, at about a tenth of the speed, where drafts do not pay: this machine has no AVX2, or SPEC_CPU_ISA asks for them")
    }

    /// Loads a model for sequences of `context` positions and shows progress on a terminal.
    pub(crate) fn load(&self, checkpoint: &Checkpoint, storage: Storage, context: usize) -> Result<Arc<CpuModel>> {
        self.load_watched(checkpoint, storage, context, &|_, _| {})
    }

    /// The same, with somebody who is told of the progress too.
    fn load_watched(
        &self,
        checkpoint: &Checkpoint,
        storage: Storage,
        context: usize,
        watch: &dyn Fn(usize, usize),
    ) -> Result<Arc<CpuModel>> {
        let name = checkpoint.name().to_owned();
        let bar = ProgressBar::new(0).with_style(progress_style()).with_message(format!("loading {name}"));
        let mut progress = |done: usize, total: usize| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            watch(done, total);
        };
        let mut options = self.options(storage, context)?;
        options.progress = Some(&mut progress);
        let model = CpuModel::load(checkpoint, options).with_context(|| name.clone());
        bar.finish_and_clear();
        let model = model?;
        for note in model.notes() {
            eprintln!("{name}: {note}");
        }
        Ok(Arc::new(model))
    }

    /// A model that is loaded when it is first used. An answer is being printed then: what there is to say waits in `notes`.
    fn load_later(&self, checkpoint: Checkpoint, storage: Storage, context: usize, notes: Notes) -> Result<LazyModel> {
        let config = checkpoint.config();
        let will_be = ModelConfig {
            name: config.name.clone(),
            device: "cpu".to_owned(),
            vocab: config.vocab_size,
            context,
            max_rows: self.options(storage, context)?.max_rows,
        };
        let device = self.clone();
        Ok(LazyModel::new(will_be, move || {
            let name = checkpoint.name();
            let failed = |reason: String| RuntimeError::Device { device: name.to_owned(), reason };
            let options = device.options(storage, context).map_err(|error| failed(error.to_string()))?;
            let model = CpuModel::load(&checkpoint, options).map_err(|error| failed(error.to_string()))?;
            notes.extend(model.notes().iter().map(|note| format!("{name}: {note}")));
            Ok(Arc::new(model))
        }))
    }

    /// How a model is loaded.
    pub(crate) fn options<'a>(&self, storage: Storage, context: usize) -> Result<LoadOptions<'a>> {
        let mut options = LoadOptions::new(Arc::clone(&self.pool));
        storage.apply(&mut options)?;
        options.context = Some(context);
        (options.parallel, options.kv_tokens) = (self.parallel, self.kv_tokens);
        options.isa = Some(self.isa);
        Ok(options)
    }
}

/// What is to be said when the answer is out.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn extend(&self, notes: impl Iterator<Item = String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(notes);
    }

    /// Adds a line from anywhere.
    pub(crate) fn writer(&self) -> impl Fn(String) + Send + Sync + 'static {
        let notes = self.clone();
        move |note| notes.extend(std::iter::once(note))
    }

    /// Says it on standard error, once.
    pub(crate) fn print(&self) {
        for note in self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            eprintln!("{note}");
        }
    }
}

pub(crate) fn progress_style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Target and drafter, ready to generate.
pub(crate) struct Session {
    pub(crate) device: Device,
    pub(crate) target: Arc<dyn Model>,
    /// Where the target's passes go; `None` is the host's.
    stream: Option<AscendStream>,
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) drafter: Option<Box<dyn Drafter>>,
    /// The draft model, where its ids are the target's.
    draft_model: Option<(Arc<dyn Model>, Option<AscendStream>)>,
    /// The draft model, where one drafts.
    pub(crate) draft: Option<DraftFacts>,
    pub(crate) load: Duration,
    pub(crate) notes: Notes,
    /// What the run takes of the processor's memory; `None` where another device was chosen, or the models were there.
    pub(crate) plan: Option<Run>,
}

impl Session {
    /// Loads what the flags name, for the texts that there is to be room for. `opened` is the target's file. A draft model is opened and
    /// compared with the target, so that files that do not fit are refused here; it is loaded behind the first token.
    pub(crate) fn load(args: &ModelArgs, opened: &Opened, room: impl Into<Room>) -> Result<Self> {
        Self::load_watched(args, opened, room, &|_, _| {})
    }

    /// The same; `watch` is told of the target how much is loaded of how much, in bytes.
    pub(crate) fn load_watched(
        args: &ModelArgs,
        opened: &Opened,
        room: impl Into<Room>,
        watch: &dyn Fn(usize, usize),
    ) -> Result<Self> {
        Self::build(args, opened, room.into(), None, watch)
    }

    /// The same target with the drafters that `args` name.
    pub(crate) fn redraft(&self, args: &ModelArgs, opened: &Opened, context: usize) -> Result<Self> {
        let loaded = (self.device.clone(), Arc::clone(&self.target), self.stream.clone());
        Self::build(args, opened, context.into(), Some(loaded), &|_, _| {})
    }

    fn build(
        args: &ModelArgs,
        opened: &Opened,
        room: Room,
        loaded: Option<(Device, Arc<dyn Model>, Option<AscendStream>)>,
        watch: &dyn Fn(usize, usize),
    ) -> Result<Self> {
        let (begun, context) = (Instant::now(), room.context);
        let draft = DraftSource::choose(args)?;
        let draft_file = match draft.model {
            Some(path) => Some(DraftFile::open(path, opened, args.allow_vocab_mismatch)?),
            None if draft.itself => {
                Some(DraftFile { checkpoint: Checkpoint::open(pull::resolve(&args.model)?)?, map: None })
            }
            None => None,
        };
        let draft_storage = Storage::of_draft(args.storage, args.draft_storage);
        // A copy of the target is there to be compared with it, token for token.
        let has_shortlist = draft_file.as_ref().is_some_and(|file| file.map.is_some());
        let draft_storage = Storage { trimmed_head: draft_storage.trimmed_head && has_shortlist, ..draft_storage };
        let mut plan = None;
        let (device, target, stream) = match loaded {
            Some(loaded) => loaded,
            None => {
                let device = Device::open(args, room)?;
                let draft = draft_file.as_ref().map(|file| (&file.checkpoint, draft_storage));
                plan = device.check_memory(args, &opened.checkpoint, draft, room)?;
                let (target, stream) = device.load(&opened.checkpoint, args.storage.into(), context, watch)?;
                (device, target, stream)
            }
        };
        let mut drafters: Vec<Box<dyn Drafter>> = Vec::new();
        if draft.suffix {
            drafters.push(Box::new(SuffixDrafter::new()));
        }
        if draft.ngram {
            drafters.push(Box::new(NgramDrafter::new()));
        }
        let notes = Notes::default();
        let mut draft_model = None;
        let facts = draft_file.as_ref().map(|file| file.facts(opened));
        if let Some(DraftFile { checkpoint, map }) = draft_file {
            // A draft model with a smaller context of its own stops drafting there; it need not hold more.
            let own = context.min(checkpoint.config().context_length);
            if own < context {
                let name = checkpoint.name();
                eprintln!("{name}: it holds {own} of {context} positions; behind them it drafts nothing");
            }
            let (model, stream) = device.load_draft(checkpoint, draft_storage, own, &notes)?;
            if map.as_ref().is_none_or(VocabularyMap::is_identity) {
                draft_model = Some((Arc::clone(&model), stream.clone()));
            }
            let mut drafter = ModelDrafter::new(model);
            if let Some(stream) = stream {
                drafter = drafter.on_stream(Box::new(stream));
            }
            let drafter = Box::new(match map {
                Some(map) => drafter.with_vocabulary(map).with_shortlist(),
                None => drafter,
            });
            drafters.push(match args.draft_cache.0 {
                0 => drafter,
                bytes => Box::new(CachedDrafter::new(drafter, Arc::new(DraftCache::new("drafts", bytes)))),
            });
        }
        let drafter = (!drafters.is_empty()).then(|| Box::new(Chooser::new(drafters)) as Box<dyn Drafter>);
        let vocabulary = Arc::clone(&opened.vocabulary);
        Ok(Self {
            device,
            target,
            stream,
            vocabulary,
            drafter,
            draft_model,
            draft: facts,
            load: begun.elapsed(),
            notes,
            plan,
        })
    }

    /// What goes through rows of logits: the host, wherever they come from.
    fn row_kernels(&self) -> Arc<dyn RowKernels> {
        spec_cpu::row_kernels(match &self.device {
            Device::Cpu(device) => device.isa(),
            Device::Ascend(_) => Isa::detect(),
        })
    }

    /// The laws that plain decoding of the target has, over `vocab` tokens.
    pub(crate) fn plain_laws(&self, vocab: usize) -> PlainLaws {
        self.laws(&self.target, self.stream.as_ref(), vocab)
    }

    /// The same of the draft model, if there is one over the same tokens.
    pub(crate) fn draft_laws(&self, vocab: usize) -> Option<PlainLaws> {
        let (model, stream) = self.draft_model.as_ref().filter(|(model, _)| model.config().vocab >= vocab)?;
        Some(self.laws(model, stream.as_ref(), vocab))
    }

    fn laws(&self, model: &Arc<dyn Model>, stream: Option<&AscendStream>, vocab: usize) -> PlainLaws {
        PlainLaws::new(Arc::clone(model), vocab).with_row_kernels(self.row_kernels()).on_stream(on(stream))
    }

    /// Where passes of the target go.
    pub(crate) fn stream(&self) -> Box<dyn Stream> {
        on(self.stream.as_ref())
    }

    /// An engine over the target that does not speculate.
    pub(crate) fn plain_engine(&self) -> Engine {
        let vocabulary = Arc::clone(&self.vocabulary) as Arc<dyn TokenText>;
        Engine::new(Arc::clone(&self.target), vocabulary).with_row_kernels(self.row_kernels()).on_stream(self.stream())
    }

    /// The engine that the flags ask for. The drafter goes with it.
    pub(crate) fn engine(&mut self) -> Engine {
        match self.drafter.take() {
            Some(drafter) => self.plain_engine().with_drafter(drafter),
            None => self.plain_engine(),
        }
    }
}

/// A stream of a device, or the host's.
fn on(stream: Option<&AscendStream>) -> Box<dyn Stream> {
    match stream {
        Some(stream) => Box::new(stream.clone()),
        None => Box::new(HostStream),
    }
}

/// A draft model's file, opened and not yet loaded.
struct DraftFile {
    checkpoint: Checkpoint,
    /// `None` for the target's own file.
    map: Option<VocabularyMap>,
}

impl DraftFile {
    /// Opens a file and compares its tokens with the target's, for which no tokenizer has to be built.
    fn open(path: &Path, target: &Opened, may_differ: bool) -> Result<Self> {
        let checkpoint = Checkpoint::open(pull::resolve(path)?)?;
        let tokens = Vocabulary(checkpoint.vocabulary()?);
        let target = || Arc::clone(&target.vocabulary) as Arc<dyn TokenText>;
        let map = match VocabularyMap::new(target(), &tokens) {
            Err(RuntimeError::VocabularyDiffers { .. }) if may_differ => {
                let map = VocabularyMap::intersection(target(), &tokens).with_context(|| path.display().to_string())?;
                eprintln!("{}: {} of the target's {} tokens", path.display(), map.shared(), target().vocab());
                map
            }
            Err(error) => return Err(anyhow!("{}: {error}: --allow-vocab-mismatch", path.display())),
            Ok(map) => {
                for note in map.notes() {
                    eprintln!("{}: {note}", path.display());
                }
                map
            }
        };
        Ok(Self { checkpoint, map: Some(map) })
    }

    /// What is told of it.
    fn facts(&self, target: &Opened) -> DraftFacts {
        let share = |map: &VocabularyMap| map.shared() as f64 / target.vocabulary.vocab().max(1) as f64;
        let shared_vocabulary = self.map.as_ref().map_or(1.0, share);
        DraftFacts { model: ModelFacts::of(&self.checkpoint), shared_vocabulary }
    }
}

/// The drafters that the flags ask for.
#[derive(Default)]
struct DraftSource<'a> {
    suffix: bool,
    ngram: bool,
    itself: bool,
    model: Option<&'a Path>,
}

impl<'a> DraftSource<'a> {
    fn choose(args: &'a ModelArgs) -> Result<Self> {
        let (none, model) = (Self::default(), args.draft_model.as_deref());
        Ok(match args.draft {
            DraftKind::None => none,
            DraftKind::Itself => Self { itself: true, ..none },
            DraftKind::Ngram => Self { ngram: true, ..none },
            DraftKind::Suffix => Self { suffix: true, ..none },
            DraftKind::Auto => Self { suffix: true, ngram: true, model, ..none },
            DraftKind::Model if model.is_some() => Self { model, ..none },
            DraftKind::Model => return Err(usage("--draft model needs a file: give --draft-model FILE")),
        })
    }
}
