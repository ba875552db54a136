//! What `hf:ORG/REPO[@REVISION][:FILE]` names.

use std::fmt;
use std::path::PathBuf;

/// A repository of a hub, at a revision, and perhaps one file in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    /// `organisation/name`.
    pub(crate) repository: String,
    /// Branch, tag or commit.
    pub(crate) revision: String,
    /// Path in the repository.
    pub(crate) file: Option<String>,
}

impl Source {
    /// `None` when `text` does not begin with `hf:`, and is the name of a file then.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, String>> {
        let rest = text.strip_prefix("hf:")?;
        Some(Self::parse_rest(rest).map_err(|problem| format!("{text}: {problem}; give hf:ORG/REPO[@REVISION][:FILE]")))
    }

    fn parse_rest(rest: &str) -> Result<Self, String> {
        let (repository, file) = match rest.split_once(':') {
            Some((repository, file)) => (repository, Some(file)),
            None => (rest, None),
        };
        let (repository, revision) = repository.split_once('@').unwrap_or((repository, "main"));
        let names: Vec<&str> = repository.split('/').collect();
        if names.len() != 2 || !names.iter().all(|name| is_name(name)) {
            return Err(format!("`{repository}` is no repository"));
        }
        if !revision.split('/').all(is_name) {
            return Err(format!("`{revision}` is no revision"));
        }
        if let Some(file) = file
            && !is_path(file)
        {
            return Err(format!("`{file}` is no path in a repository"));
        }
        Ok(Self { repository: repository.to_owned(), revision: revision.to_owned(), file: file.map(str::to_owned) })
    }

    /// The folder of this revision, below the one for models.
    pub(crate) fn folder(&self) -> PathBuf {
        // A revision with slashes, such as refs/pr/1, is one folder all the same.
        PathBuf::from("hf").join(&self.repository).join(self.revision.replace('/', "%2F"))
    }

    /// The same place with another file.
    pub(crate) fn with_file(&self, file: &str) -> Self {
        Self { file: Some(file.to_owned()), ..self.clone() }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}", self.repository)?;
        if self.revision != "main" {
            write!(f, "@{}", self.revision)?;
        }
        self.file.as_ref().map_or(Ok(()), |file| write!(f, ":{file}"))
    }
}

/// A name that is also safe as one of a file.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.len() <= 200
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A path that stays below the folder it is joined to, on every system.
pub(crate) fn is_path(path: &str) -> bool {
    path.len() <= 1000
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        && !path.contains(|c: char| c.is_control() || r#"\:*?"<>|"#.contains(c))
        // The names that downloads have while they are not whole, and those of marks.
        && !path.ends_with(".partial")
        && !path.starts_with(".chosen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read_and_written_back() {
        for text in ["hf:org/repo", "hf:o/r@v1.0", "hf:o/r:a.gguf", "hf:o/r@refs/pr/1:sub/a-b_c.gguf"] {
            assert_eq!(Source::parse(text).unwrap().unwrap().to_string(), text);
        }
        let source = Source::parse("hf:o/r@refs/pr/1").unwrap().unwrap();
        assert_eq!(source.folder(), PathBuf::from("hf/o/r/refs%2Fpr%2F1"));
        assert_eq!(Source::parse("model.gguf"), None);
    }

    #[test]
    fn nothing_that_leaves_the_folder_is_a_source() {
        for text in [
            "hf:",
            "hf:repo",
            "hf:a/b/c",
            "hf:../b",
            "hf:a/..",
            "hf:a/b@..",
            "hf:a/b@x/../y",
            "hf:a/b:../c",
            "hf:a/b:/etc/passwd",
            "hf:a/b:c//d",
            "hf:a/b:c\\d",
            "hf:a/b:",
            "hf:a b/c",
            "hf:a/b:x.partial",
        ] {
            let problem = Source::parse(text).unwrap().unwrap_err();
            assert!(problem.contains("hf:ORG/REPO"), "{problem}");
        }
    }
}
