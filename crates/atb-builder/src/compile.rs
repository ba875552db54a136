//! The call of the C++ compiler that makes the shim, and the spec-decode module when its source is there.

use crate::root;
use crate::step::Invocation;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// A library of ours over libatb: C++ sources in one folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    /// The folder below the sources.
    folder: &'static str,
    pub(crate) file: &'static str,
}

pub(crate) const SHIM: Library = Library { folder: "shim", file: "libspec_atb.so" };
/// Operations of ours that ATB runs as a part of its graphs.
pub(crate) const SPEC_DECODE: Library = Library { folder: "spec-decode", file: "libspec_decode.so" };

/// What both are compiled for.
#[derive(Debug)]
pub(crate) struct Toolchain<'a> {
    /// The folder that has the libraries' sources.
    pub(crate) sources: &'a Path,
    /// ATB, with `include` and `lib`.
    pub(crate) atb: &'a Path,
    pub(crate) cann: &'a Path,
    pub(crate) cxx11_abi: u8,
    /// Default ceiling of workspaces in MB.
    pub(crate) ceiling: u64,
}

impl Library {
    fn sources(self, folder: &Path) -> PathBuf {
        folder.join(self.folder).join("src")
    }

    /// Whether this checkout has its source.
    pub(crate) fn is_there(self, folder: &Path) -> bool {
        self.sources(folder).is_dir()
    }
}

impl Toolchain<'_> {
    /// The command that makes a library in a folder.
    ///
    /// # Errors
    /// There is no source, or no C++ compiler.
    pub(crate) fn command(&self, library: Library, into: &Path) -> Result<Invocation> {
        let folder = library.sources(self.sources);
        let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        let mut sources: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        sources.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
        sources.sort();
        ensure!(!sources.is_empty(), "{} has no .cpp file", folder.display());

        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").pic(true).warnings(true).extra_warnings(true).opt_level(2).debug(false);
        build.cargo_metadata(false).cargo_warnings(false).target(&triple).host(&triple);
        build.define("_GLIBCXX_USE_CXX11_ABI", self.cxx11_abi.to_string().as_str());
        build.define("SPEC_ATB_MAX_WS_SIZE", self.ceiling.to_string().as_str());
        let compiler = build.try_get_compiler().context("there is no C++ compiler; install g++, or name one in CXX")?;
        let mut command = compiler.to_command();
        command.arg("-shared").arg("-I").arg(root().join("crates/acl-sys/headers"));
        // The vendor's headers are not ours to warn about; stand-ins for those that a folder lacks come last.
        for include in [self.atb.join("include"), self.cann.join("include"), self.sources.join("shim/stubs")] {
            command.arg("-isystem").arg(include);
        }
        command.args(&sources).arg("-o").arg(into.join(library.file));
        command.arg(format!("-Wl,-soname,{}", library.file)).arg("-Wl,-rpath,$ORIGIN");
        // Where libatb has no weak reference resolved, it is needed all the same.
        command.arg("-L").arg(self.atb.join("lib")).args(["-Wl,--no-as-needed", "-latb", "-ldl"]);
        Ok(Invocation::of(&command))
    }
}
