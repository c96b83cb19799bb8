//! The arguments of a web action, made from a request.

use super::{Export, headers, is_json, is_text};
use crate::action::Pair;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, Method, header::CONTENT_TYPE};
use mime::Mime;
use serde_json::{Map, Value};

/// The maximum number of parameters in a query or a form: as values they take many times their text.
pub const MOST_PARAMETERS: usize = 1000;

/// The arguments that only the platform sets.
const METHOD: &str = "__ow_method";
const HEADERS: &str = "__ow_headers";
const PATH: &str = "__ow_path";
const USER: &str = "__ow_user";
const BODY: &str = "__ow_body";
const QUERY: &str = "__ow_query";
const RESERVED: [&str; 6] = [METHOD, HEADERS, PATH, USER, BODY, QUERY];

/// A request to a web action.
#[derive(Clone, Copy, Debug)]
pub struct WebRequest<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its headers, without what the action may not know.
    pub headers: &'a HeaderMap,
    /// The path after the action's name.
    pub path: &'a str,
    /// What follows `?`.
    pub query: &'a str,
    /// Its content.
    pub body: &'a [u8],
    /// The namespace of a client with a key.
    pub user: Option<&'a str>,
}

/// The arguments of a call, or what is wrong with the request. Those in the body go before those in the
/// query. `own` are the action's parameters, with those of its package.
pub fn arguments(
    request: WebRequest<'_>,
    export: &Export,
    own: &[Pair],
) -> Result<Map<String, Value>, String> {
    let mut given = Map::new();
    let mut opaque = None;
    if export.raw {
        given.insert(QUERY.to_owned(), request.query.into());
        opaque = Some(content(request, true)?);
    } else {
        parameters(request.query.as_bytes(), &mut given)?;
        match content(request, false)? {
            Value::Object(body) => given.extend(body),
            Value::String(text) if text.is_empty() => {}
            body => opaque = Some(body),
        }
        let reserved = given.keys().find(|key| RESERVED.contains(&key.as_str()));
        if let Some(key) = reserved.or_else(|| export.overridden(&given, own)) {
            let key: String = key.chars().take(100).collect();
            return Err(format!("Request defines parameters that are not allowed: {key:?}."));
        }
    }
    given.extend(opaque.map(|body| (BODY.to_owned(), body)));
    given.insert(METHOD.to_owned(), request.method.as_str().to_ascii_lowercase().into());
    given.insert(HEADERS.to_owned(), headers::received(request.headers));
    given.insert(PATH.to_owned(), request.path.into());
    given.extend(request.user.map(|user| (USER.to_owned(), user.into())));
    Ok(given)
}

impl Export {
    /// The first of these arguments that is one of the action's own parameters, and not for the client to say.
    pub fn overridden<'a>(
        &self,
        arguments: &'a Map<String, Value>,
        own: &[Pair],
    ) -> Option<&'a String> {
        let is_final =
            |key: &&String| own.iter().any(|pair| pair.key == **key && !pair.value.is_null());
        let mut given = arguments.keys().filter(|key| !RESERVED.contains(&key.as_str()));
        if self.is_final && !self.raw { given.find(is_final) } else { None }
    }
}

/// The value of a body: an object with its parameters, or anything else as it is. Raw, JSON is in base64
/// like whatever is no text, as in OpenWhisk.
fn content(WebRequest { headers, body, .. }: WebRequest<'_>, raw: bool) -> Result<Value, String> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.parse().ok()).unwrap_or(mime::APPLICATION_OCTET_STREAM);
    let is = |right: Mime| kind.essence_str() == right.essence_str();
    if body.is_empty() {
        Ok(Value::String(String::new()))
    } else if is_json(&kind) && !raw {
        serde_json::from_slice(body)
            .map_err(|error| format!("The request content was malformed:\n{error}"))
    } else if is(mime::APPLICATION_WWW_FORM_URLENCODED) && !raw {
        let mut form = Map::new();
        parameters(body, &mut form)?;
        Ok(form.into())
    } else if is_text(&kind) && !is(mime::APPLICATION_JSON) {
        Ok(String::from_utf8_lossy(body).into())
    } else {
        Ok(BASE64_STANDARD.encode(body).into())
    }
}

