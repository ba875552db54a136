//! The table over addresses of this test's own functions: no library is needed.

use acl_sys::{Api, Error, Family, Since, Status, Version};
use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

type Questions = Arc<Mutex<Vec<(String, String)>>>;

/// An api that notes every question, and answers those that `known` has an answer to.
fn api(known: impl Fn(&str, &str) -> Option<*const ()> + Send + Sync + 'static) -> (Api, Questions) {
    let questions = Questions::default();
    let noted = Arc::clone(&questions);
    // SAFETY: every answer in this file is a function with the signature of the symbol it is given for.
    let api = unsafe {
        Api::from_parts(move |library, symbol| {
            noted.lock().expect("no test panics while noting").push((library.to_owned(), symbol.to_owned()));
            known(library, symbol).and_then(|address| NonNull::new(address.cast_mut().cast::<c_void>()))
        })
    };
    (api, questions)
}

extern "C" fn device_count(count: *mut u32) -> Status {
    // SAFETY: the tests pass a valid pointer.
    unsafe { *count = 8 };
    Status::SUCCESS
}

extern "C" fn version_number(package: *mut c_char, number: *mut i32) -> Status {
    // SAFETY: `cann_version` passes a C string and a valid pointer.
    unsafe {
        assert_eq!(std::ffi::CStr::from_ptr(package), c"runtime");
        *number = 90_100_000;
    }
    Status::SUCCESS
}

extern "C" fn failing_version_number(_: *mut c_char, _: *mut i32) -> Status {
    Status::ACL_ERROR_INTERNAL_ERROR
}

extern "C" fn copy(
    destination: *mut c_void,
    room: usize,
    source: *const c_void,
    count: usize,
    kind: acl_sys::aclrtMemcpyKind,
    stream: *mut c_void,
) -> Status {
    assert_eq!((room, count, kind), (4, 3, acl_sys::ACL_MEMCPY_HOST_TO_DEVICE));
    assert!(stream.is_null());
    // SAFETY: the test passes buffers of these lengths.
    unsafe { std::ptr::copy_nonoverlapping(source.cast::<u8>(), destination.cast::<u8>(), count) };
    Status::SUCCESS
}

extern "C" fn half(value: f32) -> u16 {
    if value == 1.0 { 0x3c00 } else { 0 }
}

#[test]
fn nothing_is_looked_up_before_a_function_is_called_and_nothing_twice() {
    let (api, questions) = api(|_, symbol| (symbol == "aclrtGetDeviceCount").then_some(device_count as *const ()));
    assert!(questions.lock().unwrap().is_empty());
    for _ in 0..3 {
        let mut count = 0;
        // SAFETY: the pointer is valid.
        unsafe { api.aclrtGetDeviceCount(&mut count) }.unwrap().ok().unwrap();
        assert_eq!(count, 8);
    }
    assert_eq!(*questions.lock().unwrap(), [("libascendcl.so".to_owned(), "aclrtGetDeviceCount".to_owned())]);
}

#[test]
fn arguments_and_results_of_every_width_arrive() {
    let (api, _) = api(|_, symbol| match symbol {
        "aclrtMemcpyAsync" => Some(copy as *const ()),
        "aclFloatToFloat16" => Some(half as *const ()),
        _ => None,
    });
    let (source, mut destination) = ([1u8, 2, 3], [9u8; 4]);
    let kind = acl_sys::ACL_MEMCPY_HOST_TO_DEVICE;
    let stream = std::ptr::null_mut();
    // SAFETY: both buffers are as long as is said.
    let status =
        unsafe { api.aclrtMemcpyAsync(destination.as_mut_ptr().cast(), 4, source.as_ptr().cast(), 3, kind, stream) };
    assert!(status.unwrap().is_success());
    assert_eq!(destination, [1, 2, 3, 9]);
    // SAFETY: takes a number.
    assert_eq!(unsafe { api.aclFloatToFloat16(1.0) }.unwrap(), 0x3c00);
}

#[test]
fn a_symbol_is_asked_of_every_library_of_its_family_in_order() {
    let (api, questions) = api(|_, _| None);
    for function in Api::functions() {
        questions.lock().unwrap().clear();
        assert!(api.address(function).is_err());
        let asked: Vec<String> = questions.lock().unwrap().iter().map(|(library, _)| library.clone()).collect();
        let expected: &[&str] = match function.family {
            Family::Runtime => &["libascendcl.so", "libacl_rt.so"],
            Family::Model => &["libascendcl.so", "libacl_mdl.so"],
            Family::Profiling => &["libascendcl.so", "libmsprofiler.so"],
            Family::Shim => &["libspec_atb.so"],
            other => panic!("{other:?} is new"),
        };
        assert_eq!(asked, expected, "{}", function.name());
    }
}

