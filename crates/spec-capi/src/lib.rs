//! The engine behind a C interface: the library `libspec` and its header `include/spec.h`.
//!
//! A program in C, or in anything that calls C, loads a target model with or without a draft model, generates with a callback
//! for each token, and frees it. Output with drafts is the output without them, token for token, unless a lossy rule is asked
//! for. `examples/c/generate.c` is a whole program.
//!
//! The header is generated from [`types`] and the functions here (`cargo xtask headers`) and committed; CI compares the two.
//!
//! What holds for every function:
//! - No panic crosses the boundary: it becomes [`spec_status::Internal`], and the engine that it met takes no more work.
//! - Null pointers, text that is not UTF-8 and structures of another version are errors, with the argument named in
//!   [`spec_last_error`].
//! - A structure that the caller hands over is only read during the call, one that it gets is its own. Strings that the library
//!   returns are the library's.
#![deny(missing_docs)]

mod ascend;
mod boundary;
mod engine;
mod error;
pub mod types;
mod vocabulary;

use std::ffi::{CStr, c_char, c_void};

use boundary::{Output, optional_text, reference, tokens};
use engine::{LoadChoices, RequestChoices};
use error::Error;
use types::{
    spec_description, spec_engine, spec_load_options, spec_request, spec_result, spec_status, spec_token_callback,
};

/// Version of the structures and functions of this header. A library of another one refuses its structures.
pub const SPEC_ABI_VERSION: u32 = 1;

/// The library's version, such as `0.1.0`. Never null, and valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn spec_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

/// Why the last call on this thread failed: what, where, and what to do. Never null; empty when it succeeded. Valid until the
/// next call of this library on this thread, of which `spec_version`, `spec_free` and this one are none.
#[unsafe(no_mangle)]
pub extern "C" fn spec_last_error() -> *const c_char {
    boundary::last_error()
}

/// Fills in the choices that hold when nothing else is said. Every structure that is handed over begins with this.
///
/// # Safety
/// `options` is null, which is an error, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spec_load_options_init(options: *mut spec_load_options) -> spec_status {
    boundary::call(|| {
        // SAFETY: null or valid for a write, as the caller promises.
        unsafe { Output::new("options", options)? }.set(spec_load_options::default());
        Ok(())
    })
}

/// Fills in the choices that hold when nothing else is said: greedy, 512 tokens at most, as many drafted as pay.
///
/// # Safety
/// `request` is null, which is an error, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spec_request_init(request: *mut spec_request) -> spec_status {
    boundary::call(|| {
        // SAFETY: null or valid for a write, as the caller promises.
        unsafe { Output::new("request", request)? }.set(spec_request::default());
        Ok(())
    })
}

/// Loads a target model, and a draft model where one is named. `*engine` is set, to null when it fails.
///
/// Files are GGUF or safetensors, told by their content; what they are called says nothing. Takes seconds to minutes.
///
/// # Safety
/// `options` is null, which is an error, or points to a structure whose texts are null or NUL-terminated. `engine` is null, which is
/// an error, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spec_load(options: *const spec_load_options, engine: *mut *mut spec_engine) -> spec_status {
    boundary::call(|| {
        // SAFETY: null or valid for a write, as the caller promises.
        let output = unsafe { Output::new("engine", engine)? };
        let output = output.preset(std::ptr::null_mut());
        // SAFETY: null or valid for a read, as the caller promises.
        let options = unsafe { reference("options", options)? };
        boundary::require_version("options", options.abi_version)?;
        // SAFETY: the structure's texts are null or NUL-terminated, as the caller promises.
        let text = |name, text| unsafe { optional_text(name, text) };
        let model = text("options.model", options.model)?.ok_or(Error::null("options.model"))?;
        let loaded = engine::load(&LoadChoices {
            model,
            draft_model: text("options.draft_model", options.draft_model)?,
            draft: text("options.draft", options.draft)?,
            device: text("options.device", options.device)?,
            library: text("options.library", options.library)?,
            context: options.context,
            threads: options.threads,
        })?;
        output.set(Box::into_raw(Box::new(spec_engine(loaded))));
        Ok(())
    })
}

