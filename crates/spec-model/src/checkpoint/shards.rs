//! Sets of files that one checkpoint was split into: `NAME-00002-of-00005.gguf`.

use std::path::{Path, PathBuf};

use crate::gguf::{Gguf, MAGIC};
use crate::{Error, Mapping, Result};

/// Most files of a set; the largest published ones have some hundreds.
pub(super) const MAX_SHARDS: u32 = 4096;
/// Missing files that a message names.
const NAMED: usize = 8;

/// The name of one file of a set, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShardName {
    prefix: String,
    extension: String,
    /// From one.
    pub(super) number: u32,
    pub(super) count: u32,
}

impl ShardName {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.')?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| {
            let all = text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| all)
        };
        let (number, count) = (digits(number)?, digits(count)?);
        let valid = (1..=count).contains(&number) && count <= MAX_SHARDS;
        valid.then(|| Self { prefix: prefix.to_owned(), extension: extension.to_owned(), number, count })
    }

    /// Names of all files of the set.
    pub(super) fn all(&self) -> Vec<String> {
        let Self { prefix, extension, count, .. } = self;
        (1..=*count).map(|number| format!("{prefix}-{number:05}-of-{count:05}.{extension}")).collect()
    }

    /// The index that belongs to a set of safetensors files.
    pub(super) fn index(&self) -> String {
        format!("{}.{}.index.json", self.prefix, self.extension)
    }

    /// What all names of a set share.
    pub(super) fn set(&self) -> (&str, &str, u32) {
        (&self.prefix, &self.extension, self.count)
    }
}

/// The part of a path behind its last separator, where it is text.
pub(super) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Checks that all of a set's files are in `folder`, before any is read.
pub(super) fn all_there(folder: &Path, names: &[String], opened: &str) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    let missing: Vec<&str> =
        names.iter().zip(&paths).filter(|(_, path)| !path.is_file()).map(|(name, _)| name.as_str()).collect();
    if missing.is_empty() {
        return Ok(paths);
    }
    let more = missing.len().saturating_sub(NAMED);
    let mut listed = missing[..missing.len() - more].join(", ");
    if more > 0 {
        listed = format!("{listed} and {more} more");
    }
    Err(Error::MissingShards { file: opened.to_owned(), count: names.len(), missing: listed })
}

/// The GGUF file at `path` alone, or the set it belongs to.
pub(super) fn open_gguf(path: &Path, bytes: Mapping) -> Result<Vec<Gguf<Mapping>>> {
    let name = path.display().to_string();
    let opened = Gguf::parse(bytes, &name)?;
    refuse_joined(&opened)?;
    let split = Split::of(&opened)?;
    if split.count <= 1 {
        return Ok(vec![opened]);
    }
    let fail = |problem: String| Error::Shards { file: name.clone(), problem };
    let Some(named) = ShardName::parse(file_name(path)) else {
        let problem = format!(
            "file {} of {} of a set, but it is not called ...-{:05}-of-{:05}.gguf, so that the others cannot be found; \
             give it the name it was published under",
            split.number + 1,
            split.count,
            split.number + 1,
            split.count
        );
        return Err(fail(problem));
    };
    if (named.number, named.count) != (split.number + 1, split.count) {
        let problem = format!(
            "named as file {} of {}, but it is file {} of {} of its set; give the files the names they were published under",
            named.number,
            named.count,
            split.number + 1,
            split.count
        );
        return Err(fail(problem));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let paths = all_there(folder, &named.all(), &name)?;
    let mut own = Some(opened);
    let mut set = Vec::with_capacity(paths.len());
    for (index, path) in paths.iter().enumerate() {
        let shard = match own.take_if(|_| index + 1 == named.number as usize) {
            Some(opened) => opened,
            None => Gguf::parse(Mapping::open(path)?, &path.display().to_string())?,
        };
        refuse_joined(&shard)?;
        set.push(shard);
    }
    check_set(&set)?;
    Ok(set)
}

/// A GGUF file in memory: there is nowhere to look for others.
pub(super) fn lone_gguf(bytes: Mapping, name: &str) -> Result<Vec<Gguf<Mapping>>> {
    let file = Gguf::parse(bytes, name)?;
    refuse_joined(&file)?;
    let split = Split::of(&file)?;
    if split.count > 1 {
        let problem = format!("file {} of {} of a set; open it from its folder", split.number + 1, split.count);
        return Err(Error::Shards { file: name.to_owned(), problem });
    }
    Ok(vec![file])
}

/// What a file says about its set.
struct Split {
    /// From zero.
    number: u32,
    /// Zero where there is no set.
    count: u32,
    /// Tensors of all files.
    tensors: Option<u32>,
}

impl Split {
    fn of(file: &Gguf<Mapping>) -> Result<Self> {
        let metadata = file.metadata();
        let count = metadata.optional_u32("split.count")?.unwrap_or(0);
        let number = metadata.optional_u32("split.no")?.unwrap_or(0);
        if count > MAX_SHARDS {
            return Err(metadata.bad("split.count", format!("{count} files, at most {MAX_SHARDS} are accepted")));
        }
        if count > 1 && number >= count {
            return Err(metadata.bad("split.no", format!("{number} is not below the {count} files")));
        }
        Ok(Self { number, count, tensors: metadata.optional_u32("split.tensors.count")? })
    }
}

fn check_set(set: &[Gguf<Mapping>]) -> Result<()> {
    let fail = |file: &Gguf<Mapping>, problem: String| Err(Error::Shards { file: file.name().to_owned(), problem });
    let advice = "the files are not of one set; download them again";
    let found: usize = set.iter().map(|file| file.tensors().len()).sum();
    let first = set[0].metadata().optional_str("general.architecture")?;
    for (index, file) in set.iter().enumerate() {
        let split = Split::of(file)?;
        if (split.number as usize, split.count as usize) != (index, set.len()) {
            let problem = format!(
                "file {} of {} by its metadata, wanted {} of {}: {advice}",
                split.number + 1,
                split.count,
                index + 1,
                set.len()
            );
            return fail(file, problem);
        }
        if let Some(tensors) = split.tensors.filter(|&tensors| tensors as usize != found) {
            return fail(file, format!("{tensors} tensors in all by its metadata, but there are {found}: {advice}"));
        }
        let architecture = file.metadata().optional_str("general.architecture")?;
        if let Some(other) = architecture.filter(|_| index > 0 && architecture != first) {
            return fail(file, format!("of architecture `{other}`, the first file of another: {advice}"));
        }
    }
    Ok(())
}

/// A file with another one behind its last tensor: somebody joined a set.
fn refuse_joined(file: &Gguf<Mapping>) -> Result<()> {
    let bytes = file.bytes().as_ref();
    let Some(end) = file.tensors().iter().map(|tensor| tensor.range.end).max() else {
        return Ok(());
    };
    let padded = end.next_multiple_of(file.alignment() as usize);
    let follows = |at: usize| bytes.get(at..).is_some_and(|rest| rest.starts_with(&MAGIC));
    if follows(end) || follows(padded) {
        return Err(Error::Shards {
            file: file.name().to_owned(),
            problem:
                "another GGUF file follows its last tensor: the files of a set were joined; load the first shard and \
                      do not `cat` them, since each has a header of its own"
                    .into(),
        });
    }
    Ok(())
}
