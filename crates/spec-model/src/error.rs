//! What can be wrong with a checkpoint, said with the file, the place in it and the remedy.

use crate::TensorType;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything this crate can refuse. `file` is the name the bytes were opened or parsed under.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open or map the file.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// Path as given.
        file: String,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is neither GGUF nor safetensors.
    #[error("{file}: neither GGUF nor safetensors: {seems}")]
    UnknownFormat {
        /// File name.
        file: String,
        /// What it seems to be, and what to do.
        seems: String,
    },
    /// A GGUF version other than 2 and 3.
    #[error("{file}: GGUF version {version} is not supported (2 and 3 are): {advice}")]
    Version {
        /// File name.
        file: String,
        /// The version found.
        version: u32,
        /// What to do.
        advice: &'static str,
    },
    /// The file was written for the other byte order.
    #[error(
        "{file}: this GGUF file is big-endian (its bytes are swapped); convert it to little-endian or download that variant"
    )]
    ByteOrder {
        /// File name.
        file: String,
    },
    /// The header contradicts itself or the file's size.
    #[error("{file}: {place}: {problem}; the file is damaged or incomplete, download it again")]
    Malformed {
        /// File name.
        file: String,
        /// Key, tensor or field.
        place: String,
        /// What is wrong there.
        problem: String,
    },
    /// A tensor's data lies past the end of the file.
    #[error(
        "{file}: truncated: tensor `{tensor}` needs {expected} bytes of file, but the file has {found}; download it again"
    )]
    Truncated {
        /// File name.
        file: String,
        /// The tensor that ends last.
        tensor: String,
        /// Size in bytes that the header implies.
        expected: u64,
        /// Real size in bytes.
        found: u64,
    },
    /// A metadata key that is needed is absent.
    #[error("{file}: metadata key `{key}` is missing; convert the model again with a current converter")]
    MissingKey {
        /// File name.
        file: String,
        /// The key.
        key: String,
    },
    /// A metadata value has another type than its key implies.
    #[error("{file}: metadata key `{key}` has type {found}, wanted {wanted}")]
    KeyType {
        /// File name.
        file: String,
        /// The key.
        key: String,
        /// Type in the file.
        found: String,
        /// Type(s) that would do.
        wanted: &'static str,
    },
    /// A metadata value is outside what makes sense.
    #[error("{file}: metadata key `{key}`: {problem}")]
    KeyValue {
        /// File name.
        file: String,
        /// The key.
        key: String,
        /// What is wrong with the value.
        problem: String,
    },
    /// A JSON file beside the weights cannot be read.
    #[error("{file}: not the JSON that belongs here: {problem}")]
    Json {
        /// File name.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// A field of a JSON file is missing, of another type, or outside what makes sense.
    #[error("{file}: field `{field}`: {problem}")]
    Field {
        /// File name.
        file: String,
        /// The field, with those around it.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// A folder holds no checkpoint, or more than one.
    #[error("{folder}: {problem}")]
    Folder {
        /// The folder.
        folder: String,
        /// What is there, and what to do.
        problem: String,
    },
    /// Files of a set are missing.
    #[error(
        "{file}: part of a set of {count} files, of which these are missing: {missing}; put them all into one folder"
    )]
    MissingShards {
        /// The file that was opened.
        file: String,
        /// Files of the set.
        count: usize,
        /// Names, or the first of them.
        missing: String,
    },
    /// The files of a set do not belong together.
    #[error("{file}: {problem}")]
    Shards {
        /// File name.
        file: String,
        /// What does not fit, and what to do.
        problem: String,
    },
    /// `general.architecture` or `model_type` names a model that this version cannot run.
    #[error("{file}: architecture `{found}` is not supported; supported: {supported}")]
    Architecture {
        /// File name.
        file: String,
        /// The architecture found.
        found: String,
        /// Names in [`ARCHITECTURES`](crate::ARCHITECTURES).
        supported: String,
    },
    /// The model turns texts into vectors and has nothing that predicts a next token.
    #[error(
        "{file}: `{found}` is an encoder-only model: it has no head for a next token, so that it can neither draft nor \
         be drafted for; use a decoder (supported: {supported})"
    )]
    EncoderOnly {
        /// File name.
        file: String,
        /// The architecture found.
        found: String,
        /// Names in [`ARCHITECTURES`](crate::ARCHITECTURES).
        supported: String,
    },
    /// A file that would be written as it is.
    #[error("{file}: no matrix has more bits than {to}: nothing would change")]
    Unchanged {
        /// File name.
        file: String,
        /// What was asked for.
        to: TensorType,
    },
    /// A feature of the file that this version does not implement.
    #[error("{file}: {what} is not supported yet")]
    Unsupported {
        /// File name.
        file: String,
        /// The feature, with the key or tensor that asks for it.
        what: String,
    },
    /// A tensor is stored in a type that this version cannot read.
    #[error("{file}: tensor `{tensor}` has type {found}, which is not supported; supported: {supported}")]
    TensorType {
        /// File name.
        file: String,
        /// The tensor.
        tensor: String,
        /// Type name, or the number when it has none.
        found: String,
        /// Names of [`TensorType::ALL`], or the one type that this tensor must have.
        supported: String,
    },
    /// A tensor that the architecture needs is absent.
    #[error("{file}: tensor `{tensor}` is missing; the file is incomplete or of another architecture")]
    MissingTensor {
        /// File name.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A tensor's shape contradicts the configuration. Shapes are `[rows, columns]` or `[length]`.
    #[error("{file}: tensor `{tensor}` has shape {found}, wanted {wanted} by the configuration")]
    TensorShape {
        /// File name.
        file: String,
        /// The tensor.
        tensor: String,
        /// Shape in the file.
        found: String,
        /// Shape that the configuration implies.
        wanted: String,
    },
    /// The file has a tensor that the architecture does not use: ignoring it would compute another model.
    #[error("{file}: tensor `{tensor}` has no meaning for architecture `{architecture}` in this version")]
    UnexpectedTensor {
        /// File name.
        file: String,
        /// The tensor.
        tensor: String,
        /// Architecture name.
        architecture: &'static str,
    },
    /// `tokenizer.ggml.pre` is missing, or names splitting rules that this version does not know. Guessing would give
    /// nearly right tokens, and a worse answer without a word.
    #[error("{file}: {found}; known: {known}; name one of these explicitly if you know that it fits")]
    PreTokenizer {
        /// File name.
        file: String,
        /// What is missing, or the name found or given as override.
        found: String,
        /// All known names.
        known: String,
    },
    /// The tokenizer's tables contradict each other.
    #[error("{file}: tokenizer: {problem}")]
    Tokenizer {
        /// File name.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// A text cannot be expressed in this vocabulary.
    #[error("cannot tokenize the text: {problem}")]
    Encode {
        /// What is in the way.
        problem: String,
    },
    /// A token id is not in the vocabulary.
    #[error("token id {id} is out of range: the vocabulary has {size} tokens")]
    TokenId {
        /// The id.
        id: u32,
        /// Number of tokens in the vocabulary.
        size: usize,
    },
    /// The chat template cannot be compiled or rendered.
    #[error("chat template: {problem}")]
    ChatTemplate {
        /// The template engine's message.
        problem: String,
    },
    /// A row's bytes and elements do not belong together.
    #[error("{elements} elements of {tensor_type} cannot be stored in {bytes} bytes")]
    RowLength {
        /// Element type.
        tensor_type: TensorType,
        /// Bytes given.
        bytes: usize,
        /// Elements wanted.
        elements: usize,
    },
}
