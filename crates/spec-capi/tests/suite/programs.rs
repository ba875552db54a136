//! Tiny models in files, compilers, and programs over the library that this build made.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use spec_testing::tiny::{self, TinySpec};

/// The target: a vocabulary in which the article's ids are tokens.
pub(crate) const TARGET: TinySpec = TinySpec { vocab: 2112, seed: 21, ..TinySpec::llama() };
/// The article's end token.
pub(crate) const END: u32 = 102;

/// The file of the target, or of its draft model: the same weights, rounded to four bits anew, which mostly agree.
pub(crate) fn model(is_draft: bool) -> Vec<u8> {
    let mut bytes =
        if is_draft { tiny::gguf_quantized(TARGET, spec_model::Quantizer::Q4_0) } else { tiny::gguf_floats(TARGET) };
    end_with(&mut bytes, END);
    bytes
}

/// Names another end token in a GGUF file.
fn end_with(file: &mut [u8], id: u32) {
    const KEY: &[u8] = b"tokenizer.ggml.eos_token_id";
    const U32: u32 = 4;
    let at = file.windows(KEY.len()).position(|window| window == KEY).unwrap() + KEY.len();
    assert_eq!(file[at..at + 4], U32.to_le_bytes());
    file[at + 4..at + 8].copy_from_slice(&id.to_le_bytes());
}

/// Held by tests that start AscendCL in their own process, which has it once.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of the C library and of the simulator that were built with these tests.
pub(crate) fn libraries() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for file in ["libspec.so", "libascend_sim.so"] {
        assert!(folder.join(file).exists(), "{file} is not in {}", folder.display());
    }
    folder
}

/// A path from this package's folder.
pub(crate) fn package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compiles sources to a program that finds the libraries of this build.
pub(crate) fn compile(compiler: &str, arguments: &[&str], sources: &[PathBuf], includes: &[&str], program: &Path) {
    let libraries = libraries();
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror"]).args(arguments).args(sources).arg("-o").arg(program);
    for include in includes {
        command.arg("-I").arg(package(include));
    }
    command.arg("-L").arg(&libraries).args(["-lspec", "-lascend_sim", "-ldl"]);
    run(command.arg(format!("-Wl,-rpath,{}", libraries.display())));
}

/// Runs a command that has to succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}
