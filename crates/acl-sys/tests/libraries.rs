//! Real shared libraries, compiled here from a few lines of C, on machines that are folders.

use acl_sys::{Api, Error, Host, Loader, SPEC_ATB_ABI_VERSION};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A library whose `aclrtGetDeviceCount` says `count`.
fn counting(count: u32) -> String {
    format!("int aclrtGetDeviceCount(unsigned *count) {{ *count = {count}; return 0; }}\n")
}

const SIMULATOR: &str = "const char *ascend_sim_version(void) { return \"1\"; }\n";

fn shim(version: u32) -> String {
    format!(
        "unsigned spec_atb_abi_version(void) {{ return {version}; }}\n\
         unsigned long spec_atb_tensor_size(const void *desc) {{ return desc ? 64 : 0; }}\n"
    )
}

struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { root: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        let written = std::fs::create_dir_all(path.parent().unwrap_or(self.root.path()))
            .and_then(|()| std::fs::write(&path, text));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    /// Compiles a library, and returns its path.
    fn library(&self, path: &str, source: &str, more: &[&str]) -> PathBuf {
        self.write(&format!("{path}.c"), source);
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .arg(self.path(path))
            .arg(self.path(&format!("{path}.c")))
            .args(more)
            .output()
            .expect("a C compiler is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.path(path)
    }

    fn host(&self) -> Host {
        Host::at(self.root.path())
    }
}

/// SAFETY: as the functions of this file's libraries have the signatures of their symbols, loading them is harmless.
fn load(loader: Loader) -> Result<Api, Error> {
    // SAFETY: above.
    unsafe { loader.load() }
}

fn count(api: &Api) -> u32 {
    let mut count = 0;
    // SAFETY: the pointer is valid.
    let status = unsafe { api.aclrtGetDeviceCount(&mut count) };
    assert!(status.is_ok_and(|status| status.is_success()));
    count
}

fn mentions(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in:\n{text}");
    }
}

#[test]
fn a_function_that_libascendcl_lacks_comes_from_libacl_rt() {
    let machine = Machine::new();
    machine.library("lib64/libascendcl.so", &counting(3), &[]);
    machine.library("lib64/libacl_rt.so", &format!("{}int aclrtResetDevice(int d) {{ return d; }}", counting(4)), &[]);
    let api = load(Loader::new().path(machine.path("lib64"))).unwrap();
    assert_eq!(count(&api), 3, "libascendcl comes first");
    // SAFETY: takes a number.
    assert_eq!(unsafe { api.aclrtResetDevice(107) }.unwrap().0, 107);
    // SAFETY: the call is not made.
    let error = unsafe { api.aclrtSetDevice(0) }.unwrap_err();
    mentions(
        &error,
        &["`aclrtSetDevice`", "since CANN 8.0", "libascendcl.so: no such symbol", "libacl_rt.so: no such"],
    );
}

#[test]
fn without_libascendcl_the_parts_serve_and_are_opened_when_needed() {
    let machine = Machine::new();
    machine.library("cann/lib64/libacl_rt.so", &counting(5), &[]);
    let api = load(Loader::new().path(machine.path("cann"))).unwrap();
    assert_eq!(count(&api), 5);
    // SAFETY: the call is not made.
    let error = unsafe { api.aclmdlUnload(1) }.unwrap_err();
    assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
    mentions(&error, &["libacl_mdl.so: no such file"]);
}

#[test]
fn an_explicit_file_is_taken_and_its_neighbours_serve() {
    let machine = Machine::new();
    let file = machine.library("any/libmine.so", &counting(6), &[]);
    machine.library("any/libacl_rt.so", "int aclrtResetDevice(int d) { return d; }", &[]);
    // SAFETY: as in `load`.
    let api = unsafe { Api::load_from(file) }.unwrap();
    assert_eq!(count(&api), 6);
    // SAFETY: takes a number.
    assert_eq!(unsafe { api.aclrtResetDevice(2) }.unwrap().0, 2);
}

#[test]
fn variables_come_before_the_library_path_and_that_before_the_usual_places() {
    let machine = Machine::new();
    machine.library("usr/local/Ascend/cann/lib64/libascendcl.so", &counting(1), &[]);
    assert_eq!(count(&load(Loader::new().host(machine.host())).unwrap()), 1);
    machine.library("path/libascendcl.so", &counting(2), &[]);
    let host = machine.host().with_variable("LD_LIBRARY_PATH", machine.path("path"));
    assert_eq!(count(&load(Loader::new().host(host.clone())).unwrap()), 2);
    machine.library("toolkit/lib64/libascendcl.so", &counting(3), &[]);
    let host = host.with_variable("ASCEND_TOOLKIT_HOME", machine.path("toolkit"));
    assert_eq!(count(&load(Loader::new().host(host.clone())).unwrap()), 3);
    machine.library("home/lib64/libascendcl.so", &counting(4), &[]);
    let host = host.with_variable("ASCEND_HOME_PATH", machine.path("home"));
    assert_eq!(count(&load(Loader::new().host(host)).unwrap()), 4);
}

