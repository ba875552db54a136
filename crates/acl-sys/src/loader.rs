//! Finding libraries, and functions in them.

use crate::api::Api;
use crate::bindings::spec_atb::SPEC_ATB_ABI_VERSION;
use crate::error::{ABSENT, Error, Tried};
use crate::host::{self, Host, SIMULATOR};
use crate::library::{self, Library};
use crate::table::{Family, Function, Since};
use std::ffi::c_void;
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// What every simulator exports, and no library of the vendor's.
const SIMULATOR_MARK: &std::ffi::CStr = c"ascend_sim_version";

/// How to look for the libraries.
///
/// ```no_run
/// # fn main() -> Result<(), acl_sys::Error> {
/// // SAFETY: the simulator that this project builds is called by the signatures it was built with.
/// let api = unsafe { acl_sys::Loader::new().simulator(true).load()? };
/// # let _ = api;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Loader {
    path: Option<PathBuf>,
    shim: Option<PathBuf>,
    simulator: bool,
    bind_now: bool,
    host: Host,
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}

impl Loader {
    /// Looks where the variables and habits of this machine say, for real libraries.
    pub fn new() -> Self {
        Self { path: None, shim: None, simulator: false, bind_now: false, host: Host::current() }
    }

    /// Looks for AscendCL in this folder (or its `lib64`), or takes this library and its neighbours; nowhere else.
    #[must_use]
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// Takes the ATB shim from this file or folder.
    #[must_use]
    pub fn shim(mut self, path: impl AsRef<Path>) -> Self {
        self.shim = Some(path.as_ref().to_owned());
        self
    }

    /// Asks for a simulator, and for nothing else. Without this a simulator is refused; with it hardware is.
    ///
    /// It is looked for at `SPEC_ASCEND_SIM`, beside the executable, and in `target/ascend`.
    #[must_use]
    pub fn simulator(mut self, wanted: bool) -> Self {
        self.simulator = wanted;
        self
    }

    /// Has every reference of a library resolved when it is opened. A mixed installation is then an error that names the
    /// symbol, where it would otherwise end the process at the first call that needs it. For diagnoses: it takes longer,
    /// and refuses libraries that merely have a reference which nobody uses.
    #[must_use]
    pub fn bind_now(mut self, wanted: bool) -> Self {
        self.bind_now = wanted;
        self
    }

    /// Looks on another machine than the current one.
    #[must_use]
    pub fn host(mut self, host: Host) -> Self {
        self.host = host;
        self
    }

    /// Opens the first library; others are opened, and functions looked up, when they are needed.
    ///
    /// # Errors
    /// As [`Api::load_from`]; [`Error::SimulatorMissing`] and [`Error::NotASimulator`] when one was asked for.
    ///
    /// # Safety
    /// As [`Api::load`].
    pub unsafe fn load(self) -> Result<Api, Error> {
        let libraries = Libraries { loader: self, opened: Mutex::new(Vec::new()) };
        let mut tried = Tried::default();
        for wanted in libraries.wanted(Family::Runtime) {
            match libraries.open(wanted)? {
                Ok(_) => return Ok(Api::new(Source::Libraries(libraries))),
                Err(attempts) => tried.0.extend(attempts.0),
            }
        }
        Err(libraries.missing(Family::Runtime, tried))
    }

    /// The files that a library may be, in order.
    fn candidates(&self, wanted: Wanted) -> Vec<PathBuf> {
        let explicit = |path: &Path, name: &str| {
            if path.is_dir() { vec![path.join(name), path.join("lib64").join(name)] } else { vec![path.to_owned()] }
        };
        match (wanted, &self.path) {
            (Wanted::Simulator, Some(path)) => explicit(path, SIMULATOR),
            (Wanted::Simulator, None) => {
                self.host.simulator_places().iter().map(|place| file_in(place, SIMULATOR)).collect()
            }
            (Wanted::Given, path) => path.iter().cloned().collect(),
            (Wanted::Shim(name), _) => match &self.shim {
                Some(path) => vec![file_in(path, name)],
                None => self.host.shim_places().iter().map(|place| file_in(place, name)).collect(),
            },
            (Wanted::Vendor(name), Some(path)) if path.is_dir() => explicit(path, name),
            (Wanted::Vendor(name), Some(path)) => path.parent().iter().map(|folder| folder.join(name)).collect(),
            (Wanted::Vendor(name), None) => {
                self.host.library_folders().iter().map(|folder| folder.join(name)).collect()
            }
        }
    }
}

