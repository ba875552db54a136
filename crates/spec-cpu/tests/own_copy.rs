//! A model as its own draft: whatever the cache stores, both sides read the same numbers, and every draft is accepted.

use std::sync::Arc;

use spec_core::{Fixed, SamplingParams};
use spec_cpu::{CpuModel, Isa, KvType, LoadOptions, Pool};
use spec_model::Checkpoint;
use spec_runtime::{Engine, ModelDrafter, Request, StopRules};
use spec_testing::Letters;
use spec_testing::tiny::{self, TinySpec};

#[test]
fn an_own_copy_is_accepted_whole_with_every_cache() {
    for spec in [TinySpec::llama(), TinySpec::super_blocks()] {
        for isa in Isa::available() {
            for kv in [KvType::F16, KvType::F32, KvType::Q8] {
                let pool = Arc::new(Pool::new(2).expect("threads"));
                let load = || {
                    let checkpoint = Checkpoint::from_bytes(tiny::gguf(spec), "tiny.gguf").expect("a legal file");
                    let mut options = LoadOptions::new(Arc::clone(&pool));
                    options.isa = Some(isa);
                    options.kv = kv;
                    Arc::new(CpuModel::load(&checkpoint, options).expect("a model that the kernels take"))
                };
                let drafter = ModelDrafter::new(load());
                let mut engine = Engine::new(load(), Arc::new(Letters(spec.vocab))).with_drafter(Box::new(drafter));
                for sampling in
                    [SamplingParams::default(), SamplingParams { temperature: 0.8, ..SamplingParams::default() }]
                {
                    for k in [1, 4, 7] {
                        let request = Request {
                            sampling: sampling.clone(),
                            seed: Some(11),
                            stop: StopRules { end_ids: Vec::new(), texts: Vec::new(), max_tokens: 120 },
                            draft_len: Box::new(Fixed(k)),
                            ..Request::new(vec![3, 1, 4, 1, 5, 9, 2, 6], 120)
                        };
                        let stats = engine.generate(request, &mut |_| {}).expect("an answer").speculation;
                        let what = format!("{} on {} with {kv:?}, {k} drafted", spec.arch, isa.name());
                        assert!(stats.accepted == stats.drafted && stats.drafted >= 50, "{what}: {stats:?}");
                    }
                }
            }
        }
    }
}