/// Adds the parameters of a query or a form.
fn parameters(text: &[u8], to: &mut Map<String, Value>) -> Result<(), String> {
    for (number, (key, value)) in form_urlencoded::parse(text).enumerate() {
        if number == MOST_PARAMETERS {
            return Err(format!("A request may have at most {MOST_PARAMETERS} parameters."));
        }
        to.insert(key.into_owned(), value.into_owned().into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::Access;
    use http::HeaderValue;
    use serde_json::json;

    const EXPORT: Export =
        Export { raw: false, custom_options: false, access: Access::Anybody, is_final: true };

    /// The arguments for a body of this type, without those that each request has.
    fn of(export: &Export, query: &str, kind: &str, body: &[u8]) -> Result<Value, String> {
        let own = [
            Pair { key: "fixed".to_owned(), value: json!(1) },
            Pair { key: "open".to_owned(), value: Value::Null },
        ];
        let mut headers = HeaderMap::new();
        if !kind.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_str(kind).unwrap());
        }
        let request = WebRequest {
            method: &Method::POST,
            headers: &headers,
            path: "/a/b",
            query,
            body,
            user: Some("guest"),
        };
        let mut all = arguments(request, export, &own)?;
        let each = [METHOD, PATH, USER].map(|key| all.remove(key).unwrap());
        assert_eq!(each, ["post", "/a/b", "guest"]);
        assert!(all.remove(HEADERS).unwrap().is_object());
        Ok(all.into())
    }

    #[test]
    fn the_body_goes_before_the_query() {
        let json = "application/json";
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        for (query, kind, body, right) in [
            ("", "", "", json!({})),
            ("a=1&b=%20+x&a=2", "", "", json!({ "a": "2", "b": "  x" })),
            ("a=1&b=2", json, "{\"a\": [3]}", json!({ "a": [3], "b": "2" })),
            ("a=1", form, "a=3&c", json!({ "a": "3", "c": "" })),
            ("", "application/x+json", "{\"a\": 1}", json!({ "a": 1 })),
            ("", json, "[1]", json!({ "__ow_body": [1] })),
            ("open=1", "text/plain", "{}", json!({ "open": "1", "__ow_body": "{}" })),
            ("", "image/png", "\u{1}", json!({ "__ow_body": "AQ==" })),
            ("", "", "{}", json!({ "__ow_body": "e30=" })),
            ("", "no type", "{}", json!({ "__ow_body": "e30=" })),
        ] {
            assert_eq!(of(&EXPORT, query, kind, body.as_bytes()).unwrap(), right, "{kind} {body}");
        }
        assert_eq!(of(&EXPORT, "", "text/plain", b"\xff").unwrap()["__ow_body"], "\u{fffd}");
    }

    #[test]
    fn a_raw_action_gets_what_was_sent() {
        let raw = Export { raw: true, ..EXPORT };
        for (query, kind, body, right) in [
            ("", "", "", json!({ "__ow_query": "", "__ow_body": "" })),
            ("fixed=2", "application/json", "{}", {
                json!({ "__ow_query": "fixed=2", "__ow_body": "e30=" })
            }),
            ("%20", "application/x-www-form-urlencoded", "a=1", {
                json!({ "__ow_query": "%20", "__ow_body": "a=1" })
            }),
        ] {
            assert_eq!(of(&raw, query, kind, body.as_bytes()).unwrap(), right);
        }
    }

    #[test]
    fn what_the_action_relies_on_cannot_be_overridden() {
        let json = "application/json";
        for (query, body) in [
            ("__ow_user=admin", ""),
            ("", "{\"__ow_headers\": {}}"),
            ("fixed=2", ""),
            ("", "{\"fixed\": 2}"),
        ] {
            let error = of(&EXPORT, query, json, body.as_bytes()).unwrap_err();
            assert!(error.contains("not allowed: \""), "{error}");
        }
        let open = Export { is_final: false, ..EXPORT };
        assert_eq!(of(&open, "fixed=2", "", b"").unwrap(), json!({ "fixed": "2" }));
    }

    #[test]
    fn what_is_malformed_or_too_much_is_refused() {
        let error = of(&EXPORT, "", "application/json", b"{").unwrap_err();
        assert!(error.contains("malformed"), "{error}");
        let most = "a&".repeat(MOST_PARAMETERS);
        assert!(of(&EXPORT, &most, "", b"").is_ok());
        assert!(of(&EXPORT, &(most.clone() + "b"), "", b"").is_err());
        let form = "application/x-www-form-urlencoded";
        assert!(of(&EXPORT, "", form, (most + "b").as_bytes()).is_err());
    }
}