/// A place may be the file itself.
fn file_in(place: &Path, name: &str) -> PathBuf {
    if place.extension().is_some_and(|extension| extension == "so") { place.to_owned() } else { place.join(name) }
}

/// A library that may have a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// The file that the caller named.
    Given,
    /// One of the vendor's, by its name.
    Vendor(&'static str),
    /// The shim, by its name.
    Shim(&'static str),
    /// The simulator, which stands for all of them.
    Simulator,
}

/// A library that was opened, or the places where it was not.
type Outcome = Result<Arc<Library>, Tried>;

/// Libraries as they are needed.
#[derive(Debug)]
pub(crate) struct Libraries {
    loader: Loader,
    opened: Mutex<Vec<(Wanted, Outcome)>>,
}

impl Libraries {
    fn wanted(&self, family: Family) -> Vec<Wanted> {
        if self.loader.simulator {
            return vec![Wanted::Simulator];
        }
        if family == Family::Shim {
            return family.libraries().iter().map(|name| Wanted::Shim(name)).collect();
        }
        let given = self.loader.path.as_ref().filter(|path| !path.is_dir()).map(|_| Wanted::Given);
        given.into_iter().chain(family.libraries().iter().map(|name| Wanted::Vendor(name))).collect()
    }

    /// Opens a library once. The outer error is a library that must not be used, the inner a library that is not there.
    fn open(&self, wanted: Wanted) -> Result<Outcome, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outcome)) = opened.iter().find(|(name, _)| *name == wanted) {
            return Ok(outcome.clone());
        }
        let outcome = self.search(wanted)?;
        opened.push((wanted, outcome.clone()));
        Ok(outcome)
    }

    fn search(&self, wanted: Wanted) -> Result<Outcome, Error> {
        let mut tried = Tried::default();
        for file in self.loader.candidates(wanted) {
            let place = file.display().to_string();
            if !file.exists() {
                tried.add(place, ABSENT);
            } else if host::is_stub(&file) {
                if self.loader.path.is_some() {
                    return Err(Error::StubLibrary { file, advice: self.loader.host.advice() });
                }
                tried.add(place, "a library for linking, passed over");
            } else {
                // SAFETY: `Loader::load` promises that what is found there is what its name says.
                match unsafe { Library::open(&file, self.loader.bind_now) } {
                    Ok(library) => return self.accept(wanted, library).map(Ok),
                    Err(reason) => tried.add(place, reason),
                }
            }
        }
        if let (Wanted::Vendor(name), None, true) = (wanted, &self.loader.path, self.loader.host.is_current()) {
            // SAFETY: as above.
            match unsafe { Library::open(Path::new(name), self.loader.bind_now) } {
                Ok(library) => return self.accept(wanted, library).map(Ok),
                Err(reason) => tried.add(name, reason),
            }
        }
        Ok(Err(tried))
    }

    /// Checks that a library is of the kind that was asked for.
    fn accept(&self, wanted: Wanted, library: Library) -> Result<Arc<Library>, Error> {
        let file = library.file().to_owned();
        let is_simulator = library.symbol(SIMULATOR_MARK).is_some();
        if is_simulator != self.loader.simulator {
            library.close();
            return Err(if is_simulator { Error::SimulatorRefused { file } } else { Error::NotASimulator { file } });
        }
        if matches!(wanted, Wanted::Shim(_) | Wanted::Simulator) {
            let found = shim_version(&library);
            if found != SPEC_ATB_ABI_VERSION {
                library.close();
                return Err(Error::ShimVersion { file, found, expected: SPEC_ATB_ABI_VERSION });
            }
        }
        tracing::debug!(library = ?wanted, file = %file.display(), "library opened");
        Ok(Arc::new(library))
    }

    fn resolve(&self, function: &'static Function) -> Result<NonNull<c_void>, Error> {
        let mut tried = Tried::default();
        let mut any = false;
        for wanted in self.wanted(function.family) {
            let library = match self.open(wanted)? {
                Ok(library) => library,
                Err(attempts) => {
                    tried.0.extend(attempts.0);
                    continue;
                }
            };
            any = true;
            let Some(address) = library.symbol(function.symbol) else {
                let file = library.file().display().to_string();
                tracing::debug!(symbol = function.name(), file, "no such symbol");
                tried.add(file, "no such symbol");
                continue;
            };
            // What a library depends on is found by the system's loader, which knows nothing of stubs.
            return match library::origin(address).filter(|origin| host::is_stub(origin)) {
                Some(file) => Err(Error::StubLibrary { file, advice: self.loader.host.advice() }),
                None => Ok(address),
            };
        }
        if any { Err(symbol_missing(function, tried)) } else { Err(self.missing(function.family, tried)) }
    }

    fn missing(&self, family: Family, tried: Tried) -> Error {
        let host = &self.loader.host;
        if self.loader.simulator {
            return Error::SimulatorMissing { tried };
        }
        let (libraries, advice) = if family == Family::Shim {
            (family.libraries().join(", "), host.shim_advice())
        } else {
            (family.libraries().join(", "), host.advice())
        };
        let hint = tried.0.iter().find_map(|attempt| host::hint(&attempt.outcome));
        let advice = hint.map_or_else(|| advice.clone(), |hint| format!("{hint}\n{advice}"));
        Error::LibraryMissing { libraries, tried, advice }
    }
}