/// Frees an engine and all that it holds, on its device too. Null is nothing. No call on the engine may be under way, and none
/// may follow.
///
/// # Safety
/// `engine` is null or came from `spec_load`, is not used by any thread, and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spec_free(engine: *mut spec_engine) {
    if engine.is_null() {
        return;
    }
    // SAFETY: it came from a box in `spec_load`, and is given back once, as the caller promises.
    let engine = unsafe { Box::from_raw(engine) };
    boundary::quietly(move || engine.0.free());
}

/// What an engine is. `description` is filled in; its texts live as long as the engine.
///
/// # Safety
/// `engine` is null, which is an error, or came from `spec_load` and was not freed. `description` is null, which is an error, or
/// valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spec_describe(engine: *const spec_engine, description: *mut spec_description) -> spec_status {
    boundary::call(|| {
        // SAFETY: null or alive, as the caller promises.
        let engine = unsafe { reference("engine", engine)? };
        // SAFETY: null or valid for a write, as the caller promises.
        unsafe { Output::new("description", description)? }.set(engine.0.description());
        Ok(())
    })
}

/// Generates. `on_token` is called on this thread for each token, as soon as it is certain; it may be null. `result` may be null too.
///
/// One generation at a time: while one goes on, others on the same engine are refused as busy, those that `on_token` begins among
/// them. Different engines work at the same time.
///
/// # Safety
/// `engine` is null, which is an error, or came from `spec_load` and was not freed. `request` is null, which is an error, or points to a
/// structure whose texts are null or NUL-terminated and whose arrays are null or as long as it says. `on_token` is null or may be
/// called with `user_data`; it does not unwind. `result` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spec_generate(
    engine: *const spec_engine,
    request: *const spec_request,
    on_token: spec_token_callback,
    user_data: *mut c_void,
    result: *mut spec_result,
) -> spec_status {
    boundary::call(|| {
        // SAFETY: null or alive, as the caller promises.
        let engine = unsafe { reference("engine", engine)? };
        // SAFETY: null or valid for a read, as the caller promises.
        let request = unsafe { reference("request", request)? };
        boundary::require_version("request", request.abi_version)?;
        // SAFETY: the structure's texts are null or NUL-terminated, as the caller promises.
        let text = |name, text| unsafe { optional_text(name, text) };
        // SAFETY: the structure's arrays are null or as long as it says, as the caller promises.
        let array = |name, start, count| unsafe { tokens(name, start, count) };
        let choices = RequestChoices {
            prompt: text("request.prompt", request.prompt)?,
            prompt_tokens: array("request.prompt_tokens", request.prompt_tokens, request.prompt_token_count)?,
            end_tokens: array("request.end_tokens", request.end_tokens, request.end_token_count)?,
            rule: text("request.rule", request.rule)?,
            request,
        };
        // SAFETY: the callback may be called with its data, as the caller promises.
        let found = engine.0.generate(&choices, &mut |token| unsafe { boundary::tell(on_token, user_data, token) })?;
        if !result.is_null() {
            // SAFETY: not null, so that it is valid for a write, as the caller promises.
            unsafe { Output::new("result", result)? }.set(found);
        }
        Ok(())
    })
}

/// Ends the generation that goes on, before its next pass; without one it does nothing. It may be called from any thread, also in a
/// callback.
///
/// # Safety
/// `engine` is null, which is an error, or came from `spec_load` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spec_cancel(engine: *const spec_engine) -> spec_status {
    boundary::call(|| {
        // SAFETY: null or alive, as the caller promises.
        unsafe { reference("engine", engine)? }.0.cancel();
        Ok(())
    })
}

/// The `SPEC_ABI_VERSION` that the library was built with, for a caller who loads it at run time.
#[unsafe(no_mangle)]
pub extern "C" fn spec_abi_version() -> u32 {
    SPEC_ABI_VERSION
}
