use super::layers::check_tree;
use super::lexer::split;
use super::manifests::check_changelog;
use super::text::{Machine, check, check_name};
use super::{Problem, sources};
use std::path::Path;

fn source_problems(source: &str) -> Vec<usize> {
    sources::check("crates/a/src/lib.rs", source).iter().map(|problem| problem.line).collect()
}

fn codes(source: &str) -> Vec<String> {
    split(source).into_iter().map(|line| line.code.trim().to_owned()).collect()
}

#[test]
fn strings_characters_and_comments_are_no_code() {
    let cases = [
        (r#"let a = "unsafe { // }"; b"#, r#"let a = ""; b"#),
        (r##"let a = r#"one " two"#; b"##, r##"let a = r#""; b"##),
        (r#"let a = "\"unsafe"; b"#, r#"let a = ""; b"#),
        (r"let a = '\''; b", "let a = ''; b"),
        (r"let a = '\u{1F600}'; b", "let a = ''; b"),
        ("let a = '\"'; b", "let a = ''; b"),
        ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
        ("a /* one /* two */ three */ b", "a  b"),
        ("a // unsafe", "a"),
        (r#"let br = "x"; b"#, r#"let br = ""; b"#),
    ];
    for (source, code) in cases {
        assert_eq!(codes(source), [code], "{source}");
    }
}

#[test]
fn lines_keep_their_numbers_across_strings_and_comments() {
    let source = "let a = \"one\n two \\\n three\";\n/* four\n five */ six";
    assert_eq!(codes(source), ["let a = \"", "", "\";", "", "six"]);
    assert_eq!(split(source)[3].comment, " four");
}

#[test]
fn an_unsafe_block_needs_a_safety_line_close_above() {
    assert_eq!(source_problems("let a = unsafe { f() };"), [1]);
    assert_eq!(source_problems("let a =\n    unsafe\n    {\n f() };"), [2]);
    assert_eq!(source_problems("unsafe impl Send for A {}"), [1]);
    assert_eq!(source_problems("unsafe impl<T> Send for A<T> {}"), [1]);
    assert_eq!(source_problems("let a = unsafe { f() }; // SAFETY: it is."), []);
    assert_eq!(source_problems("// SAFETY: it is.\nlet a =\n    unsafe { f() };"), []);
    let far = format!("// SAFETY: it is.\n{}let a = unsafe {{ f() }};", "x();\n".repeat(10));
    assert_eq!(source_problems(&far), [12]);
    assert_eq!(source_problems("let s = \"SAFETY:\";\nunsafe { f() }"), [2]);
}

#[test]
fn an_unsafe_fn_needs_a_safety_section() {
    assert_eq!(source_problems("/// Does.\npub unsafe fn f() {}"), [2]);
    assert_eq!(source_problems("pub(crate) unsafe extern \"C\" fn f() {}"), [1]);
    assert_eq!(source_problems("/// # Safety\n/// - x.\n#[inline]\nunsafe fn f() {}"), []);
    assert_eq!(
        source_problems("/// # Safety\n/// - x.\n#[target_feature(\n    enable = \"a\",\n)]\nunsafe fn f() {}"),
        [6]
    );
    assert_eq!(source_problems("/// # Safety\nfn g() {}\nunsafe fn f() {}"), [3]);
    assert_eq!(source_problems("impl A for B {\n    fn g() {}\n\n    unsafe fn f() {}"), []);
    assert_eq!(source_problems("impl<T> A for B<T>\nwhere\n    T: C,\n{\n    unsafe fn f() {}"), []);
    assert_eq!(source_problems("impl B {\n    unsafe fn f() {}"), [2]);
    assert_eq!(source_problems("impl A for B {}\n\nfn g() {\n    unsafe fn f() {}"), [4]);
}

#[test]
fn the_word_unsafe_elsewhere_asks_for_nothing() {
    let sources = [
        "type F = unsafe fn(u32);",
        "#[unsafe(no_mangle)]",
        "unsafe extern \"C\" {",
        "#![forbid(unsafe_code)]",
        "let s = \"unsafe {\"; // unsafe {",
    ];
    for source in sources {
        assert_eq!(source_problems(source), [], "{source}");
    }
}

#[test]
fn unfinished_work_is_found_in_comments_and_code_but_not_in_strings() {
    let word = ["TO", "DO"].concat();
    assert_eq!(source_problems(&format!("a();\n// {word}: b")), [2]);
    assert_eq!(source_problems(&format!("{}!()", word.to_lowercase())), [1]);
    assert_eq!(source_problems(&format!("let s = \"{word}\"; // MAS{word}NT")), []);
}

#[test]
fn a_file_past_600_lines_is_too_long() {
    assert_eq!(source_problems(&"a();\n".repeat(600)), []);
    assert_eq!(source_problems(&"a();\n".repeat(601)), [0]);
}

#[test]
fn names_without_a_subject_are_refused_for_files_folders_and_modules() {
    for file in ["crates/a/src/utils.rs", "crates/a/src/common/mod.rs", "docs/misc.md"] {
        assert_eq!(check_name(file).len(), 1, "{file}");
    }
    assert_eq!(check_name("crates/a/src/utilisation.rs"), []);
    assert_eq!(source_problems("pub(crate) mod helpers;\nmod manager {\nmod manage;"), [1, 2]);
}

#[test]
fn only_known_entries_lie_at_the_top() {
    for file in ["Cargo.toml", "crates/a/Cargo.toml", "LICENSE-MIT", ".gitignore", ".ci/run", "docs/a.md"] {
        assert_eq!(check_name(file), [], "{file}");
    }
    assert_eq!(check_name("notes.txt").len(), 1);
    assert_eq!(check_name("src/lib.rs").len(), 1);
}

#[test]
fn paths_of_somebodys_machine_are_found_and_other_paths_left_alone() {
    let machine = Machine::with_checkout(Path::new("/projects/spec"));
    let lines = |text: &str| check("docs/a.md", text, &machine).len();
    for folder in ["home", "root", "projects"] {
        assert_eq!(lines(&format!("see `/{folder}/someone/file`")), 1, "{folder}");
        assert_eq!(lines(&format!("see crates/{folder}/file and ~/{folder}/x")), 0, "{folder}");
    }
    assert_eq!(lines("/usr/lib/x and /tmp/y"), 0);
    let temporary = Machine::with_checkout(Path::new("/tmp/clone"));
    assert_eq!(check("docs/a.md", "/tmp/y", &temporary), []);
}

#[test]
fn links_lead_to_known_sites_only() {
    let machine = Machine::with_checkout(Path::new("/projects/spec"));
    let found = |text: &str| check("docs/a.md", text, &machine).len();
    assert_eq!(found("https://arxiv.org/abs/2211.17192, http://localhost:8080."), 0);
    assert_eq!(found("format!(\"http://{address}/\")"), 0);
    let elsewhere = ["https", "://", "packages.invalid", "/x"].concat();
    assert_eq!(found(&elsewhere), 1);
    assert_eq!(check("crates/a/data/prompt.txt", &elsewhere, &machine), []);
}

#[test]
fn the_changelog_keeps_a_section_open() {
    assert_eq!(check_changelog("# Changelog\n\n## Unreleased\n\n## 0.1.0\n"), None);
    assert_eq!(check_changelog("## [Unreleased]\n"), None);
    assert!(check_changelog("# Changelog\n\n## 0.1.0\n").is_some());
    assert!(check_changelog("").is_some());
}

#[test]
fn an_arrow_that_is_not_in_the_table_is_refused() {
    let layers: &[(&str, &[&str])] = &[("low", &[]), ("high", &["low"])];
    let tree = "0high v0.1.0 (x)\n1low v0.1.0 (x)\n1serde v1.0.0\n\n0low v0.1.0 (x)\n1serde v1.0.0\n";
    assert_eq!(check_tree(tree, layers).unwrap(), []);
    let upward = check_tree("0low v0.1.0 (x)\n1high v0.1.0 (x)\n", layers).unwrap();
    let expected = "low depends on high, and no arrow leads there (docs/ARCHITECTURE.md)";
    assert_eq!(upward, [Problem::new("crates/low/Cargo.toml", 0, expected)]);
    assert_eq!(check_tree("0new v0.1.0 (x)\n", layers).unwrap().len(), 1);
}

#[test]
fn an_empty_tree_is_no_proof_of_anything() {
    assert!(check_tree("", &[("low", &[])]).is_err());
}
