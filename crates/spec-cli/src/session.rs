//! From flags to an engine: files opened, models loaded, drafter chosen.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use spec_ascend::AscendStream;
use spec_core::Token;
use spec_cpu::{CpuModel, Isa, KvType, LoadOptions, Pool};
use spec_model::{Checkpoint, Error, Quantizer, TokenKind, Tokenizer};
use spec_runtime::{
    Chooser, Drafter, Engine, Model, ModelDrafter, NgramDrafter, SuffixDrafter, TokenText, check_vocabularies,
};

use crate::args::{DraftKind, KvKind, ModelArgs, QuantKind, StorageArgs};
use crate::ascend::Ascend;
use crate::device::{CUDA_IS_NOT_BUILT, DeviceName};
use crate::{pull, usage};

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

/// Where models run.
pub(crate) enum Device {
    Cpu(CpuDevice),
    Ascend(Ascend),
}

impl Device {
    /// Opens what `--device` names.
    fn open(args: &ModelArgs) -> Result<Self> {
        match args.device {
            DeviceName::Cpu => Ok(Self::Cpu(CpuDevice::new(args.threads)?)),
            DeviceName::Cuda => Err(usage(CUDA_IS_NOT_BUILT)),
            name => Ok(Self::Ascend(Ascend::open(name)?)),
        }
    }

    /// Loads a model, with the stream that its passes go to.
    fn load(
        &self,
        checkpoint: &Checkpoint,
        storage: StorageArgs,
        context: usize,
    ) -> Result<(Arc<dyn Model>, Option<AscendStream>)> {
        match self {
            Self::Cpu(device) => Ok((device.load(checkpoint, storage, context)?, None)),
            Self::Ascend(device) => {
                let stream = device.stream()?;
                Ok((device.load(&stream, checkpoint, storage, context)?, Some(stream)))
            }
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
pub(crate) struct CpuDevice {
    pool: Arc<Pool>,
    isa: Isa,
}

impl CpuDevice {
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
    fn warning(&self) -> Option<&'static str> {
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
        let mut options = LoadOptions::new(Arc::clone(&self.pool));
        options.kv = kv_type(storage.kv);
        options.quant = storage.quant.map(quantizer).transpose()?;
        options.context = Some(context);
        options.isa = Some(self.isa);
        options.progress = Some(&mut progress);
        let model = CpuModel::load(checkpoint, options).with_context(|| name.clone());
        bar.finish_and_clear();
        let model = model?;
        for note in model.notes() {
            eprintln!("{name}: {note}");
        }
        Ok(Arc::new(model))
    }
}

pub(crate) fn progress_style() -> ProgressStyle {
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

fn quantizer(quant: QuantKind) -> Result<Quantizer> {
    Ok(match quant {
        QuantKind::Q8_0 => Quantizer::Q8_0,
        QuantKind::Q4_0 => Quantizer::Q4_0,
        QuantKind::Q4K => Quantizer::Q4K,
        QuantKind::Int8 => return Err(usage("--quant int8 is for --device ascend; on the CPU q8_0 is as wide")),
    })
}

/// Target and drafter, ready to generate.
pub(crate) struct Session {
    pub(crate) device: Device,
    pub(crate) target: Arc<dyn Model>,
    /// Where the target's passes go; `None` is the host's.
    stream: Option<AscendStream>,
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) drafter: Option<Box<dyn Drafter>>,
    pub(crate) load: Duration,
}

impl Session {
    /// Loads what the flags name, for sequences of `context` positions. `opened` is the target's file.
    pub(crate) fn load(args: &ModelArgs, opened: &Opened, context: usize) -> Result<Self> {
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
        let device = Device::open(args)?;
        let (target, stream) = device.load(&opened.checkpoint, args.storage, context)?;
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
            let (model, stream) = device.load(&file.checkpoint, args.storage, own)?;
            let mut drafter = ModelDrafter::new(model);
            if let Some(stream) = stream {
                drafter = drafter.on_stream(Box::new(stream));
            }
            // A copy of the target is there to be compared with it, token for token.
            drafters.push(Box::new(if draft.itself { drafter } else { drafter.with_shortlist()? }));
        }
        let drafter = (!drafters.is_empty()).then(|| Box::new(Chooser::new(drafters)) as Box<dyn Drafter>);
        let vocabulary = Arc::clone(&opened.vocabulary);
        Ok(Self { device, target, stream, vocabulary, drafter, load: begun.elapsed() })
    }

    /// An engine over the target that does not speculate.
    pub(crate) fn plain_engine(&self) -> Engine {
        let vocabulary = Arc::clone(&self.vocabulary) as Arc<dyn TokenText>;
        // Rows of logits are the host's to go through, wherever they come from.
        let isa = match &self.device {
            Device::Cpu(device) => device.isa(),
            Device::Ascend(_) => Isa::detect(),
        };
        let engine = Engine::new(Arc::clone(&self.target), vocabulary).with_row_kernels(spec_cpu::row_kernels(isa));
        match &self.stream {
            Some(stream) => engine.on_stream(Box::new(stream.clone())),
            None => engine,
        }
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
