//! Machines with nothing wrong.

use super::machines::Folder;

#[test]
fn a_server_where_all_is_well_says_so_and_computes() {
    let server = Folder::server("");
    let seen = server.look(Some("ascend"));
    seen.says(
        0,
        &[
            "ascend:0 can be used",
            "8.5.0 in ",
            "/dev/davinci0, 1 may be opened",
            "cxx_abi_1",
            "functions of AscendCL",
            "self-test: copy: 1 MiB there and back",
            "self-test: add, matmul: f16, equal to what the CPU computes",
            "up to 2048 MB; SPEC_ATB_MAX_WS_SIZE",
        ],
    );
    seen.says_nothing_of(&["failure"]);
    server.look(Some("ascend:1")).says(0, &["ascend:1 can be used", "device 1: "]);
    server.look(None).says(0, &["cpu can be used", "self-test: add, matmul"]);
}

#[test]
fn a_computer_without_an_npu_is_fine_as_it_is() {
    let seen = Folder::plain().look(None);
    seen.says(0, &["cpu can be used", "nothing of an NPU", "Test Linux 1, Linux 6.1.0-test", "glibc 2.36"]);
    seen.says_nothing_of(&["davinci", "CUDA", "failure"]);
}

#[test]
fn what_nobody_asked_for_fails_nothing() {
    let mut server = Folder::server("fault=aclInit:*:507008");
    server.unset("ATB_HOME_PATH");
    server.look(None).says(0, &["warning  start: ", "507008", "cpu can be used"]).says_nothing_of(&["failure"]);
    // The first failure from the outside to the inside decides.
    server.look(Some("ascend")).says(8, &["failure  ATB: ", "failure  start: "]);
    server.look(Some("cpu")).says(0, &["cpu can be used"]).says_nothing_of(&["Ascend"]);
}

#[test]
fn the_simulator_is_never_taken_for_an_npu() {
    let server = Folder::server("");
    let seen = server.look(Some("ascend-sim"));
    seen.says(0, &["ascend-sim can be used", "nothing that follows was computed by an NPU", "self-test: add, matmul"]);
    seen.says_nothing_of(&["Ascend:", "davinci"]);
    let seen = Folder::plain().look(Some("ascend-sim"));
    seen.says(3, &["libascend_sim.so is not at SPEC_ASCEND_SIM, beside the program or in target/ascend"]);
    seen.fixes(&["cargo xtask build-atb --sim"]);
    assert!(seen.text.ends_with("  cargo xtask build-atb --sim\n"), "{}", seen.text);
}

#[test]
fn a_simulator_that_is_laid_out_like_cann_is_called_one() {
    let mut folder = Folder::plain();
    folder.install_cann("/built/ascend", "8.5.0");
    folder.write("/built/ascend/lib64/libascend_sim.so", "");
    folder.look(Some("ascend")).says(3, &["CANN: a simulator in "]);
}

#[test]
fn the_same_is_said_in_json() {
    let server = Folder::server("");
    server.remove("/dev/hisi_hdc");
    let json = server.look(Some("ascend:1")).report.json();
    assert_eq!((&json["device"], &json["usable"], &json["exit_code"]), (&"ascend:1".into(), &false.into(), &4.into()));
    let sections = json["sections"].as_array().expect("sections");
    let findings: Vec<_> =
        sections.iter().flat_map(|section| section["findings"].as_array().expect("findings")).collect();
    let failed: Vec<_> = findings.iter().filter(|finding| finding["level"] == "failure").collect();
    assert_eq!(failed.len(), 1, "{json}");
    assert_eq!(failed[0]["check"], "devices");
    assert!(failed[0]["said"].as_str().expect("text").contains("/dev/hisi_hdc"));
    assert!(!failed[0]["fix"].as_array().expect("lines").is_empty());
    assert!(json["verdict"].as_str().expect("text").contains("--device cpu"));
}
