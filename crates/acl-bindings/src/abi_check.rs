//! Compares what we declare with the vendor's headers, by assertions that a C++ compiler judges.

use crate::model::Module;
use crate::vendor;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use syn::{Fields, Item, ReturnType, Type};

/// One assertion: a line of C++ of its own, by whose number the compiler reports it.
pub(crate) struct Check {
    /// The name in C that it is about.
    pub(crate) name: String,
    pub(crate) what: &'static str,
    pub(crate) code: String,
}

/// An assertion that does not hold.
#[derive(Debug)]
pub(crate) struct Problem {
    /// Whether the name is there and stands for something else; otherwise it is absent.
    pub(crate) differs: bool,
    pub(crate) text: String,
}

pub(crate) fn run(acl_sys: &Path, modules: &[Module], folders: &[PathBuf], allow_absent: bool) -> Result<()> {
    let includes = match folders {
        [] => vec![vendor::torch_npu()?],
        folders => folders.iter().map(|folder| include_folder(folder)).collect::<Result<_>>()?,
    };
    let mut checks = statuses(acl_sys)?;
    for module in modules.iter().filter(|module| module.header.is_vendor) {
        add_constants(&mut checks, module);
        add_types(&mut checks, module)?;
        add_layouts(&mut checks, module);
        add_functions(&mut checks, module)?;
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for check in &checks {
        *kinds.entry(check.what).or_default() += 1;
    }
    let problems = compile(&checks, &includes)?;
    for problem in &problems {
        println!("{}", problem.text);
    }
    let counts: Vec<String> = kinds.iter().map(|(what, count)| format!("{count} {what}")).collect();
    let against: Vec<String> = includes.iter().map(|folder| folder.display().to_string()).collect();
    println!("abi-check: {} against {}", counts.join(", "), against.join(" and "));
    let failed = problems.iter().filter(|problem| problem.differs || !allow_absent).count();
    ensure!(failed == 0, "{failed} of {} assertions failed", checks.len());
    Ok(())
}

/// The folder that holds `acl/`, in a CANN installation or in a checkout of its sources.
fn include_folder(folder: &Path) -> Result<PathBuf> {
    let places = ["", "include", "include/external", "inc", "inc/external"];
    let found = places.iter().map(|place| folder.join(place)).find(|place| place.join("acl").is_dir());
    found.with_context(|| format!("{} has no folder acl, nor one in include or inc", folder.display()))
}

fn constant(what: &'static str, name: &str, value: i128) -> Check {
    Check { name: name.to_owned(), what, code: format!("static_cast<long long>({name}) == {value}LL") }
}

/// Rows of the status table are `code NAME "meaning", advice;`.
fn statuses(acl_sys: &Path) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for file in ["caller", "resource", "internal"] {
        let path = acl_sys.join(format!("src/status/{file}.rs"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some(Ok(code)), Some(name)) = (words.next().map(str::parse), words.next())
                && name.starts_with("ACL_ERROR_")
            {
                checks.push(constant("status codes", name, code));
            }
        }
    }
    ensure!(checks.len() > 100, "the status table is not where it was");
    Ok(checks)
}

fn add_constants(checks: &mut Vec<Check>, module: &Module) {
    checks.extend(module.constants.iter().map(|item| constant("constants", &item.name, item.value)));
}

fn add_types(checks: &mut Vec<Check>, module: &Module) -> Result<()> {
    for item in &module.items {
        match item {
            Item::Type(alias) => {
                let name = alias.ident.to_string();
                let code = format!("std::is_same<{name}, {}>::value", spelled(&alias.ty, "")?);
                checks.push(Check { name, what: "types", code });
            }
            Item::Struct(item) => match &item.fields {
                // An enumeration of C: bindgen's type for it tells width and sign.
                Fields::Unnamed(fields) => {
                    let name = item.ident.to_string();
                    let inner = spelled(&fields.unnamed[0].ty, "")?;
                    let code = format!("std::is_same<std::underlying_type<{name}>::type, {inner}>::value");
                    checks.push(Check { name, what: "enumerations", code });
                }
                fields => add_fields(checks, &item.ident, fields.iter())?,
            },
            Item::Union(item) => add_fields(checks, &item.ident, item.fields.named.iter())?,
            _ => {}
        }
    }
    Ok(())
}

fn add_fields<'a>(
    checks: &mut Vec<Check>,
    owner: &syn::Ident,
    fields: impl Iterator<Item = &'a syn::Field>,
) -> Result<()> {
    for field in fields {
        let Some(name) = field.ident.as_ref().filter(|name| *name != "_unused") else { continue };
        // C's `type` is Rust's `type_`.
        let name = name.to_string();
        let name = name.trim_end_matches('_');
        let code = format!("std::is_same<decltype({owner}::{name}), {}>::value", spelled(&field.ty, "")?);
        checks.push(Check { name: format!("{owner}::{name}"), what: "field types", code });
    }
    Ok(())
}

fn add_layouts(checks: &mut Vec<Check>, module: &Module) {
    for layout in module.layouts.iter().filter(|layout| layout.size > 0) {
        // Newtypes of enumerations have a layout too, and no fields by name.
        let name = &layout.name;
        let code = format!("sizeof({name}) == {} && alignof({name}) == {}", layout.size, layout.alignment);
        checks.push(Check { name: name.clone(), what: "sizes", code });
        for (field, offset) in &layout.offsets {
            let field = field.trim_end_matches('_');
            let code = format!("offsetof({name}, {field}) == {offset}");
            checks.push(Check { name: format!("{name}::{field}"), what: "offsets", code });
        }
    }
}

