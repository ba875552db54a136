//! What can go wrong, and as which status.

use spec_runtime::RuntimeError;

use crate::types::spec_status;

/// Why a call failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{argument} {reason}")]
    Argument { argument: &'static str, reason: String },
    #[error("{path}: {reason}")]
    Model { path: String, reason: String },
    #[error("{device}: {reason}")]
    Device { device: String, reason: String },
    #[error("a generation is going on with this engine: wait for it, end it by spec_cancel, or load a second engine")]
    Busy,
    #[error("an earlier call on this engine met a defect of the library, and it takes no more work: free it")]
    Broken,
    #[error("a defect of the library, please report it: {0}")]
    Panic(String),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl Error {
    pub(crate) fn null(argument: &'static str) -> Self {
        Self::argument(argument, "is null")
    }

    pub(crate) fn argument(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::Argument { argument, reason: reason.into() }
    }

    pub(crate) fn model(path: &str, error: impl std::fmt::Display) -> Self {
        let reason = error.to_string();
        // Most errors about files name them.
        let reason = reason.strip_prefix(&format!("{path}: ")).map(str::to_owned).unwrap_or(reason);
        Self::Model { path: path.to_owned(), reason }
    }

    pub(crate) fn device(device: &str, error: impl std::fmt::Display) -> Self {
        Self::Device { device: device.to_owned(), reason: error.to_string() }
    }

    pub(crate) fn status(&self) -> spec_status {
        match self {
            Self::Argument { .. } => spec_status::InvalidArgument,
            Self::Model { .. } => spec_status::Model,
            Self::Device { .. } => spec_status::Device,
            Self::Busy => spec_status::Busy,
            Self::Broken | Self::Panic(_) => spec_status::Internal,
            Self::Runtime(error) => match error {
                RuntimeError::BadRequest { .. }
                | RuntimeError::BadToken { .. }
                | RuntimeError::ContextExceeded { .. }
                | RuntimeError::Sampling(_) => spec_status::InvalidArgument,
                RuntimeError::VocabularyDiffers { .. } => spec_status::Model,
                RuntimeError::Device { .. } | RuntimeError::KvExhausted { .. } => spec_status::Device,
                _ => spec_status::Internal,
            },
        }
    }
}
