//! The Rust source of the bindings.

use crate::model::{Layout, Module};
use anyhow::{Context, Result, bail, ensure};
use quote::ToTokens;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes the bindings, or with `check` fails when they are not what they would be.
pub(crate) fn run(acl_sys: &Path, modules: &[Module], check: bool) -> Result<()> {
    let folder = acl_sys.join("src/bindings");
    let mut files = vec![("mod".to_owned(), index(modules))];
    for module in modules {
        files.push((module.header.module.to_owned(), source(module)?));
    }
    let mut stale = Vec::new();
    for (name, text) in &files {
        let path = folder.join(format!("{name}.rs"));
        let text = format(acl_sys, text)?;
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        stale.push(format!("{name}.rs"));
        if !check {
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    let functions: usize = modules.iter().map(|module| module.functions.len()).sum();
    let constants: usize = modules.iter().map(|module| module.constants.len()).sum();
    let summary = format!("{functions} functions, {constants} constants in {} modules", modules.len());
    match (stale.is_empty(), check) {
        (true, _) => println!("bindings are up to date: {summary}"),
        (false, false) => println!("wrote {}: {summary}", stale.join(", ")),
        (false, true) => bail!("not what the headers make of them: {}; run `cargo xtask bindings`", stale.join(", ")),
    }
    Ok(())
}

fn index(modules: &[Module]) -> String {
    let mut text = "//! Types, constants and prototypes, made by `cargo xtask bindings` from `headers/`: change those, not these.\n\
        //!\n\
        //! Everything is exported at the crate's root too. Functions are methods of [`Api`](crate::Api).\n\n"
        .to_owned();
    for module in modules {
        let _ = writeln!(text, "pub mod {};", module.header.module);
    }
    text
}

fn source(module: &Module) -> Result<String> {
    let mut types = String::new();
    let file = syn::File { shebang: None, attrs: Vec::new(), items: module.items.clone() };
    types.push_str(&prettyplease::unparse(&file));
    let mut functions = String::new();
    for function in &module.functions {
        for attribute in function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")) {
            let _ = writeln!(functions, "    ///{}", doc(attribute)?);
        }
        let name = function.sig.ident.to_string();
        let arguments: Vec<String> = function.sig.inputs.iter().map(tokens).collect();
        let result = match &function.sig.output {
            syn::ReturnType::Default => "()".to_owned(),
            syn::ReturnType::Type(_, ty) => tokens(ty),
        };
        let (family, since) = (module.header.family(&name), module.header.since(&name));
        let _ = writeln!(functions, "    fn {name}({}) -> {result} = {family}, {since};", arguments.join(", "));
    }
    let layouts: String = module.layouts.iter().map(layout).collect();

    let mut text = format!("//! Made from `headers/{}`.\n", module.header.file);
    text.push_str("// Names are those of C, and stand for themselves where the header has no comment.\n");
    text.push_str("#![allow(missing_docs, non_camel_case_types, non_snake_case)]\n\n");
    if let Some(other) = module.header.uses {
        let _ = writeln!(text, "use super::{other}::*;");
    }
    let all = format!("{types}{functions}");
    let words = ["c_char", "c_int", "c_uint", "c_void"].into_iter().filter(|word| has_word(&all, word));
    let words: Vec<&str> = words.collect();
    if !words.is_empty() {
        let _ = writeln!(text, "use core::ffi::{{{}}};", words.join(", "));
    }
    if has_word(&all, "Status") {
        text.push_str("use crate::Status;\n");
    }
    text.push_str(if layouts.is_empty() {
        "use crate::table::functions;\n\n"
    } else {
        "use crate::table::{functions, layout};\n\n"
    });
    text.push_str(&types);
    if !layouts.is_empty() {
        let _ = write!(text, "\nlayout! {{\n{layouts}}}\n");
    }
    let _ = write!(text, "\nfunctions! {{\n    {}:\n{functions}}}\n", module.header.module);
    Ok(text)
}

fn layout(layout: &Layout) -> String {
    let offsets: Vec<String> = layout.offsets.iter().map(|(field, offset)| format!("{field} {offset}")).collect();
    let Layout { name, size, alignment, .. } = layout;
    let line = format!("    {name}: {size} bytes, aligned {alignment} {{ {} }}\n", offsets.join(", "));
    if line.len() <= 120 {
        return line;
    }
    let mut text = format!("    {name}: {size} bytes, aligned {alignment} {{\n       ");
    let mut width = 7;
    for (at, offset) in offsets.iter().enumerate() {
        let part = format!(" {offset}{}", if at + 1 < offsets.len() { "," } else { "" });
        if width + part.len() > 120 {
            text.push_str("\n       ");
            width = 7;
        }
        width += part.len();
        text.push_str(&part);
    }
    text.push_str("\n    }\n");
    text
}

fn doc(attribute: &syn::Attribute) -> Result<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { bail!("bindgen writes comments otherwise than known") };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
        bail!("bindgen writes comments otherwise than known")
    };
    Ok(text.value().split_whitespace().fold(String::new(), |line, word| line + " " + word))
}

/// Tokens as a person spaces them.
fn tokens(item: &impl ToTokens) -> String {
    let text = item.to_token_stream().to_string();
    text.replace(" : ", ": ").replace("* const ", "*const ").replace("* mut ", "*mut ").replace(" :: ", "::")
}

fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

fn format(acl_sys: &Path, text: &str) -> Result<String> {
    let root = acl_sys.ancestors().nth(2).context("the crate is not in a workspace")?;
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run rustfmt; install it by `rustup component add rustfmt`")?;
    // The source is smaller than a pipe's buffer or rustfmt reads it whole before it writes.
    rustfmt.stdin.take().context("rustfmt has no input")?.write_all(text.as_bytes())?;
    let output = rustfmt.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt refuses what was made:\n{text}");
    Ok(String::from_utf8(output.stdout)?)
}
