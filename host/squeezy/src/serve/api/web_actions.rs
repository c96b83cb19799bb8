//! Web actions, which answer HTTP requests of anybody.
//!
//! Clients without the key are strangers ([`Strangers`](crate::serve::strangers::Strangers)), and they hear of an activation no more than its ID. What an action
//! sends comes from the same address as the page on which people enter the key, so it is never part of
//! that page's origin ([`SANDBOX`]).

use super::{
    Api, BodyLimits, COPIES, MAX_BODY_BYTES,
    actions::{ID_HEADER, LONGEST_WAIT},
    error::ApiError,
    internal, more_for_values, read,
    sending::Recipient,
};
use crate::serve::{
    callers::{Caller, Need},
    crowd::Place,
    key::equal,
    service::{Answered, CallOrigin, ServiceError, WebCall},
};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS, AUTHORIZATION,
            CONTENT_SECURITY_POLICY, CONTENT_TYPE, WWW_AUTHENTICATE,
        },
        request::Parts,
    },
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use squeezy_openwhisk::{
    QualifiedName, length_as_text,
    package::NO_PACKAGE,
    web::{
        Access, Export, Extension, MOST_PARAMETERS, WebAnswer, WebRequest, arguments,
        confine_cookies,
    },
};
use std::sync::Arc;

/// The path of all of them.
const PREFIX: &str = "/api/v1/web/";

/// The header with the secret that an action may require.
const SECRET_HEADER: &str = "x-require-whisk-auth";

/// What other sites may do with them, as in OpenWhisk.
const METHODS: &str = "OPTIONS, GET, DELETE, POST, PUT, HEAD, PATCH";
const HEADERS: &str = "Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent";

/// What browsers let an action's pages do: nothing with what belongs to this daemon's origin, in particular
/// the key that somebody has entered on the daemon's page.
const SANDBOX: &str = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts allow-top-navigation-by-user-activation";

/// Memory that the head of a request and what is made of it occupy, as a multiple of its length.
const COPIES_OF_HEAD: usize = 4;

/// Memory that a body and what is made of it take, as a multiple of its length: as [`COPIES`], and it may be in base64.
const COPIES_OF_BODY: usize = COPIES + 2;

/// Memory of a parameter in a query or a form besides its text, in bytes: an entry in two maps.
const BYTES_PER_PARAMETER: usize = 256;

/// The type of a form.
const FORM: &[u8] = b"application/x-www-form-urlencoded";

pub fn router() -> Router<Api> {
    let methods = MethodFilter::GET
        .or(MethodFilter::HEAD)
        .or(MethodFilter::POST)
        .or(MethodFilter::PUT)
        .or(MethodFilter::PATCH)
        .or(MethodFilter::DELETE)
        .or(MethodFilter::OPTIONS);
    let path = format!("{PREFIX}{{namespace}}/{{package}}/{{*action}}");
    Router::new().route(&path, on(methods, answer))
}

async fn answer(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let target = Target::of(&path).ok_or_else(ApiError::not_found)?;
    let action = target.action()?;
    let (_, export) = api.service.web_action(&action)?;
    let cors = (!export.custom_options).then(|| cors(&head.headers));
    let mut response = if cors.is_some() && head.method == Method::OPTIONS {
        StatusCode::OK.into_response()
    } else {
        let answer = call(&api, &action, &export, target, head, body).await;
        answer.unwrap_or_else(IntoResponse::into_response)
    };
    response.headers_mut().append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    for (name, value) in cors.into_iter().flatten() {
        // The action may have said less.
        response.headers_mut().entry(name).or_insert(value);
    }
    Ok(response)
}

/// Which action a request is for, and what it wants of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target<'a> {
    namespace: &'a str,
    package: &'a str,
    name: &'a str,
    extension: Extension,
    /// What follows the action's name.
    path: &'a str,
}

impl<'a> Target<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let mut parts = path.strip_prefix(PREFIX)?.splitn(3, '/');
        let (namespace, package, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (name, extension) = Extension::split(name);
        Some(Self { namespace, package, name, extension, path })
    }

    fn action(&self) -> Result<QualifiedName, ApiError> {
        let namespace = self.namespace.parse().map_err(|_| ApiError::not_found())?;
        Ok(match self.package {
            NO_PACKAGE => QualifiedName::new(namespace, self.name),
            package => QualifiedName::new(namespace, package).inside(self.name),
        })
    }
}

/// Lets pages of other sites use an action.
fn cors(request: &HeaderMap) -> Vec<(axum::http::HeaderName, HeaderValue)> {
    let asked = request.get(ACCESS_CONTROL_REQUEST_HEADERS);
    let allowed = asked.cloned().unwrap_or(HeaderValue::from_static(HEADERS));
    vec![
        (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
        (ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS)),
        (ACCESS_CONTROL_ALLOW_HEADERS, allowed),
    ]
}

