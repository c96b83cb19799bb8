//! Packages and bindings.

use super::{
    Api, HeldForBody, MAX_BODY_BYTES,
    actions::{ListOptions, Page, PutOptions, malformed},
    error::ApiError,
    namespaces::ActionName,
    sending::Recipient,
};
use axum::{
    Json,
    body::Bytes,
    extract::{Extension, Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use serde_json::{Map, Value};
use squeezy_openwhisk::Namespace;

pub async fn list(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
    Extension(recipient): Extension<Recipient>,
    options: Result<Query<ListOptions>, QueryRejection>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (Query(options), Query(page)) = (options?, page?);
    let listed = page.of("packages", api.service.describe_packages(&namespace), options)?;
    recipient.answer(StatusCode::OK, &listed).await
}

pub async fn show(
    State(api): State<Api>,
    ActionName(name): ActionName,
    Extension(recipient): Extension<Recipient>,
) -> Result<Response, ApiError> {
    let described = api.service.describe_package(&name).ok_or_else(ApiError::not_found)?;
    recipient.answer(StatusCode::OK, &described).await
}

pub async fn put(
    State(api): State<Api>,
    ActionName(name): ActionName,
    options: Result<Query<PutOptions>, QueryRejection>,
    // What is made of the body lives until the end.
    Extension(_held): Extension<HeldForBody>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let Query(options) = options?;
    if body.len() > MAX_BODY_BYTES {
        return Err(ApiError::too_large(body.len(), MAX_BODY_BYTES));
    }
    // An array of a package's values is none.
    let body: Map<String, Value> = serde_json::from_slice(&body).map_err(malformed)?;
    let body = serde_json::from_value(body.into()).map_err(malformed)?;
    Ok(Json(api.service.put_package(name, body, options.overwrite).await?))
}

pub async fn delete(
    State(api): State<Api>,
    ActionName(name): ActionName,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.service.delete_package(name).await?))
}

/// The actions of a package.
pub async fn actions(
    State(api): State<Api>,
    ActionName(name): ActionName,
    Extension(recipient): Extension<Recipient>,
    options: Result<Query<ListOptions>, QueryRejection>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (Query(options), Query(page)) = (options?, page?);
    // As if it were one of them.
    let (package, _) = api.service.resolve(&name.inside("any"))?;
    let package = package.package().ok_or_else(ApiError::not_found)?;
    let listed = page.of("actions", api.service.in_package(&package), options)?;
    recipient.answer(StatusCode::OK, &listed).await
}
