//! Our headers as bindgen sees them, sorted into what is emitted and what is compared.

use crate::facts::{self, HEADERS, Header};
use crate::libclang;
use anyhow::{Context, Result, bail, ensure};
use bindgen::{EnumVariation, Formatter, RustEdition, RustTarget};
use std::path::Path;
use syn::visit_mut::VisitMut;

/// One header.
pub(crate) struct Module {
    pub(crate) header: &'static Header,
    /// Types and constants, ready to be printed.
    pub(crate) items: Vec<syn::Item>,
    pub(crate) functions: Vec<syn::ForeignItemFn>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) layouts: Vec<Layout>,
}

pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) value: i128,
}

/// Size, alignment and offsets of a structure, in bytes.
#[derive(Default)]
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) alignment: u64,
    pub(crate) offsets: Vec<(String, u64)>,
}

pub(crate) fn read(acl_sys: &Path) -> Result<Vec<Module>> {
    let modules: Vec<Module> = HEADERS.iter().map(|header| read_one(acl_sys, header)).collect::<Result<_>>()?;
    let names: Vec<String> =
        modules.iter().flat_map(|module| &module.functions).map(|function| function.sig.ident.to_string()).collect();
    facts::check(names.iter().map(String::as_str))?;
    Ok(modules)
}

fn read_one(acl_sys: &Path, header: &'static Header) -> Result<Module> {
    let path = acl_sys.join("headers").join(header.file);
    let path = path.to_str().context("the checkout's path is not UTF-8")?;
    let target = RustTarget::stable(85, 0).map_err(|error| anyhow::anyhow!("{error}"))?;
    let text = bindgen::builder()
        .header(path)
        .clang_arg(format!("-isystem{}", libclang::compiler_headers()?.display()))
        .allowlist_file(format!(".*/headers/{}", header.file.replace('.', "\\.")))
        .allowlist_recursively(false)
        .blocklist_type("aclError|spec_atb_status")
        .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: true })
        .prepend_enum_name(false)
        .use_core()
        .ctypes_prefix("::core::ffi")
        .formatter(Formatter::None)
        .rust_target(target)
        .rust_edition(RustEdition::Edition2024)
        .generate()
        .with_context(|| format!("bindgen cannot read {path}"))?
        .to_string();
    sort(header, syn::parse_file(&text).with_context(|| format!("what bindgen made of {path} is not Rust"))?)
}

fn sort(header: &'static Header, file: syn::File) -> Result<Module> {
    let mut comment_above = Vec::new();
    let mut module =
        Module { header, items: Vec::new(), functions: Vec::new(), constants: Vec::new(), layouts: Vec::new() };
    for mut item in file.items {
        Shorten.visit_item_mut(&mut item);
        match item {
            syn::Item::ForeignMod(block) => {
                for item in block.items {
                    let syn::ForeignItem::Fn(function) = item else {
                        bail!("{}: only functions are declared", header.file)
                    };
                    module.functions.push(function);
                }
            }
            syn::Item::Const(constant) if constant.ident == "_" => module.layouts.push(layout(&constant)?),
            syn::Item::Const(mut constant) => {
                drop_repeated_comment(&mut constant.attrs, &mut comment_above);
                module.constants.push(Constant { name: constant.ident.to_string(), value: value(&constant.expr)? });
                if is_unnamed(&constant.ty) {
                    constant.ty = Box::new(plain_type(header, value(&constant.expr)?));
                    constant.expr = Box::new(argument(&constant.expr).clone());
                }
                module.items.push(syn::Item::Const(constant));
            }
            syn::Item::Struct(item) if item.ident.to_string().starts_with("_bindgen_ty") => {}
            syn::Item::Type(item) if item.ident.to_string().starts_with("_bindgen_ty") => {}
            syn::Item::Struct(mut item) => {
                item.attrs.sort_by_key(|attribute| !attribute.path().is_ident("doc"));
                if is_opaque(&item) {
                    // A copy of what is behind the pointer would be a copy of nothing.
                    item.attrs.retain(|attribute| !attribute.path().is_ident("derive"));
                }
                module.items.push(syn::Item::Struct(item));
            }
            item => module.items.push(item),
        }
    }
    Ok(module)
}

