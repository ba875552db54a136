//! Who may ask: a file of keys, each of which is a tenant.

use std::path::Path;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::ServerError;

const SHORTEST: usize = 8;

/// Keys that are let in. Only their hashes are kept.
#[derive(Clone, Default)]
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Reads a file with one key a line, a name of its owner behind it where one likes, and comments behind `#`.
    ///
    /// # Errors
    /// When the file cannot be read, has no key, or one that is short or given twice.
    pub fn read(path: &Path) -> Result<Self, ServerError> {
        let bad = |reason: String| ServerError::Keys { file: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
        Self::parse(&text).map_err(bad)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut keys = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let Some(key) = line.split_whitespace().next() else { continue };
            if key.len() < SHORTEST {
                return Err(format!("line {}: a key has at least {SHORTEST} characters", number + 1));
            }
            let hash: [u8; 32] = Sha256::digest(key).into();
            if keys.contains(&hash) {
                return Err(format!("line {}: the key stands there twice", number + 1));
            }
            keys.push(hash);
        }
        if keys.is_empty() { Err("it has no key; write one a line".into()) } else { Ok(Self(keys)) }
    }

    /// The tenant whose key this is. Takes as long for a wrong key as for any right one.
    pub fn tenant(&self, key: &str) -> Option<u64> {
        let given: [u8; 32] = Sha256::digest(key).into();
        let mut found = Choice::from(0);
        let mut tenant = 0;
        for (number, known) in (1u64..).zip(&self.0) {
            let equal = known.ct_eq(&given);
            tenant = u64::conditional_select(&tenant, &number, equal);
            found |= equal;
        }
        bool::from(found).then_some(tenant)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_a_tenant_of_its_own_and_no_other_text_is() {
        let keys = Keys::parse("# ours\nsecret-one alice\n\n  secret-two # bob\n").expect("keys");
        assert_eq!([keys.tenant("secret-one"), keys.tenant("secret-two")], [Some(1), Some(2)]);
        for wrong in ["", "secret", "secret-one ", "alice", "# ours"] {
            assert_eq!(keys.tenant(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn files_without_usable_keys_are_refused_with_the_line() {
        for (text, part) in [("# none\n", "no key"), ("\nshort\n", "line 2"), ("secret-one\nsecret-one\n", "line 2")] {
            assert!(Keys::parse(text).is_err_and(|reason| reason.contains(part)), "{text}");
        }
    }
}
