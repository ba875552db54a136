//! The suite that every backend keeps, on the simulator's exact mode.

use std::sync::Arc;

use spec_ascend::{AscendModel, AscendStream};
use spec_runtime::Model;
use spec_testing::conformance::{Backend, TinyModel};

use crate::device::{SPECS, options, with_device};

/// Kernels begin at once: what order does is for the tests of streams.
pub(crate) const AT_ONCE: &str = "delay=0";

fn on_the_simulator(claim: fn(&Backend<'_>)) {
    with_device(AT_ONCE, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let load = |tiny: &TinyModel| -> Arc<dyn Model> {
            let mut options = options(tiny.spec);
            options.kv_blocks = Some(tiny.kv_tokens / 16);
            Arc::new(AscendModel::load(&tiny.checkpoint(), &stream, options).expect("a model that ATB expresses"))
        };
        claim(&Backend { name: "ascend-sim", specs: &SPECS, block_tokens: 16, load: &load });
    });
}

spec_testing::conformance!(on_the_simulator);
