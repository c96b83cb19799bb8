//! Activations: results and logs of calls.

use super::{Api, actions::Page, error::ApiError, sending::Recipient};
use crate::serve::bodies::Held;
use axum::{
    extract::{Extension, Path, Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use squeezy_openwhisk::{Namespace, activation::Activation};
use squeezy_store::{Found, Selection};
use std::sync::Arc;

/// What an activation takes without its result and logs, about, in bytes.
const HEAD_BYTES: usize = 1 << 10;

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
    Extension(namespace): Extension<Namespace>,
    Extension(recipient): Extension<Recipient>,
    options: Result<Query<ListOptions>, QueryRejection>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (Query(options), Query(page)) = (options?, page?);
    let limit = page.limit()?;
    let ListOptions { name, since, upto, count, docs } = options;
    let action = name.filter(|name| !name.trim().is_empty());
    let selection = Selection { namespace, action, since_ms: since, upto_ms: upto };
    if count && docs {
        return Err(ApiError::bad_request("The parameter 'docs' cannot be combined with 'count'."));
    }
    let store = &api.service.store;
    if count {
        let count = store.count(&selection).await?.saturating_sub(page.skip());
        return recipient.answer(StatusCode::OK, &json!({ "activations": count })).await;
    }
    let mut found = store.list(&selection, page.skip(), limit).await?;
    if !docs {
        let all: Vec<_> = found.iter().map(|found| found.activation.summary()).collect();
        return recipient.answer(StatusCode::OK, &all).await;
    }
    // A list ends where there is no memory for more; the client gets the rest with `skip`.
    let (most, mut sum) = (recipient.part.most_for_answers(), 0);
    let fits = |found: &&Found| {
        sum += bytes(found);
        sum <= most
    };
    let count = found.iter().take_while(fits).count().max(1);
    found.truncate(count);
    let (all, held) = load(&api, &recipient, found).await?;
    let all: Vec<_> = all.iter().map(|activation| activation.describe()).collect();
    recipient.answer_within(held, StatusCode::OK, &all)
}

pub async fn show(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
    Extension(recipient): Extension<Recipient>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (activation, held) = find(&api, &recipient, &namespace, &id).await?;
    recipient.answer_within(held, StatusCode::OK, &activation.describe())
}

pub async fn result(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
    Extension(recipient): Extension<Recipient>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (activation, held) = find(&api, &recipient, &namespace, &id).await?;
    recipient.answer_within(held, StatusCode::OK, &activation.response())
}

pub async fn logs(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
    Extension(recipient): Extension<Recipient>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    #[derive(Serialize)]
    struct Logs<'a> {
        logs: &'a [String],
    }
    let (activation, held) = find(&api, &recipient, &namespace, &id).await?;
    recipient.answer_within(held, StatusCode::OK, &Logs { logs: &activation.logs })
}

async fn find(
    api: &Api,
    recipient: &Recipient,
    namespace: &Namespace,
    id: &str,
) -> Result<(Arc<Activation>, Held), ApiError> {
    let found = api.service.store.find(namespace, id).await?.ok_or_else(ApiError::not_found)?;
    let (mut all, held) = load(api, recipient, vec![found]).await?;
    // It may have been removed in the meantime.
    Ok((all.pop().ok_or_else(ApiError::not_found)?, held))
}

/// Reads results and logs, after reserving memory for them and for the response.
async fn load(
    api: &Api,
    Recipient { part, .. }: &Recipient,
    found: Vec<Found>,
) -> Result<(Vec<Arc<Activation>>, Held), ApiError> {
    let bytes = found.iter().map(bytes).sum();
    let held = part.take_for_answer(part.at_most(bytes)).await;
    let held = held.map_err(|none| ApiError::no_room(none, bytes))?;
    Ok((api.service.store.load(found).await?, held))
}

/// The memory that an activation takes, as values and as text, in bytes.
fn bytes(found: &Found) -> usize {
    2 * found.size + HEAD_BYTES
}
