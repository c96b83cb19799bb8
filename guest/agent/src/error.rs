//! The response to a failed call: a status, and an [`ErrorBody`] for programs and people.

use http::StatusCode;
use squeezy_protocol::{ErrorBody, ErrorCode};

/// A call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ApiError(pub ErrorBody);

impl ApiError {
    /// An error with this code and message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(ErrorBody { code, message: message.into() })
    }

    /// The request is not valid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    /// Something in the guest failed while doing `what`.
    pub fn internal(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::Internal, format!("{what}: {error}"))
    }

    /// The HTTP status that goes with the code.
    pub fn status(&self) -> StatusCode {
        match self.0.code {
            ErrorCode::Invalid => StatusCode::BAD_REQUEST,
            ErrorCode::NotFound => StatusCode::NOT_FOUND,
            ErrorCode::Exists => StatusCode::CONFLICT,
            ErrorCode::NoPartition | ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::BadAnswer | ErrorCode::AnswerTooLong => StatusCode::BAD_GATEWAY,
            ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
