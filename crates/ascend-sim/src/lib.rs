#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod acl;
mod atb;
mod config;
mod control;
mod event;
mod exports;
mod failure;
mod faults;
mod host;
mod memory;
mod operators;
mod order;
mod stream;
mod world;

pub use control::{alive, configure, leaks, ranges, reset, resolve, violations};