#[test]
fn a_library_for_linking_is_passed_over_and_refused_when_it_is_all_that_was_named() {
    let machine = Machine::new();
    machine.library("toolkit/devlib/libascendcl.so", &counting(1), &[]);
    machine.library("real/libascendcl.so", &counting(2), &[]);
    let path = std::env::join_paths([machine.path("toolkit/devlib"), machine.path("real")]).unwrap();
    let host = machine.host().with_variable("LD_LIBRARY_PATH", path);
    assert_eq!(count(&load(Loader::new().host(host)).unwrap()), 2);

    let error = load(Loader::new().path(machine.path("toolkit/devlib"))).unwrap_err();
    assert!(matches!(error, Error::StubLibrary { .. }), "{error}");
    mentions(&error, &["devlib/libascendcl.so", "100039", "LD_LIBRARY_PATH"]);

    // A link elsewhere changes nothing.
    std::fs::create_dir(machine.path("link")).unwrap();
    let target = machine.path("toolkit/devlib/libascendcl.so");
    std::os::unix::fs::symlink(target, machine.path("link/libascendcl.so")).unwrap();
    assert!(matches!(load(Loader::new().path(machine.path("link"))), Err(Error::StubLibrary { .. })));
}

#[test]
fn a_function_that_the_systems_loader_took_from_a_library_for_linking_is_refused() {
    let machine = Machine::new();
    let stub = machine.library("devlib/libpart.so", &counting(1), &[]);
    let rpath = format!("-Wl,-rpath,{}", machine.path("devlib").display());
    let more = ["-Wl,--no-as-needed", stub.to_str().unwrap(), &rpath];
    machine.library("lib64/libascendcl.so", "int aclrtSetDevice(int d) { return 0; }", &more);
    let api = load(Loader::new().path(machine.path("lib64"))).unwrap();
    // SAFETY: takes a number.
    unsafe { api.aclrtSetDevice(0) }.unwrap().ok().unwrap();
    let mut count = 0;
    // SAFETY: the pointer is valid, and the call is not made.
    let error = unsafe { api.aclrtGetDeviceCount(&mut count) }.unwrap_err();
    assert!(matches!(error, Error::StubLibrary { .. }), "{error}");
    mentions(&error, &["devlib/libpart.so"]);
}

#[test]
fn a_simulator_is_refused_unless_asked_for_and_hardware_when_it_was() {
    let machine = Machine::new();
    let source = format!("{}{SIMULATOR}{}", counting(1), shim(SPEC_ATB_ABI_VERSION));
    let simulator = machine.library("sim/libascend_sim.so", &source, &[]);
    machine.library("tree/lib64/libascendcl.so", &source, &[]);
    machine.library("real/libascendcl.so", &counting(2), &[]);

    for path in [machine.path("tree"), simulator.clone()] {
        let error = load(Loader::new().path(path)).unwrap_err();
        assert!(matches!(error, Error::SimulatorRefused { .. }), "{error}");
        mentions(&error, &["ascend_sim_version", "--device ascend-sim"]);
    }
    let api = load(Loader::new().path(&simulator).simulator(true)).unwrap();
    assert_eq!(count(&api), 1);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { api.spec_atb_tensor_size(std::ptr::null()) }.unwrap(), 0, "it stands for the shim too");

    let error = load(Loader::new().path(machine.path("real/libascendcl.so")).simulator(true)).unwrap_err();
    assert!(matches!(error, Error::NotASimulator { .. }), "{error}");
}

