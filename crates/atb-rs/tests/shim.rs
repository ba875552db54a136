//! The C++ shim, compiled against ATB's own headers under both C++ ABIs, and called over a libatb of the test's own.
//!
//! Needs a C++ compiler and, in `SPEC_ATB_INCLUDE`, the include folders of ATB and of CANN, separated by colons:
//!
//!     SPEC_ATB_INCLUDE=$ATB_HOME_PATH/include:$ASCEND_HOME_PATH/include \
//!         cargo test -p atb-rs --test shim -- --ignored
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 6] = ["context", "execution", "graph", "layout", "library", "operations"];

fn shim() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("shim")
}

fn spec_decode() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("spec-decode")
}

fn sources() -> Vec<PathBuf> {
    let sources: Vec<PathBuf> = SOURCES.iter().map(|name| shim().join(format!("src/{name}.cpp"))).collect();
    let listed = std::fs::read_dir(shim().join("src")).unwrap().flatten();
    let all = listed.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "cpp"));
    assert_eq!(all.count(), sources.len(), "SOURCES lists every source");
    sources
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{words}");
}

/// A compiler with the include folders: ATB's, CANN's, then the stand-ins for what they lack.
fn compiler(program: &str, abi: u8) -> Command {
    let folders = std::env::var_os("SPEC_ATB_INCLUDE").expect("SPEC_ATB_INCLUDE names ATB's and CANN's headers");
    let mut command = Command::new(program);
    command.args(["-O1", "-fPIC", "-Wall", "-Wextra", "-Werror"]);
    command.arg(format!("-D_GLIBCXX_USE_CXX11_ABI={abi}"));
    command.arg("-I").arg(shim().join("../../acl-sys/headers")).arg("-I").arg(shim().join("src"));
    for folder in std::env::split_paths(&folders).chain([shim().join("stubs")]) {
        command.arg("-isystem").arg(folder);
    }
    command
}

fn library(folder: &Path, name: &str, abi: u8, sources: &[PathBuf], extra: &[&str]) {
    let mut command = compiler("c++", abi);
    command.args(["-std=c++17", "-shared", "-o"]).arg(folder.join(name)).args(sources);
    run(command.arg(format!("-Wl,-soname,{name}")).arg(format!("-L{}", folder.display())).args(extra));
}

/// Runs a program of C over a shim of these sources and a libatb of the test's own. ATB is needed though the shim's
/// references to it are weak.
fn exercise(abis: (u8, u8), sources: &[PathBuf], atb: PathBuf, program: &Path) {
    let (shim_abi, atb_abi) = abis;
    let folder = tempfile::tempdir().unwrap();
    library(folder.path(), "libatb.so", atb_abi, &[atb], &[]);
    library(folder.path(), "libspec_atb.so", shim_abi, sources, &["-Wl,--no-as-needed", "-latb", "-ldl"]);
    let file = folder.path().join("exercise");
    let mut command = compiler("cc", shim_abi);
    command.args(["-std=c11", "-o"]).arg(&file).arg(program);
    command.arg(format!("-L{}", folder.path().display())).args(["-lspec_atb", "-Wl,--allow-shlib-undefined", "-lm"]);
    run(command.arg(format!("-Wl,-rpath-link,{}", folder.path().display())));
    let mut exercise = Command::new(&file);
    exercise.env("LD_LIBRARY_PATH", folder.path());
    run(if shim_abi == atb_abi { &mut exercise } else { exercise.arg("mismatch") });
}

#[test]
#[ignore = "needs ATB's headers in SPEC_ATB_INCLUDE"]
fn the_shim_compiles_and_works_under_both_abis() {
    for abis in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        exercise(abis, &sources(), shim().join("tests/fake_libatb.cpp"), &shim().join("tests/exercise.c"));
    }
}

#[test]
#[ignore = "needs ATB's headers in SPEC_ATB_INCLUDE"]
fn the_spec_decode_module_compiles_and_judges_under_both_abis() {
    let sources: Vec<PathBuf> = sources().into_iter().chain([spec_decode().join("src/verify.cpp")]).collect();
    let tests = spec_decode().join("tests");
    for abi in [0, 1] {
        exercise((abi, abi), &sources, tests.join("computing_libatb.cpp"), &tests.join("exercise.c"));
    }
}
