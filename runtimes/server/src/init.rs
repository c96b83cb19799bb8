//! What `POST /init` brings.

use crate::{body::Object, refused::Refused};
use base64::Engine;
use serde_json::{Value, value::RawValue};
use squeezy_protocol::BASE64;
use std::{borrow::Cow, path::PathBuf};

/// What says where code is that does not come with the request. It is Squeezy's own: OpenWhisk has no such member.
const DIRECTORY: &str = "directory";

/// The code of an action.
#[derive(Debug, PartialEq, Eq)]
pub enum Given {
    /// A text, an archive or a program.
    Code(Vec<u8>),
    /// It is in this directory already, as it would be in the one of the server.
    Directory(PathBuf),
}

/// An action: its code, the name of its entry point, and variables of its environment.
#[derive(Debug)]
pub struct Init {
    /// Its code.
    pub given: Given,
    /// `main` if nothing else is said.
    pub main: String,
    /// Names and values.
    pub environment: Vec<(String, String)>,
}

impl Init {
    /// Reads the "value" of the request.
    pub fn read(value: &Object<'_>) -> Result<Self, Refused> {
        let given = match text(value, DIRECTORY)? {
            Some(directory) => Given::Directory(directory.into_owned().into()),
            None => Given::Code(code(value)?),
        };
        let main = text(value, "main")?.filter(|main| !main.is_empty());
        let main = main.unwrap_or("main".into()).into_owned();
        Ok(Self { given, main, environment: environment(value.get("env").copied())? })
    }
}

fn code(value: &Object<'_>) -> Result<Vec<u8>, Refused> {
    let code = text(value, "code")?.unwrap_or_default();
    if code.is_empty() {
        return Err(Refused::request("Missing main/no code to execute."));
    }
    let binary = match value.get("binary") {
        Some(binary) => serde_json::from_str(binary.get())
            .map_err(|_| Refused::request("binary has to be true or false."))?,
        None => false,
    };
    if !binary {
        return Ok(code.into_owned().into_bytes());
    }
    let decoded = BASE64.decode(code.trim_ascii());
    decoded.map_err(|error| Refused::action(format!("The code is not in base64: {error}.")))
}

fn text<'a>(value: &Object<'a>, name: &str) -> Result<Option<Cow<'a, str>>, Refused> {
    let Some(raw) = value.get(name) else { return Ok(None) };
    /// Borrows what has no escapes.
    #[derive(serde::Deserialize)]
    struct Text<'a>(#[serde(borrow)] Option<Cow<'a, str>>);
    let read = serde_json::from_str::<Text<'a>>(raw.get());
    read.map(|text| text.0).map_err(|_| Refused::request(format!("{name} has to be a text.")))
}

fn environment(raw: Option<&RawValue>) -> Result<Vec<(String, String)>, Refused> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(Vec::new()) };
    let wrong = |_| Refused::request("env has to be a JSON object.");
    let all: serde_json::Map<String, Value> = serde_json::from_str(raw.get()).map_err(wrong)?;
    let setting = |(name, value): (String, Value)| {
        let value = if let Value::String(text) = value { text } else { value.to_string() };
        // What the system cannot keep is left out.
        let possible = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        possible.then_some((name, value))
    };
    Ok(all.into_iter().filter_map(setting).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::object_with_value;
    use serde_json::json;

    fn read(value: Value) -> Result<Init, Refused> {
        let body = json!({ "value": value }).to_string();
        Init::read(&object_with_value(body.as_bytes())?.1)
    }

    #[test]
    fn code_is_a_text_or_base64() {
        let init =
            read(json!({ "code": "a\n\"b\"", "env": { "A": "x", "B": 3, "C=": "" } })).unwrap();
        assert_eq!((init.given, init.main), (Given::Code(b"a\n\"b\"".to_vec()), "main".to_owned()));
        assert_eq!(init.environment, [("A".into(), "x".into()), ("B".into(), "3".into())]);
        for code in ["AAEC/w==", "AAEC/w", "AAEC/w==\n"] {
            let init = read(json!({ "code": code, "binary": true, "main": "f" })).unwrap();
            let right = Given::Code(vec![0, 1, 2, 255]);
            assert_eq!((init.given, init.main), (right, "f".to_owned()));
        }
    }

    #[test]
    fn code_may_be_there_already() {
        let init = read(json!({ "directory": "/action", "code": "x", "main": "f" })).unwrap();
        assert_eq!((init.given, init.main), (Given::Directory("/action".into()), "f".to_owned()));
    }

    #[test]
    fn what_is_no_action_is_refused() {
        for (value, part) in [
            (json!({}), "no code"),
            (json!({ "code": "" }), "no code"),
            (json!({ "code": null }), "no code"),
            (json!({ "code": 1 }), "code has to be"),
            (json!({ "directory": 1 }), "directory has to be"),
            (json!({ "code": "a", "main": [] }), "main has to be"),
            (json!({ "code": "a", "env": [] }), "env has to be"),
            (json!({ "code": "a", "binary": "yes" }), "binary has to be"),
            (json!({ "code": "a*", "binary": true }), "not in base64"),
            (json!([]), "JSON object"),
        ] {
            let refused = read(value.clone()).unwrap_err();
            assert!(refused.text.contains(part), "{value}: {}", refused.text);
        }
    }
}
