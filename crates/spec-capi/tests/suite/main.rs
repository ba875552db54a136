//! The C interface from Rust, from C and from C++, on tiny models.
#![allow(clippy::unwrap_used)]

mod article;
mod boundary;
mod c_example;
mod programs;
