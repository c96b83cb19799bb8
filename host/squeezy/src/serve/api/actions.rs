//! Actions and their invocation.

use super::{
    Api, HeldForBody, MAX_BODY_BYTES,
    error::ApiError,
    namespaces::ActionName,
    put,
    sending::{Recipient, Source},
    upload::Uploaded,
};
use crate::serve::{
    blobs::blocking,
    code::{ActionCode, CodeLiteral},
    failure_reasons::without_directories,
    log::log_warning,
    service::{Answered, CallOrigin},
};
use axum::{
    Json,
    body::Bytes,
    extract::{Extension, Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use squeezy_node::TraceContext;
use squeezy_openwhisk::{
    Namespace,
    activation::{Activation, Status},
};
use std::{io, time::Duration};

/// The maximum number of entries in a list.
const MOST_LISTED: usize = 200;

/// How long a blocking call waits; after that the client gets the activation's id.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What an answer with code takes of memory while it is sent, in bytes: a few pieces of it.
const MOST_SENDING_BYTES: usize = 1 << 20;

/// The response header with the activation's id.
pub const ID_HEADER: &str = "x-openwhisk-activation-id";

/// Selects a page of a list.
#[derive(Deserialize)]
pub struct Page {
    #[serde(default)]
    skip: u32,
    limit: Option<usize>,
}

impl Page {
    /// How many entries to skip.
    pub fn skip(&self) -> usize {
        self.skip as usize
    }

    /// How many entries to return; 0 requests the maximum.
    pub fn limit(&self) -> Result<usize, ApiError> {
        match self.limit {
            None => Ok(30),
            Some(0) => Ok(MOST_LISTED),
            Some(limit) if limit <= MOST_LISTED => Ok(limit),
            Some(_) => Err(ApiError::bad_request(format!("limit must be from 0 to {MOST_LISTED}"))),
        }
    }

    /// This page of a list of `kind`, or how many there are from there on.
    pub fn of(&self, kind: &str, all: Vec<Value>, options: ListOptions) -> Result<Value, ApiError> {
        let limit = self.limit()?;
        if options.count {
            return Ok(json!({ kind: all.len().saturating_sub(self.skip()) }));
        }
        Ok(all.into_iter().skip(self.skip()).take(limit).collect())
    }
}

/// Whether to return the number of entries instead of the entries.
#[derive(Deserialize)]
pub struct ListOptions {
    #[serde(default)]
    pub count: bool,
}

pub async fn list(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
    Extension(recipient): Extension<Recipient>,
    options: Result<Query<ListOptions>, QueryRejection>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (Query(options), Query(page)) = (options?, page?);
    let listed = page.of("actions", api.service.describe_actions(&namespace), options)?;
    recipient.answer(StatusCode::OK, &listed).await
}

/// Whether to return an action's code too.
#[derive(Deserialize)]
pub struct ShowOptions {
    code: Option<bool>,
}

pub async fn show(
    State(api): State<Api>,
    ActionName(name): ActionName,
    Extension(recipient): Extension<Recipient>,
    options: Result<Query<ShowOptions>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(options) = options?;
    let described = api.service.describe_action(&name).ok_or_else(ApiError::not_found)?;
    let (name, _) = api.service.resolve(&name)?;
    let action = api.service.action(&name).filter(|_| options.code != Some(false));
    match action.and_then(|action| action.code.clone()) {
        Some(code) => with_code(&recipient, described, code).await,
        None => recipient.answer(StatusCode::OK, &described).await,
    }
}

/// An action with its code, which is read while it is sent.
async fn with_code(
    recipient: &Recipient,
    mut described: Value,
    code: ActionCode,
) -> Result<Response, ApiError> {
    let internal = |error: &dyn std::fmt::Display| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, without_directories(&error.to_string()))
    };
    let exec = described.as_object_mut().and_then(|action| action.remove("exec"));
    let (exec, rest) = (exec.unwrap_or_default().to_string(), described.to_string());
    // What has been read and what is being sent; in base64 it is a third longer.
    let length = code.bytes().map_err(|error| internal(&error))?;
    let length = usize::try_from(length).unwrap_or(usize::MAX).saturating_mul(2);
    let around = exec.len() + rest.len();
    let bytes = recipient.part.at_most(length.min(MOST_SENDING_BYTES) + around);
    let held = recipient.part.take_for_answer(bytes).await;
    let held = held.map_err(|none| ApiError::no_room(none, bytes))?;
    let literal = blocking(move || CodeLiteral::open(code)).await;
    let literal = literal.map_err(|error| internal(&error))?;
    let before = format!("{{\"exec\":{},\"code\":", exec.trim_end_matches('}'));
    let after = format!("}},{}", rest.trim_start_matches('{'));
    let body = WithCode { before: Some(before), literal: Some(literal), after: Some(after) };
    let kind = [(CONTENT_TYPE, "application/json")];
    Ok((kind, recipient.stream(body, length.saturating_add(around), held)).into_response())
}

