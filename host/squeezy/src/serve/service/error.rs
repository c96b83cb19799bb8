//! Errors of the service.

use crate::serve::{
    blobs::{BlobError, failed},
    code::CodeError,
    images::PinError,
    registry::PullError,
    state::StateError,
    tenants::TenantError,
};
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
    /// It does not fit what there is already.
    #[error("{0}")]
    Conflict(String),
    /// Too many calls are waiting, so the call was not accepted.
    #[error("Too many requests are waiting for this action; try again later.")]
    Busy,
    /// As many calls of the namespace as may be are in flight.
    #[error("Too many calls of this namespace are in flight; try again later.")]
    TooManyCalls,
    /// As many changes of the namespace as may be are waiting.
    #[error("Too many changes of this namespace are waiting; try again later.")]
    TooManyChanges,
    /// The daemon is shutting down.
    #[error("The daemon is shutting down.")]
    Ending,
    /// The action is stored, but cannot be served.
    #[error("The action cannot be served: {0}")]
    Unavailable(String),
    /// A limit was reached.
    #[error("{0}")]
    Full(String),
    /// A registry does not give an image.
    #[error("{0}")]
    Registry(String),
    /// Too many images are being pulled.
    #[error("{0}")]
    Pulling(String),
    /// Somebody uses it.
    #[error("{0}")]
    InUse(String),
    /// The namespace or key cannot be used, made or removed.
    #[error("{0}")]
    Tenant(TenantError),
    /// There is not enough disk space for it.
    #[error("{0}")]
    NoDisk(String),
    /// The state cannot be written.
    #[error("{0}")]
    Internal(String),
}

pub(super) fn invalid(error: ImageError) -> ServiceError {
    ServiceError::Invalid(error.to_string())
}

impl From<BlobError> for ServiceError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::File { .. } => Self::Internal(error.to_string()),
            BlobError::DiskFull | BlobError::NoSpace { .. } => Self::NoDisk(error.to_string()),
        }
    }
}

impl From<PinError> for ServiceError {
    fn from(error: PinError) -> Self {
        match error {
            PinError::Blob(error) => error.into(),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl From<PullError> for ServiceError {
    fn from(error: PullError) -> Self {
        let text = error.to_string();
        match error {
            PullError::Refused(_) | PullError::Image(_) => Self::Invalid(text),
            PullError::Registry(_) => Self::Registry(text),
            PullError::NoDisk(_) => Self::NoDisk(text),
            PullError::OverQuota(over) => TenantError::from(over).into(),
            PullError::Gone => Self::NotFound,
            PullError::Busy => Self::Pulling(text),
            PullError::Internal(_) => Self::Internal(text),
        }
    }
}

impl From<CodeError> for ServiceError {
    fn from(error: CodeError) -> Self {
        match error {
            CodeError::Blob(error) => error.into(),
            CodeError::NoSandbox(_) => Self::Internal(error.to_string()),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl From<StateError> for ServiceError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Full | StateError::FullOfOne => Self::Full(error.to_string()),
            StateError::File { path, error } => failed(&path)(error).into(),
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<TenantError> for ServiceError {
    fn from(error: TenantError) -> Self {
        match error {
            TenantError::File { path, error } => failed(&path)(error).into(),
            other => Self::Tenant(other),
        }
    }
}

pub(super) fn unusable(error: NodeError) -> ServiceError {
    match error {
        NodeError::Ended => ServiceError::Ending,
        other => ServiceError::Invalid(other.to_string()),
    }
}
