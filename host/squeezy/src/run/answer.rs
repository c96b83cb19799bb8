//! What is expected of an answer.

use super::record::Outcome;
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;
use squeezy_node::openwhisk::quote;
use squeezy_runtime::function::Function;

/// Judges the answer to a function's own request.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn function() -> Function {
        Function::parse(include_str!("../../../../functions/html/function.toml")).unwrap()
    }

    fn response(status: u16, body: &str) -> Response<Bytes> {
        Response::builder().status(status).body(Bytes::from(body.to_owned())).unwrap()
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
