//! Errors as OpenWhisk words them.

use super::code;
use crate::serve::service::ServiceError;
use axum::{
    Json,
    extract::rejection::{BytesRejection, JsonRejection, QueryRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// An answer that is an error.
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

    pub fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "This method is not possible here.")
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let status = match error {
            ServiceError::Invalid(_) => StatusCode::BAD_REQUEST,
            ServiceError::NotFound => StatusCode::NOT_FOUND,
            ServiceError::Exists => StatusCode::CONFLICT,
            ServiceError::Busy => StatusCode::TOO_MANY_REQUESTS,
            ServiceError::Ending => StatusCode::SERVICE_UNAVAILABLE,
            ServiceError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        let status = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, format!("The request content was malformed:\n{rejection}"))
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
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
            StatusCode::TOO_MANY_REQUESTS => Some((header::RETRY_AFTER, "1")),
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Basic realm=\"squeezy\"")),
            _ => None,
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
