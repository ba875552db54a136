//! How figures are written in evidence.

/// A share.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A number of times.
pub(crate) fn times(factor: f64) -> String {
    format!("{factor:.2}")
}

pub(crate) fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

/// Seconds, in milliseconds below one and a half.
pub(crate) fn millis(seconds: f64) -> String {
    match seconds {
        long if long >= 1.5 => format!("{long:.1} s"),
        some if some >= 0.01 => format!("{:.0} ms", 1e3 * some),
        short => format!("{:.2} ms", 1e3 * short),
    }
}

/// A number with its noun.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
