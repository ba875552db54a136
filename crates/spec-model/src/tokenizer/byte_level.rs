//! The byte-level alphabet of GPT-2 style vocabularies: each byte is written as one printable character.

use std::sync::LazyLock;

/// First of the characters that stand for unprintable bytes.
const SHIFTED: u32 = 0x100;
/// One past the last of them: 68 bytes are not printable.
const END: u32 = SHIFTED + 68;

/// True for bytes that are written as the character of the same code.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// Byte of each character below [`END`]; `None` for characters outside the alphabet.
static BYTES: LazyLock<[Option<u8>; END as usize]> = LazyLock::new(|| {
    let mut bytes = [None; END as usize];
    let mut next = SHIFTED as usize;
    for byte in 0..=u8::MAX {
        if is_printable(byte) {
            bytes[usize::from(byte)] = Some(byte);
        } else {
            bytes[next] = Some(byte);
            next += 1;
        }
    }
    bytes
});

/// The byte that `character` stands for.
pub(super) fn byte_of(character: char) -> Option<u8> {
    BYTES.get(character as usize).copied().flatten()
}

/// The bytes that a vocabulary entry stands for; `None` when a character is outside the alphabet.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

/// The character that stands for `byte`.
#[cfg(test)]
pub(super) fn character_of(byte: u8) -> char {
    let mut characters = (0..END).filter_map(char::from_u32);
    characters.find(|&c| byte_of(c) == Some(byte)).expect("the alphabet has a character for every byte")
}
