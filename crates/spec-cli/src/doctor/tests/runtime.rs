//! The driver, the devices, and what the libraries return.

use std::io;

use half::f16;

use super::super::npu::judge;
use super::machines::Folder;

/// Report 158: a container that was given no device.
#[test]
fn a_chip_that_cannot_be_read_is_a_list_of_what_a_container_needs() {
    let server = Folder::server("fault=aclInit:*:507008");
    let seen = server.look(Some("ascend"));
    seen.says(4, &["aclInit returned 507008 (ACL_ERROR_RT_SOC_VERSION)", "the CPU can be used"]);
    let needed =
        ["/dev/davinci0", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc", "driver/lib64", "npu-smi"];
    seen.fixes(&needed).fixes(&["ASCEND_GLOBAL_LOG_LEVEL=1"]);
    let server = Folder::server("");
    server.remove("/dev/davinci0");
    server.remove("/dev/davinci1");
    server.write("/.dockerenv", "");
    server.look(Some("ascend")).says(4, &["no /dev/davinci0 or higher", "this is a container"]).fixes(&needed);
}

/// Report 159: the variable names a device that is not there.
#[test]
fn visible_devices_are_compared_with_those_that_are_there() {
    for (value, words) in [
        ("4", "there is no device 4; valid are 0 to 1"),
        ("99", "there is no device 99; valid are 0 to 1"),
        ("0, 1", "` 1` is no number"),
        ("1,0", "have to ascend"),
        ("", ""),
    ] {
        let mut server = Folder::server("");
        server.set("ASCEND_RT_VISIBLE_DEVICES", value);
        let seen = server.look(Some("ascend"));
        if value.is_empty() {
            seen.says(0, &["can be used"]);
            continue;
        }
        seen.says(4, &[&format!("ASCEND_RT_VISIBLE_DEVICES is `{value}`"), words]);
        seen.fixes(&["unset ASCEND_RT_VISIBLE_DEVICES"]);
    }
    for code in [107_001, 207_004] {
        let mut server = Folder::server(&format!("fault=aclrtSetDevice:*:{code}"));
        server.set("ASCEND_RT_VISIBLE_DEVICES", "1");
        let seen = server.look(Some("ascend"));
        seen.says(4, &[&code.to_string(), "opening device 0"]);
        seen.fixes(&["ASCEND_RT_VISIBLE_DEVICES is `1`, and valid are 0 to 1", "npu-smi info"]);
    }
    let server = Folder::server("");
    server.look(Some("ascend:2")).says(4, &["there is no device 2: valid are 0 to 1"]);
}

#[test]
fn cards_that_are_there_and_not_visible_are_the_variables_fault() {
    let mut server = Folder::server("devices=0");
    server.set("ASCEND_RT_VISIBLE_DEVICES", "0");
    let seen = server.look(Some("ascend"));
    seen.says(4, &["there is no device 0: none is visible; ASCEND_RT_VISIBLE_DEVICES is `0`"]);
    seen.fixes(&["unset ASCEND_RT_VISIBLE_DEVICES"]);
}

/// Report 161: nodes that belong to another user are not missing nodes.
#[test]
fn a_refused_node_is_told_apart_from_a_missing_one() {
    let mut server = Folder::server("");
    server.write("/etc/ascend_install.info", "UserGroup=npu\n");
    server.refuse(|path| match path.ends_with("davinci0") {
        true => Err(io::Error::from_raw_os_error(13)),
        false => Ok(()),
    });
    let seen = server.look(Some("ascend"));
    seen.says(5, &["/dev/davinci0: Permission denied", "of user 65534"])
        .fixes(&["usermod -aG npu $USER", "--group-add"]);
    seen.says_nothing_of(&["no /dev/davinci"]);
    server.refuse(|_| Err(io::Error::from_raw_os_error(16)));
    server.look(Some("ascend")).says(4, &["held by another container"]);
    let server = Folder::server("fault=aclrtSetDevice:*:207006");
    server.look(Some("ascend")).says(5, &["207006", "HwHiAiUser"]);
}

/// Report 162: the operator package does not fit.
#[test]
fn a_device_that_does_not_start_points_at_the_operator_package() {
    let server = Folder::server("fault=aclrtSetDevice:*:507033");
    server.look(Some("ascend")).says(4, &["507033"]).fixes(&["Ascend-cann-<chip>-ops", "reset the card"]);
}

/// Report 163: a driver that is newer than the image's CANN, and the other way round.
#[test]
fn the_drivers_version_is_said_beside_canns() {
    let server = Folder::server("");
    server.look(Some("ascend")).says(0, &["driver: 25.2.0, CANN 8.5.0", "compatibility table"]);
    server.remove("/usr/local/Ascend/driver/version.info");
    server.look(Some("ascend")).says(0, &["version is not known, CANN 8.5.0"]).fixes(&["install the driver (HDK)"]);
    let server = Folder::server("driver=old");
    server.look(Some("ascend")).says(6, &["207000", "EE1015"]);
}

/// Report 165: even an addition fails on that host.
#[test]
fn the_self_test_finds_a_device_that_cannot_add_or_multiply() {
    for (task, check) in
        [("Elewise", "self-test: add"), ("Linear", "self-test: matmul"), ("aclrtMemcpyAsync", "self-test: copy")]
    {
        let server = Folder::server(&format!("fault=task.{task}:*:507015"));
        let seen = server.look(Some("ascend"));
        seen.says(4, &[&format!("failure  {check}"), "507015", "ACL_ERROR_RT_AICORE_EXCEPTION"]);
        seen.fixes(&["ATB_STREAM_SYNC_EVERY_KERNEL_ENABLE=1", "npu-smi info -t board"]);
    }
    let server = Folder::server("fault=task.Linear:*:lost");
    server.look(Some("ascend")).says(4, &["507010"]);
}

/// Report 166: garbled numbers. A device that answers is not yet one that computes.
#[test]
fn results_are_judged_and_not_merely_returned() {
    let expected = [1.0, -2.5, 0.0, 300.0];
    let halves = |values: [f32; 4]| values.map(f16::from_f32);
    assert_eq!(judge(&halves(expected), &expected), Ok(()));
    for wrong in
        [[1.0, -2.5, 0.0, 301.0], [1.0, 2.5, 0.0, 300.0], [f32::NAN, -2.5, 0.0, 300.0], [1.0, -2.5, 0.01, 300.0]]
    {
        assert!(judge(&halves(wrong), &expected).is_err(), "{wrong:?}");
    }
}

#[test]
fn memory_that_ends_is_told_from_a_device_that_fails() {
    let server = Folder::server("memory=32M");
    server.look(Some("ascend")).says(7, &["207001"]).fixes(&["npu-smi info lists the processes"]);
    // Enough for the trial, and too little for what ATB takes by itself.
    let server = Folder::server("memory=90M");
    server.look(Some("ascend")).says(7, &["26 (ATB_ERROR_OUT_OF_DEVICE_MEMORY)"]);
}

#[test]
fn other_codes_have_their_lines_too() {
    let server = Folder::server("fault=aclrtSetDevice:*:507899");
    server.look(Some("ascend")).says(4, &["507899"]).fixes(&["Compatibility has to be OK", "other containers"]);
    let server = Folder::server("fault=aclInit:*:148049");
    server.look(Some("ascend")).says(3, &["148049"]);
    let server = Folder::server("soc=310P3");
    server.look(Some("ascend")).says(0, &["Ascend 310P: no bf16"]);
}

#[test]
fn the_newest_log_is_named() {
    let mut server = Folder::server("fault=aclInit:*:500000");
    server.set("ASCEND_PROCESS_LOG_PATH", &server.path("/logs").display().to_string());
    server.look(Some("ascend")).says(4, &["no plog-*.log is there yet"]);
    server.write("/logs/debug/plog/plog-41_1.log", "");
    server.look(Some("ascend")).says(4, &["plog-41_1.log"]);
}
