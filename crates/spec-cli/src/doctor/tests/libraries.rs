//! Libraries, their folders and their releases.

use super::machines::{ABI_0, ABI_1, Folder};

const COUNTING: &str = "int aclrtGetDeviceCount(unsigned *count) { *count = 1; return 0; }\n";
const CANN: &str = "/usr/local/Ascend/cann";

/// A machine with CANN and nothing else of an NPU.
fn cann() -> Folder {
    let mut folder = Folder::plain();
    folder.install_cann(CANN, "8.5.0");
    folder.unset("ASCEND_HOME_PATH");
    folder
}

/// Report 151: the toolkit is there and its path in `.bashrc`, which a service does not read.
#[test]
fn a_missing_library_is_named_with_the_places_and_the_lines_to_paste() {
    let folder = cann();
    let dump = folder.compile("/parts/libascend_dump.so", "int dump(void) { return 0; }\n", &[]);
    folder.compile(&format!("{CANN}/lib64/libascendcl.so"), COUNTING, &[&dump]);
    folder.remove("/parts/libascend_dump.so");
    folder.write("/usr/local/Ascend/driver/lib64/driver/any", "");
    let seen = folder.look(Some("ascend"));
    let place = |path: &str| folder.path(path).display().to_string();
    seen.says(
        3,
        &[
            "failure  AscendCL: could not load libascendcl.so, libacl_rt.so",
            "libascend_dump.so: cannot open shared object file",
            &format!("tried {}", place(&format!("{CANN}/lib64/libascendcl.so"))),
            "a service reads no .bashrc",
            "the CPU can be used: --device cpu",
        ],
    );
    let lines = format!(
        "  source {}\n  export LD_LIBRARY_PATH={}:{}:{}:$LD_LIBRARY_PATH\n",
        place(&format!("{CANN}/set_env.sh")),
        place(&format!("{CANN}/lib64")),
        place("/usr/local/Ascend/driver/lib64/driver"),
        place("/usr/local/Ascend/driver/lib64"),
    );
    assert!(seen.text.ends_with(&lines), "{}", seen.text);
    folder.look(None).says(0, &["warning  AscendCL: could not load", "cpu can be used"]);
}

#[test]
fn a_machine_without_anything_is_told_what_to_install() {
    let seen = Folder::plain().look(Some("ascend"));
    seen.says(3, &["could not load libascendcl.so, libacl_rt.so"]).fixes(&["install its toolkit"]);
    assert!(seen.text.ends_with("  source /usr/local/Ascend/cann/set_env.sh\n"), "{}", seen.text);
}

#[test]
fn a_missing_driver_is_told_apart_from_a_missing_toolkit() {
    let folder = cann();
    let hal = folder.compile("/parts/libascend_hal.so", "int hal(void) { return 0; }\n", &[]);
    folder.compile(&format!("{CANN}/lib64/libascendcl.so"), COUNTING, &[&hal]);
    folder.remove("/parts/libascend_hal.so");
    folder.look(Some("ascend")).says(3, &["libascend_hal.so: cannot open"]).fixes(&["install the driver, or mount"]);
}

/// Reports 153 and 154: nnal is not there, or nobody knows where its script is.
#[test]
fn a_missing_atb_names_the_package_and_the_usual_place() {
    let mut server = Folder::server("");
    server.remove("/usr/local/Ascend/nnal");
    server.unset("ATB_HOME_PATH");
    server.look(Some("ascend")).says(8, &["usually in /usr/local/Ascend/nnal/atb"]).fixes(&[
        "install the nnal package (Ascend-cann-nnal)",
        "source /usr/local/Ascend/nnal/atb/set_env.sh",
        "cargo xtask build-atb",
    ]);

    let mut server = Folder::server("");
    server.unset("ATB_HOME_PATH");
    let script = server.path("/usr/local/Ascend/nnal/atb/set_env.sh").display().to_string();
    server.look(Some("ascend")).says(8, &["ATB_HOME_PATH is not set"]).fixes(&[&format!("source {script}")]);
}

#[test]
fn a_shim_whose_libatb_is_missing_says_so_when_it_is_loaded() {
    let server = cann();
    let atb = server.compile("/parts/libatb.so", "int atb(void) { return 0; }\n", &[]);
    let shim = server.compile("/parts/libspec_atb.so", "unsigned spec_atb_abi_version(void) { return 1; }\n", &[&atb]);
    server.remove("/parts/libatb.so");
    let host = acl_sys::Host::at(server.path("/")).with_variable("SPEC_ATB_SHIM", &shim);
    server.compile(&format!("{CANN}/lib64/libascendcl.so"), COUNTING, &[]);
    // SAFETY: compiled above, with the signatures of acl-sys.
    let api = unsafe { acl_sys::Loader::new().host(host).load() }.expect("AscendCL is there");
    let error = super::super::libraries::shim_is_there(&api).expect_err("libatb is not");
    let finding = super::super::libraries::refusal("ATB shim", &error);
    assert!(finding.said.contains("libatb.so: cannot open"), "{finding:?}");
    assert!(finding.fixes.iter().any(|fix| fix.contains("comes with the nnal package")), "{finding:?}");
}