fn add_functions(checks: &mut Vec<Check>, module: &Module) -> Result<()> {
    for function in &module.functions {
        let name = function.sig.ident.to_string();
        let mut arguments = Vec::new();
        for input in &function.sig.inputs {
            let syn::FnArg::Typed(input) = input else { bail!("{name} has a receiver") };
            arguments.push(spelled(&input.ty, "")?);
        }
        let result = match &function.sig.output {
            ReturnType::Default => "void".to_owned(),
            ReturnType::Type(_, ty) => spelled(ty, "")?,
        };
        let code = format!("std::is_same<decltype(&{name}), {result} (*)({})>::value", arguments.join(", "));
        checks.push(Check { name, what: "signatures", code });
    }
    Ok(())
}

/// A Rust type in the words of C++, around a declarator.
fn spelled(ty: &Type, declarator: &str) -> Result<String> {
    match ty {
        Type::Ptr(pointer) => {
            let constness = if pointer.const_token.is_some() { " const" } else { "" };
            Ok(format!("{}{constness} *{declarator}", spelled(&pointer.elem, "")?))
        }
        Type::Array(array) => {
            let length = quote::ToTokens::to_token_stream(&array.len);
            spelled(&array.elem, &format!("{declarator}[{length}]"))
        }
        Type::BareFn(function) => {
            let arguments: Vec<String> =
                function.inputs.iter().map(|input| spelled(&input.ty, "")).collect::<Result<_>>()?;
            let result = match &function.output {
                ReturnType::Default => "void".to_owned(),
                ReturnType::Type(_, ty) => spelled(ty, "")?,
            };
            Ok(format!("{result} (*)({})", arguments.join(", ")))
        }
        Type::Path(path) => {
            let last = path.path.segments.last().context("a type without a name")?;
            if let (true, syn::PathArguments::AngleBracketed(inner)) = (last.ident == "Option", &last.arguments)
                && let Some(syn::GenericArgument::Type(inner)) = inner.args.first()
            {
                return spelled(inner, declarator);
            }
            let name = last.ident.to_string();
            let name = match name.as_str() {
                "c_char" => "char",
                "c_int" => "int",
                "c_uint" => "unsigned int",
                "c_void" => "void",
                "u8" => "uint8_t",
                "u16" => "uint16_t",
                "u32" => "uint32_t",
                "u64" => "uint64_t",
                "i32" => "int32_t",
                "i64" => "int64_t",
                "usize" => "size_t",
                "f32" => "float",
                "f64" => "double",
                "Status" => "aclError",
                name => name,
            };
            Ok(format!("{name}{declarator}"))
        }
        other => bail!("no words in C++ for {other:?}"),
    }
}

/// The assertions that do not hold.
pub(crate) fn compile(checks: &[Check], includes: &[PathBuf]) -> Result<Vec<Problem>> {
    let mut source = String::from("#include <cstddef>\n#include <cstdint>\n#include <type_traits>\n");
    // Older releases declare some of it elsewhere; `acl_msprof.h` became part of `acl_prof.h`.
    for header in ["acl.h", "acl_rt.h", "acl_base.h", "acl_mdl.h", "acl_prof.h", "acl_msprof.h"] {
        let _ = writeln!(source, "#if __has_include(<acl/{header}>)\n#include <acl/{header}>\n#endif");
    }
    let before = source.lines().count();
    for check in checks {
        let _ = writeln!(source, "static_assert({}, \"\");", check.code);
    }
    let work = tempfile::tempdir()?;
    let file = work.path().join("abi_check.cpp");
    std::fs::write(&file, &source)?;
    let mut compiler = Command::new("g++");
    compiler.env("LC_ALL", "C").args(["-std=c++17", "-fsyntax-only", "-fmax-errors=0", "-fno-diagnostics-show-caret"]);
    // Headers outside `acl/` include those inside by their bare names.
    for folder in includes {
        compiler.arg(format!("-isystem{}", folder.display())).arg(format!("-isystem{}", folder.join("acl").display()));
    }
    compiler.arg(&file);
    let output = compiler.output().context("cannot run g++, which compares; install it")?;
    let report = String::from_utf8_lossy(&output.stderr);
    let place = format!("{}:", file.display());
    let mut problems = BTreeMap::new();
    for line in report.lines() {
        let Some((at, message)) = line.strip_prefix(&place).and_then(|rest| rest.split_once("error: ")) else {
            continue;
        };
        let number: usize = at.split(':').next().unwrap_or_default().parse().unwrap_or_default();
        let Some(check) = number.checked_sub(before + 1).and_then(|index| checks.get(index)) else { continue };
        let differs = message.contains("static assertion failed");
        let verdict =
            if differs { format!("differs: not so that {}", check.code) } else { format!("is absent ({message})") };
        let text = format!("{} ({}) {verdict}", check.name, check.what);
        problems.entry(number).or_insert(Problem { differs, text });
    }
    // Errors in the headers themselves would otherwise look like agreement.
    ensure!(output.status.success() || !problems.is_empty(), "g++ cannot read these headers:\n{report}");
    Ok(problems.into_values().collect())
}
