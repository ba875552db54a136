//! The suite that every backend keeps, on this one.

use std::sync::Arc;

use spec_cpu::{CpuModel, LoadOptions, Pool};
use spec_runtime::Model;
use spec_testing::conformance::{Backend, TinyModel};
use spec_testing::tiny::TinySpec;

fn load(tiny: &TinyModel) -> Arc<dyn Model> {
    let mut options = LoadOptions::new(Arc::new(Pool::new(2).expect("threads")));
    options.kv_tokens = Some(tiny.kv_tokens);
    Arc::new(CpuModel::load(&tiny.checkpoint(), options).expect("a model that the kernels take"))
}

fn on_the_cpu(claim: fn(&Backend<'_>)) {
    claim(&Backend { name: "cpu", specs: &TinySpec::every_architecture(), block_tokens: 16, load: &load });
}

spec_testing::conformance!(on_the_cpu);
