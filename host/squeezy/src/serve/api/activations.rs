//! What came of calls.

use super::{Api, actions::MOST_LISTED, error::ApiError};
use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Which activations.
#[derive(Deserialize)]
pub struct Selection {
    /// Of this action.
    name: Option<String>,
    /// Not older than this, in milliseconds since 1970.
    #[serde(default)]
    since: u64,
    #[serde(default)]
    skip: usize,
    limit: Option<usize>,
}

pub async fn list(
    State(api): State<Api>,
    selection: Result<Query<Selection>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(Selection { name, since, skip, limit }) = selection?;
    let limit = match limit {
        None => 30,
        Some(0) => MOST_LISTED,
        Some(limit) if limit <= MOST_LISTED => limit,
        Some(_) => {
            return Err(ApiError::bad_request(format!("limit must be from 0 to {MOST_LISTED}")));
        }
    };
    let activations = api.service.activations(name.as_deref(), since, skip, limit);
    Ok(Json(activations.iter().map(|activation| activation.describe()).collect()))
}

pub async fn show(
    State(api): State<Api>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.service.activation(&id).ok_or_else(ApiError::not_found)?.describe()))
}

pub async fn result(
    State(api): State<Api>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let activation = api.service.activation(&id).ok_or_else(ApiError::not_found)?;
    Ok(Json(activation.describe()["response"].take()))
}

pub async fn logs(
    State(api): State<Api>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    api.service.activation(&id).ok_or_else(ApiError::not_found)?;
    Ok(Json(json!({ "logs": [] })))
}
