//! Versions of CANN.

use std::fmt;

/// A release of CANN, such as 8.5.0. Pre-releases count as what they lead up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl Version {
    /// A version of three numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Reads what packages call themselves: `8.5.0`, `8.0.RC1`, `8.3.RC1.alpha001`, `cann-9.1.0-beta.1`. `None` for what
    /// does not begin with two numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_matches('"');
        let text = ["CANN-", "cann-"].iter().find_map(|name| text.strip_prefix(name)).unwrap_or(text);
        let mut parts = text.split(['.', '-']).map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return None };
        let patch = parts.next().and_then(Result::ok).unwrap_or(0);
        Some(Self::new(major, minor, patch))
    }

    /// Takes the number of `aclsysGetVersionNum` apart: `major * 10^7 + minor * 10^5 + patch * 10^3`, from which an alpha,
    /// beta or release candidate takes 300, 200 or 100 away and adds its own number. `None` for what is no version.
    pub fn from_number(number: i32) -> Option<Self> {
        let number = u32::try_from(number).ok().filter(|&number| number > 0)?;
        let thousands = (number + 300) / 1000;
        Some(Self::new(thousands / 10_000, thousands / 100 % 100, thousands % 100))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_releases_and_of_what_leads_up_to_them_are_one_version() {
        let expected = Some(Version::new(8, 5, 0));
        assert_eq!(Version::from_number(80_500_000), expected);
        assert_eq!(Version::from_number(80_500_000 - 300 + 1), expected, "alpha 1");
        assert_eq!(Version::from_number(80_500_000 - 200 + 3), expected, "beta 3");
        assert_eq!(Version::from_number(80_500_000 - 100 + 12), expected, "release candidate 12");
        assert_eq!(Version::from_number(90_102_000), Some(Version::new(9, 1, 2)));
        assert_eq!(Version::from_number(0), None);
        assert_eq!(Version::from_number(-1), None);
    }

    #[test]
    fn names_of_releases_are_read_and_other_words_are_not() {
        for (text, expected) in [
            ("8.5.0", Some(Version::new(8, 5, 0))),
            ("8.0.RC1", Some(Version::new(8, 0, 0))),
            ("8.3.RC1.alpha001", Some(Version::new(8, 3, 0))),
            ("cann-9.1.2", Some(Version::new(9, 1, 2))),
            ("9.1.0-beta.1", Some(Version::new(9, 1, 0))),
            ("latest", None),
            ("cann", None),
            ("master", None),
            ("8", None),
        ] {
            assert_eq!(Version::parse(text), expected, "{text}");
        }
    }
}
