//! Activations: results and logs of calls.

use super::{Api, actions::Part, error::ApiError};
use crate::serve::activations::Selection;
use axum::{
    extract::{Path, Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use squeezy_openwhisk::activation::Activation;
use std::sync::Arc;

/// Selects activations, and how much of each to return.
#[derive(Deserialize)]
pub struct ListOptions {
    /// Only of this action.
    name: Option<String>,
    /// Only from this time on, in milliseconds since 1970.
    since: Option<i64>,
    /// Only up to this time, in milliseconds since 1970.
    upto: Option<i64>,
    /// Return their number instead.
    #[serde(default)]
    count: bool,
    /// Include results and logs.
    #[serde(default)]
    docs: bool,
}

pub async fn list(
    State(api): State<Api>,
    options: Result<Query<ListOptions>, QueryRejection>,
    part: Result<Query<Part>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (Query(options), Query(part)) = (options?, part?);
    let limit = part.limit()?;
    let ListOptions { name, since, upto, count, docs } = options;
    let action = name.filter(|name| !name.trim().is_empty());
    let selection = Selection { action, since_ms: since, upto_ms: upto };
    if count && docs {
        return Err(ApiError::bad_request("The parameter 'docs' cannot be combined with 'count'."));
    }
    if count {
        let count = api.service.count_activations(&selection).saturating_sub(part.skip());
        return api.answer(StatusCode::OK, &json!({ "activations": count })).await;
    }
    let activations = api.service.activations(&selection, part.skip(), limit);
    let all = activations.iter();
    if docs {
        let all: Vec<_> = all.map(|activation| activation.describe()).collect();
        return api.answer(StatusCode::OK, &all).await;
    }
    let all: Vec<_> = all.map(|activation| activation.summary()).collect();
    api.answer(StatusCode::OK, &all).await
}

pub async fn show(
    State(api): State<Api>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    api.answer(StatusCode::OK, &find(&api, &id)?.describe()).await
}

pub async fn result(
    State(api): State<Api>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    api.answer(StatusCode::OK, &find(&api, &id)?.response()).await
}

pub async fn logs(
    State(api): State<Api>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    #[derive(Serialize)]
    struct Logs<'a> {
        logs: &'a [String],
    }
    api.answer(StatusCode::OK, &Logs { logs: &find(&api, &id)?.logs }).await
}

fn find(api: &Api, id: &str) -> Result<Arc<Activation>, ApiError> {
    api.service.activation(id).ok_or_else(ApiError::not_found)
}
