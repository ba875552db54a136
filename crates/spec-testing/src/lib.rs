//! Helpers for the tests of the other crates; never a normal dependency.
#![deny(missing_docs)]

pub mod conformance;
pub mod data;
mod hash_model;
pub mod logits;
pub mod models;
mod timed;
pub mod tiny;
mod words;

pub use hash_model::{HashModel, HashSpec};
pub use timed::{TimedModel, VirtualClock};
pub use words::Letters;

/// The part of `Model` about sequences and their cache, handed on to the model in a field: for models that answer otherwise
/// than the one that they wrap, and keep what it keeps.
#[macro_export]
macro_rules! sequences_of {
    ($field:ident) => {
        fn open(&self) -> Result<::spec_runtime::SeqId, ::spec_runtime::RuntimeError> {
            self.$field.open()
        }
        fn close(&self, seq: ::spec_runtime::SeqId) {
            self.$field.close(seq);
        }
        fn kv_len(&self, seq: ::spec_runtime::SeqId) -> Result<usize, ::spec_runtime::RuntimeError> {
            self.$field.kv_len(seq)
        }
        fn reserve(&self, seq: ::spec_runtime::SeqId, rows: usize) -> Result<(), ::spec_runtime::RuntimeError> {
            self.$field.reserve(seq, rows)
        }
        fn settle(&self, seq: ::spec_runtime::SeqId, path: &[u32]) -> Result<(), ::spec_runtime::RuntimeError> {
            self.$field.settle(seq, path)
        }
    };
}

/// The methods of a [`Model`](spec_runtime::Model) by which sequences share prefixes, passed on to a field that is one of the same
/// token ids.
#[macro_export]
macro_rules! prefixes_of {
    ($field:ident) => {
        fn adopt(
            &self,
            seq: ::spec_runtime::SeqId,
            scope: u64,
            tokens: &[::spec_core::Token],
        ) -> Result<usize, ::spec_runtime::RuntimeError> {
            self.$field.adopt(seq, scope, tokens)
        }
        fn kv_usage(&self) -> Option<::spec_runtime::KvUsage> {
            self.$field.kv_usage()
        }
    };
}
