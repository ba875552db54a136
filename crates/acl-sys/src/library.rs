//! Shared libraries: opened, asked for symbols, and left open.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// An open library. It stays open: the vendor's libraries have threads that outlive any handle.
#[derive(Debug)]
pub(crate) struct Library {
    handle: NonNull<c_void>,
    file: PathBuf,
}

// SAFETY: the loader locks by itself, and a handle says nothing about the thread that got it.
unsafe impl Send for Library {}
// SAFETY: as above; nothing here changes what the handle stands for.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a file, or with a bare name what the system's loader finds; with `bind_now` all its references are resolved.
    ///
    /// # Errors
    /// The loader's own words.
    ///
    /// # Safety
    /// The library's initialisers run, and have to be harmless.
    pub(crate) unsafe fn open(path: &Path, bind_now: bool) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "the path holds a NUL".to_owned())?;
        let binding = if bind_now { libc::RTLD_NOW } else { libc::RTLD_LAZY };
        // SAFETY: the name is a C string; what the initialisers do is the caller's promise.
        let handle = unsafe { libc::dlopen(name.as_ptr(), binding | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Self { handle, file: path.to_owned() }),
            None => Err(last_error()),
        }
    }

    /// The path it was opened by.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The address of a symbol of this library or of what it depends on.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open, and the name is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// Gives up a library of which nothing was used.
    pub(crate) fn close(self) {
        // SAFETY: the handle is open, and no address of the library has left this module's caller.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

/// The file that the code or data at an address was loaded from.
pub(crate) fn origin(address: NonNull<c_void>) -> Option<PathBuf> {
    // SAFETY: all-zero is a valid Dl_info: null pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about, and `info` is ours to write to.
    let found = unsafe { libc::dladdr(address.as_ptr(), &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so that the name is a C string of the loader's, which lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

fn last_error() -> String {
    // SAFETY: dlerror is per thread; its text stays until this thread's next call of the family.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gave no reason".to_owned();
    }
    // SAFETY: not null, so that it is a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
