//! OpenWhisk features that this daemon does not have: triggers and rules, and feeds for them.

use super::{
    Api,
    actions::{ListOptions, Page},
    error::ApiError,
};
use axum::{
    Json, Router,
    extract::{Query, rejection::QueryRejection},
    http::StatusCode,
    routing::{get, post},
};
use serde_json::Value;

/// A part of a query, if it can be read.
type Given<T> = Result<Query<T>, QueryRejection>;

/// Routes below a namespace.
pub fn router() -> Router<Api> {
    let mut router = Router::new();
    for (kind, one) in [("triggers", "trigger"), ("rules", "rule")] {
        let named = get(move || async move { not_found(one) })
            .delete(move || async move { not_found(one) })
            .put(move || async move { not_implemented(kind) })
            .post(move || async move { not_implemented(kind) });
        let list = get(move |options: Given<ListOptions>, page: Given<Page>| async move {
            nothing(kind, options, page)
        });
        // Clients list all of them before they know better.
        router = router.route(&format!("/{kind}"), list).route(&format!("/{kind}/{{name}}"), named);
    }
    router
}

/// The feed of alarms, in OpenWhisk's own namespace.
pub fn feeds() -> Router<Api> {
    let feed = post(async || not_implemented("feeds"));
    Router::new().route("/namespaces/whisk.system/actions/alarms/{feed}", feed)
}

fn nothing(
    kind: &str,
    options: Given<ListOptions>,
    page: Given<Page>,
) -> Result<Json<Value>, ApiError> {
    let (Query(options), Query(page)) = (options?, page?);
    Ok(Json(page.of(kind, Vec::new(), options)?))
}

fn not_found(one: &str) -> ApiError {
    let message = format!("There is no such {one}: this daemon has no {one}s.");
    ApiError::new(StatusCode::NOT_FOUND, message)
}

fn not_implemented(kind: &str) -> ApiError {
    let message = format!(
        "This daemon has no {kind}: it keeps no clock and hears of no events. Have cron, a systemd timer or the source of an event call an action."
    );
    ApiError::new(StatusCode::NOT_IMPLEMENTED, message)
}
