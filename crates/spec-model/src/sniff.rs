//! What a file that is no checkpoint seems to be, by its first bytes.

/// Signatures at offset zero, and the sentence for each.
const SIGNATURES: [(&[u8], &str); 15] = [
    (
        b"PK\x03\x04",
        "it is a zip archive (a PyTorch checkpoint or a wheel); convert it to safetensors or GGUF, or unpack it",
    ),
    (b"lmgg", "it is an old GGML file; convert the model again with a current converter"),
    (b"fmgg", "it is an old GGMF file; convert the model again with a current converter"),
    (b"tjgg", "it is an old GGJT file; convert the model again with a current converter"),
    (b"algg", "it is a GGLA adapter, not a model"),
    (b"version https://git-lfs", "it is a Git LFS pointer; fetch the real file with `git lfs pull`"),
    (b"\x1f\x8b", "it is gzip-compressed; decompress it first"),
    (b"\x28\xb5\x2f\xfd", "it is zstd-compressed; decompress it first"),
    (b"\x89HDF", "it is an HDF5 file; convert it to safetensors or GGUF"),
    (b"\x93NUMPY", "it is a NumPy array; convert the model to safetensors or GGUF"),
    (b"\x80\x02", "it is a Python pickle (a PyTorch checkpoint); convert it to safetensors or GGUF"),
    (b"\x80\x04", "it is a Python pickle; convert it to safetensors or GGUF"),
    (
        b"\x08",
        "it seems to be an ONNX model (protobuf), a graph that cannot be driven token by token; take the safetensors or \
         GGUF form of the model",
    ),
    (b"{", "it is JSON (a configuration or tokenizer?); give the folder that it is in, or the file of the weights"),
    (b"<", "it is HTML or XML, probably an error page saved by a download; download it again"),
];

/// True when the file starts as a safetensors file does: a u64 length of a JSON header, then the header.
pub(crate) fn is_safetensors(bytes: &[u8]) -> bool {
    bytes.get(8) == Some(&b'{') && bytes.first_chunk::<8>().is_some_and(|length| u64::from_le_bytes(*length) < 1 << 32)
}

/// True when the file starts as an index of safetensors files does.
pub(crate) fn is_index(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(4096)];
    let names = |field: &[u8]| start.windows(field.len()).any(|window| window == field);
    start.trim_ascii_start().starts_with(b"{") && names(b"\"weight_map\"")
}

/// One clause: what it is, what to do.
pub(crate) fn describe(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "it is empty; download it again".into();
    }
    if bytes.len() < 24 && crate::gguf::MAGIC.starts_with(&bytes[..bytes.len().min(4)]) {
        return format!("it has only {} bytes; download it again", bytes.len());
    }
    if is_safetensors(bytes) {
        return "it is a safetensors file; open it with the config.json beside it".into();
    }
    let text = bytes.trim_ascii_start();
    for (signature, sentence) in SIGNATURES {
        if bytes.starts_with(signature) || (signature.is_ascii() && signature[0] > b' ' && text.starts_with(signature))
        {
            return sentence.into();
        }
    }
    if bytes.iter().take(4096).all(|&byte| byte == 0) {
        return "it starts with zeros only, as an interrupted download leaves it; download it again".into();
    }
    let first: Vec<String> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("it starts with the bytes {}, which no checkpoint has; check the path", first.join(" "))
}
