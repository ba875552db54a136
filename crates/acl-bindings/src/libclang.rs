//! Finds libclang, and what it needs of the C compiler.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Points bindgen to libclang, unless the caller's `LIBCLANG_PATH` does.
///
/// # Safety
/// No other thread may read or write the environment meanwhile.
pub(crate) unsafe fn locate() -> Result<()> {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return Ok(());
    }
    let Some(folder) = in_system().or_else(in_python) else {
        bail!(
            "no libclang; install it by `pip install libclang` or `apt-get install libclang-dev`, or set LIBCLANG_PATH"
        );
    };
    // SAFETY: the caller's promise.
    unsafe { std::env::set_var("LIBCLANG_PATH", folder) };
    Ok(())
}

fn in_system() -> Option<PathBuf> {
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let versions = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let versions = versions
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("llvm-")));
    let mut folders: Vec<PathBuf> = versions.map(|path| path.join("lib")).collect();
    folders.sort();
    folders.push(PathBuf::from(triple));
    folders.push(PathBuf::from("/usr/lib64"));
    folders.into_iter().rev().find(|folder| holds_libclang(folder))
}

/// The package `libclang` of Python's index.
fn in_python() -> Option<PathBuf> {
    let program = "import clang, os; print(os.path.join(list(clang.__path__)[0], 'native'))";
    let output =
        Command::new("python3").args(["-c", program]).output().ok().filter(|output| output.status.success())?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    holds_libclang(&folder).then_some(folder)
}

/// `libclang-cpp.so` is another library.
fn holds_libclang(folder: &Path) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let version = name.strip_prefix("libclang-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        name.starts_with("libclang.so") || (version && name.contains(".so"))
    })
}

/// Python's package has no headers of the compiler's own, such as stddef.h; gcc's serve.
pub(crate) fn compiler_headers() -> Result<PathBuf> {
    let output = Command::new("cc")
        .arg("-print-file-name=include")
        .output()
        .context("cannot run cc, whose stddef.h is needed; install gcc")?;
    Ok(PathBuf::from(String::from_utf8(output.stdout).context("cc names a folder that is not UTF-8")?.trim()))
}
