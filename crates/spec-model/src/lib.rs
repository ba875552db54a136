//! Checkpoints as plain, validated data.
//!
//! A [`Checkpoint`] maps the files of a model into memory and checks all of it that can be checked without reading the weights:
//! every count, offset, length, dimension and type against the bytes that are really there, and every tensor that the
//! architecture needs against the shape that the configuration implies. What comes out are plain structs:
//!
//! | piece | type | reads |
//! |---|---|---|
//! | file format | [`gguf::Gguf`], [`safetensors::Safetensors`] | GGUF version 2 and 3, little-endian; safetensors; one file or a set |
//! | configuration | [`ModelConfig`] | metadata or `config.json` of the architectures in [`ARCHITECTURES`] |
//! | weights | [`Weights`] of [`TensorView`] | element types in [`TensorType`], quantised by [`Quantizer`] |
//! | text to ids and back | [`Tokenizer`] | byte-level BPE, SentencePiece with scores; `tokenizer.json` |
//! | messages to text | [`ChatTemplate`] | the Jinja dialect of published templates |
//!
//! Nothing here computes a forward pass, and no other layer is needed to use it:
//!
//! ```no_run
//! use spec_model::{Checkpoint, Message};
//!
//! # fn main() -> Result<(), spec_model::Error> {
//! let checkpoint = Checkpoint::open("model.gguf")?;
//! let tokenizer = checkpoint.tokenizer()?;
//! let template = checkpoint.chat_template()?.expect("this model is a chat model");
//! let text = template.render(&[Message::new("user", "Hello!")])?;
//! let ids = tokenizer.encode(&text, true)?;
//! println!("{} tokens for {}", ids.len(), checkpoint.config().name);
//! # Ok(())
//! # }
//! ```
//!
//! # Untrusted files
//! No file makes this crate panic or read out of bounds, and parsing allocates a small multiple of the header at most.
//! Two limits remain, both of the platform: a file that another process shortens while it is mapped raises a signal on
//! access, and a hostile chat template can build long strings within its instruction budget (see [`ChatTemplate`]).

#![deny(missing_docs)]
#![deny(unsafe_code)]

mod architecture;
mod chat_template;
mod checkpoint;
mod config;
mod dequantize;
mod document;
mod error;
mod export;
pub mod gguf;
mod mapping;
mod names;
mod outline;
mod quantize;
mod rope;
pub mod safetensors;
mod sniff;
mod tensor_info;
mod tensor_type;
mod tokenizer;
mod weights;

pub use architecture::{ARCHITECTURES, Architecture, Bias, RopeStyle, Windows};
pub use chat_template::{ChatTemplate, Conversation, Message};
pub use checkpoint::{Checkpoint, Format};
pub use config::{Activation, ModelConfig, NormKind, SlidingWindow};
pub use dequantize::{IQ4_VALUES, dequantize};
pub use error::{Error, Result};
pub use export::Export;
pub use mapping::Mapping;
pub use outline::{FileType, Outline, TensorOutline};
pub use quantize::Quantizer;
pub use rope::{RopeConfig, RopeScaling};
pub use tensor_type::TensorType;
pub use tokenizer::{TokenKind, Tokenizer, Vocabulary, known_pre_tokenizers};
pub use weights::{LayerWeights, Linear, Norm, StoredTensor, TensorView, Weights};
