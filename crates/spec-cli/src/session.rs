//! From flags to an engine: files opened, models loaded, drafter chosen.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use spec_core::Token;
use spec_cpu::{CpuModel, Isa, KvType, LoadOptions, Pool};
use spec_model::{Checkpoint, Error, Quantizer, TokenKind, Tokenizer};
use spec_runtime::{
    Chooser, Drafter, Engine, Model, ModelDrafter, NgramDrafter, SuffixDrafter, TokenText, check_vocabularies,
};

use crate::args::{DraftKind, KvKind, ModelArgs, QuantKind, StorageArgs};
use crate::{memory, pull, usage};

/// A tokenizer as the engine sees it.
pub(crate) struct Vocabulary(pub(crate) Tokenizer);

impl TokenText for Vocabulary {
    fn vocab(&self) -> usize {
        self.0.real_vocab_size()
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        Cow::Owned(self.0.token_bytes(token, false).unwrap_or_default())
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        // Ids that no text uses mean nothing, whatever a converter called them.
        match self.0.token_kind(token) {
            Ok(TokenKind::Unused) | Err(_) => Cow::Borrowed(""),
            Ok(_) => Cow::Borrowed(self.0.token_text(token).unwrap_or_default()),
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

/// The device: one pool of threads, one family of kernels.
#[derive(Clone)]
pub(crate) struct Device {
    pool: Arc<Pool>,
    isa: Isa,
}

impl Device {
    pub(crate) fn new(threads: Option<usize>) -> Result<Self> {
        let threads = match threads {
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        Ok(Self { pool: Arc::new(Pool::new(threads)?), isa: Isa::from_environment()? })
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// What to tell a user whose machine runs the slow kernels.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        (self.isa == Isa::Portable)
            .then_some("portable kernels ran, at about a tenth of the speed, where drafts do not pay: this machine has no AVX2, or SPEC_CPU_ISA asks for them")
    }

    /// Loads a model for sequences of `context` positions and shows progress on a terminal.
    pub(crate) fn load(&self, checkpoint: &Checkpoint, storage: StorageArgs, context: usize) -> Result<Arc<CpuModel>> {
        let name = checkpoint.name().to_owned();
        let bar = ProgressBar::new(0).with_style(progress_style()).with_message(format!("loading {name}"));
        let mut progress = |done: usize, total: usize| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        };
        let mut options = self.options(storage, context);
        options.progress = Some(&mut progress);
        let model = CpuModel::load(checkpoint, options).with_context(|| name.clone());
        bar.finish_and_clear();
        let model = model?;
        for note in model.notes() {
            eprintln!("{name}: {note}");
        }
        Ok(Arc::new(model))
    }

    /// How a model is loaded.
    pub(crate) fn options<'a>(&self, storage: StorageArgs, context: usize) -> LoadOptions<'a> {
        let mut options = LoadOptions::new(Arc::clone(&self.pool));
        options.kv = kv_type(storage.kv);
        options.quant = storage.quant.map(quantizer);
        options.context = Some(context);
        options.isa = Some(self.isa);
        options
    }
}

fn progress_style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

pub(crate) fn kv_type(kv: KvKind) -> KvType {
    match kv {
        KvKind::F16 => KvType::F16,
        KvKind::F32 => KvType::F32,
        KvKind::Q8 => KvType::Q8,
    }
}

fn quantizer(quant: QuantKind) -> Quantizer {
    match quant {
        QuantKind::Q8_0 => Quantizer::Q8_0,
        QuantKind::Q4_0 => Quantizer::Q4_0,
        QuantKind::Q4K => Quantizer::Q4K,
    }
}

/// Target and drafter, ready to generate.
pub(crate) struct Session {
    pub(crate) device: Device,
    pub(crate) target: Arc<CpuModel>,
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) drafter: Option<Box<dyn Drafter>>,
    pub(crate) load: Duration,
}

impl Session {
    /// Loads what the flags name, for sequences of `context` positions. `opened` is the target's file.
    pub(crate) fn load(args: &ModelArgs, opened: &Opened, context: usize) -> Result<Self> {
        Self::build(args, opened, context, None)
    }

    /// The same target with the drafters that `args` name.
    pub(crate) fn redraft(&self, args: &ModelArgs, opened: &Opened, context: usize) -> Result<Self> {
        Self::build(args, opened, context, Some((self.device.clone(), Arc::clone(&self.target))))
    }

    fn build(
        args: &ModelArgs,
        opened: &Opened,
        context: usize,
        loaded: Option<(Device, Arc<CpuModel>)>,
    ) -> Result<Self> {
        let begun = Instant::now();
        let draft = DraftSource::choose(args)?;
        let draft_file = match draft.model {
            Some(path) => {
                let draft = Opened::open(path, args.text.pre_tokenizer.as_deref())?;
                check_vocabularies(&*opened.vocabulary, &*draft.vocabulary)
                    .with_context(|| path.display().to_string())?;
                Some(draft)
            }
            None if draft.itself => Some(Opened::open(&args.model, args.text.pre_tokenizer.as_deref())?),
            None => None,
        };
        let (device, target) = match loaded {
            Some(loaded) => loaded,
            None => {
                let device = Device::new(args.threads)?;
                let draft = draft_file.as_ref().map(|file| &file.checkpoint);
                memory::check(args, &device, &opened.checkpoint, draft, context)?;
                let target = device.load(&opened.checkpoint, args.storage, context)?;
                (device, target)
            }
        };
        let mut drafters: Vec<Box<dyn Drafter>> = Vec::new();
        if draft.suffix {
            drafters.push(Box::new(SuffixDrafter::new()));
        }
        if draft.ngram {
            drafters.push(Box::new(NgramDrafter::new()));
        }
        if let Some(file) = draft_file {
            // A draft model with a smaller context of its own stops drafting there; it need not hold more.
            let own = context.min(file.checkpoint.config().context_length);
            if own < context {
                let name = file.checkpoint.name();
                eprintln!("{name}: it holds {own} of {context} positions; behind them it drafts nothing");
            }
            let model = device.load(&file.checkpoint, args.storage, own)?;
            let drafter = ModelDrafter::new(model);
            // A copy of the target is there to be compared with it, token for token.
            drafters.push(Box::new(if draft.itself { drafter } else { drafter.with_shortlist()? }));
        }
        let drafter = (!drafters.is_empty()).then(|| Box::new(Chooser::new(drafters)) as Box<dyn Drafter>);
        let vocabulary = Arc::clone(&opened.vocabulary);
        Ok(Self { device, target, vocabulary, drafter, load: begun.elapsed() })
    }

    /// An engine over the target that does not speculate.
    pub(crate) fn plain_engine(&self) -> Engine {
        let target = Arc::clone(&self.target) as Arc<dyn Model>;
        let vocabulary = Arc::clone(&self.vocabulary) as Arc<dyn TokenText>;
        Engine::new(target, vocabulary).with_row_kernels(spec_cpu::row_kernels(self.device.isa()))
    }

    /// The engine that the flags ask for. The drafter goes with it.
    pub(crate) fn engine(&mut self) -> Engine {
        match self.drafter.take() {
            Some(drafter) => self.plain_engine().with_drafter(drafter),
            None => self.plain_engine(),
        }
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
