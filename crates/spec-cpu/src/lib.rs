//! CPU device of `spec`: thread pool, packed weights, kernels, decoder.
//!
//! The layer promises the numerical contract: for one build, one [`Isa`] and one set of weights, every
//! output element of every operation is a function of its own row's inputs only, bit for bit, however many rows
//! share the call and however many threads run it. Speculative decoding rests on that: scoring eight rows
//! in one pass gives exactly the logits that eight passes of one row give.
//!
//! - [`Pool`]: fork-join regions of microseconds.
//! - [`PackedMatrix`]: GGUF weights repacked, at their precision, for eight-bit dot products.
//! - [`QuantizedRows`]: activations in the form that a packed matrix reads.
//! - [`matmul`]: several products in one region.
//! - [`vector`]: normalisation, activation functions, rotary embedding, conversions.
//! - [`probe`]: what the machine could do at best.
//!
//! ```
//! use spec_cpu::{Isa, PackedMatrix, Pool, Product, QuantizedRows, WeightType, matmul};
//!
//! let (isa, pool) = (Isa::detect(), Pool::new(2)?);
//! // A 2 x 4 matrix of f32.
//! let bytes: Vec<u8> = (1..=8_u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
//! let weights = PackedMatrix::pack(WeightType::F32, 2, 4, &bytes, &pool)?;
//! let mut rows = QuantizedRows::new(weights.activation_form(), 4)?;
//! rows.quantize(isa, &pool, 1, &[1.0, 0.0, 0.0, 2.0])?;
//! let mut output = [0.0; 2];
//! matmul(isa, &pool, &mut [Product::new(&weights, &rows, &mut output)])?;
//! assert_eq!(output, [9.0, 21.0]);
//! # Ok::<(), spec_cpu::CpuError>(())
//! ```

#![deny(missing_docs)]

#[cfg(target_endian = "big")]
compile_error!("weights keep the byte order of their files, which is little-endian");

mod activation;
mod attention;
mod decoder;
mod error;
mod isa;
mod kernels;
mod kv;
mod kv_cache;
mod load;
mod memory_plan;
mod model;
mod packed;
mod pool;
mod rows;
mod scan;
mod shortlist;

pub use activation::{ActivationForm, QuantizedRows};
pub use error::CpuError;
pub use isa::Isa;
#[cfg(target_arch = "x86_64")]
pub use isa::{Amx, Avx2, Avx2Vnni, Avx512Vnni};
pub use kernels::{Product, matmul, probe, vector};
pub use kv::KvType;
pub use load::LoadOptions;
pub use memory_plan::MemoryPlan;
pub use model::CpuModel;
pub use packed::{PackedMatrix, WeightMemory, WeightType};
pub use pool::{Pool, SharedSlice};
pub use rows::row_kernels;
