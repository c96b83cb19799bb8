//! Namespaces and their keys, which the operator manages. OpenWhisk has no API for this.

use super::{Api, error::ApiError};
use crate::serve::{
    callers::{Caller, Need, Role},
    tenants::{KeyName, NamespaceChange},
};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{Extension, Path, Query, Request, State, rejection::QueryRejection},
    http::StatusCode,
    middleware::{self, Next},
    response::Response,
    routing::{get, put},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use squeezy_openwhisk::Namespace;

/// Routes of a namespace itself.
pub fn router() -> Router<Api> {
    let managing = Router::new()
        .route("/namespaces/{namespace}", put(create).delete(delete))
        .route("/namespaces/{namespace}/keys", get(list_keys))
        .route("/namespaces/{namespace}/keys/{key}", put(create_key).delete(revoke))
        .route_layer(middleware::from_fn(operator_only));
    Router::new()
        .route("/namespaces/{namespace}", get(show))
        .route("/namespaces/{namespace}/usage", get(usage))
        .merge(managing)
}

async fn operator_only(
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if caller.role.may(Need::Operate) {
        Ok(next.run(request).await)
    } else {
        Err(ApiError::forbidden())
    }
}

/// The namespace that a path names; `_` is the caller's own.
fn named(caller: &Caller, name: &str) -> Result<Namespace, ApiError> {
    match name {
        "_" => Ok(caller.namespace.clone()),
        name => name.parse().map_err(|error: String| ApiError::bad_request(error)),
    }
}

async fn show(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let namespace = named(&caller, &name).map_err(|_| ApiError::forbidden())?;
    if !caller.may(Need::Read, &namespace) {
        return Err(ApiError::forbidden());
    }
    Ok(Json(api.tenants.describe(&namespace)?))
}

async fn usage(
    api: State<Api>,
    caller: Extension<Caller>,
    name: Path<String>,
) -> Result<Json<Value>, ApiError> {
    let Json(mut described) = show(api, caller, name).await?;
    Ok(Json(described["usage"].take()))
}

/// Whether a namespace that exists is changed.
#[derive(Deserialize)]
struct CreateOptions {
    #[serde(default)]
    overwrite: bool,
}

async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    options: Result<Query<CreateOptions>, QueryRejection>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let Query(options) = options?;
    let namespace = named(&caller, &name)?;
    let change: NamespaceChange = read_body(&body)?;
    let status = if options.overwrite && api.tenants.has(&namespace) {
        api.service.change_namespace(&namespace, change).await?;
        StatusCode::OK
    } else {
        api.service.create_namespace(&namespace, change).await?;
        StatusCode::CREATED
    };
    Ok((status, Json(api.tenants.describe(&namespace)?)))
}

/// Reads a body that may be absent.
fn read_body<T: Default + DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(super::actions::malformed)
}

#[derive(Deserialize)]
struct DeleteOptions {
    #[serde(default)]
    force: bool,
}

async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    options: Result<Query<DeleteOptions>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(options) = options?;
    let namespace = named(&caller, &name)?;
    Ok(Json(api.service.delete_namespace(namespace, options.force).await?))
}

async fn list_keys(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let namespace = named(&caller, &name)?;
    api.tenants.describe(&namespace)?;
    Ok(Json(api.tenants.keys(&namespace).into()))
}

/// What a key is to be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    role: Role,
}

impl Default for KeyBody {
    fn default() -> Self {
        Self { role: Role::Change }
    }
}

async fn create_key(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((namespace, name)): Path<(String, String)>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let (namespace, name) = (named(&caller, &namespace)?, key_name(name)?);
    let KeyBody { role } = read_body(&body)?;
    let new = api.tenants.create_key(&namespace, name.clone(), role).await?;
    let mut described = new.entry().describe(&name);
    described["key"] = json!(new.text);
    Ok((StatusCode::CREATED, Json(described)))
}

async fn revoke(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let (namespace, name) = (named(&caller, &namespace)?, key_name(name)?);
    api.tenants.revoke(&namespace, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn key_name(name: String) -> Result<KeyName, ApiError> {
    KeyName::try_from(name).map_err(ApiError::bad_request)
}
