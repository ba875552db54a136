//! One suite of claims about devices: whatever implements [`Model`] on the seam keeps them, or is no backend.
//!
//! A backend is a value. [`conformance!`](crate::conformance!) makes a test of every claim:
//!
//! ```ignore
//! fn on_the_host(claim: fn(&Backend<'_>)) {
//!     claim(&Backend { name: "host", specs: &[TinySpec::llama()], block_tokens: 16, load: &|tiny| load(tiny) });
//! }
//! spec_testing::conformance!(on_the_host);
//! ```
//!
//! Rows are compared bit for bit: the claims are for devices whose sums have one order. Those without one keep them with
//! ties excepted, which is for their own tests to measure.

mod generation;
pub mod passes;
mod prefixes;
mod rows;

use std::sync::Arc;

use spec_model::Checkpoint;
use spec_runtime::{Model, Sequence};

use crate::tiny::{self, TinySpec};

pub use generation::*;
pub use prefixes::*;
pub use rows::*;

/// A device under test.
pub struct Backend<'a> {
    /// What failures call it.
    pub name: &'a str,
    /// The models that it runs.
    pub specs: &'a [TinySpec],
    /// Tokens of a block of its KV cache.
    pub block_tokens: usize,
    /// Loads a model with weights and a cache of its own. Passes carry 70 rows at least.
    pub load: &'a dyn Fn(&TinyModel) -> Arc<dyn Model>,
}

/// A model to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct TinyModel {
    /// What it is made of.
    pub spec: TinySpec,
    /// Tokens that its KV cache holds, of all sequences.
    pub kv_tokens: usize,
}

impl TinyModel {
    /// Its file, opened.
    ///
    /// # Panics
    /// Never: tiny files are legal.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::from_bytes(tiny::gguf(self.spec), "tiny.gguf").expect("a legal file")
    }
}

/// Makes a test of every claim, of a function that calls one with a backend.
#[macro_export]
macro_rules! conformance {
    ($with:path) => {
        $crate::conformance!($with;
            the_same_text_has_other_logits_behind_another_prefix
            a_chain_of_any_length_equals_decoding_one_by_one
            the_prompt_may_come_in_chunks_of_any_size
            a_tree_row_equals_its_path_and_so_does_what_follows_its_commit
            rows_of_a_reservation_may_come_in_several_passes
            sequences_in_one_pass_do_not_see_each_other
            a_rollback_leaves_no_trace
            blocks_used_before_do_not_show_through
            what_does_not_fit_is_refused_and_changes_nothing
            a_pass_that_nobody_waits_for_does_no_harm
            rows_behind_a_prefix_that_was_found_are_those_of_a_cold_run
            drafting_changes_no_token
            an_own_copy_is_accepted_whole_under_every_lossless_rule
            another_model_is_mostly_refused
            trees_from_a_script_change_no_token
            generation_ends_with_the_context
            cancelled_generations_give_everything_back
            generations_in_turns_are_those_alone
            acceptance_stays_over_many_long_generations
        );
    };
    ($with:path; $($claim:ident)*) => {
        $(
            #[test]
            fn $claim() {
                $with($crate::conformance::$claim);
            }
        )*
    };
}

/// A text of `len` tokens, its own for each `start`.
fn text(start: u32, len: usize) -> Vec<u32> {
    (start..start + len as u32).map(|i| (i * 37 + i * i % 11) % 299).collect()
}

impl Backend<'_> {
    /// A model with room for several sequences.
    fn model(&self, spec: TinySpec) -> Arc<dyn Model> {
        (self.load)(&TinyModel { spec, kv_tokens: 4 * spec.context })
    }

    /// Runs a check on every model, and looks whether all of its cache is free afterwards.
    fn each(&self, check: impl Fn(&Arc<dyn Model>, &str)) {
        for &spec in self.specs {
            let model = self.model(spec);
            let name = format!("{} on {}", spec.arch, self.name);
            let before = room(&model);
            check(&model, &name);
            assert_eq!(room(&model), before, "{name}: blocks leak");
        }
    }

    /// Lengths around the ends of blocks.
    fn around_blocks(&self) -> [usize; 4] {
        let block = self.block_tokens;
        [block - 1, block, block + 1, 2 * block]
    }
}

/// Rows that a fresh sequence can reserve: the free blocks, seen from the seam.
fn room(model: &Arc<dyn Model>) -> usize {
    let sequence = Sequence::open(model).expect("room for one more sequence");
    let fits = |rows: usize| {
        let fits = model.reserve(sequence.id(), rows).is_ok();
        if fits {
            model.settle(sequence.id(), &[]).expect("an open reservation");
        }
        fits
    };
    let (mut fitting, mut too_many) = (0, 1);
    while fits(too_many) {
        (fitting, too_many) = (too_many, 2 * too_many);
    }
    while too_many - fitting > 1 {
        let middle = fitting.midpoint(too_many);
        if fits(middle) { fitting = middle } else { too_many = middle }
    }
    fitting
}
