//! How figures are reported, to people and to programs: medians and spreads, tables in Markdown, plots as SVG and PNG.
//!
//! The benchmarks and the binary `spec` both report by it, and it knows nothing of what they measure.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod plot;
mod statistics;
mod table;

pub use plot::{Chart, Drawn, FONT, Lines, Plot, PlotError, colour, dotted, legend, plain};
pub use statistics::{Percentiles, Spread, geometric_mean, median, ratios};
pub use table::Table;