fn symbol_missing(function: &'static Function, tried: Tried) -> Error {
    let advice = match function.family {
        Family::Shim if matches!(function.since, Since::SpecDecode(_)) => {
            "build the shim with the module: `cargo xtask build-atb --installed --with-spec-decode`".to_owned()
        }
        Family::Shim => "build the shim anew with `cargo xtask build-atb --installed`".to_owned(),
        _ => format!("install {} or newer, with its driver, or do without this call", function.since),
    };
    Error::SymbolMissing { symbol: function.name(), since: function.since, tried, advice }
}

/// The version of the shim's interface that a library speaks; 0 when it is no shim.
fn shim_version(library: &Library) -> u32 {
    let Some(address) = library.symbol(c"spec_atb_abi_version") else { return 0 };
    // SAFETY: the symbol has had this signature from version 1 on, so that any version can be asked.
    let version: unsafe extern "C" fn() -> u32 = unsafe { std::mem::transmute(address.as_ptr()) };
    // SAFETY: it takes nothing, and may be called before anything else.
    unsafe { version() }
}

type Resolve = dyn Fn(&str, &str) -> Option<NonNull<c_void>> + Send + Sync;

/// Where addresses come from.
pub(crate) enum Source {
    Libraries(Libraries),
    Parts(Box<Resolve>),
}

impl Source {
    pub(crate) fn resolve(&self, function: &'static Function) -> Result<NonNull<c_void>, Error> {
        match self {
            Source::Libraries(libraries) => libraries.resolve(function),
            Source::Parts(resolve) => {
                let mut tried = Tried::default();
                for library in function.family.libraries() {
                    match resolve(library, function.name()) {
                        Some(address) => return Ok(address),
                        None => tried.add(*library, "no such symbol"),
                    }
                }
                Err(symbol_missing(function, tried))
            }
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Libraries(libraries) => libraries.fmt(formatter),
            Source::Parts(_) => formatter.write_str("Parts"),
        }
    }
}
