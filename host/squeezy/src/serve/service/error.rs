//! Errors of the service.

use crate::serve::{code::CodeError, images::PinError, state::StateError};
use squeezy_node::{ImageError, NodeError};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The resource does not exist.
    #[error("The requested resource does not exist.")]
    NotFound,
    /// The resource already exists.
    #[error("resource already exists")]
    Exists,
    /// Too many calls are waiting, so the call was not accepted.
    #[error("Too many requests are waiting for this action; try again later.")]
    Busy,
    /// The daemon is shutting down.
    #[error("The daemon is shutting down.")]
    Ending,
    /// The action is stored, but cannot be served.
    #[error("The action cannot be served: {0}")]
    Unavailable(String),
    /// A limit was reached.
    #[error("{0}")]
    Full(String),
    /// The state cannot be written.
    #[error("{0}")]
    Internal(String),
}

pub(super) fn invalid(error: ImageError) -> ServiceError {
    ServiceError::Invalid(error.to_string())
}

impl From<PinError> for ServiceError {
    fn from(error: PinError) -> Self {
        match error {
            PinError::File { .. } => Self::Internal(error.to_string()),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl From<CodeError> for ServiceError {
    fn from(error: CodeError) -> Self {
        match error {
            CodeError::File { .. } => Self::Internal(error.to_string()),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl From<StateError> for ServiceError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Full => Self::Full(error.to_string()),
            other => Self::Internal(other.to_string()),
        }
    }
}

pub(super) fn unusable(error: NodeError) -> ServiceError {
    match error {
        NodeError::Ended => ServiceError::Ending,
        other => ServiceError::Invalid(other.to_string()),
    }
}
