//! What both formats say about stretched frequencies, in one place.

use crate::RopeScaling;

/// How much YaRN strengthens attention for a stretch (arXiv 2309.00071, section 3.4), weighted.
pub(super) fn yarn_magnitude(factor: f32, weight: f32) -> f32 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

/// Positions that stretched frequencies reach, where the format says how many there were before.
pub(super) fn reached(scaling: &RopeScaling) -> Option<usize> {
    match *scaling {
        RopeScaling::Yarn { factor, original_context, .. } => {
            Some((original_context as f64 * f64::from(factor)).round() as usize)
        }
        _ => None,
    }
}
