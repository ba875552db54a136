//! What would be wrong is found to be wrong.

use crate::abi_check::{Check, Problem, compile};
use crate::model::{self, Module};
use crate::{abi_check, emit, libclang};
use std::path::{Path, PathBuf};

fn check(name: &str, code: &str) -> Check {
    Check { name: name.to_owned(), what: "things", code: code.to_owned() }
}

/// A folder with an `acl/acl.h` of these lines.
fn headers(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("acl")).unwrap();
    std::fs::write(folder.path().join("acl/acl.h"), text).unwrap();
    folder
}

fn judge(text: &str, checks: &[Check]) -> anyhow::Result<Vec<Problem>> {
    compile(checks, &[headers(text).path().to_owned()])
}

#[test]
fn the_check_tells_what_differs_from_what_is_absent_and_both_from_what_holds() {
    let text = "typedef int aclError;\nenum E { ONE = 1 };\nextern \"C\" aclError aclrtSetDevice(int);\n";
    let checks = [
        check("ONE", "static_cast<long long>(ONE) == 1LL"),
        check("ONE", "static_cast<long long>(ONE) == 2LL"),
        check("TWO", "static_cast<long long>(TWO) == 2LL"),
        check("aclrtSetDevice", "std::is_same<decltype(&aclrtSetDevice), aclError (*)(int)>::value"),
        check("aclrtSetDevice", "std::is_same<decltype(&aclrtSetDevice), aclError (*)(long)>::value"),
        check("aclrtGone", "std::is_same<decltype(&aclrtGone), aclError (*)(int)>::value"),
    ];
    let problems = judge(text, &checks).unwrap();
    let expected = [
        "ONE (things) differs",
        "TWO (things) is absent",
        "aclrtSetDevice (things) differs",
        "aclrtGone (things) is absent",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.text.starts_with(expected), "{problem:?}");
        assert_eq!(problem.differs, expected.ends_with("differs"));
    }
}

#[test]
fn headers_that_do_not_compile_are_no_agreement() {
    let error = judge("#include \"not_there.h\"\n", &[check("nothing", "true")]).unwrap_err();
    assert!(error.to_string().contains("not_there.h"), "{error}");
}

/// The real headers of the crate. Tests that read them are run beside `generate --check`, where libclang is needed too.
fn modules() -> (PathBuf, Vec<Module>) {
    let acl_sys = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("acl-sys");
    // SAFETY: nextest runs a test in a process of its own, and this test starts no threads before.
    unsafe { libclang::locate() }.unwrap();
    let modules = model::read(&acl_sys).unwrap();
    (acl_sys, modules)
}

#[test]
#[ignore = "needs libclang"]
fn committed_bindings_are_what_the_headers_make_and_a_changed_one_is_noticed() {
    let (acl_sys, modules) = modules();
    emit::run(&acl_sys, &modules, true).unwrap();

    let copy = tempfile::tempdir().unwrap();
    let elsewhere = copy.path().join("crates/acl-sys");
    std::fs::create_dir_all(elsewhere.join("src/bindings")).unwrap();
    let style = acl_sys.ancestors().nth(2).unwrap().join(".rustfmt.toml");
    std::fs::copy(style, copy.path().join(".rustfmt.toml")).unwrap();
    emit::run(&elsewhere, &modules, false).unwrap();
    emit::run(&elsewhere, &modules, true).unwrap();
    let file = elsewhere.join("src/bindings/memory.rs");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("aclrtMemcpyKind(1)", "aclrtMemcpyKind(2)")).unwrap();
    let error = emit::run(&elsewhere, &modules, true).unwrap_err().to_string();
    assert!(error.contains("memory.rs") && error.contains("cargo xtask bindings"), "{error}");
}

#[test]
#[ignore = "needs libclang"]
fn a_vendors_header_with_nothing_in_it_lacks_everything() {
    let (acl_sys, modules) = modules();
    let folder = headers("typedef int aclError;\n");
    let folder = [folder.path().to_owned()];
    abi_check::run(&acl_sys, &modules, &folder, true).unwrap();
    let error = abi_check::run(&acl_sys, &modules, &folder, false).unwrap_err().to_string();
    let (failed, total) = error.trim_end_matches(" assertions failed").split_once(" of ").unwrap();
    assert_eq!(failed, total, "{error}");
}
