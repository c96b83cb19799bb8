//! OpenWhisk's requests to an instance.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::{Value, json};
use squeezy_protocol::{ErrorBody, ErrorCode, INSTANCE_HEADER};
use squeezy_runtime::function::Function;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A line that ends the output of an activation, on standard output and on standard error.
pub const END_OF_ACTIVATION: &str = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX";

/// Characters of an answer that are quoted.
const QUOTED: usize = 120;

/// `POST /init`: the function is in the image, so there is no code to send.
pub fn init(function: &str) -> Request<Bytes> {
    post(
        "/init",
        &json!({ "value": { "name": function, "main": "main", "binary": false, "env": {} } }),
    )
}

/// `POST /run` of a function with this value, to be answered within `limit`.
pub fn run(function: &str, activation: &str, value: &Value, limit: Duration) -> Request<Bytes> {
    let deadline_ms = u128::from(now_ms()) + limit.as_millis();
    /// The value is not copied: it may be large.
    #[derive(Serialize)]
    struct Run<'a> {
        value: &'a Value,
        activation_id: &'a str,
        action_name: String,
        namespace: &'static str,
        deadline: String,
    }
    let body = Run {
        value,
        activation_id: activation,
        action_name: format!("/_/{function}"),
        namespace: "_",
        deadline: deadline_ms.to_string(),
    };
    post("/run", &body)
}

/// Milliseconds since 1970, as OpenWhisk tells moments.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

fn post(path: &'static str, body: &impl Serialize) -> Request<Bytes> {
    // Only a map whose keys are no strings could fail.
    let mut request = Request::new(Bytes::from(serde_json::to_vec(body).unwrap_or_default()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(path);
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

/// Whether the answer comes from the instance's own server; the agent answers when there is none.
pub fn is_from_instance(response: &Response<Bytes>) -> bool {
    response.headers().contains_key(INSTANCE_HEADER)
}

/// Why there is no answer of the instance's server, as the agent says.
pub fn agent_problem(response: &Response<Bytes>) -> ErrorBody {
    serde_json::from_slice(response.body())
        .unwrap_or_else(|_| ErrorBody { code: ErrorCode::Internal, message: quote(response) })
}

/// What is wrong with the answer to a function's own request, if anything is.
pub fn problem(function: &Function, response: &Response<Bytes>) -> Option<String> {
    if response.status() != StatusCode::OK {
        return Some(format!("status {}: {}", response.status().as_u16(), quote(response)));
    }
    let Ok(Value::Object(answer)) = serde_json::from_slice(response.body()) else {
        return Some(format!("no JSON object: {}", quote(response)));
    };
    let check = function.check.as_ref()?;
    match answer.get(&check.field).and_then(Value::as_str) {
        Some(text) => check.problem(text),
        None => Some(format!("no text in the field {:?}: {}", check.field, quote(response))),
    }
}

/// The beginning of an answer, on one line.
pub fn quote(response: &Response<Bytes>) -> String {
    String::from_utf8_lossy(response.body())
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(QUOTED)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_its_value_and_its_deadline() {
        let request = run("html", "7", &json!({ "items": 1000 }), Duration::from_secs(60));
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!((&body["value"]["items"], &body["activation_id"]), (&json!(1000), &json!("7")));
        assert!(body["deadline"].as_str().unwrap().parse::<u64>().unwrap() > 1_700_000_000_000);
        assert_eq!(request.uri(), "/run");
    }

    fn function() -> Function {
        Function::parse(include_str!("../../../functions/html/function.toml")).unwrap()
    }

    fn response(status: u16, body: &str) -> Response<Bytes> {
        Response::builder().status(status).body(Bytes::from(body.to_owned())).unwrap()
    }

    #[test]
    fn only_the_right_page_is_right() {
        let function = function();
        let check = function.check.as_ref().unwrap();
        let page = check.contains.join("")
            + &check.occurrences.iter().map(|o| o.text.repeat(o.count)).collect::<String>();
        let right = json!({ "html": page }).to_string();
        assert_eq!(problem(&function, &response(200, &right)), None);
        for wrong in [
            response(502, &right),
            response(200, "<html>"),
            response(200, "{\"html\": 1}"),
            response(200, "{\"html\": \"short\"}"),
        ] {
            assert!(problem(&function, &wrong).is_some());
        }
        let reason = problem(&function, &response(500, &"x\n".repeat(500))).unwrap();
        assert!(reason.len() < 160 && reason.lines().count() == 1, "{reason}");
    }

    #[test]
    fn without_a_check_any_object_is_right() {
        let function = Function { check: None, ..function() };
        assert_eq!(problem(&function, &response(200, "{\"any\": 1}")), None);
        for wrong in [response(200, "[1]"), response(200, ""), response(502, "{}")] {
            assert!(problem(&function, &wrong).is_some());
        }
    }

    #[test]
    fn the_agent_is_quoted_in_its_own_words() {
        let body = "{\"code\":\"bad_answer\",\"message\":\"the server did not answer in HTTP\"}";
        let said = agent_problem(&response(502, body));
        let message = "the server did not answer in HTTP".to_owned();
        assert_eq!(said, ErrorBody { code: ErrorCode::BadAnswer, message });
        assert_eq!(agent_problem(&response(502, "{")).message, "{");
    }

    #[test]
    fn a_quotation_is_one_short_line() {
        let response = Response::new(Bytes::from("x\n".repeat(500)));
        assert_eq!(quote(&response).len(), QUOTED);
        assert_eq!(quote(&response).lines().count(), 1);
    }
}
