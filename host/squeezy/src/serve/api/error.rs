//! Errors, worded as OpenWhisk does.

use super::code;
use crate::serve::{
    bodies::NoRoom,
    service::ServiceError,
    tenants::{OverQuota, TenantError},
};
use axum::{
    Json,
    extract::rejection::QueryRejection,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytesize::ByteSize;
use serde_json::json;
use squeezy_store::ReadError;

/// An error response.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    message: String,
}

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "The supplied authentication is invalid")
    }

    pub fn forbidden() -> Self {
        let message = "The supplied authentication is not authorized to access this resource.";
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub fn not_found() -> Self {
        ServiceError::NotFound.into()
    }

    pub fn too_large(bytes: usize, most: usize) -> Self {
        // The first sentence is OpenWhisk's.
        let message = format!(
            "Request larger than allowed: {bytes} > {most} bytes. The most is {}.",
            ByteSize(most as u64)
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// There is no memory for a body of this many bytes.
    pub fn no_room(none: NoRoom, bytes: usize) -> Self {
        match none {
            NoRoom::Now => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "There is not enough memory for this at the moment, because of other requests and responses; try again later.",
            ),
            NoRoom::OfPart => TenantError::from(OverQuota::Bodies).into(),
            NoRoom::Never => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "The request's content takes too much memory, {} MiB: send it in larger parts, as text for instance.",
                    bytes >> 20
                ),
            ),
        }
    }

    /// Clients with a key, or those of a namespace, have as many connections as they may have.
    pub fn no_place() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many clients with a key, or of this namespace, are connected; try again later.",
        )
    }

    pub fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "The request's content took too long to arrive.")
    }

    pub fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "This method is not supported here.")
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let status = match error {
            ServiceError::Invalid(_) => StatusCode::BAD_REQUEST,
            ServiceError::NotFound => StatusCode::NOT_FOUND,
            ServiceError::Exists | ServiceError::Conflict(_) | ServiceError::InUse(_) => {
                StatusCode::CONFLICT
            }
            ServiceError::Busy
            | ServiceError::TooManyCalls
            | ServiceError::TooManyChanges
            | ServiceError::Pulling(_) => StatusCode::TOO_MANY_REQUESTS,
            ServiceError::Ending | ServiceError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            ServiceError::Full(_) => StatusCode::PAYLOAD_TOO_LARGE,
            ServiceError::Tenant(ref error) => of_tenant(error),
            ServiceError::NoDisk(_) => StatusCode::INSUFFICIENT_STORAGE,
            ServiceError::Registry(_) => StatusCode::BAD_GATEWAY,
            ServiceError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

fn of_tenant(error: &TenantError) -> StatusCode {
    match error {
        TenantError::NoNamespace | TenantError::NoKey => StatusCode::NOT_FOUND,
        TenantError::Exists
        | TenantError::KeyExists
        | TenantError::Going
        | TenantError::HasActions(_)
        | TenantError::HasPackages(_)
        | TenantError::TooManyNamespaces(_)
        | TenantError::TooManyKeys(_) => StatusCode::CONFLICT,
        TenantError::Over(
            OverQuota::Concurrency { .. } | OverQuota::Rate { .. } | OverQuota::Bodies,
        ) => StatusCode::TOO_MANY_REQUESTS,
        TenantError::Over(
            OverQuota::Actions { .. }
            | OverQuota::Packages { .. }
            | OverQuota::Code { .. }
            | OverQuota::Images { .. }
            | OverQuota::Layers { .. },
        ) => StatusCode::PAYLOAD_TOO_LARGE,
        TenantError::Guest | TenantError::MonitorsAll | TenantError::Quotas(_) => {
            StatusCode::BAD_REQUEST
        }
        TenantError::File { .. } | TenantError::Damaged { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<TenantError> for ApiError {
    fn from(error: TenantError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("{error}; try again later."))
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(format!("The request's parameters were malformed:\n{rejection}"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.message, "code": code() });
        let mut response = (self.status, Json(body)).into_response();
        let header = match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Some((header::RETRY_AFTER, "1"))
            }
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Basic realm=\"squeezy\"")),
            _ => None,
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
