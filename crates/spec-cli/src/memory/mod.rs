//! What a run takes in memory: for how many texts there is room, the plan, and a limit.

mod limit;
mod run;

use std::fmt;
use std::str::FromStr;

pub(crate) use limit::check;
pub(crate) use run::{Models, Run};

/// Texts that a run has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// Positions of each.
    pub(crate) context: usize,
    /// Texts at a time.
    pub(crate) parallel: usize,
    /// Tokens that a cache holds of all of them; as many as their contexts when not given.
    pub(crate) kv_tokens: Option<usize>,
}

/// Of one text.
impl From<usize> for Room {
    fn from(context: usize) -> Self {
        Self { context, parallel: 1, kv_tokens: None }
    }
}

/// Bytes, as people write them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Size(pub(crate) usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give a number and a unit, such as 300MB, 1.5GB or 2GiB".to_owned();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "b" | "" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "kib" => 1024.0,
            "mib" => 1024.0 * 1024.0,
            "gib" => 1024.0 * 1024.0 * 1024.0,
            _ => return Err(wrong()),
        };
        let bytes = digits.trim_end().parse::<f64>().map_err(|_| wrong())? * unit;
        if !bytes.is_finite() || bytes < 1.0 || bytes > (1_u64 << 62) as f64 {
            return Err(wrong());
        }
        Ok(Self(bytes as usize))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 as f64 {
            bytes if bytes < 1e6 => write!(f, "{:.1} kB", bytes / 1e3),
            bytes if bytes < 1e9 => write!(f, "{:.1} MB", bytes / 1e6),
            bytes => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("300MB", 300_000_000),
            ("300m", 300_000_000),
            ("1.5GB", 1_500_000_000),
            ("2GiB", 2 << 30),
            ("1 GiB", 1 << 30),
            ("4096", 4096),
            ("64kib", 65_536),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MB", "-1GB", "0", "nan", "1TB", "1e999GB", "3 megabytes", "1,5GB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
