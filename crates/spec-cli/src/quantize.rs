//! `spec quantize`: a model file written anew with fewer bits a weight.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use spec_model::{Checkpoint, Export};

use crate::args::QuantizeArgs;
use crate::memory::Size;
use crate::session::progress_style;
use crate::storage::quantizer;
use crate::{pull, usage};

pub(crate) fn run(args: &QuantizeArgs) -> Result<ExitCode> {
    let (matrices, tables) = (args.kind, args.head_type.unwrap_or(args.kind));
    let (matrices, tables) = (quantizer(matrices)?, quantizer(tables)?);
    let source = pull::resolve(&args.input)?;
    let place = Place::new(&args.output, &source, args.force)?;
    let checkpoint = Checkpoint::open(&source)?;
    let export = Export::new(&checkpoint, matrices, tables)?;
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let bar = ProgressBar::new(export.bytes() as u64).with_style(progress_style()).with_message("quantising");
    let written = place.write(&export, threads, &bar);
    bar.finish_and_clear();
    written?;
    for (from, to, count) in export.changes() {
        let tensors = if count == 1 { "tensor" } else { "tensors" };
        match from == to {
            true => println!("{count:>5} {tensors} of {from} kept"),
            false => println!("{count:>5} {tensors} of {from} now {to}"),
        }
    }
    let before: usize = checkpoint.files().map(|(_, bytes)| bytes).sum();
    println!("{}: {}, from {}", args.output.display(), Size(export.bytes()), Size(before));
    Ok(ExitCode::SUCCESS)
}

/// Where the file goes, and where it lies until it is whole.
struct Place {
    whole: PathBuf,
    partial: PathBuf,
}

impl Place {
    /// Refuses what would destroy something.
    fn new(output: &Path, source: &Path, force: bool) -> Result<Self> {
        let shown = output.display();
        let Some(name) = output.file_name().filter(|_| !output.is_dir()) else {
            return Err(usage(format!("{shown} is a folder; give the name of a file")));
        };
        if output.exists() {
            // A set is read from more files than the one that was named.
            let same = |one: &Path, other: &Path| fs::canonicalize(one).ok() == fs::canonicalize(other).ok();
            if same(output, source) {
                return Err(usage(format!("{shown} is the file that is read; write to another one")));
            }
            if !force {
                return Err(usage(format!("{shown} is there already; --force writes over it")));
            }
        }
        let mut partial = name.to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        Ok(Self { whole: output.to_owned(), partial: output.with_file_name(partial) })
    }

    /// Writes beside the place and moves the file there when it is whole; on failure nothing is left.
    fn write(&self, export: &Export<'_>, threads: usize, bar: &ProgressBar) -> Result<()> {
        let written = self.fill(export, threads, bar);
        if written.is_err() {
            // What failed is what is to be told.
            let _ = fs::remove_file(&self.partial);
        }
        written
    }

    fn fill(&self, export: &Export<'_>, threads: usize, bar: &ProgressBar) -> Result<()> {
        let (name, cannot) = (self.whole.display(), || format!("cannot write {}", self.whole.display()));
        let mut file = BufWriter::new(File::create(&self.partial).with_context(cannot)?);
        export.write(&mut file, &name.to_string(), threads, &mut |bytes| bar.set_position(bytes as u64))?;
        file.flush().with_context(cannot)?;
        file.get_ref().sync_all().with_context(cannot)?;
        fs::rename(&self.partial, &self.whole).with_context(cannot)
    }
}
