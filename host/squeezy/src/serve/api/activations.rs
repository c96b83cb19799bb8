//! What came of calls.

use super::{Api, actions::Part, error::ApiError};
use crate::serve::activation::{Activation, Selection};
use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Which activations, and how much of each.
#[derive(Deserialize)]
pub struct ListOptions {
    /// Of this action.
    name: Option<String>,
    /// Not older than this, in milliseconds since 1970.
    since: Option<i64>,
    /// Not newer than this.
    upto: Option<i64>,
    /// Their number instead of them.
    #[serde(default)]
    count: bool,
    /// With results and logs.
    #[serde(default)]
    docs: bool,
}

pub async fn list(
    State(api): State<Api>,
    options: Result<Query<ListOptions>, QueryRejection>,
    part: Result<Query<Part>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let (Query(options), Query(part)) = (options?, part?);
    let limit = part.limit()?;
    let ListOptions { name, since, upto, count, docs } = options;
    let action = name.filter(|name| !name.trim().is_empty());
    let selection = Selection { action, since_ms: since, upto_ms: upto };
    if count && docs {
        return Err(ApiError::bad_request("The parameter 'docs' is not possible with 'count'."));
    }
    if count {
        let count = api.service.count_activations(&selection).saturating_sub(part.skip());
        return Ok(Json(json!({ "activations": count })));
    }
    let activations = api.service.activations(&selection, part.skip(), limit);
    let describe = if docs { Activation::describe } else { Activation::summary };
    Ok(Json(activations.iter().map(|activation| describe(activation)).collect()))
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
    let activation = api.service.activation(&id).ok_or_else(ApiError::not_found)?;
    Ok(Json(json!({ "logs": activation.logs })))
}
