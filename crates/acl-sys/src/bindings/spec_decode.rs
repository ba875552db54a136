//! Made from `headers/spec_decode.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use super::spec_atb::*;
use crate::Status;
use crate::table::{functions, layout};
use core::ffi::c_uint;

/// The two likeliest tokens.
pub const SPEC_ATB_VERIFY_GREEDY: spec_atb_verify_rule = spec_atb_verify_rule(1);
/// Whether u < p / q of a drafted token.
pub const SPEC_ATB_VERIFY_REJECTION: spec_atb_verify_rule = spec_atb_verify_rule(2);
/// What is asked of each row.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_verify_rule(pub c_uint);
/// Verification of drafts.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_verify_param {
    pub rule: spec_atb_verify_rule,
    /// Of rejection: 1 / temperature, above 0 and finite. Of the greedy rule, which has no temperature: 1.
    pub inverse_temperature: f32,
}

layout! {
    spec_atb_verify_param: 8 bytes, aligned 4 { rule 0, inverse_temperature 4 }
}

functions! {
    spec_decode:
    /// Makes a Verify operation. Needs ATB 8.1.
    fn spec_atb_create_verify(param: *const spec_atb_verify_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, SpecDecode(1);
}
