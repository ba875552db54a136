//! The suite that every backend keeps, on the simulator's exact mode.

use std::sync::Arc;

use spec_ascend::{AscendError, AscendModel, AscendStream, HalfType, LoadOptions};
use spec_runtime::Model;
use spec_testing::conformance::{self, Backend, TinyModel};
use spec_testing::tiny::TinySpec;

use crate::device::{SPECS, checkpoint, options, with_device};

/// Kernels begin at once: what order does is for the tests of streams.
pub(crate) const AT_ONCE: &str = "delay=0";

fn with_backend(config: &str, specs: &[TinySpec], claims: &[fn(&Backend<'_>)]) {
    with_device(config, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let load = |tiny: &TinyModel| -> Arc<dyn Model> {
            let mut options = options(tiny.spec);
            options.kv_blocks = Some(tiny.kv_tokens / 16);
            Arc::new(AscendModel::load(&tiny.checkpoint(), &stream, options).expect("a model that ATB expresses"))
        };
        let backend = Backend { name: "ascend-sim", specs, block_tokens: 16, load: &load };
        claims.iter().for_each(|claim| claim(&backend));
    });
}

fn on_the_simulator(claim: fn(&Backend<'_>)) {
    with_backend(AT_ONCE, &SPECS, &[claim]);
}

/// Caches in tiles, moved piece by piece; no bf16, no int8 with scales for rows.
#[test]
fn a_310p_keeps_the_claims_too_and_refuses_what_it_does_not_have() {
    let config = "delay=0; soc=310P3";
    let specs = [TinySpec::llama(), TinySpec::qwen_mixed(), TinySpec::qwen3()];
    let claims: [fn(&Backend<'_>); 4] = [
        conformance::a_tree_row_equals_its_path_and_so_does_what_follows_its_commit,
        conformance::a_rollback_leaves_no_trace,
        conformance::sequences_in_one_pass_do_not_see_each_other,
        conformance::trees_from_a_script_change_no_token,
    ];
    with_backend(config, &specs, &claims);
    with_device(config, |device| {
        let stream = AscendStream::new(device).expect("a stream");
        let refused = |change: fn(&mut LoadOptions<'_>), word: &str| {
            let mut options = options(TinySpec::llama());
            change(&mut options);
            let error = AscendModel::load(&checkpoint(TinySpec::llama()), &stream, options).expect_err(word);
            assert!(matches!(error, AscendError::Choice { .. }) && error.to_string().contains(word), "{error}");
        };
        refused(|options| options.dtype = Some(HalfType::Bf16), "no bf16");
        refused(|options| options.int8 = true, "activations of a known range");
        refused(|options| options.block_tokens = Some(24), "multiple of 16");
        refused(|options| options.block_tokens = Some(256), "128 at most");
        refused(|options| options.max_rows = 1025, "1 to 1024");
        refused(|options| options.max_query_rows = 0, "1 to 128");
        refused(|options| options.context = Some(257), "trained for 256");
    });
}

spec_testing::conformance!(on_the_simulator);