/// The text of an action with its code.
struct WithCode {
    before: Option<String>,
    literal: Option<CodeLiteral>,
    after: Option<String>,
}

impl Source for WithCode {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(before) = self.before.take() {
            return Ok(Some(before.into_bytes()));
        }
        if let Some(literal) = &mut self.literal {
            match literal.next_piece() {
                Ok(Some(piece)) => return Ok(Some(piece)),
                Ok(None) => self.literal = None,
                Err(error) => {
                    log_warning(&format!("code cannot be sent: {error}"));
                    return Err(io::Error::other(error));
                }
            }
        }
        Ok(self.after.take().map(String::into_bytes))
    }
}

/// Query parameters for creating an action or a package.
#[derive(Deserialize)]
pub struct PutOptions {
    #[serde(default)]
    pub overwrite: bool,
}

pub async fn put(
    State(api): State<Api>,
    ActionName(name): ActionName,
    options: Result<Query<PutOptions>, QueryRejection>,
    Extension(held): Extension<HeldForBody>,
    Extension(uploaded): Extension<Uploaded>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let Query(options) = options?;
    let (action, code) = put::read(&body, uploaded.take())?;
    drop(body);
    // It need not wait for the action's change.
    let turn = held.as_ref().and_then(|held| held.take_turn());
    let code = code.map(|code| code.in_turn(turn));
    Ok(Json(api.service.put(name, action, code, options.overwrite, held).await?))
}

pub async fn delete(
    State(api): State<Api>,
    ActionName(name): ActionName,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.service.delete_action(name).await?))
}

/// Query parameters for an invocation.
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
    ActionName(name): ActionName,
    options: Result<Query<InvokeOptions>, QueryRejection>,
    Extension(held): Extension<HeldForBody>,
    Extension(recipient): Extension<Recipient>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let Query(options) = options?;
    let (arguments, length) = (arguments(&body)?, body.len());
    drop(body);
    let wait = match options.timeout.map(Duration::from_millis) {
        Some(wait) if !wait.is_zero() && wait <= LONGEST_WAIT => wait,
        Some(_) => return Err(ApiError::bad_request("timeout must be from 1 to 60000 ms")),
        None => LONGEST_WAIT,
    };
    let callee = api.service.callee(&name).await?;
    // The limit applies to the payload that results from merging them with the action's and its packages' own.
    let own = match callee.parameters() {
        own if own.is_empty() => 0,
        own => json!(own).to_string().len(),
    };
    if length + own > MAX_BODY_BYTES {
        return Err(ApiError::too_large(length + own, MAX_BODY_BYTES));
    }
    let id = api.service.new_id()?;
    let later =
        (StatusCode::ACCEPTED, [(ID_HEADER, id.clone())], Json(json!({ "activationId": id })));
    let origin = CallOrigin { span: caller(&headers), web: None };
    let (accepted, call) =
        api.service.call(callee, id, arguments, origin, held, recipient.part.clone());
    if options.blocking {
        drop(accepted);
    } else if accepted.await.is_ok() {
        return Ok(later.into_response());
    }
    match tokio::time::timeout(wait, call).await {
        // If there is no memory for the response, the client can still ask for it later.
        Ok(Ok(Ok(Answered { activation, held }))) => {
            // The response has a reservation of its own. Those who hold one never wait for another.
            drop(held);
            Ok(answer(&recipient, &activation, options.result)
                .await
                .unwrap_or(later.into_response()))
        }
        Ok(Ok(Err(error))) => Err(error.into()),
        Ok(Err(_)) => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "an internal error")),
        Err(_) => Ok(later.into_response()),
    }
}