/// Report 155: the path leads to the other C++ ABI.
#[test]
fn an_atb_of_the_other_abi_is_found_before_and_after_it_is_loaded() {
    let mut server = Folder::server("");
    server.install_atb(0, "8.5.0", ABI_1);
    server.look(Some("ascend")).says(8, &["ATB_HOME_PATH ends in cxx_abi_0, and its libatb.so is of cxx_abi_1"]);
    // The folder is consistent, and the shim was built for the other one.
    let mut server = Folder::server("fault=spec_atb_probe:*:-3");
    server.install_atb(0, "8.5.0", ABI_0);
    let seen = server.look(Some("ascend"));
    seen.says(8, &["8.5.0, cxx_abi_0", "SPEC_ATB_ERROR_ABI"]);
    let folder = cann();
    let source = format!("extern int {ABI_1}(void);\nint use(void) {{ return {ABI_1}(); }}\n{COUNTING}");
    folder.compile(&format!("{CANN}/lib64/libascendcl.so"), &source, &[]);
    folder.look(Some("ascend")).says(6, &["undefined symbol"]).fixes(&["other C++ ABI", "--cxx_abi=0 or 1"]);
}

/// Report 157: libraries of several releases. The symbol is found out before a call ends the process.
#[test]
fn mixed_releases_are_found_with_their_numbers() {
    let folder = cann();
    let source = format!("extern int of_9_1(void);\nint use(void) {{ return of_9_1(); }}\n{COUNTING}");
    folder.compile(&format!("{CANN}/lib64/libascendcl.so"), &source, &[]);
    folder
        .look(Some("ascend"))
        .says(6, &["undefined symbol: of_9_1", "8.5.0 in"])
        .fixes(&["several CANN releases are mixed"]);

    let mut server = Folder::server("");
    server.install_cann("/opt/older", "8.2.0");
    server.install_cann(CANN, "8.5.0");
    // A version in the name of another folder says nothing of CANN.
    server.write("/opt/other/3.11.4/lib/any", "");
    for folder in ["/opt/older", CANN] {
        server.write(&format!("{folder}/lib64/libacl_rt.so"), "");
    }
    let (new, old) = (server.path(&format!("{CANN}/lib64")), server.path("/opt/older/lib64"));
    server.set(
        "LD_LIBRARY_PATH",
        &format!("{}:{}:{}", server.path("/opt/other/3.11.4/lib").display(), new.display(), old.display()),
    );
    let fix = format!("3.11.4/lib:{}", new.display());
    server.look(Some("ascend")).says(6, &["mixes CANN 8.5.0", "CANN 8.2.0", "driver 25.2.0"]).fixes(&[&fix]);

    let mut server = Folder::server("");
    server.install_atb(1, "9.0.0", ABI_1);
    server.look(Some("ascend")).says(6, &["ATB is 9.0.0 and CANN is 8.5.0"]).fixes(&["nnal package of CANN 8.5.0"]);
}

#[test]
fn a_folder_for_linking_is_taken_out_of_the_library_path() {
    let mut server = Folder::server("");
    server.write("/cann/devlib/any", "");
    let stub = server.path("/cann/devlib").display().to_string();
    server.set("LD_LIBRARY_PATH", &format!("/usr/lib:{stub}:/opt/lib"));
    let seen = server.look(Some("ascend"));
    seen.says(3, &[&stub, "100039"]);
    assert!(seen.text.ends_with("  export LD_LIBRARY_PATH=/usr/lib:/opt/lib\n"), "{}", seen.text);
}

#[test]
fn variables_that_lead_nowhere_are_named() {
    let mut server = Folder::server("");
    server.set("ASCEND_OPP_PATH", "/does/not/exist");
    server
        .look(Some("ascend"))
        .says(3, &["ASCEND_OPP_PATH is /does/not/exist", "148049"])
        .fixes(&["Ascend-cann-<chip>-ops"]);
    let mut server = Folder::server("");
    server.set("ASCEND_TOOLKIT_HOME", "/does/not/exist");
    server.look(Some("ascend")).says(0, &["warning  CANN: ASCEND_TOOLKIT_HOME is /does/not/exist"]);
}

#[test]
fn atb_without_its_table_of_types_is_refused() {
    let server = Folder::server("");
    server.remove("/usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_1/configs");
    server.look(Some("ascend")).says(8, &["atb_ops_info.ini is not in ATB_HOME_PATH"]);
}

#[test]
fn an_old_cann_and_functions_that_it_lacks_are_listed() {
    let mut server = Folder::server("absent=aclrtLaunchHostFunc");
    server.install_cann(CANN, "8.3.0");
    server.install_atb(1, "8.3.0", ABI_1);
    let seen = server.look(Some("ascend"));
    seen.says(0, &["warning  CANN: 8.3.0", "without: aclrtLaunchHostFunc (CANN 8.5)"])
        .fixes(&["install CANN 8.5.0 or newer"]);
    let server = Folder::server("absent=aclrtMemcpyAsync");
    server.look(Some("ascend")).says(6, &["these belong to every release: aclrtMemcpyAsync (CANN 8.0)"]);
}