/// libclang gives a value without a comment the comment of the value above.
fn drop_repeated_comment(attributes: &mut Vec<syn::Attribute>, above: &mut Vec<syn::Attribute>) {
    let comment: Vec<syn::Attribute> =
        attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
    if comment == *above {
        attributes.retain(|attribute| !attribute.path().is_ident("doc"));
    }
    *above = comment;
}

/// Constants of an unnamed enumeration are numbers, of the type of the parameters that take them.
fn plain_type(header: &Header, value: i128) -> syn::Type {
    match (header.module, value) {
        ("profiling", _) => syn::parse_quote!(u64),
        (_, ..0) => syn::parse_quote!(i32),
        _ => syn::parse_quote!(u32),
    }
}

fn is_unnamed(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.segments.iter().any(|part| part.ident.to_string().starts_with("_bindgen_ty")))
}

fn is_opaque(item: &syn::ItemStruct) -> bool {
    item.fields.iter().any(|field| field.ident.as_ref().is_some_and(|name| name == "_unused"))
}

/// `5`, `-5` and `name(5)` are 5, -5 and 5.
fn value(expression: &syn::Expr) -> Result<i128> {
    match argument(expression) {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => Ok(number.base10_parse()?),
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => Ok(-value(expr)?),
        other => bail!("bindgen made a constant that is no number: {other:?}"),
    }
}

fn argument(expression: &syn::Expr) -> &syn::Expr {
    match expression {
        syn::Expr::Call(call) if call.args.len() == 1 => &call.args[0],
        other => other,
    }
}

/// Reads bindgen's assertions: `["Size of name"][size_of::<name>() - 8usize];` and so on.
fn layout(constant: &syn::ItemConst) -> Result<Layout> {
    let mut layout = Layout::default();
    let syn::Expr::Block(block) = &*constant.expr else { bail!("bindgen asserts layouts otherwise than known") };
    for statement in &block.block.stmts {
        let syn::Stmt::Expr(syn::Expr::Index(index), _) = statement else { continue };
        let (syn::Expr::Array(array), syn::Expr::Binary(difference)) = (&*index.expr, &*index.index) else { continue };
        let Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })) = array.elems.first() else { continue };
        let bytes = u64::try_from(value(&difference.right)?)?;
        let text = text.value();
        if let Some(name) = text.strip_prefix("Size of ") {
            layout.name = name.to_owned();
            layout.size = bytes;
        } else if text.starts_with("Alignment of ") {
            layout.alignment = bytes;
        } else if let Some((_, field)) = text.split_once("::") {
            layout.offsets.push((field.to_owned(), bytes));
        }
    }
    ensure!(!layout.name.is_empty() && layout.alignment > 0, "bindgen asserts layouts otherwise than known");
    Ok(layout)
}

/// Makes paths as short as a person writes them, and statuses `Status`.
struct Shorten;

impl VisitMut for Shorten {
    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        syn::visit_mut::visit_path_mut(self, path);
        let Some(last) = path.segments.last().cloned() else { return };
        if path.segments.len() > 1 {
            *path = last.into();
        }
        if let Some(last) = path.segments.last_mut()
            && (last.ident == "aclError" || last.ident == "spec_atb_status")
        {
            last.ident = syn::Ident::new("Status", last.ident.span());
        }
    }

    /// `[u8; 8]` without the `usize` that bindgen adds.
    fn visit_lit_int_mut(&mut self, number: &mut syn::LitInt) {
        *number = syn::LitInt::new(number.base10_digits(), number.span());
    }

    fn visit_attribute_mut(&mut self, attribute: &mut syn::Attribute) {
        // bindgen keeps the blank that follows the comment's stars, and rustdoc takes more than one for code.
        if let syn::Meta::NameValue(pair) = &mut attribute.meta
            && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &mut pair.value
            && pair.path.is_ident("doc")
        {
            *text = syn::LitStr::new(&format!(" {}", text.value().trim()), text.span());
        }
    }
}
