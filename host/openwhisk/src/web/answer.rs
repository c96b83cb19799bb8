//! The answer of a web action, made from its result.

use super::{Extension, headers, is_json, is_text};
use crate::activation::{Activation, Status};
use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_TYPE, HeaderName},
};
use mime::Mime;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// Base64, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAnswer {
    /// Its status, of at least 200.
    pub status: StatusCode,
    /// Its headers. Its length is not among them.
    pub headers: HeaderMap,
    /// Its content, at most as long as the result as JSON.
    pub body: Vec<u8>,
}

/// Why the result is no answer, in OpenWhisk's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebError {
    /// The status that says so.
    pub status: StatusCode,
    /// One sentence.
    pub message: String,
}

impl WebError {
    fn wrong(message: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.to_owned() }
    }

    fn invalid(kind: &str) -> Self {
        Self::wrong(&format!("Response is not valid '{kind}'."))
    }

    fn wrong_type() -> Self {
        Self::wrong("Response type in header did not match generated content type.")
    }

    fn absent() -> Self {
        let message = "Response does not include requested property.".to_owned();
        Self { status: StatusCode::NOT_FOUND, message }
    }
}

impl WebAnswer {
    /// The answer of a call to a client that wants `extension`.
    pub fn of(activation: &Activation, extension: Extension) -> Result<Self, WebError> {
        let result = match activation.status {
            Status::Success => &activation.result,
            Status::ApplicationError => {
                activation.result.get("error").ok_or_else(WebError::absent)?
            }
            Status::DeveloperError | Status::InternalError => {
                return Err(WebError::wrong("There was an error processing your request."));
            }
        };
        let result = match (extension.part(), result) {
            (Some(part), Value::Object(fields)) => fields.get("body").or_else(|| fields.get(part)),
            _ => Some(result),
        };
        let result = match (extension, result) {
            (Extension::Text, None) => return Err(WebError::absent()),
            (_, result) => result.unwrap_or(&Value::Null),
        };
        match (extension, result) {
            (Extension::Http, result) => http(result),
            (Extension::Json, Value::Object(_) | Value::Array(_)) => {
                Ok(Self::new("application/json", result.to_string()))
            }
            (Extension::Json, _) => Err(WebError::invalid("application/json")),
            (Extension::Html, Value::String(page)) => {
                Ok(Self::new("text/html; charset=utf-8", page.clone()))
            }
            (Extension::Html, _) => Err(WebError::invalid("text/html")),
            (Extension::Svg, Value::String(image)) => Ok(Self::new("image/svg+xml", image.clone())),
            (Extension::Svg, _) => Err(WebError::invalid("image/svg+xml")),
            (Extension::Text, result) => {
                let text = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
                Ok(Self::new("text/plain; charset=utf-8", text))
            }
        }
    }

    fn new(kind: &'static str, body: String) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        Self { status: StatusCode::OK, headers, body: body.into() }
    }
}

/// The answer that a result describes.
fn http(result: &Value) -> Result<WebAnswer, WebError> {
    let invalid = || WebError::invalid("message/http");
    let result = result.as_object().ok_or_else(invalid)?;
    let headers = match result.get("headers") {
        None => HeaderMap::new(),
        Some(Value::Object(given)) => headers::sent(given).ok_or_else(invalid)?,
        Some(_) => return Err(invalid()),
    };
    let status = status(result).ok_or_else(invalid)?;
    let ok = status.unwrap_or(StatusCode::OK);
    // An answer with one of these has no body.
    let has_body = ![204, 205, 304].contains(&ok.as_u16());
    match result.get("body").filter(|_| has_body) {
        None | Some(Value::Null) => Ok(empty(status, headers)),
        Some(Value::String(text)) if text.is_empty() => Ok(empty(status, headers)),
        Some(Value::String(text)) => {
            let kind = kind(&headers)?.unwrap_or(mime::TEXT_HTML);
            let body = bytes(&kind, text).ok_or_else(WebError::wrong_type)?;
            with_body(ok, headers, &kind, body)
        }
        Some(value) => {
            let kind = kind(&headers)?.unwrap_or(mime::APPLICATION_JSON);
            if !is_json(&kind) {
                return Err(WebError::wrong_type());
            }
            with_body(ok, headers, &kind, value.to_string().into())
        }
    }
}

