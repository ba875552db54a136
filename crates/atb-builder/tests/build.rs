//! The program, as `cargo xtask build-atb` starts it, on a toolkit and a source of ATB that stand in for the real ones.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const ATB_SOURCE: &str = "void of_atb(void) {}\n";
/// A shim over it: what the smoke test asks, and a header of ATB's, one of CANN's and one of ours.
const SHIM_SOURCE: &str = r#"
#include <acl/acl.h>
#include <atb/atb_infer.h>
#include "spec_atb.h"
#include <cstring>
extern "C" uint32_t spec_atb_abi_version(void) { return SPEC_ATB_ABI_VERSION; }
extern "C" uint64_t spec_atb_workspace_ceiling(void) { return (uint64_t)SPEC_ATB_MAX_WS_SIZE << 20; }
extern "C" const char *spec_atb_last_error(void) { return "said by the stand-in"; }
extern "C" spec_atb_status spec_atb_probe(spec_atb_probe_result *result)
{
    std::memset(result, 0, sizeof *result);
    result->shim_cxx11_abi = result->atb_cxx11_abi = _GLIBCXX_USE_CXX11_ABI;
    std::strcpy(result->atb_path, "libatb.so");
    return PROBED;
}
"#;
/// The module includes what the shim shares within itself.
const MODULE_SOURCE: &str = r#"
#include "internal.hpp"
#include "spec_decode.h"
extern "C" spec_atb_status spec_atb_create_verify(const spec_atb_verify_param *, spec_atb_operation **) { return NOTHING; }
"#;
/// As upstream's script: it takes `default` first, passes over what it does not know, and needs these variables.
const BUILD_SCRIPT: &str = r#"set -e
VERSION="8.5.0"
cd "$(dirname "$0")/.."
printf '%s\n' "$*" > arguments
[ -d "$ASCEND_HOME_PATH/lib64" ] && [ -f "$ATB_BUILD_DEPENDENCY_PATH/lib/libtbe_adapter.so" ]
[ "$1" = default ] || { echo "argument $1 is unknown"; exit 1; }
out=output/atb/cxx_abi_${2#--use_cxx11_abi=}
mkdir -p "$out/lib" "$out/include/atb" "$out/configs/ops_configs"
echo 'VERSION_LINE' > output/version.info
echo > "$out/include/atb/atb_infer.h"
echo > "$out/configs/ops_configs/atb_ops_info.ini"
cp "$ATB_BUILD_DEPENDENCY_PATH/lib/libtbe_adapter.so" "$out/lib"
cc -shared -fPIC -o "$out/lib/libatb.so" -x c atb.c
"#;

/// A machine with CANN, nnal, a source of ATB and sources of ours.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new(cann: &str) -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        machine.write("cann/share/info/runtime/version.info", &format!("Version={cann}\n"));
        machine.write("cann/set_env.sh", "");
        machine.write("cann/include/acl/acl.h", "");
        machine.write("cann/acl.c", "int aclrtGetDeviceCount(unsigned *count) { *count = 1; return 0; }\n");
        machine.write("cann/lib64/any", "");
        machine.compile("cann/acl.c", "cann/lib64/libascendcl.so");
        machine.write("nnal/version.info", &format!("branch : {cann}\n"));
        machine.write("nnal/atb/cxx_abi_1/lib/libtbe_adapter.so", "");
        machine.write("source/.git", "");
        machine.write("source/atb.c", ATB_SOURCE);
        machine.write("source/scripts/build.sh", &BUILD_SCRIPT.replace("VERSION_LINE", &format!("branch : {cann}")));
        machine.write("ours/shim/src/shim.cpp", &SHIM_SOURCE.replace("PROBED", "0"));
        machine.write("ours/shim/src/internal.hpp", "#define NOTHING 0\n");
        machine.write("ours/spec-decode/src/module.cpp", MODULE_SOURCE);
        // Upstream's script calls them, the stand-in does not, and a machine that tests this need not have them.
        for program in ["git", "cmake", "g++", "python3"] {
            machine.write(&format!("bin/{program}"), "");
        }
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn compile(&self, source: &str, library: &str) {
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-o"]).arg(self.path(library)).arg(self.path(source));
        assert!(command.status().unwrap().success());
    }

    /// Starts the program with this machine's variables and nothing else of the environment but PATH.
    fn start(&self, line: &str, variables: &[(&str, PathBuf)]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atb-builder"));
        let path = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths(std::env::split_paths(&path).chain([self.path("bin")])).unwrap();
        command.env_clear().env("PATH", path).env("HOME", self.path("home"));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.args(line.split_whitespace()).arg("--output").arg(self.path("out"));
        command.arg("--sources").arg(self.path("ours"));
        Ran { line: format!("{command:?}"), output: command.output().unwrap() }
    }

    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("ASCEND_HOME_PATH", self.path("cann")), ("ATB_BUILD_DEPENDENCY_PATH", self.path("nnal/atb/cxx_abi_1"))]
    }

    /// Builds from the stand-in's source.
    fn build(&self, line: &str) -> Ran {
        self.start(&format!("{line} --source {}", self.path("source").display()), &self.variables())
    }
}

