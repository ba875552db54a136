//! Which files of a repository make a model.

use super::hub::Entry;
use super::source::Source;

/// Files beside the weights that a model in the Hugging Face layout is described by.
const DESCRIPTIONS: [&str; 5] =
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
const INDEX: &str = "model.safetensors.index.json";

/// What to download.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) files: Vec<Entry>,
    /// What to open afterwards: a file, or empty for the folder.
    pub(crate) open: String,
}

/// The model's files among `entries`, or why there is no one model.
pub(crate) fn choose(source: &Source, entries: Vec<Entry>) -> Result<Choice, String> {
    if let Some(file) = &source.file {
        let set = set_of(file, &entries);
        return match set.first().map(|first| first.path.clone()) {
            Some(open) => Ok(Choice { files: set, open }),
            None => Err(format!("{source}: there is no such file; the repository has {}", listing(&entries))),
        };
    }
    // A set of shards counts once, by its first.
    let models: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.path.ends_with(".gguf") && shard(&entry.path).is_none_or(|shard| shard.number == 1))
        .collect();
    match models.as_slice() {
        [only] => match set_of(&only.path, &entries) {
            set if set.is_empty() => Err(format!("{source}: {} is part of a set that is not whole", only.path)),
            files => Ok(Choice { files, open: only.path.clone() }),
        },
        [] => safetensors(source, entries),
        several => {
            let names: Vec<String> = several.iter().map(|entry| source.with_file(&entry.path).to_string()).collect();
            Err(format!("{source} has {} models; name one: {}", names.len(), names.join(", ")))
        }
    }
}

fn safetensors(source: &Source, entries: Vec<Entry>) -> Result<Choice, String> {
    let has = |name: &str| entries.iter().any(|entry| entry.path == name);
    // Weights in folders are other precisions or other programs' forms of the same.
    let is_weight = |path: &str| !path.contains('/') && path.ends_with(".safetensors");
    if !has("config.json") || !entries.iter().any(|entry| is_weight(&entry.path)) {
        return Err(format!(
            "{source} has no GGUF file, nor config.json with safetensors; it has {}",
            listing(&entries)
        ));
    }
    let wanted = |path: &str| is_weight(path) || DESCRIPTIONS.contains(&path) || path == INDEX;
    let files = entries.into_iter().filter(|entry| wanted(&entry.path)).collect();
    Ok(Choice { files, open: String::new() })
}

/// `file`, or all files of the set that it is a shard of, in order; empty when it is not there.
fn set_of(file: &str, entries: &[Entry]) -> Vec<Entry> {
    let Some(shard) = shard(file) else {
        return entries.iter().filter(|entry| entry.path == file).cloned().collect();
    };
    let names = (1..=shard.count).map(|number| shard.name(number));
    let found: Option<Vec<Entry>> =
        names.map(|name| entries.iter().find(|entry| entry.path == name).cloned()).collect();
    found.unwrap_or_default()
}

/// One of the files `NAME-00001-of-00003.gguf`.
struct Shard<'a> {
    stem: &'a str,
    number: u32,
    count: u32,
}

impl Shard<'_> {
    fn name(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count)
    }
}

fn shard(path: &str) -> Option<Shard<'_>> {
    let (rest, count) = path.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let parse = |digits: &str| (digits.len() == 5).then(|| digits.parse::<u32>().ok()).flatten();
    let (number, count) = (parse(number)?, parse(count)?);
    (1..=count).contains(&number).then_some(Shard { stem, number, count })
}

/// The first names, for a message of one line.
fn listing(entries: &[Entry]) -> String {
    const SHOWN: usize = 20;
    let names: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).take(SHOWN).collect();
    match (names.as_slice(), entries.len().saturating_sub(SHOWN)) {
        ([], _) => "no files".to_owned(),
        (names, 0) => names.join(", "),
        (names, more) => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(source: &str, names: &[&str]) -> Result<(Vec<String>, String), String> {
        let entry = |name: &&str| Entry { path: (*name).to_owned(), bytes: 1, sha256: None };
        let source = Source::parse(source).unwrap().unwrap();
        let choice = choose(&source, names.iter().map(entry).collect())?;
        Ok((choice.files.into_iter().map(|entry| entry.path).collect(), choice.open))
    }

    #[test]
    fn one_model_is_taken_and_several_are_listed() {
        assert_eq!(chosen("hf:o/r", &["README.md", "a.gguf"]), Ok((vec!["a.gguf".into()], "a.gguf".into())));
        let problem = chosen("hf:o/r", &["a.gguf", "sub/b.gguf"]).unwrap_err();
        assert!(problem.contains("hf:o/r:a.gguf, hf:o/r:sub/b.gguf"), "{problem}");
        assert_eq!(chosen("hf:o/r:b.gguf", &["a.gguf", "b.gguf"]), Ok((vec!["b.gguf".into()], "b.gguf".into())));
        assert!(chosen("hf:o/r:c.gguf", &["a.gguf"]).unwrap_err().contains("a.gguf"));
        assert!(chosen("hf:o/r", &["README.md"]).unwrap_err().contains("README.md"));
    }

    #[test]
    fn any_shard_stands_for_its_set_and_a_set_counts_once() {
        let names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
        let all = (names.map(String::from).to_vec(), names[0].to_owned());
        assert_eq!(chosen("hf:o/r", &names), Ok(all.clone()));
        assert_eq!(chosen("hf:o/r:m-00002-of-00002.gguf", &names), Ok(all));
        assert!(chosen("hf:o/r", &names[..1]).unwrap_err().contains("not whole"));
    }

    #[test]
    fn safetensors_come_with_what_describes_them() {
        let names =
            ["config.json", "model.safetensors", "tokenizer.json", "README.md", "onnx/model.onnx", "f/x.safetensors"];
        let (files, open) = chosen("hf:o/r", &names).unwrap();
        assert_eq!(
            (files, open),
            (vec!["config.json".into(), "model.safetensors".into(), "tokenizer.json".into()], String::new())
        );
    }
}
