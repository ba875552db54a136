//! The call of the C++ compiler that makes the shim, with the spec-decode module in it when it is asked for.
//!
//! The module is no library of its own: its operations are wrapped and report failures as the shim's others, by code that
//! the shim does not export, and one file cannot be of two builds or two C++ ABIs.

use crate::root;
use crate::step::Invocation;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// The shim's file.
pub(crate) const SHIM: &str = "libspec_atb.so";

/// What the shim is compiled of and for.
#[derive(Debug)]
pub(crate) struct Toolchain<'a> {
    /// The folder that has `shim` and `spec-decode`.
    pub(crate) sources: &'a Path,
    /// Whether the spec-decode module goes in.
    pub(crate) spec_decode: bool,
    /// ATB, with `include` and `lib`.
    pub(crate) atb: &'a Path,
    pub(crate) cann: &'a Path,
    pub(crate) cxx11_abi: u8,
    /// Default ceiling of workspaces in MB.
    pub(crate) ceiling: u64,
}

impl Toolchain<'_> {
    /// The command that makes the shim in a folder.
    ///
    /// # Errors
    /// There is no source, or no C++ compiler.
    pub(crate) fn shim(&self, into: &Path) -> Result<Invocation> {
        let shim = self.sources.join("shim/src");
        let mut sources = in_folder(&shim)?;
        if self.spec_decode {
            sources.extend(in_folder(&self.sources.join("spec-decode/src"))?);
        }

        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").pic(true).warnings(true).extra_warnings(true).opt_level(2).debug(false);
        build.cargo_metadata(false).cargo_warnings(false).target(&triple).host(&triple);
        build.define("_GLIBCXX_USE_CXX11_ABI", self.cxx11_abi.to_string().as_str());
        build.define("SPEC_ATB_MAX_WS_SIZE", self.ceiling.to_string().as_str());
        let compiler = build.try_get_compiler().context("there is no C++ compiler; install g++, or name one in CXX")?;
        let mut command = compiler.to_command();
        command.arg("-shared").arg("-I").arg(root().join("crates/acl-sys/headers")).arg("-I").arg(&shim);
        // The vendor's headers are not ours to warn about; stand-ins for those that a folder lacks come last.
        for include in [self.atb.join("include"), self.cann.join("include"), self.sources.join("shim/stubs")] {
            command.arg("-isystem").arg(include);
        }
        command.args(&sources).arg("-o").arg(into.join(SHIM));
        command.arg(format!("-Wl,-soname,{SHIM}")).arg("-Wl,-rpath,$ORIGIN");
        // Where libatb has no weak reference resolved, it is needed all the same.
        command.arg("-L").arg(self.atb.join("lib")).args(["-Wl,--no-as-needed", "-latb", "-ldl"]);
        Ok(Invocation::of(&command))
    }
}

/// The C++ sources in a folder.
fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut sources: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    sources.sort();
    ensure!(!sources.is_empty(), "{} has no .cpp file", folder.display());
    Ok(sources)
}
