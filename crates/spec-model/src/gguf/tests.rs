use super::write::{Value as Written, Writer};
use super::*;

fn two_tensors() -> Vec<u8> {
    Writer::new()
        .key("general.architecture", "llama")
        .key("sizes", vec![1, -2, 3])
        .f32_tensor("first", &[4], &[1.0, 2.0, 3.0, 4.0])
        .f32_tensor("second", &[2, 3], &[0.5; 6])
        .finish()
}

fn error(bytes: &[u8]) -> String {
    Gguf::parse(bytes, "x.gguf").unwrap_err().to_string()
}

/// Position of the first occurrence of `needle`.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|w| w == needle).unwrap()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Checks that each phrase is in the message.
fn says(message: &str, phrases: &[&str]) {
    for phrase in phrases {
        assert!(message.contains(phrase), "`{phrase}` is not in: {message}");
    }
}

#[test]
fn what_was_written_is_read_back() {
    let strings: &[&str] = &["a", "", "é"];
    let bytes = Writer::new()
        .key("u8", Written::U8(7))
        .key("i32", Written::I32(-7))
        .key("u64", Written::U64(1 << 40))
        .key("f32", 1.5_f32)
        .key("f64", Written::F64(0.25))
        .key("bool", true)
        .key("text", "héllo")
        .key("strings", strings)
        .key("i32s", vec![3, -4])
        .key("f32s", vec![0.5_f32])
        .key("u8s", Written::U8s(vec![1, 2]))
        .tensor("halves", TensorType::F16, &[2, 2, 1], &[1, 2, 3, 4, 5, 6, 7, 8])
        .f32_tensor("last", &[1], &[9.0])
        .finish();
    let file = Gguf::parse(bytes.as_slice(), "x.gguf").unwrap();
    let metadata = file.metadata();
    assert_eq!(metadata.u32("u8").unwrap(), 7);
    assert_eq!(metadata.f32("f32").unwrap(), 1.5);
    assert_eq!(metadata.f32("f64").unwrap(), 0.25);
    assert!(metadata.bool("bool").unwrap());
    assert_eq!(metadata.str("text").unwrap(), "héllo");
    let read: Vec<_> = metadata.strings("strings").unwrap().collect();
    assert_eq!(read, ["a".as_bytes(), b"", "é".as_bytes()]);
    assert_eq!(metadata.i32s("i32s").unwrap(), [3, -4]);
    assert_eq!(metadata.f32s("f32s").unwrap(), [0.5]);
    assert_eq!(metadata.describe("i32s").unwrap(), "2 x i32");
    assert_eq!(metadata.optional_u32("absent").unwrap(), None);
    assert_eq!(file.keys()[0], "u8");
    let halves = &file.tensors()[0];
    assert_eq!((halves.cols(), halves.rows(), halves.shape().as_str()), (2, 2, "[1, 2, 2]"));
    assert_eq!(file.tensor_bytes(0), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(file.tensor_bytes(file.tensor_index("last").unwrap()), 9.0_f32.to_le_bytes());
}

#[test]
fn a_value_of_the_wrong_type_names_key_and_both_types() {
    let bytes = Writer::new()
        .key("text", "x")
        .key("scores", Written::U8s(vec![1, 2]))
        .key("negative", Written::I32(-1))
        .key("infinite", f32::INFINITY)
        .finish();
    let file = Gguf::parse(bytes, "x.gguf").unwrap();
    let metadata = file.metadata();
    let message = |error: Error| error.to_string();
    says(&message(metadata.u32("text").unwrap_err()), &["x.gguf", "`text`", "string", "integer"]);
    says(&message(metadata.f32s("scores").unwrap_err()), &["`scores`", "array of u8", "array of f32"]);
    says(&message(metadata.i32s("scores").unwrap_err()), &["`scores`", "array of u8", "array of i32"]);
    says(&message(metadata.u32("negative").unwrap_err()), &["`negative`", "-1"]);
    says(&message(metadata.f32("infinite").unwrap_err()), &["`infinite`", "finite"]);
    says(&message(metadata.bool("absent").err().unwrap()), &["`absent`", "missing"]);
}

#[test]
fn other_files_are_recognised() {
    let cases: [(&[u8], &str); 11] = [
        (b"", "empty"),
        (b"GG", "only 2 bytes"),
        (b"PK\x03\x04 rest of the archive", "zip"),
        (b"\x40\0\0\0\0\0\0\0{\"weight\":{}}", "safetensors"),
        (b"\x08\x07\x12\x07pytorch", "ONNX"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"\n  <html><body>404", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"lmgg\x01\0\0\0", "old GGML"),
        (&[0; 64], "zeros"),
        (b"what is this", "77 68 61 74"),
    ];
    for (bytes, phrase) in cases {
        says(&error(bytes), &["x.gguf", phrase]);
    }
}

#[test]
fn a_byte_swapped_file_is_called_so() {
    let mut bytes = two_tensors();
    put(&mut bytes, 4, &3_u32.to_be_bytes());
    says(&error(&bytes), &["big-endian", "swapped"]);
    put(&mut bytes, 0, b"FUGG");
    says(&error(&bytes), &["big-endian", "swapped"]);
}

#[test]
fn other_versions_are_refused_with_advice() {
    let mut bytes = two_tensors();
    put(&mut bytes, 4, &1_u32.to_le_bytes());
    says(&error(&bytes), &["version 1", "convert"]);
    put(&mut bytes, 4, &4_u32.to_le_bytes());
    says(&error(&bytes), &["version 4", "newer"]);
    put(&mut bytes, 4, &2_u32.to_le_bytes());
    assert_eq!(Gguf::parse(bytes, "x.gguf").unwrap().version(), 2);
}

#[test]
fn counts_beyond_the_file_are_refused_before_allocating() {
    for at in [8, 16] {
        for count in [1 << 60, u64::MAX, 1 << 20, 1 << 16] {
            let mut bytes = two_tensors();
            put(&mut bytes, at, &count.to_le_bytes());
            says(&error(&bytes), &["counts of tensors and keys", &count.to_string(), "bytes left"]);
        }
    }
}

#[test]
fn an_array_that_is_longer_than_the_file_is_refused() {
    let mut bytes = two_tensors();
    let count_at = find(&bytes, b"sizes") + 5 + 4 + 4;
    for count in [u64::MAX, 1 << 62, 1 << 30] {
        put(&mut bytes, count_at, &count.to_le_bytes());
        says(&error(&bytes), &["`sizes`"]);
    }
}

#[test]
fn unknown_and_nested_array_types_are_refused() {
    let mut bytes = two_tensors();
    let element_at = find(&bytes, b"sizes") + 5 + 4;
    put(&mut bytes, element_at, &99_u32.to_le_bytes());
    says(&error(&bytes), &["`sizes`", "type 99 is unknown"]);
    put(&mut bytes, element_at, &9_u32.to_le_bytes());
    says(&error(&bytes), &["`sizes`", "arrays of arrays"]);
    put(&mut bytes, element_at - 4, &13_u32.to_le_bytes());
    says(&error(&bytes), &["`sizes`", "type 13 is unknown"]);
}

#[test]
fn a_string_past_the_end_is_refused_where_it_stands() {
    let mut bytes = two_tensors();
    let length_at = find(&bytes, b"llama") - 8;
    put(&mut bytes, length_at, &(1_u64 << 40).to_le_bytes());
    says(&error(&bytes), &["`general.architecture`", "1099511627776 bytes", "left"]);
}

#[test]
fn keys_and_tensors_given_twice_are_refused() {
    let mut bytes = Writer::new().key("a.key", 1_u32).key("b.key", 2_u32).finish();
    let at = find(&bytes, b"b.key");
    bytes[at] = b'a';
    says(&error(&bytes), &["`a.key`", "twice"]);
    let mut bytes = Writer::new().f32_tensor("aa", &[1], &[0.0]).f32_tensor("ab", &[1], &[0.0]).finish();
    let at = find(&bytes, b"ab");
    bytes[at + 1] = b'a';
    says(&error(&bytes), &["`aa`", "twice"]);
}

#[test]
fn dimensions_are_one_to_four_and_not_zero() {
    let bytes = two_tensors();
    let dims_at = find(&bytes, b"first") + 5;
    for count in [0_u32, 5, 9, u32::MAX] {
        let mut bytes = bytes.clone();
        put(&mut bytes, dims_at, &count.to_le_bytes());
        says(&error(&bytes), &["`first`", "dimensions"]);
    }
    let mut bytes = bytes;
    put(&mut bytes, dims_at + 4, &0_u64.to_le_bytes());
    says(&error(&bytes), &["`first`", "zero"]);
}

#[test]
fn dimensions_whose_product_overflows_are_refused() {
    let bytes = Writer::new().tensor("huge", TensorType::F32, &[1 << 40, 1 << 40, 4], &[]).finish();
    says(&error(&bytes), &["`huge`", "overflow"]);
    let bytes = Writer::new().tensor("huge", TensorType::F32, &[u64::MAX], &[]).finish();
    says(&error(&bytes), &["`huge`", "overflow"]);
}

#[test]
fn an_offset_past_the_end_is_refused_and_never_skipped() {
    let bytes = two_tensors();
    let offset_at = find(&bytes, b"second") + 6 + 4 + 16 + 4;
    for offset in [1_u64 << 40, 1 << 63] {
        let mut bytes = bytes.clone();
        put(&mut bytes, offset_at, &offset.to_le_bytes());
        says(&error(&bytes), &["`second`", "truncated"]);
    }
    let mut overflowing = bytes.clone();
    put(&mut overflowing, offset_at, &(u64::MAX - 31).to_le_bytes());
    says(&error(&overflowing), &["`second`", "overflows"]);
    let mut unaligned = bytes;
    put(&mut unaligned, offset_at, &33_u64.to_le_bytes());
    says(&error(&unaligned), &["`second`", "33", "alignment 32"]);
}

#[test]
fn a_truncated_file_says_expected_and_real_size() {
    let bytes = two_tensors();
    let cut = &bytes[..bytes.len() - 1];
    says(&error(cut), &["truncated", "`second`", &bytes.len().to_string(), &cut.len().to_string()]);
}

#[test]
fn every_prefix_of_a_file_is_an_error() {
    let bytes = two_tensors();
    for length in 0..bytes.len() {
        assert!(Gguf::parse(&bytes[..length], "x.gguf").is_err(), "prefix of {length} bytes was accepted");
    }
}

#[test]
fn types_that_are_not_supported_are_refused_by_name() {
    let bytes = two_tensors();
    let type_at = find(&bytes, b"first") + 5 + 4 + 8;
    for (id, name) in [(16_u32, "IQ2_XXS"), (39, "MXFP4"), (4711, "4711")] {
        let mut bytes = bytes.clone();
        put(&mut bytes, type_at, &id.to_le_bytes());
        says(&error(&bytes), &["`first`", name, "F32, F16, Q4_0, Q4_1, Q5_0"]);
    }
}

#[test]
fn rows_are_whole_blocks() {
    let bytes = Writer::new().tensor("odd", TensorType::Q4K, &[128, 2], &[0; 144]).finish();
    says(&error(&bytes), &["`odd`", "128", "Q4_K", "256"]);
}

#[test]
fn alignment_is_a_bounded_power_of_two() {
    for alignment in [0_u32, 1, 24, 1 << 20] {
        let bytes = Writer::new().key("general.alignment", alignment).finish();
        says(&error(&bytes), &["general.alignment", &alignment.to_string()]);
    }
    let bytes = Writer::new()
        .key("general.alignment", 64_u32)
        .f32_tensor("a", &[1], &[1.0])
        .f32_tensor("b", &[1], &[2.0])
        .finish();
    let file = Gguf::parse(bytes, "x.gguf").unwrap();
    assert_eq!(file.alignment(), 64);
    assert_eq!(file.tensors()[1].range.start % 64, 0);
    assert_eq!(file.tensor_bytes(1), 2.0_f32.to_le_bytes());
}

#[test]
fn booleans_are_zero_or_one() {
    let mut bytes = Writer::new().key("flag", true).finish();
    let at = bytes.len() - 1;
    bytes[at] = 2;
    says(&error(&bytes), &["`flag`", "boolean is 2"]);
}

#[test]
fn names_are_utf8_and_not_empty() {
    let mut bytes = Writer::new().key("flag", true).finish();
    let at = find(&bytes, b"flag");
    bytes[at] = 0xff;
    says(&error(&bytes), &["metadata key 0", "UTF-8"]);
    says(&error(&Writer::new().key("", true).finish()), &["metadata key 0", "0 bytes"]);
}
