//! OpenWhisk's requests to an instance, and what is expected back.

use super::record::Outcome;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};
use squeezy_protocol::INSTANCE_HEADER;
use squeezy_runtime::function::Function;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Characters of a wrong answer that are quoted.
const QUOTED: usize = 120;

/// `POST /init`: the function is in the image, so there is no code to send.
pub fn init(function: &Function) -> Request<Bytes> {
    post(
        "/init",
        &json!({ "value": { "name": function.name, "main": "main", "binary": false, "env": {} } }),
    )
}

/// `POST /run` with the function's request; `activation` names it.
pub fn run(function: &Function, activation: u64) -> Request<Bytes> {
    let deadline = SystemTime::now() + function.run_timeout;
    let deadline_ms = deadline.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis();
    let body = json!({
        "value": function.request,
        "activation_id": format!("{activation:032x}"),
        "action_name": format!("/_/{}", function.name),
        "namespace": "_",
        "deadline": deadline_ms.to_string(),
    });
    post("/run", &body)
}

fn post(path: &'static str, body: &Value) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from(body.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(path);
    request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    request
}

/// Whether the answer comes from the instance's own server; the agent answers when there is none.
pub fn is_from_instance(response: &Response<Bytes>) -> bool {
    response.headers().contains_key(INSTANCE_HEADER)
}

/// Judges the answer to [`run`].
pub fn judge(function: &Function, response: &Response<Bytes>) -> Outcome {
    if response.status() != StatusCode::OK {
        return Outcome::Wrong(format!(
            "status {}: {}",
            response.status().as_u16(),
            quote(response)
        ));
    }
    let Ok(answer) = serde_json::from_slice::<Value>(response.body()) else {
        return Outcome::Wrong(format!("no JSON: {}", quote(response)));
    };
    let field = &function.check.field;
    let Some(text) = answer.get(field).and_then(Value::as_str) else {
        return Outcome::Wrong(format!("no text in the field {field:?}: {}", quote(response)));
    };
    match function.check.problem(text) {
        Some(problem) => Outcome::Wrong(problem),
        None => Outcome::Right,
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

    fn function() -> Function {
        Function::parse(include_str!("../../../../functions/html/function.toml")).unwrap()
    }

    fn response(status: u16, body: &str) -> Response<Bytes> {
        Response::builder().status(status).body(Bytes::from(body.to_owned())).unwrap()
    }

    #[test]
    fn a_request_carries_what_the_definition_says() {
        let request = run(&function(), 7);
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["value"]["items"], 1000);
        assert_eq!(body["activation_id"].as_str().unwrap().len(), 32);
        assert_eq!(request.uri(), "/run");
    }

    #[test]
    fn only_the_right_page_is_right() {
        let function = function();
        let page = function.check.contains.join("")
            + &function
                .check
                .occurrences
                .iter()
                .map(|o| o.text.repeat(o.count))
                .collect::<String>();
        let right = json!({ "html": page }).to_string();
        assert_eq!(judge(&function, &response(200, &right)), Outcome::Right);
        for wrong in [
            response(502, &right),
            response(200, "<html>"),
            response(200, "{\"html\": 1}"),
            response(200, "{\"html\": \"short\"}"),
        ] {
            assert!(matches!(judge(&function, &wrong), Outcome::Wrong(_)));
        }
        let Outcome::Wrong(reason) = judge(&function, &response(500, &"x\n".repeat(500))) else {
            panic!()
        };
        assert!(reason.len() < 160 && reason.lines().count() == 1, "{reason}");
    }
}
