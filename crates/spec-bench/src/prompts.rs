//! The prompts: a folder of texts, each with its name.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
}

/// The `.txt` files of `folder` by name; `only` selects some, in its order.
pub(crate) fn read(folder: &Path, only: &[String]) -> Result<Vec<Prompt>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("no prompts in {}", folder.display()))?;
    let mut prompts = Vec::new();
    for entry in entries {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "txt") {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            prompts.push(Prompt { name, file });
        }
    }
    prompts.sort_by(|one, other| one.name.cmp(&other.name));
    let known = || prompts.iter().map(|prompt| prompt.name.as_str()).collect::<Vec<_>>().join(", ");
    if prompts.is_empty() {
        bail!("there is no .txt file in {}", folder.display());
    }
    if only.is_empty() {
        return Ok(prompts);
    }
    only.iter()
        .map(|name| {
            let found = prompts.iter().find(|prompt| prompt.name == *name).cloned();
            found.with_context(|| format!("there is no prompt `{name}` in {}; there are {}", folder.display(), known()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn prompts_are_sorted_or_in_the_order_asked_for_and_a_wrong_name_is_answered_with_the_right_ones() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.txt", "a.txt", "notes.md"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let names = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            read(folder.path(), &only).unwrap().into_iter().map(|prompt| prompt.name).collect()
        };
        assert_eq!(names(&[]), ["a", "b"]);
        assert_eq!(names(&["b", "a"]), ["b", "a"]);
        let error = read(folder.path(), &["c".into()]).unwrap_err().to_string();
        assert!(error.contains("`c`") && error.contains("a, b"), "{error}");
    }
}
