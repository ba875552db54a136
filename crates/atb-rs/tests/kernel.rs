//! The AscendC kernel of Verify, compiled for the host against a stand-in of the calls it uses, and compared with plain
//! loops in double precision. The vendor's compiler has not seen it.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

#[test]
fn the_kernel_computes_on_the_host_what_plain_loops_do() {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("spec-decode/kernel");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("kernel");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-I"]);
    compiler.arg(kernel.join("stand-in")).arg(kernel.join("stand-in/main.cpp")).arg("-o").arg(&program);
    for command in [&mut compiler, &mut Command::new(&program)] {
        let output = command.output().unwrap();
        let words = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&words));
    }
}