#[test]
fn a_simulator_is_found_by_its_variable_beside_the_program_and_where_it_is_built() {
    let machine = Machine::new();
    let source = |number| format!("{}{SIMULATOR}{}", counting(number), shim(SPEC_ATB_ABI_VERSION));
    let find = |host: Host| load(Loader::new().simulator(true).host(host));

    let error = find(machine.host()).unwrap_err();
    assert!(matches!(error, Error::SimulatorMissing { .. }), "{error}");
    mentions(&error, &["libascend_sim.so", "cargo xtask build-atb --sim", "SPEC_ASCEND_SIM", "target/ascend"]);
    assert_eq!(error.to_string().lines().count(), 1, "one line with the command: {error}");
    machine.write("broken.so", "not a library, and long enough to have had the header of one, had it been one");
    let error = find(machine.host().with_variable("SPEC_ASCEND_SIM", machine.path("broken.so"))).unwrap_err();
    mentions(&error, &["broken.so", "invalid ELF header"]);

    // The target folder that a program was built in serves from anywhere.
    machine.library("elsewhere/ascend/lib64/libascend_sim.so", &source(4), &[]);
    let built = machine.host().with_executable(machine.path("elsewhere/debug/examples/matmul"));
    assert_eq!(count(&find(built).unwrap()), 4);

    machine.library("target/ascend/libascend_sim.so", &source(1), &[]);
    assert_eq!(count(&find(machine.host()).unwrap()), 1);
    machine.library("bin/libascend_sim.so", &source(2), &[]);
    let host = machine.host().with_executable(machine.path("bin/spec"));
    assert_eq!(count(&find(host.clone()).unwrap()), 2);
    let file = machine.library("other/sim.so", &source(3), &[]);
    assert_eq!(count(&find(host.with_variable("SPEC_ASCEND_SIM", file)).unwrap()), 3);
}

#[test]
fn the_shim_is_opened_when_first_needed_and_checked_for_its_version() {
    let machine = Machine::new();
    machine.library("lib64/libascendcl.so", &counting(1), &[]);
    let loader = || Loader::new().path(machine.path("lib64")).host(machine.host());

    let api = load(loader()).unwrap();
    // SAFETY: the call is not made.
    let error = unsafe { api.spec_atb_tensor_size(std::ptr::null()) }.unwrap_err();
    assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
    mentions(&error, &["libspec_atb.so", "nnal/atb/set_env.sh", "cargo xtask build-atb"]);

    let good = machine.library("good/libspec_atb.so", &shim(SPEC_ATB_ABI_VERSION), &[]);
    for place in [good.clone(), machine.path("good")] {
        let api = load(loader().shim(place)).unwrap();
        // SAFETY: null is allowed.
        assert_eq!(unsafe { api.spec_atb_tensor_size(std::ptr::null()) }.unwrap(), 0);
    }
    let host = machine.host().with_variable("SPEC_ATB_SHIM", &good);
    let api = load(loader().host(host)).unwrap();
    // SAFETY: takes nothing.
    assert_eq!(unsafe { api.spec_atb_abi_version() }.unwrap(), SPEC_ATB_ABI_VERSION);

    let old = machine.library("old/libspec_atb.so", &shim(SPEC_ATB_ABI_VERSION + 7), &[]);
    let api = load(loader().shim(old)).unwrap();
    // SAFETY: the call is not made.
    let error = unsafe { api.spec_atb_tensor_size(std::ptr::null()) }.unwrap_err();
    assert!(matches!(error, Error::ShimVersion { expected: SPEC_ATB_ABI_VERSION, .. }), "{error}");
    mentions(&error, &[&(SPEC_ATB_ABI_VERSION + 7).to_string(), "cargo xtask build-atb"]);
    assert_eq!(count(&api), 1, "AscendCL serves all the same");
}

#[test]
fn a_library_that_is_nowhere_is_an_error_with_every_place_and_the_lines_to_paste() {
    let machine = Machine::new();
    let error = load(Loader::new().host(machine.host())).unwrap_err();
    mentions(&error, &["could not load libascendcl.so, libacl_rt.so", "source /usr/local/Ascend/cann/set_env.sh"]);
    let tried = machine.path("usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so");
    mentions(&error, &[&format!("tried {}: no such file", tried.display())]);

    // Installed, and not found because its folder is empty: the lines name what is there.
    machine.write("usr/local/Ascend/ascend-toolkit/set_env.sh", "");
    machine.write("usr/local/Ascend/ascend-toolkit/latest/lib64/other", "");
    machine.write("usr/local/Ascend/driver/lib64/driver/other", "");
    let error = load(Loader::new().host(machine.host())).unwrap_err();
    let place = |path: &str| machine.path(path).display().to_string();
    mentions(
        &error,
        &[
            &format!("\n  source {}", place("usr/local/Ascend/ascend-toolkit/set_env.sh")),
            "a service reads no .bashrc",
            &format!(
                "\n  export LD_LIBRARY_PATH={}:{}:",
                place("usr/local/Ascend/ascend-toolkit/latest/lib64"),
                place("usr/local/Ascend/driver/lib64/driver")
            ),
        ],
    );
}

