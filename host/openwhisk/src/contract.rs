//! OpenWhisk's contract with an instance's server.

use crate::clock::now_ms;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use squeezy_node::{Call, Contract, TraceContext, function::Function, quote};
use squeezy_vmm::BoxFuture;
use std::{borrow::Cow, time::Duration};

/// The line that ends an activation's output, both on standard output and on standard error.
pub const END_OF_ACTIVATION: &str = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX";

/// What a server says about code that it has not taken is read up to this size, in bytes.
const MAX_PROBLEM_BYTES: usize = 64 << 10;
/// And quoted up to this length.
const MAX_PROBLEM_CHARACTERS: usize = 300;

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
        let context = call.trace.as_ref().map(|trace| &trace.context);
        run(&function.name, &call.id, &call.value, context, limit)
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

/// The body of `POST /init` with an action's code, made as it will be sent, because the code may be large: `code`
/// writes it as a JSON string, in base64 if it is `binary`.
pub fn write_init<E>(
    function: &str,
    binary: bool,
    main: Option<&str>,
    to: &mut Vec<u8>,
    code: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let (name, main) = (json!(function), json!(main.unwrap_or("main")));
    let head =
        format!(r#"{{"value":{{"name":{name},"main":{main},"binary":{binary},"env":{{}},"code":"#);
    to.extend_from_slice(head.as_bytes());
    code(to)?;
    to.extend_from_slice(b"}}");
    Ok(())
}

/// The body of `POST /init` for an action whose code is in a directory of the instance already.
pub fn init_in_directory(function: &str, main: Option<&str>, directory: &str) -> Bytes {
    let main = main.unwrap_or("main");
    let value = json!({ "name": function, "main": main, "env": {}, "directory": directory });
    json!({ "value": value }).to_string().into()
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
    // The server may be whatever the code has made of it, and it says this without having been asked for anything.
    let answer = (response.body().len() <= MAX_PROBLEM_BYTES).then_some(response.body());
    let answer = answer.and_then(|body| serde_json::from_slice::<Problem<'_>>(body).ok());
    let status = response.status().as_u16();
    Some(match answer {
        Some(Problem { error }) => one_line(&error, MAX_PROBLEM_CHARACTERS),
        None => format!("status {status}: {}", quote(response)),
    })
}

/// The answer of a server that has not taken the code.
#[derive(Deserialize)]
struct Problem<'a> {
    #[serde(borrow)]
    error: Cow<'a, str>,
}

/// The beginning of a text, with single blanks between its words and nothing that moves a terminal's cursor.
fn one_line(text: &str, most_characters: usize) -> String {
    let mut line = String::new();
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let mut left = most_characters;
    for word in words.filter(|word| !word.is_empty()) {
        let blank = usize::from(!line.is_empty());
        if left <= blank {
            break;
        }
        left -= blank;
        line.extend(" ".chars().take(blank).chain(word.chars().take(left)));
        left = left.saturating_sub(word.chars().count());
    }
    line
}

/// `POST /run` for a function with this value, to be answered within `limit`. Where it belongs in a trace is said as W3C
/// wants it, and again where runtimes make variables of it.
pub fn run(
    function: &str,
    activation: &str,
    value: &Value,
    context: Option<&TraceContext>,
    limit: Duration,
) -> Request<Bytes> {
    let deadline_ms = u128::from(now_ms()) + limit.as_millis();
    /// Borrows the value, which may be large.
    #[derive(Serialize)]
    struct Run<'a> {
        value: &'a Value,
        activation_id: &'a str,
        action_name: String,
        namespace: &'static str,
        deadline: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        traceparent: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tracestate: Option<&'a str>,
    }
    let body = Run {
        value,
        activation_id: activation,
        action_name: format!("/_/{function}"),
        namespace: "_",
        deadline: deadline_ms.to_string(),
        traceparent: context.map(ToString::to_string),
        tracestate: context.and_then(|context| context.state.as_deref()),
    };
    let mut request = post("/run", &body);
    for (name, value) in
        [("traceparent", body.traceparent.as_deref()), ("tracestate", body.tracestate)]
    {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            request.headers_mut().insert(name, value);
        }
    }
    request
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
        let request = run("html", "7", &json!({ "items": 1000 }), None, Duration::from_secs(60));
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!((&body["value"]["items"], &body["activation_id"]), (&json!(1000), &json!("7")));
        assert!(body["deadline"].as_str().unwrap().parse::<u64>().unwrap() > 1_700_000_000_000);
        assert_eq!(request.uri(), "/run");
        assert_eq!((body.get("traceparent"), request.headers().get("traceparent")), (None, None));
    }

    #[test]
    fn a_function_hears_where_its_call_belongs_in_a_trace() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(parent, "a=1").unwrap();
        let request = run("html", "7", &json!({}), Some(&context), Duration::from_secs(60));
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!((&body["traceparent"], &body["tracestate"]), (&json!(parent), &json!("a=1")));
        assert_eq!(request.headers()["traceparent"], parent);
        assert_eq!(request.headers()["tracestate"], "a=1");
    }

    #[test]
    fn code_goes_along_as_a_text_or_in_base64() {
        for (binary, code) in [(false, "a\n\"b\""), (true, "AP8=")] {
            let mut body = Vec::new();
            let write = |to: &mut Vec<u8>| serde_json::to_writer(to, code);
            write_init("f", binary, Some("m"), &mut body, write).unwrap();
            let body: Value = serde_json::from_slice(init_request(body.into()).body()).unwrap();
            let right =
                json!({ "name": "f", "main": "m", "binary": binary, "code": code, "env": {} });
            assert_eq!(body["value"], right);
        }
        let body: Value = serde_json::from_slice(&init_in_directory("f", None, "/action")).unwrap();
        let right = json!({ "name": "f", "main": "main", "env": {}, "directory": "/action" });
        assert_eq!(body["value"], right);
    }

    #[test]
    fn a_server_says_why_it_does_not_take_code() {
        assert_eq!(init_problem(&response(200, "{\"ok\":true}")), None);
        let said = init_problem(&response(502, "{\"error\": \"no\\n way\"}"));
        assert_eq!(said.as_deref(), Some("no way"));
        let error = format!("{{\"error\": \"{}\"}}", "\\u001b[2J ab\\n".repeat(4000));
        let said = init_problem(&response(502, &error)).unwrap();
        assert!(said.starts_with("[2J ab [2J ab "), "{said}");
        assert_eq!((said.len(), said.matches('\u{1b}').count()), (MAX_PROBLEM_CHARACTERS, 0));
        let said = init_problem(&response(502, &error.repeat(100))).unwrap();
        assert!(said.starts_with("status 502: ") && said.len() < 200, "{said}");
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