async fn call(
    api: &Api,
    action: &QualifiedName,
    export: &Export,
    target: Target<'_>,
    mut head: Parts,
    body: Body,
) -> Result<Response, Response> {
    let caller = api.caller(&head.headers, &head.extensions).await;
    let caller = caller.map_err(IntoResponse::into_response)?;
    if caller.is_some() {
        // An action must not learn the key. Other credentials are between it and its clients.
        head.headers.remove(AUTHORIZATION);
    }
    // Whoever has a key of another namespace is a stranger here.
    let caller = caller.filter(|caller| caller.may(Need::Call, &action.namespace));
    let mut body = body;
    if !is_admitted(&export.access, &head.headers, caller.is_some()) {
        // So that it can say to another site what it may send.
        let is_question = head.method == Method::OPTIONS && export.access != Access::Nobody;
        if !is_question {
            let mut refused = ApiError::unauthorized().into_response();
            // A browser would ask for the key, and from then on send it whoever has it call the API.
            refused.headers_mut().remove(WWW_AUTHENTICATE);
            return Err(refused);
        }
        // The question, and nothing that the action would act on.
        head.uri = head.uri.path().parse().map_err(|_| ApiError::not_found().into_response())?;
        body = Body::empty();
    }
    let answer = called(api, action, export, target, head, body, caller).await;
    answer.map_err(IntoResponse::into_response)
}

fn is_admitted(access: &Access, headers: &HeaderMap, is_known: bool) -> bool {
    match access {
        Access::Anybody => true,
        Access::WithKey => is_known,
        Access::WithSecret(secret) => {
            let given = headers.get(SECRET_HEADER);
            given.is_some_and(|given| equal(given.as_bytes(), secret.as_bytes()))
        }
        Access::Nobody => false,
    }
}

async fn called(
    api: &Api,
    action: &QualifiedName,
    export: &Export,
    target: Target<'_>,
    head: Parts,
    body: Body,
    caller: Option<Caller>,
) -> Result<Response, ApiError> {
    let bodies = if caller.is_some() { &api.bodies } else { &api.strangers.bodies };
    let place = head.extensions.get::<Arc<Place>>().cloned();
    let recipient = Recipient { part: bodies.part(api.tenants.payer(&action.namespace)), place };
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let head_bytes = COPIES_OF_HEAD * length_of(&head) + BYTES_PER_PARAMETER * parameters_of(query);
    let is_form = head
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(FORM));
    let more = |body: &[u8]| {
        let of_form = if is_form { BYTES_PER_PARAMETER * parameters_of(body) } else { 0 };
        of_form + more_for_values(body).saturating_sub((COPIES_OF_BODY - COPIES) * body.len())
    };
    let limits = BodyLimits { most: MAX_BODY_BYTES, head_bytes, copies: COPIES_OF_BODY };
    let (body, held) = read(&recipient, body, limits, more).await?;
    if caller.as_ref().is_some_and(|caller| !api.tenants.knows(caller)) {
        return Err(ApiError::forbidden());
    }
    // Much may have happened to it while the body came.
    let (callee, now) = api.service.web_action(action)?;
    if now != *export {
        return Err(ApiError::not_found());
    }

    let own = callee.parameters();
    let request = WebRequest {
        method: &head.method,
        headers: &head.headers,
        path: target.path,
        query: head.uri.query().unwrap_or_default(),
        body: &body,
        user: caller.as_ref().map(|caller| caller.namespace.as_str()),
    };
    let arguments = arguments(request, export, &own).map_err(ApiError::bad_request)?;
    let length =
        length_as_text(&arguments).map_err(internal)? + length_as_text(&own).map_err(internal)?;
    if length > MAX_BODY_BYTES {
        return Err(ApiError::too_large(length, MAX_BODY_BYTES));
    }
    let address = &head.uri.path()[..head.uri.path().len() - target.path.len()];
    let address = address.to_owned();
    drop((body, head));

    let stranger = match caller {
        Some(_) => None,
        None => {
            let queue = api.service.config().queue;
            let portion = api.tenants.payer(&callee.name().namespace).portion;
            let place = api.strangers.call(callee.name(), portion, queue);
            Some(place.ok_or(ServiceError::Busy)?)
        }
    };
    let web = Some(WebCall { export: export.clone(), stranger });
    let origin = CallOrigin { web, ..CallOrigin::default() };
    let id = api.service.new_id()?;
    let (accepted, call) = api.service.call(
        callee,
        id.clone(),
        arguments,
        origin,
        held.map(Arc::new),
        recipient.part.clone(),
    );
    drop(accepted);
    let id_header = [(ID_HEADER, id)];
    let Answered { activation, held } = match tokio::time::timeout(LONGEST_WAIT, call).await {
        Ok(Ok(answered)) => answered?,
        Ok(Err(_)) => {
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "an internal error"));
        }
        Err(_) => {
            let later = ApiError::new(StatusCode::ACCEPTED, "Response is not yet ready.");
            return Ok((id_header, later).into_response());
        }
    };
    Ok(match WebAnswer::of(&activation, target.extension) {
        Ok(WebAnswer { status, mut headers, body }) => {
            confine_cookies(&mut headers, &address);
            drop(activation);
            let body = match held {
                Some(mut held) => {
                    held.shrink_to(body.len());
                    recipient.body(body, held)
                }
                // A few words about what went wrong.
                None => Body::from(body),
            };
            (status, headers, id_header, body).into_response()
        }
        Err(error) => (id_header, ApiError::new(error.status, error.message)).into_response(),
    })
}

