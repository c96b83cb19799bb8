//! Whose things a request is about.

use super::{Api, error::ApiError};
use crate::serve::callers::{Caller, Need, Role};
use axum::{
    Json,
    extract::{Extension, FromRequestParts, MatchedPath, Path, Request, State},
    http::request::Parts,
    middleware::Next,
    response::Response,
};
use serde_json::{Value, json};
use squeezy_openwhisk::{Namespace, QualifiedName};
use std::collections::BTreeMap;

/// The namespaces that the caller may use.
pub async fn list(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Json<Value> {
    match caller.role {
        Role::Operator => Json(json!(api.tenants.names())),
        _ => Json(json!([caller.namespace])),
    }
}

/// Puts the namespace in the path into the request's extensions. `_` is the caller's own; one that the caller may not
/// use for this is refused, whether or not it is there.
pub async fn known(
    State(api): State<Api>,
    path: MatchedPath,
    Path(parameters): Path<BTreeMap<String, String>>,
    Extension(caller): Extension<Caller>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let namespace = match parameters.get("namespace").map(String::as_str) {
        Some("_") => caller.namespace.clone(),
        Some(name) => name.parse().map_err(|_| ApiError::forbidden())?,
        None => return Err(ApiError::forbidden()),
    };
    let need = Need::of(request.method(), path.as_str());
    if !caller.may(need, &namespace) || !api.tenants.has(&namespace) {
        return Err(ApiError::forbidden());
    }
    request.extensions_mut().insert(namespace);
    Ok(next.run(request).await)
}

/// The action or package that a path names, in its namespace.
pub struct ActionName(pub QualifiedName);

impl<S: Send + Sync> FromRequestParts<S> for ActionName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<BTreeMap<String, String>>::from_request_parts(parts, state).await;
        let Path(path) = path.map_err(|error| ApiError::bad_request(error.to_string()))?;
        let name = path.get("name").ok_or_else(ApiError::not_found)?;
        let namespace = parts.extensions.get::<Namespace>().ok_or_else(ApiError::forbidden)?;
        let name = match path.get("package") {
            Some(package) => format!("{package}/{name}"),
            None => name.clone(),
        };
        Ok(Self(QualifiedName::new(namespace.clone(), &name)))
    }
}
