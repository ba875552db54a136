//! The vendor's headers, as the wheel of torch-npu carries them.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "torch-npu==2.14.0";
const PREFIX: &str = "torch_npu/include/third_party/acl/inc";

/// The folder of the headers, kept in the user's cache. They are not ours to distribute.
pub(crate) fn torch_npu() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME says where to keep torch-npu's headers")?
        .join("spec");
    let folder = cache.join(PACKAGE);
    if !folder.join(PREFIX).join("acl/acl.h").is_file() {
        std::fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
        download(&cache, &folder)?;
    }
    Ok(folder.join(PREFIX))
}

fn download(cache: &Path, folder: &Path) -> Result<()> {
    println!("downloading {PACKAGE} (44 MB) for its headers");
    let work = tempfile::tempdir_in(cache).context("cannot make a folder in the cache")?;
    // The headers are the same in the wheel of every platform.
    let platform = ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "--only-binary=:all:"];
    let status = Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps"])
        .args(platform)
        .args([PACKAGE, "--dest"])
        .arg(work.path())
        .status()
        .context("cannot run python3, whose pip downloads torch-npu")?;
    ensure!(status.success(), "pip cannot download {PACKAGE}; with headers of your own say --headers DIR");
    let entries = std::fs::read_dir(work.path())?.flatten().map(|entry| entry.path());
    let Some(wheel) = entries.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "whl"))
    else {
        bail!("pip left no wheel of {PACKAGE}");
    };
    let unpacked = work.path().join("unpacked");
    let program = "import sys, zipfile\n\
        wheel = zipfile.ZipFile(sys.argv[1])\n\
        [wheel.extract(name, sys.argv[2]) for name in wheel.namelist() if name.startswith(sys.argv[3] + '/acl/')]";
    let status = Command::new("python3").args(["-c", program]).arg(&wheel).arg(&unpacked).arg(PREFIX).status()?;
    ensure!(status.success(), "cannot unpack {}", wheel.display());
    std::fs::rename(&unpacked, folder).with_context(|| format!("cannot move the headers to {}", folder.display()))
}
