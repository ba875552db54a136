//! The ATB shim's C interface: contexts, operations, graphs, plugins.

pub(crate) mod context;
pub(crate) mod create;
pub(crate) mod execute;
pub(crate) mod graph;
pub(crate) mod library;
pub(crate) mod operation;
pub(crate) mod plugin;

use crate::failure::{Failure, Outcome};
use acl_sys::Status;
use context::Context;
use operation::Operation;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

static OPERATIONS: Mutex<BTreeMap<usize, Arc<Operation>>> = Mutex::new(BTreeMap::new());
static CONTEXTS: Mutex<BTreeMap<usize, Arc<Context>>> = Mutex::new(BTreeMap::new());

fn operation(handle: usize) -> Outcome<Arc<Operation>> {
    if handle == 0 {
        return Err(Failure::new(Status::SPEC_ATB_ERROR_NULL, "the operation is null"));
    }
    OPERATIONS
        .lock()
        .get(&handle)
        .cloned()
        .ok_or_else(|| Failure::new(Status::ATB_ERROR_INVALID_OPERATION_ADDR, "the operation is unknown or destroyed"))
}

fn context(handle: usize) -> Outcome<Arc<Context>> {
    CONTEXTS
        .lock()
        .get(&handle)
        .cloned()
        .ok_or_else(|| Failure::new(Status::ATB_ERROR_INVALID_CONTEXT_ADDR, "the context is unknown or destroyed"))
}

/// What is alive, a line each.
pub(crate) fn leaks() -> Vec<String> {
    let operations: Vec<String> = OPERATIONS
        .lock()
        .values()
        .filter(|operation| !operation.is_owned())
        .map(|operation| format!("operation {}", operation.name()))
        .collect();
    let contexts = CONTEXTS.lock().keys().map(|handle| format!("ATB context {handle:#x}")).collect();
    [operations, contexts].concat()
}

/// Forgets everything.
pub(crate) fn reset() {
    let operations = std::mem::take(&mut *OPERATIONS.lock());
    drop(operations);
    CONTEXTS.lock().clear();
}
