//! OpenWhisk's contract with an instance's server.

use crate::clock::now_ms;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::{Value, json};
use squeezy_node::{Call, Contract, function::Function, quote};
use squeezy_vmm::BoxFuture;
use std::time::Duration;

/// The line that ends an activation's output, both on standard output and on standard error.
pub const END_OF_ACTIVATION: &str = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX";

/// The most that is kept of a server's reason, in characters and in words.
const MAX_REASON: usize = 1000;

/// OpenWhisk's contract: `POST /init` once, then `POST /run` for each call.
pub struct OpenWhisk;

impl Contract for OpenWhisk {
    fn start<'a>(
        &'a self,
        function: &'a Function,
    ) -> BoxFuture<'a, Result<Request<Bytes>, String>> {
        Box::pin(async { Ok(init(&function.name)) })
    }

    fn started(&self, response: &Response<Bytes>) -> Result<(), String> {
        if response.status().is_success() {
            return Ok(());
        }
        Err(format!("status {}: {}", response.status(), quote(response)))
    }

    fn call(&self, function: &Function, call: &Call, limit: Duration) -> Request<Bytes> {
        run(&function.name, &call.id, &call.value, limit)
    }

    fn end_of_output(&self) -> Option<&'static str> {
        Some(END_OF_ACTIVATION)
    }
}

/// `POST /init`: the function is in the image, so there is no code to send.
pub fn init(function: &str) -> Request<Bytes> {
    post(
        "/init",
        &json!({ "value": { "name": function, "main": "main", "binary": false, "env": {} } }),
    )
}

/// `POST /init` with an action's code: a text, or in base64 if it is `binary`. The request is made as it will be
/// sent, because the code may be large.
pub fn init_with_code(function: &str, code: &[u8], binary: bool, main: Option<&str>) -> Bytes {
    let code =
        if binary { BASE64_STANDARD.encode(code).into() } else { String::from_utf8_lossy(code) };
    /// Borrows the code.
    #[derive(Serialize)]
    struct Init<'a> {
        value: Value<'a>,
    }
    #[derive(Serialize)]
    struct Value<'a> {
        name: &'a str,
        main: &'a str,
        binary: bool,
        code: &'a str,
        env: serde_json::Map<String, serde_json::Value>,
    }
    let main = main.unwrap_or("main");
    let value = Value { name: function, main, binary, code: &code, env: Default::default() };
    // Only a map with keys that are not strings could fail.
    serde_json::to_vec(&Init { value }).unwrap_or_default().into()
}

/// The request of `POST /init` with this body.
pub fn init_request(body: Bytes) -> Request<Bytes> {
    request("/init", body)
}

/// Why a server that answers `/init` like this has not taken the code, in its own words.
pub fn init_problem(response: &Response<Bytes>) -> Option<String> {
    if response.status().is_success() {
        return None;
    }
    let answer: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    let status = response.status().as_u16();
    Some(match answer["error"].as_str() {
        Some(error) => {
            let words = error.split_whitespace().take(MAX_REASON).collect::<Vec<_>>().join(" ");
            words.chars().take(MAX_REASON).collect()
        }
        None => format!("status {status}: {}", quote(response)),
    })
}

/// `POST /run` for a function with this value, to be answered within `limit`.
pub fn run(function: &str, activation: &str, value: &Value, limit: Duration) -> Request<Bytes> {
    let deadline_ms = u128::from(now_ms()) + limit.as_millis();
    /// Borrows the value, which may be large.
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

fn post(path: &'static str, body: &impl Serialize) -> Request<Bytes> {
    // Only a map with keys that are not strings could fail.
    request(path, serde_json::to_vec(body).unwrap_or_default().into())
}

fn request(path: &'static str, body: Bytes) -> Request<Bytes> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(path);
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

/// What is wrong with the answer to a function's example request, if anything.
pub fn problem(function: &Function, response: &Response<Bytes>) -> Option<String> {
    if response.status() != StatusCode::OK {
        return Some(format!("status {}: {}", response.status().as_u16(), quote(response)));
    }
    let Ok(Value::Object(answer)) = serde_json::from_slice(response.body()) else {
        return Some(format!("not a JSON object: {}", quote(response)));
    };
    let check = function.check.as_ref()?;
    match answer.get(&check.field).and_then(Value::as_str) {
        Some(text) => check.problem(text),
        None => Some(format!("no text in the field {:?}: {}", check.field, quote(response))),
    }
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

    #[test]
    fn code_goes_along_as_a_text_or_in_base64() {
        for (binary, code, text) in
            [(false, &b"a\n\"b\""[..], "a\n\"b\""), (true, &[0, 255], "AP8=")]
        {
            let body = init_with_code("f", code, binary, Some("m"));
            let body: Value = serde_json::from_slice(init_request(body).body()).unwrap();
            let right =
                json!({ "name": "f", "main": "m", "binary": binary, "code": text, "env": {} });
            assert_eq!(body["value"], right);
        }
    }

    #[test]
    fn a_server_says_why_it_does_not_take_code() {
        assert_eq!(init_problem(&response(200, "{\"ok\":true}")), None);
        let said = init_problem(&response(502, "{\"error\": \"no\\n way\"}"));
        assert_eq!(said.as_deref(), Some("no way"));
        let long = json!({ "error": "x".repeat(1 << 20) }).to_string();
        assert_eq!(init_problem(&response(502, &long)).unwrap().len(), MAX_REASON);
        let said = init_problem(&response(500, "<html>"));
        assert_eq!(said.as_deref(), Some("status 500: <html>"));
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
}
