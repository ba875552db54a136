//! What crosses the boundary, named as in C.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_void};

use crate::SPEC_ABI_VERSION;
use crate::engine::Loaded;

/// How a call ended. `spec_last_error` has the words.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum spec_status {
    /// It did what it was asked for.
    Ok = 0,
    /// A null pointer, text that is not UTF-8, a structure of another version, a value out of its range.
    InvalidArgument = 1,
    /// A file cannot be read, is no model, or two models do not go together.
    Model = 2,
    /// A device, or a library of one, is missing or failed; memory is short.
    Device = 3,
    /// A generation is going on.
    Busy = 4,
    /// A defect of the library: a panic was caught. The engine takes no more work; free it.
    Internal = 5,
}

/// Why a generation ended.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum spec_finish {
    /// An end token.
    Stop = 0,
    /// `max_tokens`, or the end of the context.
    Length = 1,
    /// `spec_cancel`, or a callback that returned false.
    Cancelled = 2,
}

/// What a token is to the draft of its round.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum spec_token_source {
    /// The target's own; nothing was drafted.
    Target = 0,
    /// Drafted and accepted.
    Accepted = 1,
    /// The target's own, in the place of a drafted token that was rejected.
    Corrected = 2,
    /// The target's own, behind a draft that was accepted to its end.
    Bonus = 3,
}

/// A loaded target with its drafter.
pub struct spec_engine(pub(crate) Loaded);

/// How models are loaded. `spec_load_options_init` fills it in; then set `model`, and what else is wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct spec_load_options {
    /// `SPEC_ABI_VERSION`.
    pub abi_version: u32,
    /// The target: a GGUF file, a safetensors file or one of a set, or their folder.
    pub model: *const c_char,
    /// A smaller model that drafts; null is none. Its tokens have to be the target's.
    pub draft_model: *const c_char,
    /// Who drafts: `auto` (copies of earlier text, and the draft model where there is one), `model`, `suffix`, `ngram` or `none`. Null
    /// is `auto`.
    pub draft: *const c_char,
    /// `cpu`, `ascend`, `ascend:N` for device N, or `ascend-sim`, the simulator, which stands in for no device unless asked for. Null is
    /// `cpu`.
    pub device: *const c_char,
    /// For an Ascend device: the file of AscendCL, or of the simulator, that the process uses; null is to look for it.
    pub library: *const c_char,
    /// Positions that a prompt and its answer may take; 0 is what the model was trained for, and 4096 at most.
    pub context: usize,
    /// Threads of the CPU; 0 is one for each core.
    pub threads: usize,
}

impl Default for spec_load_options {
    fn default() -> Self {
        Self {
            abi_version: SPEC_ABI_VERSION,
            model: std::ptr::null(),
            draft_model: std::ptr::null(),
            draft: std::ptr::null(),
            device: std::ptr::null(),
            library: std::ptr::null(),
            context: 0,
            threads: 0,
        }
    }
}

/// One generation. `spec_request_init` fills it in; then set `prompt` or `prompt_tokens`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct spec_request {
    /// `SPEC_ABI_VERSION`.
    pub abi_version: u32,
    /// UTF-8 to continue, with markers such as `<|im_start|>` read as such; null when `prompt_tokens` is given.
    pub prompt: *const c_char,
    /// Token ids to continue; null when `prompt` is given.
    pub prompt_tokens: *const u32,
    /// How many.
    pub prompt_token_count: usize,
    /// Tokens that may be generated, an end token included.
    pub max_tokens: usize,
    /// Tokens drafted a round; 0 is as many as pay, measured as it goes.
    pub draft_len: usize,
    /// 0 takes the most probable token.
    pub temperature: f32,
    /// Keeps as many of the most probable tokens; 0 is off.
    pub top_k: usize,
    /// Keeps the most probable tokens that together reach this probability; 1 is off.
    pub top_p: f32,
    /// Keeps tokens that are at least this many times as probable as the most probable one; 0 is off.
    pub min_p: f32,
    /// Seed of all draws: the same seed gives the same text, with drafts and without.
    pub seed: u64,
    /// An acceptance rule by its name, such as `rejection` or `epsilon:0.01`; null is the lossless one that fits the temperature.
    pub rule: *const c_char,
    /// Token ids that end the text; null is those that the model names.
    pub end_tokens: *const u32,
    /// How many.
    pub end_token_count: usize,
}

impl Default for spec_request {
    fn default() -> Self {
        Self {
            abi_version: SPEC_ABI_VERSION,
            prompt: std::ptr::null(),
            prompt_tokens: std::ptr::null(),
            prompt_token_count: 0,
            max_tokens: 512,
            draft_len: 0,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
            rule: std::ptr::null(),
            end_tokens: std::ptr::null(),
            end_token_count: 0,
        }
    }
}

/// A token, as a callback gets it. Its text lives as long as the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct spec_token {
    /// The id.
    pub id: u32,
    /// Whether it belongs to the output; end tokens do not.
    pub shown: bool,
    /// What it is to the draft of its round.
    pub source: spec_token_source,
    /// UTF-8 that can be shown now, whole characters: empty while one is incomplete. NUL-terminated, and never null.
    pub text: *const c_char,
    /// Bytes of `text` without the NUL; a text may hold NULs of its own.
    pub text_bytes: usize,
}

/// Called for each token, in their order. Returning false ends the generation before its next pass.
pub type spec_token_callback = Option<unsafe extern "C" fn(user_data: *mut c_void, token: *const spec_token) -> bool>;

/// What a generation did.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct spec_result {
    /// Why it ended.
    pub finish: spec_finish,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, an end token included.
    pub completion_tokens: usize,
    /// Passes of the target behind the one over the prompt.
    pub rounds: usize,
    /// Tokens drafted.
    pub drafted: usize,
    /// Drafted tokens that were accepted and are part of the output.
    pub accepted: usize,
    /// Seconds until the first token.
    pub prefill_seconds: f64,
    /// Seconds from the first token to the last.
    pub decode_seconds: f64,
}

/// What an engine is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct spec_description {
    /// The target's name.
    pub model: *const c_char,
    /// Where the target runs.
    pub device: *const c_char,
    /// Who drafts; null is nobody.
    pub drafter: *const c_char,
    /// Tokens of the vocabulary; ids are below it.
    pub vocab: usize,
    /// Positions that a prompt and its answer may take.
    pub context: usize,
    /// The first of the token ids that end an answer; -1 when the model names none.
    pub end_token: i64,
}
