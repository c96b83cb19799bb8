//! OpenWhisk's requests to an instance.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri, header::CONTENT_TYPE};
use serde_json::{Value, json};
use squeezy_protocol::INSTANCE_HEADER;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    let deadline = SystemTime::now() + limit;
    let deadline_ms = deadline.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis();
    let body = json!({
        "value": value,
        "activation_id": activation,
        "action_name": format!("/_/{function}"),
        "namespace": "_",
        "deadline": deadline_ms.to_string(),
    });
    post("/run", &body)
}

fn post(path: &'static str, body: &Value) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from(body.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(path);
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

/// Whether the answer comes from the instance's own server; the agent answers when there is none.
pub fn is_from_instance(response: &Response<Bytes>) -> bool {
    response.headers().contains_key(INSTANCE_HEADER)
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

    #[test]
    fn a_quotation_is_one_short_line() {
        let response = Response::new(Bytes::from("x\n".repeat(500)));
        assert_eq!(quote(&response).len(), QUOTED);
        assert_eq!(quote(&response).lines().count(), 1);
    }
}