struct Ran {
    line: String,
    output: Output,
}

impl Ran {
    fn text(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.output.stdout), String::from_utf8_lossy(&self.output.stderr))
    }

    #[track_caller]
    fn says(&self, succeeds: bool, words: &[&str]) -> &Self {
        let text = self.text();
        assert_eq!(self.output.status.success(), succeeds, "{}\n{text}", self.line);
        for word in words {
            assert!(text.contains(word), "{}\n`{word}` is not in:\n{text}", self.line);
        }
        self
    }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[test]
fn atb_and_the_shim_are_built_installed_beside_each_other_and_tried() {
    let machine = Machine::new("8.5.0");
    let ran = machine.build("--with-spec-decode --max-ws-size 512");
    ran.says(
        true,
        &[
            "CANN 8.5.0 in ",
            "smoke test: ",
            "libatb is libatb.so of cxx_abi_1; workspaces up to 512 MB; the spec-decode module is in it",
            "installed: libatb.so, libspec_atb.so of cxx_abi_1",
            "installed: the spec-decode module, in libspec_atb.so",
            &format!("  source {}", machine.path("cann/set_env.sh").display()),
            &format!("  source {}", machine.path("out/set_env.sh").display()),
            &format!("export SPEC_ATB_SHIM={}", machine.path("out/atb/cxx_abi_1/lib/libspec_atb.so").display()),
        ],
    );
    for file in ["lib/libatb.so", "lib/libspec_atb.so", "lib/libtbe_adapter.so", "configs/ops_configs/atb_ops_info.ini"]
    {
        assert!(exists(&machine.path("out/atb/cxx_abi_1").join(file)), "{file}");
    }
    // Nothing of ours has reached upstream's script.
    assert_eq!(machine.read("source/arguments"), "default --use_cxx11_abi=1\n");

    // What the script that was written exports leads to what was installed.
    let script = format!(
        "set -u; LD_LIBRARY_PATH=; . {}/set_env.sh; echo $ATB_HOME_PATH; echo $SPEC_ATB_SHIM",
        machine.path("out").display()
    );
    let shell = Command::new("bash").args(["-c", &script]).output().unwrap();
    let out = String::from_utf8(shell.stdout).unwrap();
    let folder = machine.path("out/atb/cxx_abi_1");
    assert_eq!(out, format!("{0}\n{0}/lib/libspec_atb.so\n", folder.display()));
}

#[test]
fn the_articles_spellings_do_the_same_and_never_reach_the_script() {
    let machine = Machine::new("9.0.0");
    let ran = machine.build("--with_spec_decode -DMAX_WS_SIZE=64");
    ran.says(true, &["workspaces up to 64 MB", "note: the source calls itself 8.5.0, and CANN is 9.0.0"]);
    assert_eq!(machine.read("source/arguments"), "default --use_cxx11_abi=1\n");
}

#[test]
fn the_module_is_built_when_it_is_asked_for() {
    let machine = Machine::new("8.5.0");
    let ran = machine.build("");
    ran.says(
        true,
        &["not installed: the spec-decode module; build it with `cargo xtask build-atb --with-spec-decode`"],
    );
    assert!(!ran.text().contains("is in it"));

    std::fs::remove_dir_all(machine.path("ours/spec-decode")).unwrap();
    machine.build("").says(true, &["not installed: the spec-decode module"]);
    machine.build("--with-spec-decode").says(false, &["cannot list", "spec-decode/src"]);

    // One that compiles and lacks the function is found by the smoke test.
    machine.write("ours/spec-decode/src/module.cpp", "int nothing;\n");
    machine.build("--with-spec-decode").says(false, &["smoke test: the spec-decode module", "spec_atb_create_verify"]);
}

#[test]
fn a_dry_run_prints_every_command_and_does_nothing() {
    let machine = Machine::new("8.5.0");
    let ran = machine.start("--dry-run --with-spec-decode --git https://example.org/atb#8.5.0", &machine.variables());
    let checkout = machine.path("ascend-transformer-boost").display().to_string();
    ran.says(
        true,
        &[
            &format!("+ git clone --depth 1 --branch 8.5.0 https://example.org/atb {checkout}"),
            &format!("+ cd {checkout} && ASCEND_HOME_PATH={}", machine.path("cann").display()),
            "bash scripts/build.sh default --use_cxx11_abi=1\n",
            "+ c++ ",
            "-D_GLIBCXX_USE_CXX11_ABI=1",
            "-Wl,--no-as-needed -latb -ldl\n",
            "smoke ",
            "nothing was done",
        ],
    );
    for path in ["out", "ascend-transformer-boost", "source/arguments"] {
        assert!(!exists(&machine.path(path)), "{path}");
    }
    // Without --git it is the article's repository.
    machine
        .start("--dry-run", &machine.variables())
        .says(true, &["git clone --depth 1 https://atomgit.com/cann/ascend-transformer-boost "]);
}

