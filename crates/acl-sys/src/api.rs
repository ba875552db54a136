//! The table as a value.

use crate::bindings::{base, device, memory, model, profiling, spec_atb, spec_atb_operations, spec_decode, stream};
use crate::error::Error;
use crate::loader::{Loader, Source};
use crate::table::Function;
use crate::version::Version;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;

/// Every function of AscendCL and of the ATB shim that this crate knows, as methods named as in C.
///
/// A method looks its function up when it is first called, and afterwards costs one load more than a call of C.
/// Libraries stay open until the process ends, so that copies of addresses stay valid.
#[derive(Debug)]
pub struct Api {
    source: Source,
    pub(crate) base: base::Table,
    pub(crate) device: device::Table,
    pub(crate) stream: stream::Table,
    pub(crate) memory: memory::Table,
    pub(crate) model: model::Table,
    pub(crate) profiling: profiling::Table,
    pub(crate) spec_atb: spec_atb::Table,
    pub(crate) spec_atb_operations: spec_atb_operations::Table,
    pub(crate) spec_decode: spec_decode::Table,
}

impl Api {
    pub(crate) const fn new(source: Source) -> Self {
        Self {
            source,
            base: base::Table::new(),
            device: device::Table::new(),
            stream: stream::Table::new(),
            memory: memory::Table::new(),
            model: model::Table::new(),
            profiling: profiling::Table::new(),
            spec_atb: spec_atb::Table::new(),
            spec_atb_operations: spec_atb_operations::Table::new(),
            spec_decode: spec_decode::Table::new(),
        }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Looks for CANN's libraries: `ASCEND_HOME_PATH`, `ASCEND_TOOLKIT_HOME`, `LD_LIBRARY_PATH`, where CANN is usually
    /// installed, then wherever the system's loader looks. [`Loader`] takes wishes.
    ///
    /// # Errors
    /// [`Error::LibraryMissing`] when there is none, [`Error::SimulatorRefused`] when what was found is a simulator.
    ///
    /// # Safety
    /// What is found has to be CANN: its initialisers run, and its symbols are called by the signatures known here.
    pub unsafe fn load() -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        unsafe { Loader::new().load() }
    }

    /// Takes CANN's libraries from a folder, or one library and its neighbours. Nothing else is looked at.
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`Error::StubLibrary`] when the path leads to libraries for linking.
    ///
    /// # Safety
    /// As [`load`](Self::load).
    pub unsafe fn load_from(path: impl AsRef<Path>) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        unsafe { Loader::new().path(path).load() }
    }

    /// Takes addresses from a function instead of libraries. It is asked with the name of each library that may have a
    /// symbol and with the symbol, until it has an answer, and once only for each symbol that it knew.
    ///
    /// # Safety
    /// An address that it returns is that of a function with the C signature of the symbol, and stays valid.
    pub unsafe fn from_parts<F>(resolve: F) -> Self
    where
        F: Fn(&str, &str) -> Option<NonNull<c_void>> + Send + Sync + 'static,
    {
        Self::new(Source::Parts(Box::new(resolve)))
    }

    /// Every function of the table.
    pub fn functions() -> impl Iterator<Item = &'static Function> {
        [
            base::FUNCTIONS,
            device::FUNCTIONS,
            stream::FUNCTIONS,
            memory::FUNCTIONS,
            model::FUNCTIONS,
            profiling::FUNCTIONS,
            spec_atb::FUNCTIONS,
            spec_atb_operations::FUNCTIONS,
            spec_decode::FUNCTIONS,
        ]
        .into_iter()
        .flatten()
    }

    /// Looks a function up without calling it.
    ///
    /// # Errors
    /// [`Error::SymbolMissing`] when no library has it; [`Error::LibraryMissing`] when there is none of its libraries.
    pub fn address(&self, function: &'static Function) -> Result<NonNull<c_void>, Error> {
        self.source.resolve(function)
    }

    /// The release of CANN's runtime; `None` when it is older than 8.5, which cannot say.
    ///
    /// # Errors
    /// The status of `aclsysGetVersionNum`.
    pub fn cann_version(&self) -> Result<Option<Version>, Error> {
        let mut package = *b"runtime\0";
        let mut number = 0;
        // SAFETY: the name is a C string, and both pointers are valid during the call, which keeps neither.
        match unsafe { self.aclsysGetVersionNum(package.as_mut_ptr().cast(), &mut number) } {
            Ok(status) => {
                status.ok()?;
                Ok(Version::from_number(number))
            }
            Err(Error::SymbolMissing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fails when CANN is older than `needed`.
    ///
    /// # Errors
    /// [`Error::VersionTooOld`], or what [`cann_version`](Self::cann_version) fails by.
    pub fn require_cann(&self, needed: Version) -> Result<(), Error> {
        match self.cann_version()? {
            Some(found) if found >= needed => Ok(()),
            // Releases that cannot say are 8.3 and older.
            None if needed <= Version::new(8, 0, 0) => Ok(()),
            found => Err(Error::VersionTooOld {
                found: found.map_or_else(|| "older than 8.5".to_owned(), |version| version.to_string()),
                needed,
            }),
        }
    }
}
