//! Which crate may depend on which.

use super::Problem;
use crate::process::{self, cargo};
use anyhow::{Result, bail};

/// Every crate with the crates of ours that it may use: arrows point down, and only along these.
///
/// The runtime's seam is made of spec-core's types, so that what may use the one may use the other.
/// Development dependencies are free, since a test may reach anywhere.
const LAYERS: &[(&str, &[&str])] = &[
    ("spec-core", &[]),
    ("spec-model", &[]),
    ("spec-runtime", &["spec-core"]),
    ("spec-cpu", &["spec-core", "spec-model", "spec-runtime"]),
    ("acl-sys", &[]),
    ("atb-rs", &["acl-sys"]),
    // For the types of acl-sys only: operators of its own make it an oracle.
    ("ascend-sim", &["acl-sys"]),
    ("spec-ascend", &["atb-rs", "spec-core", "spec-model", "spec-runtime"]),
    // Unpublished: shows figures, and knows not of what.
    ("spec-figures", &[]),
    ("spec-server", &["spec-core", "spec-model", "spec-runtime"]),
    // `spec doctor` asks the Ascend layers themselves.
    (
        "spec-cli",
        &[
            "acl-sys",
            "atb-rs",
            "spec-ascend",
            "spec-core",
            "spec-cpu",
            "spec-model",
            "spec-figures",
            "spec-runtime",
            "spec-server",
        ],
    ),
    // The engine on every device, for programs that are not Rust.
    ("spec-capi", &["acl-sys", "atb-rs", "spec-ascend", "spec-core", "spec-cpu", "spec-model", "spec-runtime"]),
    // Nothing but tests depends on it, so that it may know all it builds examples of.
    ("spec-testing", &["spec-core", "spec-model", "spec-runtime"]),
    // Unpublished: writes what acl-sys commits.
    ("acl-bindings", &[]),
    // Unpublished: writes the header that spec-capi commits, from its text.
    ("capi-header", &[]),
    // Unpublished: measures programs from outside, the binary `spec` among them.
    ("spec-bench", &["spec-figures"]),
    // Unpublished: builds ATB and the shim, and tries them.
    ("atb-builder", &["acl-sys"]),
    ("xtask", &[]),
];

pub(crate) fn check() -> Result<Vec<Problem>> {
    let arguments = ["tree", "--workspace", "--edges", "normal", "--all-features", "--target", "all", "--no-dedupe"];
    let tree = process::capture(cargo(arguments).args(["--depth", "1", "--prefix", "depth", "--format", "{p}"]))?;
    check_tree(&tree, LAYERS)
}

/// Judges lines such as `0spec-cpu v0.1.0 (path)` and, for what it depends on, `1spec-model v0.1.0 (path)`.
pub(crate) fn check_tree(tree: &str, layers: &[(&str, &[&str])]) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let mut above: Option<(&str, &[&str])> = None;
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let name_start = line.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        let (depth, rest) = line.split_at(name_start);
        let name = rest.split(' ').next().unwrap_or_default();
        if depth == "0" {
            above = layers.iter().find(|(known, _)| *known == name).copied();
            if above.is_none() {
                let message =
                    format!("`{name}` has no place among the layers; give it one in xtask/src/tidy/layers.rs");
                problems.push(Problem::new("Cargo.toml", 0, message));
            }
        } else if let Some((user, allowed)) = above {
            let is_ours = layers.iter().any(|(known, _)| *known == name);
            if is_ours && !allowed.contains(&name) {
                let message = format!("{user} depends on {name}, and no arrow leads there (docs/ARCHITECTURE.md)");
                problems.push(Problem::new(&format!("crates/{user}/Cargo.toml"), 0, message));
            }
        }
    }
    if above.is_none() && problems.is_empty() {
        bail!("cargo tree named no package, so the layers were not checked");
    }
    Ok(problems)
}
