//! The simulator, opened for one test, and looked at afterwards.

use std::sync::{Arc, Mutex, PoisonError};

use acl_sys::Api;
use atb_rs::Runtime;
use spec_ascend::{AscendDevice, AscendModel, AscendStream, DeviceOptions, LoadOptions};
use spec_core::{Fixed, SamplingParams};
use spec_model::Checkpoint;
use spec_runtime::{Completion, Drafter, Engine, Model, Request, RuntimeError};
use spec_testing::Letters;
use spec_testing::tiny::{self, TinySpec};

/// The models of this folder that ATB's operators express.
pub(crate) const SPECS: [TinySpec; 5] =
    [TinySpec::llama(), TinySpec::mistral(), TinySpec::qwen_mixed(), TinySpec::qwen3(), TinySpec::gemma_uncapped()];

/// One simulator in a process.
static SIMULATOR: Mutex<()> = Mutex::new(());

/// Configures the simulator, opens its device, and runs a test. Afterwards nothing may be alive, and nothing may have
/// happened that strict mode notes.
pub(crate) fn with_device(config: &str, test: impl FnOnce(&AscendDevice)) {
    with_options(config, DeviceOptions::default(), test);
}

pub(crate) fn with_options(config: &str, options: DeviceOptions, test: impl FnOnce(&AscendDevice)) {
    let outcome = run(config, options, test);
    assert!(outcome.is_ok(), "ending the runtime: {outcome:?}");
}

/// The same for tests after which ending AscendCL may fail.
pub(crate) fn run(config: &str, options: DeviceOptions, test: impl FnOnce(&AscendDevice)) -> atb_rs::Result<()> {
    let _alone = SIMULATOR.lock().unwrap_or_else(PoisonError::into_inner);
    ascend_sim::reset();
    ascend_sim::configure(config).expect("a configuration that the simulator knows");
    // SAFETY: each function has the C signature of its symbol: the simulator takes both from acl-sys.
    let api = unsafe { Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) };
    let runtime = Runtime::start(api).expect("a simulator that starts");
    let device = AscendDevice::open(&runtime, 0, options).expect("a device");
    test(&device);
    drop(device);
    let ended = runtime.shutdown();
    let (violations, leaks) = (ascend_sim::violations(), ascend_sim::leaks());
    assert!(violations.is_empty(), "{} violations, the first: {}", violations.len(), violations[0]);
    assert!(leaks.is_empty(), "{} leaks, the first: {}", leaks.len(), leaks[0]);
    ended
}

pub(crate) fn checkpoint(spec: TinySpec) -> Checkpoint {
    Checkpoint::from_bytes(tiny::gguf(spec), "tiny.gguf").expect("a legal file")
}

/// Blocks of 16 tokens and room for four sequences.
pub(crate) fn options<'a>(spec: TinySpec) -> LoadOptions<'a> {
    let mut options = LoadOptions::default();
    options.block_tokens = Some(16);
    options.kv_blocks = Some(4 * spec.context / 16);
    options
}

pub(crate) fn load(stream: &AscendStream, spec: TinySpec) -> Arc<AscendModel> {
    Arc::new(AscendModel::load(&checkpoint(spec), stream, options(spec)).expect("a model that ATB expresses"))
}

/// A greedy generation of `length` tokens behind a prompt of 20.
pub(crate) fn generate(
    model: &Arc<dyn Model>,
    drafter: Option<Box<dyn Drafter>>,
    length: usize,
) -> Result<Completion, RuntimeError> {
    let mut engine = Engine::new(Arc::clone(model), Arc::new(Letters(model.config().vocab)));
    if let Some(drafter) = drafter {
        engine = engine.with_drafter(drafter);
    }
    let prompt = (0..20).map(|i| i * 7 % 60).collect();
    let request =
        Request { sampling: SamplingParams::default(), draft_len: Box::new(Fixed(4)), ..Request::new(prompt, length) };
    engine.generate(request, &mut |_| {})
}
