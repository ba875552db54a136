//! The engine on the simulator, which is asynchronous for real and notes down what hardware would only tolerate.

mod accuracy;
mod conformance;
mod device;
mod faults;
mod memory;
mod real;
mod rounding;
mod streams;
mod verdicts;
