//! `spec bench`: measurements that need the engine from within.

mod forward;
mod sweep;

pub(crate) use forward::forward;
pub(crate) use sweep::{bleu, sweep};

/// The value below which the share `q` of the values lies; sorts them. 0 of nothing.
fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * q).round() as usize).copied().unwrap_or(0.0)
}
