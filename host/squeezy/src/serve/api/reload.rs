//! `POST /reload`, which OpenWhisk has not: reads the daemon's configuration again.

use super::ApiError;
use crate::serve::{
    callers::{Caller, Need},
    reload::{ReloadError, Reloaded, Reloader},
};
use axum::{
    Json,
    extract::{Extension, State},
    http::StatusCode,
};
use std::sync::Arc;

pub async fn reload(
    State(reloader): State<Arc<Reloader>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Reloaded>, ApiError> {
    if !caller.role.may(Need::Operate) {
        return Err(ApiError::forbidden());
    }
    Ok(Json(reloader.reload().await?))
}

impl From<ReloadError> for ApiError {
    fn from(error: ReloadError) -> Self {
        let status = match error {
            ReloadError::NoFile | ReloadError::NoFileButKey => StatusCode::CONFLICT,
            ReloadError::Bad(_) | ReloadError::BadButKey(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}
