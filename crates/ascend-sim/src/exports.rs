//! How functions are exported: each call is counted, may be made to fail, and never unwinds into its caller.

use crate::failure::{Failure, Outcome, argument, note};
use crate::world::world;
use acl_sys::Status;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The address of an exported function.
pub(crate) type Address = *const ();

/// A pointer argument that the function writes one value to.
///
/// It is made by callers in C only, whose side of every contract here is that it is null or valid for the write.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    pub(crate) fn required(self) -> Outcome {
        if self.0.is_null() { Err(argument("a pointer to write to is null")) } else { Ok(()) }
    }

    pub(crate) fn set(self, value: T) -> Outcome {
        self.required()?;
        // SAFETY: not null, so that it is valid for a write by the type's contract.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
}

/// A pointer argument that the function reads one value from; null or valid, as [`Out`].
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(argument("a pointer to read from is null"));
        }
        // SAFETY: not null, so that it is valid for a read by the type's contract.
        Ok(unsafe { self.0.read_unaligned() })
    }

    pub(crate) fn get_optional(self) -> Option<T> {
        self.get().ok()
    }
}

/// A C string argument: null or NUL-terminated, as [`Out`].
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, so that it is NUL-terminated by the type's contract.
        Some(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Runs the body of an exported function that returns a status.
pub(crate) fn status(name: &'static str, body: impl FnOnce() -> Outcome) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        world().faults.enter(name)?;
        body()
    }));
    let failure = match outcome {
        Ok(Ok(())) => return Status::SUCCESS,
        // The shim has a status of its own for null pointers, which are all that its arguments fail by.
        Ok(Err(failure)) if name.starts_with("spec_atb_") && failure.status == Status::ACL_ERROR_INVALID_PARAM => {
            Failure::new(Status::SPEC_ATB_ERROR_NULL, failure.text)
        }
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(Status::ACL_ERROR_INTERNAL_ERROR, panic_text(&*panic)),
    };
    note(name, &failure);
    failure.status
}

/// Runs the body of an exported function that returns something else, and `otherwise` when it fails.
pub(crate) fn value<T>(name: &'static str, otherwise: T, body: impl FnOnce() -> Outcome<T>) -> T {
    let mut result = None;
    let _ = status(name, || {
        result = Some(body()?);
        Ok(())
    });
    result.unwrap_or(otherwise)
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the simulator panicked: {}", text.unwrap_or("no text"))
}

/// Exports functions, and lists their addresses. A body is an `Outcome`; what is behind `else` answers for a failure.
macro_rules! exports {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty, else $otherwise:expr,)? $body:block)*) => {
        $(
            $crate::exports::exports!(@one $(#[$meta])* $name ($($argument: $type),*) $([$result, $otherwise])? $body);
        )*

        /// Names and addresses of this module's exports.
        pub(crate) fn addresses() -> Vec<(&'static str, $crate::exports::Address)> {
            vec![$((stringify!($name), $name as $crate::exports::Address)),*]
        }
    };
    (@one $(#[$meta:meta])* $name:ident ($($argument:ident: $type:ty),*) $body:block) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// Pointers are null or valid for what the vendor documents, and the rest of the vendor's contract holds.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> acl_sys::Status {
            $crate::exports::status(stringify!($name), move || $body)
        }
    };
    (@one $(#[$meta:meta])* $name:ident ($($argument:ident: $type:ty),*) [$result:ty, $otherwise:expr] $body:block) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// Pointers are null or valid for what the vendor documents, and the rest of the vendor's contract holds.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            $crate::exports::value(stringify!($name), $otherwise, move || $body)
        }
    };
}
pub(crate) use exports;