#[test]
fn each_function_is_in_the_family_that_its_name_says() {
    let mut names = BTreeSet::new();
    for function in Api::functions() {
        let name = function.name();
        assert!(names.insert(name), "{name} is there twice");
        let family = match name {
            // Captured graphs are the runtime's, whatever their names.
            _ if name.starts_with("aclmdlRI") => Family::Runtime,
            _ if name.starts_with("aclmdl") => Family::Model,
            _ if name.starts_with("aclprof") => Family::Profiling,
            _ if name.starts_with("spec_atb_") => Family::Shim,
            _ => Family::Runtime,
        };
        assert_eq!(function.family, family, "{name}");
        let is_of_shim = matches!(function.since, Since::Shim(_) | Since::SpecDecode(_));
        assert_eq!(is_of_shim, family == Family::Shim, "{name}");
    }
    assert!(names.contains("aclInit") && names.contains("spec_atb_create_paged_attention"));
}

#[test]
fn a_missing_symbol_is_an_error_that_names_it_its_libraries_and_its_first_release() {
    let (api, _) = api(|_, _| None);
    // SAFETY: the call is not made.
    let error = unsafe { api.aclrtStreamAbort(std::ptr::null_mut()) }.unwrap_err();
    assert!(matches!(&error, Error::SymbolMissing { symbol: "aclrtStreamAbort", since: Since::Cann(8, 5), .. }));
    assert_eq!(
        error.to_string(),
        "`aclrtStreamAbort` is in none of the libraries; it is there since CANN 8.5\n  \
         tried libascendcl.so: no such symbol\n  tried libacl_rt.so: no such symbol\n\
         install CANN 8.5 or newer, with its driver, or do without this call"
    );
    let mut context = std::ptr::null_mut();
    // SAFETY: the call is not made.
    let error = unsafe { api.spec_atb_create_context(std::ptr::null(), &mut context) }.unwrap_err().to_string();
    assert!(error.contains("`spec_atb_create_context`") && error.contains("cargo xtask build-atb"), "{error}");
    let (param, mut made) = (std::ptr::null(), std::ptr::null_mut());
    // SAFETY: the call is not made.
    let error = unsafe { api.spec_atb_create_verify(param, &mut made) }.unwrap_err().to_string();
    assert!(error.contains("since version 1 of the ATB shim's spec-decode module"), "{error}");
    assert!(error.contains("--with-spec-decode"), "{error}");
}

#[test]
fn the_version_is_the_runtimes_and_unknown_when_it_cannot_say() {
    let known = |address: *const ()| {
        let address = address as usize;
        move |_: &str, symbol: &str| (symbol == "aclsysGetVersionNum").then_some(address as *const ())
    };
    let (new, _) = api(known(version_number as *const ()));
    assert_eq!(new.cann_version().unwrap(), Some(Version::new(9, 1, 0)));
    new.require_cann(Version::new(8, 5, 0)).unwrap();
    let refused = new.require_cann(Version::new(9, 2, 0)).unwrap_err();
    assert!(matches!(refused, Error::VersionTooOld { .. }));
    assert!(refused.to_string().contains("CANN is 9.1.0, and 9.2.0 or newer is needed"));

    let (old, _) = api(|_, _| None);
    assert_eq!(old.cann_version().unwrap(), None);
    old.require_cann(Version::new(8, 0, 0)).unwrap();
    assert!(old.require_cann(Version::new(8, 5, 0)).unwrap_err().to_string().contains("older than 8.5"));

    let (failing, _) = api(known(failing_version_number as *const ()));
    let error = failing.cann_version().unwrap_err();
    assert!(matches!(error, Error::Status(Status::ACL_ERROR_INTERNAL_ERROR)));
    assert!(error.to_string().contains("500000 (ACL_ERROR_INTERNAL_ERROR)"), "{error}");
}

#[test]
fn threads_may_look_the_same_function_up_at_once() {
    let (api, _) = api(|_, symbol| (symbol == "aclrtGetDeviceCount").then_some(device_count as *const ()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut count = 0;
                // SAFETY: the pointer is valid.
                unsafe { api.aclrtGetDeviceCount(&mut count) }.unwrap().ok().unwrap();
                assert_eq!(count, 8);
            });
        }
    });
}