/// The status of an answer, if it says one. Those below 200 are none that ends a request.
fn status(result: &Map<String, Value>) -> Option<Option<StatusCode>> {
    let code = match result.get("statusCode") {
        None => return Some(None),
        Some(Value::String(text)) => text.parse::<u16>().ok()?.into(),
        // Also as a number with a point.
        Some(value) => value.as_f64().filter(|code| code.fract() == 0.0)?,
    };
    if !(200.0..600.0).contains(&code) {
        return None;
    }
    StatusCode::from_u16(code as u16).ok().map(Some)
}

fn empty(status: Option<StatusCode>, mut headers: HeaderMap) -> WebAnswer {
    headers.remove(CONTENT_TYPE);
    WebAnswer { status: status.unwrap_or(StatusCode::NO_CONTENT), headers, body: Vec::new() }
}

fn with_body(
    status: StatusCode,
    mut headers: HeaderMap,
    kind: &Mime,
    body: Vec<u8>,
) -> Result<WebAnswer, WebError> {
    let mut text = kind.to_string();
    if kind.type_() == mime::TEXT && kind.get_param(mime::CHARSET).is_none() {
        text.push_str("; charset=utf-8");
    }
    let value = HeaderValue::try_from(text).map_err(|_| WebError::wrong_type())?;
    headers.insert::<HeaderName>(CONTENT_TYPE, value);
    Ok(WebAnswer { status, headers, body })
}

/// The type that the headers say.
fn kind(headers: &HeaderMap) -> Result<Option<Mime>, WebError> {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return Ok(None) };
    let kind = kind.to_str().ok().and_then(|kind| kind.parse().ok());
    kind.map(Some).ok_or_else(|| WebError::wrong("Response has an unknown content type."))
}

