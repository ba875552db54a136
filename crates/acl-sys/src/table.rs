//! The table of functions: what each is called, where it is looked for, and where its address is kept.

use crate::error::Error;
use crate::loader::Source;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function {
    /// Its symbol, which is its name in C.
    pub symbol: &'static CStr,
    /// The libraries that may have it.
    pub family: Family,
    /// The first release that has it.
    pub since: Since,
}

impl Function {
    /// Its name as text.
    pub fn name(&self) -> &'static str {
        self.symbol.to_str().unwrap_or_default()
    }
}

/// Which libraries may have a function.
///
/// `libascendcl.so` has all of AscendCL on older releases. From CANN 8.5 on it is an optional package, and each part
/// is a library of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Devices, streams, memory.
    Runtime,
    /// Offline models.
    Model,
    /// Profiling.
    Profiling,
    /// The C interface of the ATB shim.
    Shim,
}

impl Family {
    /// The libraries, in the order in which they are asked.
    pub const fn libraries(self) -> &'static [&'static str] {
        match self {
            Family::Runtime => &["libascendcl.so", "libacl_rt.so"],
            Family::Model => &["libascendcl.so", "libacl_mdl.so"],
            Family::Profiling => &["libascendcl.so", "libmsprofiler.so"],
            Family::Shim => &["libspec_atb.so"],
        }
    }
}

/// The first release that has a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Since {
    /// Major and minor version of CANN. 8.0 stands for that and everything older.
    Cann(u8, u8),
    /// Version of the shim's interface.
    Shim(u32),
    /// Version of the shim's spec-decode module, which shims are built with or without.
    SpecDecode(u32),
}

impl fmt::Display for Since {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Since::Cann(major, minor) => write!(formatter, "CANN {major}.{minor}"),
            Since::Shim(version) => write!(formatter, "version {version} of the ATB shim's interface"),
            Since::SpecDecode(version) => {
                write!(formatter, "version {version} of the ATB shim's spec-decode module")
            }
        }
    }
}

/// The address of a function, once it is known.
#[derive(Debug)]
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self, source: &Source, function: &'static Function) -> Result<NonNull<c_void>, Error> {
        match NonNull::new(self.0.load(Ordering::Acquire)) {
            Some(address) => Ok(address),
            None => self.resolve(source, function),
        }
    }

    /// Two threads may do this at once; both find the same address.
    #[cold]
    fn resolve(&self, source: &Source, function: &'static Function) -> Result<NonNull<c_void>, Error> {
        let address = source.resolve(function)?;
        self.0.store(address.as_ptr(), Ordering::Release);
        Ok(address)
    }
}

/// Makes the table of one header: a slot, a description and a method of [`Api`](crate::Api) for each function.
macro_rules! functions {
    ($field:ident: $($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $family:ident, $since:ident($($version:literal),*);)*) => {
        /// Addresses of this header's functions.
        #[derive(Debug)]
        pub(crate) struct Table {
            $($name: $crate::table::Slot,)*
        }

        impl Table {
            pub(crate) const fn new() -> Self {
                Self { $($name: $crate::table::Slot::new(),)* }
            }
        }

        /// This header's functions, in its order.
        pub(crate) const FUNCTIONS: &[$crate::Function] = &[$($crate::Function {
            symbol: $crate::table::symbol(concat!(stringify!($name), "\0")),
            family: $crate::Family::$family,
            since: $crate::Since::$since($($version),*),
        }),*];

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl $crate::Api {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// No library has the function; the call was not made.
                ///
                /// # Safety
                /// What the vendor documents for the function holds: pointers are valid for what it reads and writes, handles
                /// are alive, and what work on a stream uses lives until the stream has passed it.
                #[inline]
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result<$result, $crate::Error> {
                    const FUNCTION: &$crate::Function = $crate::table::find(FUNCTIONS, stringify!($name));
                    let address = self.$field.$name.get(self.source(), FUNCTION)?;
                    type Signature = unsafe extern "C" fn($($type),*) -> $result;
                    // SAFETY: the address is that of the function with this name, whose signature the generator took
                    // from the header, and `abi-check` compared with the vendor's.
                    let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Signature>(address.as_ptr()) };
                    // SAFETY: the caller's promise.
                    Ok(unsafe { function($($argument),*) })
                }
            )*
        }
    };
}
pub(crate) use functions;

/// A symbol from text with its NUL.
pub(crate) const fn symbol(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(symbol) => symbol,
        Err(_) => panic!("a symbol is one word"),
    }
}

/// The description of a function, found while compiling.
pub(crate) const fn find(functions: &'static [Function], name: &str) -> &'static Function {
    let mut at = 0;
    while at < functions.len() {
        if same(functions[at].symbol.to_bytes(), name.as_bytes()) {
            return &functions[at];
        }
        at += 1;
    }
    panic!("every function is in its header's list")
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Asserts while compiling that a structure has the layout that C gives it.
macro_rules! layout {
    ($($name:ident: $size:literal bytes, aligned $alignment:literal { $($field:ident $offset:literal),* })*) => {
        $(const _: () = {
            assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
            assert!(align_of::<$name>() == $alignment, concat!("alignment of ", stringify!($name)));
            $(assert!(std::mem::offset_of!($name, $field) == $offset, concat!("offset of ", stringify!($field)));)*
        };)*
    };
}
pub(crate) use layout;
