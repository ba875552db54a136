//! Status codes: integers with a name, a meaning and advice, never an enumeration, since newer libraries know more.

mod caller;
mod internal;
mod resource;
mod shim;

use std::fmt;

/// What AscendCL, ATB and the shim return: 0, or what went wrong.
///
/// The ranges do not overlap: ATB's codes are 1 to 29, AscendCL's have six digits (the first says whose fault it is:
/// 1 the caller's, 2 a resource's, 3 the state's, 5 the inside's), the shim's own are negative. Every integer is a valid
/// value; one without a row in the table has no name, and the meaning of its range.
///
/// ```
/// use acl_sys::Status;
/// let status = Status(207001);
/// assert_eq!(status, Status::ACL_ERROR_RT_MEMORY_ALLOCATION);
/// assert_eq!(status.name(), Some("ACL_ERROR_RT_MEMORY_ALLOCATION"));
/// assert!(status.ok().is_err());
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "a status that nobody looks at hides a failure"]
pub struct Status(pub i32);

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusCode {
    /// The integer.
    pub status: Status,
    /// As the headers name it.
    pub name: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// What to do about it.
    pub advice: &'static str,
    /// Whether the number has had one name and meaning in all releases.
    pub settled: bool,
}

/// Declares rows: a constant of `Status` for each, and `CODES`.
macro_rules! status_codes {
    ($($code:literal $name:ident $meaning:literal, $advice:expr;)*) => {
        impl crate::Status {
            $(#[doc = $meaning] pub const $name: Self = Self($code);)*
        }
        pub(super) const CODES: &[super::StatusCode] = &[$(super::StatusCode {
            status: crate::Status($code),
            name: stringify!($name),
            meaning: $meaning,
            advice: $advice,
            settled: true,
        }),*];
    };
}
use status_codes;

/// 107045 was given to two things; it is named, and has no constant.
const MOVED: &[StatusCode] = &[StatusCode {
    status: Status(107045),
    name: "ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING or ACL_ERROR_RT_STREAM_NOT_SUPPORT_OPERA",
    meaning: "a sub-graph is being captured, or (by other releases) the stream does not support the operation",
    advice: "the text of aclGetRecentErrMsg says which",
    settled: false,
}];

impl Status {
    /// Success.
    pub const SUCCESS: Self = Self(0);

    /// Every known code, in ascending order within each group.
    pub fn codes() -> impl Iterator<Item = &'static StatusCode> {
        [shim::CODES, caller::CODES, MOVED, resource::CODES, internal::CODES].into_iter().flatten()
    }

    fn code(self) -> Option<&'static StatusCode> {
        Self::codes().find(|code| code.status == self)
    }

    /// `Ok` for success.
    ///
    /// # Errors
    /// The status itself, for everything else.
    #[inline]
    pub const fn ok(self) -> Result<(), Status> {
        match self.0 {
            0 => Ok(()),
            _ => Err(self),
        }
    }

    /// Whether this is success.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// What the headers call it; `None` for a code that is in no table.
    pub fn name(self) -> Option<&'static str> {
        self.code().map(|code| code.name)
    }

    /// What happened; for an unknown code, what its range says.
    pub fn meaning(self) -> &'static str {
        match self.code() {
            Some(code) => code.meaning,
            None => self.range().0,
        }
    }

    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self.code() {
            Some(code) => code.advice,
            None => self.range().1,
        }
    }

    fn range(self) -> (&'static str, &'static str) {
        let ask = "the text of aclGetRecentErrMsg and the newest plog say more";
        match self.0 {
            0 => ("success", "nothing to do"),
            145_000..=145_999 | 245_000..=245_999 | 345_000..=345_999 | 545_000..=545_999 => (
                "the graph engine refused or failed at an offline model",
                "was the .om made for this CANN and this chip?",
            ),
            100_000..=199_999 => ("the caller or the environment is at fault", ask),
            200_000..=299_999 => ("a resource is missing, or something is not supported", ask),
            300_000..=399_999 => ("the state does not allow it", ask),
            500_000..=599_999 => ("an internal or hardware failure", ask),
            _ => ("a code that is in no table", ask),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => formatter.write_str("0 (success)"),
            code => {
                let name = self.name().unwrap_or("unknown");
                write!(formatter, "{code} ({name}): {}; {}", self.meaning(), self.advice())
            }
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Status({}", self.0)?;
        if let Some(name) = self.name() {
            write!(formatter, " {name}")?;
        }
        formatter.write_str(")")
    }
}

impl std::error::Error for Status {}
