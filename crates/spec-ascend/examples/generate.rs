//! Plain and speculative text from a checkpoint on the simulator: `generate [MODEL.gguf]`; without a file, a model is made.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use atb_rs::Runtime;
use spec_ascend::{AscendDevice, AscendModel, AscendStream, DeviceOptions, LoadOptions};
use spec_core::{Fixed, Token};
use spec_model::{Checkpoint, Tokenizer};
use spec_runtime::{Engine, Model, NgramDrafter, Request, TokenText};

struct Vocabulary(Tokenizer);

impl TokenText for Vocabulary {
    fn vocab(&self) -> usize {
        self.0.real_vocab_size()
    }

    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        Cow::Owned(self.0.token_bytes(token, false).unwrap_or_default())
    }

    fn label(&self, token: Token) -> Cow<'_, str> {
        Cow::Borrowed(self.0.token_text(token).unwrap_or_default())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let checkpoint = match std::env::args().nth(1) {
        Some(path) => Checkpoint::open(path)?,
        None => {
            let bytes = spec_testing::tiny::gguf(spec_testing::tiny::TinySpec::llama());
            Checkpoint::from_bytes(bytes, "tiny.gguf")?
        }
    };
    let text: Arc<dyn TokenText> = Arc::new(Vocabulary(checkpoint.tokenizer()?));
    let prompt = checkpoint.tokenizer()?.encode("one two three one two three one two", true)?;

    ascend_sim::configure("delay=0")?;
    // SAFETY: each function has the C signature of its symbol: the simulator takes both from acl-sys. With hardware this is
    // `Api::load`.
    let api = unsafe { acl_sys::Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) };
    let device = AscendDevice::open(&Runtime::start(api)?, 0, DeviceOptions::default())?;
    let stream = AscendStream::new(&device)?;
    let mut options = LoadOptions::default();
    options.context = Some(128.min(checkpoint.config().context_length));
    let model = Arc::new(AscendModel::load(&checkpoint, &stream, options)?);
    println!("{} on {}\n{}", model.config().name, model.config().device, model.plan());

    for drafted in [false, true] {
        let mut engine = Engine::new(Arc::clone(&model) as Arc<dyn Model>, Arc::clone(&text));
        engine = engine.on_stream(Box::new(stream.clone()));
        if drafted {
            engine = engine.with_drafter(Box::new(NgramDrafter::new()));
        }
        let request = Request { draft_len: Box::new(Fixed(4)), ..Request::new(prompt.clone(), 12) };
        let begun = Instant::now();
        let completion = engine.generate(request, &mut |_| {})?;
        let (stats, passes) = (&completion.speculation, completion.speculation.rounds + 1);
        println!("{passes} passes in {:.1?}, {} of {} guesses kept", begun.elapsed(), stats.accepted, stats.drafted);
        println!("{:?}", completion.text);
    }
    Ok(())
}
