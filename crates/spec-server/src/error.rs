//! What goes wrong, as clients of the API are told.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;
use spec_core::{SamplingError, VerifyError};
use spec_runtime::{Refused, RuntimeError};

/// Seconds that a client is asked to wait when the queue is full.
const RETRY_AFTER: u32 = 1;

/// Bytes of a refusal's text, and of the field it names: both may quote what a client sent, which may be long.
const LONGEST_MESSAGE: usize = 1000;
const LONGEST_PARAM: usize = 200;

/// What can go wrong before the service runs.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The keys' file cannot be used.
    #[error("keys file {file}: {reason}")]
    Keys {
        /// The file.
        file: String,
        /// What is wrong, with the line where there is one.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another --port, or 0 for a free one")]
    Listen {
        /// The address.
        address: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The system refused what the service needs to run.
    #[error("{what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its reason.
        source: std::io::Error,
    },
    /// A batch's file cannot be used.
    #[error("{file}: {reason}")]
    Batch {
        /// The file.
        file: String,
        /// What is wrong with it, with the line where there is one.
        reason: String,
    },
    /// The model that was promised with [`Server::loading`](crate::Server::loading) does not come; whoever was to load it knows why.
    #[error("the model was not loaded")]
    NotLoaded,
    /// A second signal came while answers were under way.
    #[error("a second signal ended the server before the answers under way were out")]
    Interrupted,
    /// The model cannot be served.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// A refusal: a status, and the object `{"error": {message, type, param, code}}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// What is wrong, and what to do.
    pub message: String,
    /// The field that it is about.
    pub param: Option<String>,
    /// A name for programs.
    pub code: &'static str,
    retry_after: Option<u32>,
}

impl ApiError {
    /// An error of this status. Of a long message the beginning is kept.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: brief(message.into(), LONGEST_MESSAGE), param: None, code, retry_after: None }
    }

    /// A field that is wrong.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "invalid_value", message);
        Self { param: Some(brief(param.into(), LONGEST_PARAM)), ..error }
    }

    /// Gives the error another name for programs.
    #[must_use]
    pub fn with_code(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    /// Tells the client in how many seconds to come again.
    #[must_use]
    pub fn with_retry_after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// The object that clients read.
    pub fn body(&self) -> serde_json::Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }

    /// The whole response.
    pub fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl axum::response::IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        self.response()
    }
}

/// A text that is cut, at a character, where it is longer than so many bytes.
fn brief(mut text: String, most: usize) -> String {
    if text.len() > most {
        let most = most - '…'.len_utf8();
        let end = text.char_indices().map(|(at, _)| at).take_while(|&at| at <= most).last();
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

/// The field of the API that a field of the runtime was read from.
fn api_field(field: &str) -> &str {
    match field {
        "rule" => "speculation.rule",
        "loss_budget" => "speculation.loss_budget",
        "json_schema" => "response_format",
        "grammar" => "tools",
        "drafter" | "draft_with" => "speculation.drafter",
        "draft_len" => "speculation.draft_len",
        other => other,
    }
}

impl From<RuntimeError> for ApiError {
    fn from(error: RuntimeError) -> Self {
        let message = error.to_string();
        match error {
            RuntimeError::BadRequest { field, reason } => Self::field(api_field(field), format!("{field}: {reason}")),
            RuntimeError::BadToken { .. } => Self::field("prompt", message),
            RuntimeError::ContextExceeded { .. } => Self::field("prompt", message).with_code("context_length_exceeded"),
            RuntimeError::KvExhausted { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "kv_cache_full", message).with_retry_after(RETRY_AFTER)
            }
            // Its grammar came with the request, and so did what exceeds the parser's limits.
            RuntimeError::Constraint { .. } => Self::field("response_format", message).with_code("constraint_failed"),
            // Nothing is left to say where a bias bans what the format allows.
            RuntimeError::Sampling(SamplingError::NothingAllowed { .. })
            | RuntimeError::Verify(VerifyError::Sampling(SamplingError::NothingAllowed { .. })) => {
                Self::field("logit_bias", message).with_code("nothing_allowed")
            }
            RuntimeError::Device { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, "device_failed", message),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "generation_failed", message),
        }
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::QueueFull { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message).with_retry_after(RETRY_AFTER)
            }
            Refused::Stopping => Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message),
            Refused::DeviceLost { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, "device_lost", message),
            Refused::BadRequest(error) => error.into(),
            Refused::TooLarge { .. } => Self::field("prompt", message).with_code("context_length_exceeded"),
            // Of kinds to come.
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, "refused", message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_that_bans_what_a_format_needs_is_the_clients_fault() {
        let nothing = || SamplingError::NothingAllowed { vocab: 3 };
        for error in [RuntimeError::Sampling(nothing()), RuntimeError::Verify(VerifyError::Sampling(nothing()))] {
            let told = ApiError::from(error);
            assert_eq!((told.status, told.param.as_deref()), (StatusCode::BAD_REQUEST, Some("logit_bias")));
        }
    }
}
