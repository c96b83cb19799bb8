//! Why something was not done.

use crate::serve::{images::PinError, state::StateError};
use squeezy_node::{ImageError, NodeError};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There is no such thing.
    #[error("The requested resource does not exist.")]
    NotFound,
    /// It is there already.
    #[error("resource already exists")]
    Exists,
    /// Too many calls wait; the one of this id does not.
    #[error("Too many requests are waiting for this action; try again later.")]
    Busy,
    /// The daemon ends.
    #[error("The daemon is shutting down.")]
    Ending,
    /// It is kept, but cannot be served.
    #[error("The action cannot be served: {0}")]
    Unavailable(String),
    /// There is too much already.
    #[error("{0}")]
    Full(String),
    /// It cannot be written down.
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
