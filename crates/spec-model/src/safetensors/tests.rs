use super::*;

/// A file of this header and this many bytes behind it.
fn file(header: &str, content: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + content, 7);
    bytes
}

fn error(header: &str, content: usize) -> String {
    Safetensors::parse(file(header, content), "x.safetensors").unwrap_err().to_string()
}

/// Checks that each phrase is in the message.
fn says(message: &str, phrases: &[&str]) {
    for phrase in phrases {
        assert!(message.contains(phrase), "`{phrase}` is not in: {message}");
    }
}

const TWO: &str = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},
"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}   "#;

#[test]
fn tensors_are_found_in_the_order_of_their_bytes() {
    let parsed = Safetensors::parse(file(TWO, 20), "x.safetensors").unwrap();
    let names: Vec<&str> = parsed.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let a = &parsed.tensors()[parsed.tensor_index("a").unwrap()];
    assert_eq!((a.tensor_type, a.rows(), a.cols(), a.shape().as_str()), (TensorType::F16, 2, 3, "[2, 3]"));
    assert_eq!(parsed.tensor_bytes(0), [7; 12]);
    assert_eq!(parsed.name(), "x.safetensors");
}

#[test]
fn what_the_reference_implementation_writes_is_read() {
    use ::safetensors::tensor::TensorView;
    let data: Vec<u8> = (0..48).collect();
    let tensors = [
        ("scalar", ::safetensors::Dtype::F32, vec![], &data[..4]),
        ("vector", ::safetensors::Dtype::BF16, vec![3], &data[..6]),
        ("matrix", ::safetensors::Dtype::F32, vec![2, 3], &data[..24]),
        ("mask", ::safetensors::Dtype::BOOL, vec![5], &data[..5]),
    ];
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    let written = ::safetensors::serialize(views, None).unwrap();
    let parsed = Safetensors::parse(written.as_slice(), "x").unwrap();
    for (name, _, _, bytes) in &tensors[..3] {
        assert_eq!(parsed.tensor_bytes(parsed.tensor_index(name).unwrap()), *bytes, "{name}");
    }
    assert_eq!(parsed.others(), [("mask".to_owned(), "BOOL")]);
    assert_eq!(parsed.tensors()[parsed.tensor_index("scalar").unwrap()].dims, [1]);
}

#[test]
fn a_truncated_file_says_which_tensor_and_both_sizes() {
    let whole = file(TWO, 20);
    let cut = &whole[..whole.len() - 1];
    let message = Safetensors::parse(cut, "x").unwrap_err().to_string();
    says(&message, &["truncated", "`b`", &whole.len().to_string(), &cut.len().to_string()]);
    for length in 0..whole.len() {
        assert!(Safetensors::parse(&whole[..length], "x").is_err(), "prefix of {length} bytes was accepted");
    }
}

#[test]
fn bytes_that_no_tensor_has_are_refused() {
    says(&error(TWO, 21), &["20 bytes", "21 follow"]);
    let hole = r#"{"a":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}}"#;
    says(&error(hole, 8), &["`a`", "starts at 4", "ends at 0"]);
    let overlap = r#"{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},
        "b":{"dtype":"F16","shape":[2],"data_offsets":[2,6]}}"#;
    says(&error(overlap, 6), &["`b`", "starts at 2", "ends at 4"]);
}

#[test]
fn offsets_are_those_of_shape_and_type() {
    for (shape, offsets, phrase) in [
        ("[3]", "[0,4]", "6 bytes by shape"),
        ("[2]", "[4,0]", "offsets 4 to 0"),
        ("[2]", "[0,18446744073709551615]", "4 bytes by shape"),
        ("[0]", "[0,0]", "zero"),
        ("[4294967296,4294967296,2]", "[0,4]", "overflow"),
        ("[1,1,1,1,2]", "[0,4]", "5 dimensions"),
        ("[-1]", "[0,4]", "invalid value"),
        ("[1.5]", "[0,4]", "invalid type"),
        ("[99999999999999999999]", "[0,4]", "invalid type"),
    ] {
        let header = format!(r#"{{"a":{{"dtype":"F16","shape":{shape},"data_offsets":{offsets}}}}}"#);
        says(&error(&header, 4), &["`a`", phrase]);
    }
}

#[test]
fn names_come_once() {
    let entry = r#""a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}"#;
    says(&error(&format!("{{{entry},{entry}}}"), 2), &["`a`", "twice"]);
}

#[test]
fn an_unknown_type_is_named() {
    let header = r#"{"a":{"dtype":"INT3","shape":[2],"data_offsets":[0,4]}}"#;
    says(&error(header, 4), &["`a`", "INT3", "F32, F16, BF16"]);
}

#[test]
fn a_header_that_is_no_table_is_refused() {
    for header in ["{", "{}x", "{\"a\":1}", "{\"a\":{\"dtype\":\"F32\"}}", "{\"a\":[]}", "{\"\u{1}\":{}}"] {
        says(&error(header, 0), &["header"]);
    }
    // Nesting deeper than any stack.
    says(&error(&format!("{{\"__metadata__\":{}", "[".repeat(1 << 20)), 0), &["header"]);
}

#[test]
fn a_length_beyond_the_file_is_refused_before_it_is_believed() {
    for length in [1 << 20, 100_000_001, u64::MAX] {
        let mut bytes = file(TWO, 20);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        let message = Safetensors::parse(bytes, "x").unwrap_err().to_string();
        says(&message, &["header", &length.to_string()]);
    }
}
