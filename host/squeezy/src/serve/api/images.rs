//! Images from registries.

use super::{Api, actions::malformed, error::ApiError};
use axum::{
    Json,
    body::Bytes,
    extract::{Extension, Path, State},
};
use serde::Deserialize;
use serde_json::Value;
use squeezy_openwhisk::Namespace;

pub async fn list(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
) -> Json<Value> {
    Json(api.service.describe_images(&namespace).into())
}

/// What a client wants to have pulled.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    image: String,
}

pub async fn pull(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let Wanted { image } = serde_json::from_slice(&body).map_err(malformed)?;
    drop(body);
    Ok(Json(api.service.pull_image(namespace, &image).await?))
}

pub async fn show(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
    Path((_, image)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.service.describe_image(&namespace, &image)?))
}

pub async fn remove(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
    Path((_, image)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.service.remove_image(&namespace, &image).await?))
}