#[test]
fn an_installed_atb_needs_only_the_shim() {
    let machine = Machine::new("8.5.0");
    machine.write("nnal/atb/cxx_abi_1/include/atb/atb_infer.h", "");
    machine.compile("source/atb.c", "nnal/atb/cxx_abi_1/lib/libatb.so");
    let mut variables = machine.variables();
    variables.push(("ATB_HOME_PATH", machine.path("nnal/atb/cxx_abi_1")));
    let ran = machine.start("--installed", &variables);
    ran.says(true, &["ATB 8.5.0 and CANN 8.5.0 are of one release", "smoke test: ", "installed: libspec_atb.so"]);
    assert!(!exists(&machine.path("source/arguments")) && !exists(&machine.path("out/atb/cxx_abi_1/lib/libatb.so")));
    let wanted = format!("export ATB_HOME_PATH={}", machine.path("nnal/atb/cxx_abi_1").display());
    ran.says(true, &[&wanted]);
    machine.start("--installed --cxx11-abi 0", &variables).says(false, &["cxx_abi_1", "--cxx_abi=0"]);
}

#[test]
fn what_is_missing_or_does_not_fit_is_said_with_what_to_do() {
    let machine = Machine::new("8.5.0");
    let nothing = machine.start("", &[]);
    nothing.says(false, &["CANN's toolkit is not found", "/set_env.sh", "cargo xtask build-atb --sim"]);

    // A simulator is no CANN to compile against, though its folder is laid out like one.
    machine.write("simulated/lib64/libascend_sim.so", "");
    let simulated = machine.start("", &[("ASCEND_HOME_PATH", machine.path("simulated"))]);
    simulated.says(false, &["CANN's toolkit is not found"]);

    let old = Machine::new("8.3.0");
    old.build("").says(false, &["is 8.3.0", "8.5.0 or newer", "ASCEND_HOME_PATH"]);

    machine.build("--cxx11-abi 0").says(false, &["ATB_BUILD_DEPENDENCY_PATH", "has to end in cxx_abi_0"]);
    let only_cann = [("ASCEND_HOME_PATH", machine.path("cann"))];
    let source = format!("--source {}", machine.path("source").display());
    machine.start(&source, &only_cann).says(false, &["libtbe_adapter.so", "Ascend-cann-nnal", "--installed"]);

    let no_checkout = format!("--source {}", machine.path("cann").display());
    machine.start(&no_checkout, &machine.variables()).says(false, &["no scripts/build.sh"]);
    std::fs::remove_file(machine.path("source/.git")).unwrap();
    machine.build("").says(false, &["no git checkout"]);

    let mut variables = machine.variables();
    variables.push(("PATH", machine.path("cann")));
    machine.write("source/.git", "");
    machine.start(&source, &variables).says(false, &["needs bash, git, cmake, g++, python3"]);

    machine.write("nnal/atb/cxx_abi_1/lib/libatb.so", "");
    machine.write("nnal/version.info", "branch : 9.0.0\n");
    let mut variables = machine.variables();
    variables.push(("ATB_HOME_PATH", machine.path("nnal/atb/cxx_abi_1")));
    machine.start("--installed", &variables).says(false, &["is of release 9.0.0, and CANN is 8.5.0", "one release"]);
}

#[test]
fn a_step_that_fails_ends_it_with_the_command() {
    let machine = Machine::new("8.5.0");
    machine.write("source/scripts/build.sh", "echo 'ccec is missing' >&2; exit 7\n");
    machine.build("").says(false, &["ccec is missing", "bash scripts/build.sh default", "failed"]);

    let machine = Machine::new("8.5.0");
    machine.write("ours/shim/src/shim.cpp", &SHIM_SOURCE.replace("PROBED", "SPEC_ATB_ERROR_ABI"));
    machine.build("").says(false, &["smoke test: ", "SPEC_ATB_ERROR_ABI", "said by the stand-in"]);
}

#[test]
fn a_machine_without_a_driver_builds_and_says_that_nothing_was_tried() {
    let machine = Machine::new("8.5.0");
    machine.write("hal.c", "int hal(void) { return 0; }\n");
    machine.compile("hal.c", "libascend_hal.so");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]).arg(machine.path("cann/lib64/libascendcl.so"));
    command.arg(machine.path("cann/acl.c")).arg(format!("-L{}", machine.path("").display())).arg("-l:libascend_hal.so");
    assert!(command.status().unwrap().success());
    std::fs::remove_file(machine.path("libascend_hal.so")).unwrap();
    machine.build("").says(true, &["smoke test: not run", "libascend_hal.so", "spec doctor --device ascend"]);
}

#[test]
fn the_simulators_layout_is_printed_by_a_dry_run() {
    let machine = Machine::new("8.5.0");
    let ran = machine.start("--sim --dry-run --max-ws-size 100", &[]);
    ran.says(
        true,
        &[
            "build -p ascend-sim",
            &format!("ln -sfn libascend_sim.so {}", machine.path("out/lib64/libascendcl.so").display()),
            "export SPEC_ATB_MAX_WS_SIZE=100",
            "smoke --simulator",
            "spec doctor --device ascend-sim",
            "installed: the spec-decode module",
        ],
    );
    assert!(!exists(&machine.path("out")));
}