/// How many parameters are made of a query or a form at most.
fn parameters_of(text: &[u8]) -> usize {
    text.split(|byte| *byte == b'&').filter(|one| !one.is_empty()).count().min(MOST_PARAMETERS + 1)
}

/// How long the head of a request is, in bytes, about.
fn length_of(head: &Parts) -> usize {
    let headers = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    head.uri.path().len() + head.uri.query().map_or(0, str::len) + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{bodies::Portion, service::tests::service, strangers::Strangers};
    use std::time::Duration;

    #[test]
    fn an_address_names_an_action_and_a_part_of_its_result() {
        let target = |path| Target::of(path).map(|t| (t.namespace, t.name, t.extension, t.path));
        for (path, right) in [
            ("/api/v1/web/guest/default/f", ("guest", "f", Extension::Http, "")),
            ("/api/v1/web/guest/default/f.json", ("guest", "f", Extension::Json, "")),
            (
                "/api/v1/web/guest/default/f.html/a/b%20c/",
                ("guest", "f", Extension::Html, "/a/b%20c/"),
            ),
            ("/api/v1/web/guest/default/f/x.json", ("guest", "f", Extension::Http, "/x.json")),
        ] {
            assert_eq!(target(path), Some(right));
        }
        assert_eq!(target("/api/v1/web/guest/default"), None);
        let action = |path| Target::of(path).unwrap().action().unwrap().to_string();
        assert_eq!(action("/api/v1/web/acme/p/f.json"), "/acme/p/f");
        for none in ["/api/v1/web//default/f", "/api/v1/web/_/default/f"] {
            assert!(Target::of(none).unwrap().action().is_err(), "{none}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn a_stranger_s_call_has_its_place_until_it_ends() {
        let (service, _hold, _directory) = service().await;
        let web = r#"{ "annotations": [{ "key": "web-export", "value": true }] }"#;
        let name = QualifiedName::guest("f");
        let web = serde_json::from_str(web).unwrap();
        service.put_action(name.clone(), web, None, true, ()).await.unwrap();
        let (bodies, strangers) = (service.bodies.clone(), Strangers::new(16 << 20));
        let api = Api { tenants: service.tenants.clone(), service, bodies, strangers };
        let ask = || {
            let request = Request::get("/api/v1/web/guest/default/f").body(Body::empty());
            answer(State(api.clone()), request.unwrap())
        };
        // It waits for a VM that does not boot, and its client goes away.
        let gone = tokio::time::timeout(Duration::from_secs(1), ask()).await;
        assert!(gone.is_err());
        let mine = || api.strangers.call(&name, Portion::All, 2);
        assert!(mine().is_none());
        let refused = ask().await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        api.service.delete_action(name.clone()).await.unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while mine().is_none() {
            assert!(std::time::Instant::now() < until, "it has ended");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[test]
    fn each_parameter_is_counted() {
        for (text, right) in [("", 0), ("a", 1), ("a=1&b&&c=", 3)] {
            assert_eq!(parameters_of(text.as_bytes()), right, "{text}");
        }
        assert_eq!(parameters_of("a&".repeat(1 << 20).as_bytes()), MOST_PARAMETERS + 1);
    }

    #[test]
    fn who_has_not_what_is_required_is_not_admitted() {
        let with = |secret: &'static str| {
            HeaderMap::from_iter([(
                SECRET_HEADER.parse().unwrap(),
                HeaderValue::from_static(secret),
            )])
        };
        let secret = Access::WithSecret("open".to_owned());
        assert!(is_admitted(&Access::Anybody, &HeaderMap::new(), false));
        assert!(is_admitted(&Access::WithKey, &HeaderMap::new(), true));
        assert!(is_admitted(&secret, &with("open"), false));
        assert!(!is_admitted(&Access::WithKey, &with("open"), false));
        assert!(!is_admitted(&secret, &HeaderMap::new(), true));
        assert!(!is_admitted(&secret, &with("closed"), true));
        assert!(!is_admitted(&Access::Nobody, &with(""), true));
    }
}