/// A body of this type; `None` if it should be in base64 and is not. JSON may be in base64 too, and an SVG image,
/// of which no text is in base64, may be a text.
fn bytes(kind: &Mime, text: &str) -> Option<Vec<u8>> {
    let decoded = || BASE64.decode(text.trim()).ok();
    if kind.essence_str() == mime::IMAGE_SVG.essence_str() {
        return Some(decoded().unwrap_or_else(|| text.into()));
    }
    if !is_text(kind) {
        return decoded();
    }
    let is_plain = !is_json(kind) || serde_json::from_str::<IgnoredAny>(text).is_ok();
    let decoded = if is_plain { None } else { decoded() };
    Some(decoded.unwrap_or_else(|| text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::tests::activation;
    use serde_json::json;

    fn answer(status: Status, result: Value, name: &str) -> Result<WebAnswer, u16> {
        let activation = Activation { status, result, ..activation() };
        let answer = WebAnswer::of(&activation, Extension::split(name).1);
        answer.map_err(|error| error.status.as_u16())
    }

    /// Status, type and body of an HTTP answer.
    fn http(result: Value) -> Result<(u16, String, String), u16> {
        let WebAnswer { status, headers, body } = answer(Status::Success, result, "a")?;
        let kind = headers.get(CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap());
        Ok((status.as_u16(), kind.to_owned(), String::from_utf8_lossy(&body).into_owned()))
    }

    #[test]
    fn a_result_is_an_answer() {
        let typed =
            |kind: &str, body: Value| json!({ "headers": { "Content-Type": kind }, "body": body });
        let html = "text/html; charset=utf-8";
        for (result, (status, kind, body)) in [
            (json!({ "body": "<p>" }), (200, html, "<p>")),
            (json!({ "body": { "a": 1 } }), (200, "application/json", "{\"a\":1}")),
            (json!({ "body": 3, "statusCode": "201" }), (201, "application/json", "3")),
            (json!({}), (204, "", "")),
            (json!({ "body": null, "statusCode": 302 }), (302, "", "")),
            (json!({ "body": "", "statusCode": 404 }), (404, "", "")),
            (json!({ "body": "x", "statusCode": 304 }), (304, "", "")),
            (typed("text/csv", json!("a,b")), (200, "text/csv; charset=utf-8", "a,b")),
            (typed("text/a; charset=latin1", json!("a")), (200, "text/a; charset=latin1", "a")),
            (typed("image/png", json!("YWI=")), (200, "image/png", "ab")),
            (typed("image/png", json!("YWI")), (200, "image/png", "ab")),
            (typed("image/svg+xml", json!("<svg/>")), (200, "image/svg+xml", "<svg/>")),
            (typed("image/svg+xml", json!("PHN2Zy8+")), (200, "image/svg+xml", "<svg/>")),
            (json!({ "body": "x", "statusCode": 202.0 }), (202, html, "x")),
            (
                typed("application/json", json!("eyJhIjoxfQ==")),
                (200, "application/json", "{\"a\":1}"),
            ),
            (typed("application/json", json!("1234")), (200, "application/json", "1234")),
            (typed("application/x+json", json!([1])), (200, "application/x+json", "[1]")),
        ] {
            let right = (status, kind.to_owned(), body.to_owned());
            assert_eq!(http(result.clone()), Ok(right), "{result}");
        }
        let result = json!({ "statusCode": 302, "headers": { "location": "/a" } });
        let answer = answer(Status::Success, result, "a").unwrap();
        assert_eq!(answer.headers["location"], "/a");
    }

    #[test]
    fn what_is_no_answer_is_not_sent() {
        for wrong in [
            json!({ "statusCode": 100 }),
            json!({ "statusCode": 600 }),
            json!({ "statusCode": 20.5 }),
            json!({ "statusCode": "ok" }),
            json!({ "statusCode": null }),
            json!({ "headers": ["a"] }),
            json!({ "headers": { "a": "b\r\n\r\n<script>" } }),
            json!({ "headers": { "content-type": "none" }, "body": "a" }),
            json!({ "headers": { "content-type": "image/png" }, "body": "not base64!" }),
            json!({ "headers": { "content-type": "text/html" }, "body": { "a": 1 } }),
        ] {
            assert_eq!(http(wrong.clone()), Err(400), "{wrong}");
        }
    }

    #[test]
    fn an_extension_chooses_a_part() {
        let all = json!({ "html": "<p>", "svg": "<svg/>", "text": 7 });
        let body = json!({ "html": "<p>", "svg": "<svg/>", "text": 7, "body": "b" });
        for (name, result, right) in [
            ("a.json", &json!({ "a": ["c"] }), Ok("{\"a\":[\"c\"]}")),
            ("a.json", &json!(["c"]), Ok("[\"c\"]")),
            ("a.json", &json!("c"), Err(400)),
            ("a.html", &all, Ok("<p>")),
            ("a.svg", &all, Ok("<svg/>")),
            ("a.text", &all, Ok("7")),
            ("a.html", &body, Ok("b")),
            ("a.svg", &body, Ok("b")),
            ("a.text", &body, Ok("b")),
            ("a.html", &json!({ "text": "a" }), Err(400)),
            ("a.html", &json!({ "body": 1, "html": "<p>" }), Err(400)),
            ("a.svg", &json!({}), Err(400)),
            ("a.text", &json!({ "html": "a" }), Err(404)),
            ("a.text", &json!({ "text": null }), Ok("null")),
            ("a.text", &json!([1]), Ok("[1]")),
        ] {
            let answer = answer(Status::Success, result.clone(), name);
            let body = answer.map(|answer| String::from_utf8(answer.body).unwrap());
            assert_eq!(body, right.map(str::to_owned), "{name} {result}");
        }
    }

    #[test]
    fn an_error_of_the_action_is_its_answer() {
        let failed = |name, error: Value| {
            let answer = answer(Status::ApplicationError, json!({ "error": error }), name)?;
            Ok::<_, u16>((answer.status.as_u16(), String::from_utf8(answer.body).unwrap()))
        };
        let error = json!({ "statusCode": 418, "body": "tea" });
        assert_eq!(failed("a", error.clone()), Ok((418, "tea".to_owned())));
        assert_eq!(failed("a.text", error.clone()), Ok((200, "tea".to_owned())));
        assert_eq!(failed("a.html", json!("<p>")), Ok((200, "<p>".to_owned())));
        assert_eq!(failed("a.text", json!("no")), Ok((200, "no".to_owned())));
        assert_eq!(failed("a.json", json!("no")), Err(400));
        for status in [Status::DeveloperError, Status::InternalError] {
            assert_eq!(answer(status, error.clone(), "a").unwrap_err(), 400);
        }
    }
}