/// The caller's span, if it says so as W3C wants it.
fn caller(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let mut parents = headers.get_all("traceparent").iter();
    let (Some(parent), None) = (parents.next().and_then(text), parents.next()) else { return None };
    let states: Option<Vec<_>> = headers.get_all("tracestate").iter().map(text).collect();
    TraceContext::parse(&parent, &states.unwrap_or_default().join(","))
}

/// The arguments of a call: a JSON object, or an empty body.
fn arguments(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(malformed("not a JSON object")),
        Err(error) => Err(malformed(error)),
    }
}

pub fn malformed(error: impl std::fmt::Display) -> ApiError {
    ApiError::bad_request(format!("The request content was malformed:\n{error}"))
}

async fn answer(
    recipient: &Recipient,
    activation: &Activation,
    result_only: bool,
) -> Result<Response, ApiError> {
    let status = match activation.status {
        Status::Success => StatusCode::OK,
        Status::ApplicationError | Status::DeveloperError => StatusCode::BAD_GATEWAY,
        Status::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let answer = if result_only {
        recipient.answer(status, &activation.result).await?
    } else {
        recipient.answer(status, &activation.describe()).await?
    };
    Ok(([(ID_HEADER, activation.id.clone())], answer).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{bodies::Payer, service::tests::service, strangers::Strangers};
    use squeezy_openwhisk::QualifiedName;

    #[test]
    fn a_page_of_a_list_or_its_number_has_a_limit_that_is_checked() {
        let list = |skip, limit, count| {
            let all = (0..40).map(Value::from).collect();
            let page = Page { skip, limit }.of("things", all, ListOptions { count });
            page.map_err(|error| error.into_response().status())
        };
        assert_eq!(list(38, None, false), Ok(json!([38, 39])));
        assert_eq!(list(0, Some(1), false), Ok(json!([0])));
        assert_eq!(list(30, Some(1), true), Ok(json!({ "things": 10 })));
        assert_eq!(list(41, Some(0), true), Ok(json!({ "things": 0 })));
        for count in [false, true] {
            assert_eq!(list(0, Some(MOST_LISTED + 1), count), Err(StatusCode::BAD_REQUEST));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn who_does_not_wait_hears_whether_the_call_was_taken() {
        let (service, _hold, _directory) = service().await;
        let (bodies, strangers) = (service.bodies.clone(), Strangers::new(16 << 20));
        let api = Api { tenants: service.tenants.clone(), service, bodies, strangers };
        let call = |blocking, timeout| {
            let path = ActionName(QualifiedName::guest("f"));
            let options = Query(InvokeOptions { blocking, result: false, timeout });
            let part = api.bodies.part(Payer::alone());
            let recipient = Extension(Recipient { part, place: None });
            let (headers, body) = (HeaderMap::new(), Bytes::new());
            invoke(State(api.clone()), path, Ok(options), Extension(None), recipient, headers, body)
        };
        let error = call(true, Some(0)).await.unwrap_err().into_response();
        assert_eq!(error.status(), StatusCode::BAD_REQUEST);
        let taken = call(false, None).await.unwrap();
        assert_eq!(taken.status(), StatusCode::ACCEPTED);
        assert!(taken.headers().contains_key(ID_HEADER));
        for blocking in [false, true] {
            let refused = call(blocking, None).await.unwrap_err().into_response();
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(refused.headers()["retry-after"], "1");
        }
    }

    #[test]
    fn the_callers_span_is_read_if_it_is_said_once() {
        const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut headers = HeaderMap::new();
        assert_eq!(caller(&headers), None);
        headers.insert("traceparent", HeaderValue::from_static(PARENT));
        headers.append("tracestate", HeaderValue::from_static("a=1"));
        headers.append("tracestate", HeaderValue::from_static("b=2"));
        let context = caller(&headers).unwrap();
        assert_eq!(
            (context.to_string().as_str(), context.state.as_deref()),
            (PARENT, Some("a=1,b=2"))
        );
        headers.append("traceparent", HeaderValue::from_static(PARENT));
        assert_eq!(caller(&headers), None);
    }

    #[test]
    fn arguments_are_an_object_or_nothing() {
        assert!(arguments(b" \n").unwrap().is_empty());
        assert_eq!(arguments(b"{\"a\": 1}").unwrap()["a"], 1);
        for wrong in ["[]", "1", "{", "{\"a\": 1} 2", "\u{0}"] {
            assert!(arguments(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