#[test]
fn what_the_systems_loader_says_is_passed_on_and_explained() {
    let machine = Machine::new();
    let driver =
        machine.library("driver/libascend_hal.so", "int hal(void) { return 0; }", &["-Wl,-soname,libascend_hal.so"]);
    let more = ["-Wl,--no-as-needed", driver.to_str().unwrap()];
    machine.library("usr/local/Ascend/cann/lib64/libascendcl.so", &counting(1), &more);
    std::fs::remove_file(driver).unwrap();
    let error = load(Loader::new().host(machine.host())).unwrap_err();
    mentions(&error, &["libascend_hal.so: cannot open shared object file", "is the driver's"]);

    machine.write("broken/libascendcl.so", "not a library at all, but long enough to have had a header of one");
    let error = load(Loader::new().path(machine.path("broken"))).unwrap_err();
    mentions(&error, &["invalid ELF header", "another processor"]);
}

#[test]
fn a_mixed_installation_is_an_error_when_everything_is_resolved_at_once() {
    let machine = Machine::new();
    let source = format!(
        "extern int of_another_release(void);\nint use(void) {{ return of_another_release(); }}\n{}",
        counting(1)
    );
    machine.library("usr/local/Ascend/cann/lib64/libascendcl.so", &source, &[]);
    // Lazily, it is found out by the first call only, which would end this process. Another file, since one that is open
    // already is not looked at again.
    let lazy = machine.library("lazy/libascendcl.so", &source, &[]);
    load(Loader::new().path(lazy)).unwrap();
    let error = load(Loader::new().host(machine.host()).bind_now(true)).unwrap_err();
    mentions(&error, &["undefined symbol", "of_another_release", "several CANN releases are mixed"]);

    let source = format!(
        "extern int _ZN3atb5Utils13GetAtbVersionB5cxx11Ev(void);\nint use(void) {{ return _ZN3atb5Utils13GetAtbVersionB5cxx11Ev(); }}\n{}",
        shim(SPEC_ATB_ABI_VERSION)
    );
    machine.library("lib64/libascendcl.so", &counting(1), &[]);
    machine.library("shim/libspec_atb.so", &source, &[]);
    let loader =
        Loader::new().path(machine.path("lib64")).shim(machine.path("shim")).host(machine.host()).bind_now(true);
    // SAFETY: the call is not made.
    let error = unsafe { load(loader).unwrap().spec_atb_tensor_size(std::ptr::null()) }.unwrap_err();
    mentions(&error, &["other C++ ABI", "--cxx_abi=0 or 1"]);
}

#[test]
fn releases_are_read_from_what_installations_say_of_themselves() {
    let machine = Machine::new();
    machine.write("new/share/info/runtime/version.info", "Version=8.5.0\ninnerversion=V100\n");
    machine
        .write("old/aarch64-linux/ascend_toolkit_install.info", "package_name=Ascend-cann-toolkit\nversion=8.0.RC1\n");
    machine.write("named/8.2.RC1/lib64/any", "");
    machine.write("nnal/version.info", "    Platform : x86_64\n    branch : 8.5.0\n    commit id : 1234\n");
    machine.write("nnal/atb/cxx_abi_1/lib/any", "");
    machine.write("silent/lib64/any", "");
    std::os::unix::fs::symlink(machine.path("named/8.2.RC1"), machine.path("named/latest")).unwrap();
    let release = |path: &str| Host::release_in(&machine.path(path)).map(|version| version.to_string());
    assert_eq!(release("new").as_deref(), Some("8.5.0"));
    assert_eq!(release("old").as_deref(), Some("8.0.0"));
    assert_eq!(release("named/latest").as_deref(), Some("8.2.0"));
    assert_eq!(release("nnal/atb/cxx_abi_1").as_deref(), Some("8.5.0"));
    assert_eq!(release("silent"), None);

    machine.write("usr/local/Ascend/nnal/atb/set_env.sh", "");
    machine.write("usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_0/lib/any", "");
    let folders = machine.host().with_variable("ATB_HOME_PATH", machine.path("mine/cxx_abi_1")).atb_folders();
    let expected = [machine.path("mine/cxx_abi_1"), machine.path("usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_0")];
    assert_eq!(folders, expected);
}

#[test]
fn the_shims_headers_compile_as_c_and_as_cpp_and_have_no_padding() {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("headers");
    let strict = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpadded", "-Werror"];
    for (language, standard) in [("c", "-std=c11"), ("c++", "-std=c++17")] {
        for header in ["spec_atb.h", "spec_atb_operations.h"] {
            // The compiler warns about a main file that is a header.
            let machine = Machine::new();
            machine.write("main.c", &format!("#include \"{header}\"\n"));
            let output = Command::new("cc")
                .args(strict)
                .args(["-x", language, standard, "-I"])
                .arg(&headers)
                .arg(machine.path("main.c"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{header}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
