//! Makes `spec.h` from the Rust of `spec-capi`: `capi-header [--check]`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, Language, ParseConfig, RenameRule, Style};

const ABOVE: &str = "\
/*
 * spec: language-model decoding with drafts, behind a C interface. `cargo xtask headers` makes this file; do not edit it.
 *
 * spec_load, spec_generate, spec_free; what else there is, serves these. Every function that can fail gives a status, and
 * spec_last_error the words. Threads: an engine may be used from any thread, by one generation at a time; spec_cancel may be
 * called beside it. Different engines work at the same time. spec_free comes when no other call is under way. The last error is
 * each thread's own. No function unwinds, and a callback must not.
 *
 * On an Ascend device the thread's current context of AscendCL is put back before a call returns.
 */";

fn main() -> Result<()> {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [option] if option == "--check" => true,
        _ => bail!("usage: capi-header [--check]"),
    };
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("spec-capi");
    let header = package.join("include/spec.h");
    let text = generate(&package)?;
    let committed = std::fs::read_to_string(&header).unwrap_or_default();
    if text == committed {
        return Ok(());
    }
    if check {
        bail!("{} is not what its Rust says; `cargo xtask headers` makes it anew", header.display());
    }
    std::fs::write(&header, text).with_context(|| format!("cannot write {}", header.display()))
}

/// The header's text.
fn generate(package: &Path) -> Result<String> {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("SPEC_H".to_owned()),
        header: Some(ABOVE.to_owned()),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        style: Style::Both,
        documentation_style: DocumentationStyle::C99,
        usize_is_size_t: true,
        line_length: 120,
        enumeration: EnumConfig { rename_variants: RenameRule::QualifiedScreamingSnakeCase, ..EnumConfig::default() },
        parse: ParseConfig::default(),
        ..Config::default()
    };
    // By file and not by crate: nothing is compiled for it, and no dependency looked at.
    let sources = ["src/types.rs", "src/lib.rs"].map(|file| package.join(file));
    let builder =
        sources.iter().fold(Builder::new().with_config(config), |builder, file: &PathBuf| builder.with_src(file));
    let bindings = builder.generate().context("cbindgen cannot read spec-capi")?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).context("the header is not UTF-8")?;
    Ok(without_safety(&text))
}

/// Rust's section on safety says what a C programmer takes for granted of pointers, beside what matters; its heading is Rust's.
fn without_safety(text: &str) -> String {
    text.lines().map(|line| if line.trim() == "// # Safety" { line.replace("# Safety", "What the caller sees to:") } else { line.to_owned() } + "\n").collect()
}
