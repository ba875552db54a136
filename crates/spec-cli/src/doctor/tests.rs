//! Every diagnosis on a machine that has what it is about: a folder of files, an environment, and libraries that were
//! compiled for it or that the simulator stands in for.

mod healthy;
mod libraries;
mod machines;
mod runtime;
mod system;
