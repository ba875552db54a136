//! The table of status codes, and sizes that others have measured.

use acl_sys::*;
use std::collections::BTreeSet;
use std::mem::{offset_of, size_of};

/// Every code that AscendCL's documentation and headers give, and ATB's.
fn documented() -> impl Iterator<Item = i32> {
    let ranges: &[std::ops::RangeInclusive<i32>] = &[
        1..=29,
        100000..=100045,
        148046..=148053,
        107000..=107045,
        200000..=200007,
        207000..=207020,
        300000..=300000,
        500000..=500005,
        507000..=507057,
        507899..=507916,
    ];
    ranges.iter().cloned().flatten()
}

#[test]
fn every_documented_code_has_a_name_a_meaning_and_advice() {
    let mut missing = Vec::new();
    for code in documented().map(Status) {
        if code.name().is_none() {
            missing.push(code.0);
        }
        assert!(!code.meaning().is_empty() && !code.advice().is_empty());
    }
    assert!(missing.is_empty(), "no names for {missing:?}");
    assert_eq!(Status::codes().count(), documented().count() + 5, "and the five of the shim");
}

#[test]
fn codes_and_names_are_unique() {
    let codes: BTreeSet<i32> = Status::codes().map(|code| code.status.0).collect();
    let names: BTreeSet<&str> = Status::codes().map(|code| code.name).collect();
    assert_eq!((codes.len(), names.len()), (Status::codes().count(), Status::codes().count()));
}

#[test]
fn names_meanings_and_advice_of_the_codes_that_people_meet() {
    let rows = [
        (107001, "ACL_ERROR_RT_INVALID_DEVICEID", "driver", "npu-smi"),
        (107002, "ACL_ERROR_RT_CONTEXT_NULL", "context", "aclrtSetDevice"),
        (207001, "ACL_ERROR_RT_MEMORY_ALLOCATION", "memory", "npu-smi"),
        (207006, "ACL_ERROR_RT_NO_PERMISSION", "may not", "HwHiAiUser"),
        (100039, "ACL_ERROR_COMPILING_STUB_MODE", "linking", "devlib"),
        (507015, "ACL_ERROR_RT_AICORE_EXCEPTION", "address", "ATB_STREAM_SYNC_EVERY_KERNEL_ENABLE"),
        (507899, "ACL_ERROR_RT_DRV_INTERNAL_ERROR", "driver", "container"),
        (13, "ATB_ERROR_INVALID_TENSOR_INI_MATCH", "table", "element types"),
    ];
    for (code, name, meaning, advice) in rows {
        let status = Status(code);
        assert_eq!(status.name(), Some(name));
        assert!(status.meaning().contains(meaning), "{code}: {}", status.meaning());
        assert!(status.advice().contains(advice), "{code}: {}", status.advice());
        let text = status.to_string();
        assert!(text.starts_with(&format!("{code} ({name}): ")), "{text}");
    }
}

#[test]
fn a_number_that_is_in_no_table_keeps_its_range_and_is_no_success() {
    let status = Status(207_999);
    assert_eq!((status.name(), status.ok()), (None, Err(status)));
    assert!(status.meaning().contains("resource"));
    assert!(Status(145_000).meaning().contains("offline model"));
    assert_eq!(Status::SUCCESS.ok(), Ok(()));
    assert_eq!(Status::SUCCESS.to_string(), "0 (success)");
}

#[test]
fn the_code_that_has_had_two_meanings_names_both() {
    let moved = Status::codes().find(|code| !code.settled).unwrap();
    assert_eq!(moved.status, Status(107045));
    assert!(moved.name.contains("SUB_ACLGRAPH_IS_CAPTURING") && moved.name.contains("STREAM_NOT_SUPPORT_OPERA"));
}

#[test]
fn the_shims_codes_are_those_of_its_header() {
    let header = [
        SPEC_ATB_ERROR_EXCEPTION,
        SPEC_ATB_ERROR_LIBRARY,
        SPEC_ATB_ERROR_ABI,
        SPEC_ATB_ERROR_UNSUPPORTED,
        SPEC_ATB_ERROR_NULL,
    ];
    let table = [
        Status::SPEC_ATB_ERROR_EXCEPTION,
        Status::SPEC_ATB_ERROR_LIBRARY,
        Status::SPEC_ATB_ERROR_ABI,
        Status::SPEC_ATB_ERROR_UNSUPPORTED,
        Status::SPEC_ATB_ERROR_NULL,
    ];
    assert_eq!(header.map(Status), table);
}

#[test]
fn a_status_is_an_int_and_so_is_every_enumeration() {
    assert_eq!(size_of::<Status>(), 4);
    assert_eq!(size_of::<aclDataType>(), 4);
    assert_eq!(size_of::<spec_atb_paged_attention_mask>(), 4);
    assert_eq!(ACL_DT_UNDEFINED, aclDataType(-1));
    assert_eq!(ACL_EVENT_RECORDED_STATUS_COMPLETE.0, ACL_EVENT_STATUS_NOT_READY.0, "the inversion of the two queries");
}

/// Sizes that were measured with the vendor's headers and those of ATB.
#[test]
fn structures_have_the_sizes_of_the_vendors() {
    assert_eq!(size_of::<aclmdlIODims>(), 1160);
    assert_eq!(size_of::<aclrtPtrAttributes>(), 28);
    assert_eq!(size_of::<aclCANNPackageVersion>(), 512);
    assert_eq!(size_of::<spec_atb_dims>(), 72);
    assert_eq!((size_of::<spec_atb_tensor_desc>(), offset_of!(spec_atb_tensor_desc, shape)), (80, 8));
    assert_eq!(size_of::<spec_atb_tensor>(), 104);
    assert_eq!(offset_of!(spec_atb_tensor, device_data), 80);
    assert_eq!(offset_of!(spec_atb_tensor, host_data), 88);
    assert_eq!(offset_of!(spec_atb_tensor, data_size), 96);
}

#[test]
fn a_shortage_of_streams_says_what_takes_them() {
    for status in [Status::ACL_ERROR_RT_NO_STREAM_RESOURCE, Status::ACL_ERROR_RT_RESOURCE_ALLOC_FAIL] {
        assert!(status.to_string().contains("capture fewer graphs"), "{status}");
    }
}
