//! Reading numbers and strings with every step checked against the bytes left.

use std::borrow::Cow;
use std::ops::Range;

/// What is wrong at a place that the caller names.
#[derive(Debug)]
pub(super) struct Problem(Cow<'static, str>);

impl Problem {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }
}

impl From<Problem> for String {
    fn from(problem: Problem) -> Self {
        problem.0.into_owned()
    }
}

#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// `position` must not be past the end.
    pub(super) fn new(bytes: &'a [u8], position: usize) -> Self {
        debug_assert!(position <= bytes.len());
        Self { bytes, position }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Skips `count` bytes and says where they were.
    pub(super) fn skip(&mut self, count: u64) -> Result<Range<usize>, Problem> {
        match usize::try_from(count) {
            Ok(count) if count <= self.left() => {
                let start = self.position;
                self.position += count;
                Ok(start..self.position)
            }
            _ => Err(Problem::new(format!(
                "{count} bytes are announced at byte {}, but only {} are left",
                self.position,
                self.left()
            ))),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let range = self.skip(N as u64)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[range]);
        Ok(array)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Problem> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Problem> {
        self.array().map(u64::from_le_bytes)
    }

    /// The bytes of a length-prefixed string.
    pub(super) fn string(&mut self) -> Result<Range<usize>, Problem> {
        let length = self.u64()?;
        self.skip(length)
    }

    /// A length-prefixed name: UTF-8 of 1 to `max` bytes.
    pub(super) fn name(&mut self, max: usize) -> Result<&'a str, Problem> {
        let range = self.string()?;
        if range.is_empty() || range.len() > max {
            return Err(Problem::new(format!("{} bytes long, wanted 1 to {max}", range.len())));
        }
        std::str::from_utf8(&self.bytes[range]).map_err(|_| Problem::new("not UTF-8"))
    }
}
