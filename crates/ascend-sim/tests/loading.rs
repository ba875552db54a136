//! The library as acl-sys finds it: linked here, loaded in `atb-rs`.

use acl_sys::{Api, Status};

#[test]
fn every_function_that_acl_sys_knows_is_exported() {
    let missing: Vec<_> =
        Api::functions().filter(|function| ascend_sim::resolve(function.name()).is_none()).map(|f| f.name()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_shared_library_beside_this_test_is_a_simulator_of_this_interface() {
    let test = std::env::current_exe().expect("a test has a file");
    let library = test.parent().expect("a file is in a folder").join("libascend_sim.so");
    // SAFETY: the library was built from this crate, with the signatures of acl-sys.
    let refused = unsafe { Api::load_from(&library) };
    assert!(refused.is_err(), "a simulator is used only when it was asked for");
    // SAFETY: as above.
    let api = unsafe { acl_sys::Loader::new().simulator(true).path(&library).load() }.expect("a simulator");
    let mut count = 0;
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { api.aclrtGetDeviceCount(&mut count) }.expect("exported"), Status::SUCCESS);
    assert_eq!(count, 1);
    for function in Api::functions() {
        api.address(function).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn programs_that_link_it_configure_it_without_c() {
    ascend_sim::configure("devices=3").expect("well formed");
    // SAFETY: the addresses are those of the simulator's functions, which have the signatures of acl-sys.
    let api = unsafe { Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) };
    let mut count = 0;
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { api.aclrtGetDeviceCount(&mut count) }.expect("exported"), Status::SUCCESS);
    assert_eq!(count, 3);
    assert!(ascend_sim::configure("devices=many").expect_err("no number").contains("a number"));
    // SAFETY: it takes a number only.
    let _ = unsafe { api.aclrtSetDevice(2) }.expect("exported");
    let mut event = std::ptr::null_mut();
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { api.aclrtCreateEvent(&mut event) }.expect("exported"), Status::SUCCESS);
    assert_eq!((ascend_sim::alive().len(), ascend_sim::violations().len()), (1, 0));
    ascend_sim::reset();
    assert_eq!(ascend_sim::alive(), Vec::<String>::new());
    assert_eq!(ascend_sim::leaks(), Vec::<String>::new());
}
