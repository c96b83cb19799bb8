//! Actions, and calls of them.

use super::{Api, error::ApiError};
use crate::serve::{
    action::ActionBody,
    activation::{Activation, Status},
};
use axum::{
    Json,
    body::Bytes,
    extract::{
        Path, Query, State,
        rejection::{BytesRejection, JsonRejection, QueryRejection},
    },
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};

/// Most entries of a list.
pub const MOST_LISTED: usize = 200;

/// How long a blocking call is waited for, at most; then the client gets its id.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Which part of a list.
#[derive(Deserialize)]
pub struct Part {
    #[serde(default)]
    skip: usize,
    limit: Option<usize>,
}

impl Part {
    pub fn skip(&self) -> usize {
        self.skip
    }

    /// As many as were asked for; 0 is as many as there may be.
    pub fn limit(&self) -> Result<usize, ApiError> {
        match self.limit {
            None => Ok(30),
            Some(0) => Ok(MOST_LISTED),
            Some(limit) if limit <= MOST_LISTED => Ok(limit),
            Some(_) => Err(ApiError::bad_request(format!("limit must be from 0 to {MOST_LISTED}"))),
        }
    }
}

pub async fn list(
    State(api): State<Api>,
    part: Result<Query<Part>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(part) = part?;
    let actions = api.service.actions();
    let shown = actions.iter().skip(part.skip()).take(part.limit()?);
    Ok(Json(shown.map(|action| action.describe()).collect()))
}

pub async fn show(
    State(api): State<Api>,
    Path((_, name)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.service.action(&name).ok_or_else(ApiError::not_found)?.describe()))
}

/// How to make an action.
#[derive(Deserialize)]
pub struct PutOptions {
    #[serde(default)]
    overwrite: bool,
}

pub async fn put(
    State(api): State<Api>,
    Path((_, name)): Path<(String, String)>,
    options: Result<Query<PutOptions>, QueryRejection>,
    body: Result<Json<ActionBody>, JsonRejection>,
) -> Result<Json<Value>, ApiError> {
    let (Query(options), Json(body)) = (options?, body?);
    Ok(Json(api.service.put_action(name, body, options.overwrite).await?.describe()))
}

pub async fn delete(
    State(api): State<Api>,
    Path((_, name)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.service.delete_action(&name).await?.describe()))
}

/// How to call an action.
#[derive(Deserialize)]
pub struct InvokeOptions {
    #[serde(default)]
    blocking: bool,
    #[serde(default)]
    result: bool,
    /// How long to wait, in milliseconds.
    timeout: Option<u64>,
}

pub async fn invoke(
    State(api): State<Api>,
    Path((_, name)): Path<(String, String)>,
    options: Result<Query<InvokeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let Query(options) = options?;
    let arguments = arguments(&body?)?;
    let wait = match options.timeout.map(Duration::from_millis) {
        Some(wait) if wait <= LONGEST_WAIT => wait,
        Some(_) => return Err(ApiError::bad_request("timeout must be from 0 to 60000 ms")),
        None => LONGEST_WAIT,
    };
    let action = api.service.action(&name).ok_or_else(ApiError::not_found)?;
    let id = api.service.new_id()?;
    let accepted = (StatusCode::ACCEPTED, Json(json!({ "activationId": id }))).into_response();
    let call = api.service.call(action, id, arguments);
    if !options.blocking {
        return Ok(accepted);
    }
    match tokio::time::timeout(wait, call).await {
        Ok(Ok(Ok(activation))) => Ok(answer(&activation, options.result)),
        Ok(Ok(Err(error))) => Err(error.into()),
        Ok(Err(_)) => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "an internal error")),
        Err(_) => Ok(accepted),
    }
}

/// The arguments of a call: an object, or nothing.
fn arguments(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(ApiError::bad_request("The request content was malformed:\nno JSON object")),
        Err(error) => {
            Err(ApiError::bad_request(format!("The request content was malformed:\n{error}")))
        }
    }
}

fn answer(activation: &Arc<Activation>, result_only: bool) -> Response {
    let status = match activation.status {
        Status::Success => StatusCode::OK,
        Status::ApplicationError | Status::DeveloperError => StatusCode::BAD_GATEWAY,
        Status::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = if result_only { activation.result.clone() } else { activation.describe() };
    (status, [("x-openwhisk-activation-id", activation.id.clone())], Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_or_nothing() {
        assert!(arguments(b" \n").unwrap().is_empty());
        assert_eq!(arguments(b"{\"a\": 1}").unwrap()["a"], 1);
        for wrong in ["[]", "1", "{", "{\"a\": 1} 2", "\u{0}"] {
            assert!(arguments(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
