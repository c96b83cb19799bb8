//! The body of a request that makes an action: its code, which may be large, is not made a value.

use super::{MAX_BODY_BYTES, actions::malformed, error::ApiError};
use crate::serve::{blobs::Spool, code::GivenCode};
use axum::body::Bytes;
use serde_json::{Map, Value, value::RawValue};
use squeezy_openwhisk::action::ActionBody;
use std::collections::BTreeMap;

/// The members of an object, as text. An array of their values is none.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// The action that a request describes, and its code, which may have been taken out of it.
pub fn read(
    body: &Bytes,
    uploaded: Option<Spool>,
) -> Result<(ActionBody, Option<GivenCode>), ApiError> {
    let mut members: Members<'_> = serde_json::from_slice(body).map_err(malformed)?;
    let exec = members.remove("exec");
    let exec = exec.map(|exec| serde_json::from_str::<Option<Members<'_>>>(exec.get()));
    let mut exec = exec.transpose().map_err(malformed)?.flatten();
    let code = exec.as_mut().and_then(|exec| exec.remove("code"));
    let code = match code.map(RawValue::get) {
        None | Some("null") => None,
        Some(literal) if literal.starts_with('"') => Some(body.slice_ref(literal.as_bytes())),
        Some(_) => return Err(malformed("exec.code has to be a text")),
    };
    let rest = body.len() - code.as_ref().map_or(0, Bytes::len);
    if rest > MAX_BODY_BYTES {
        return Err(ApiError::too_large(rest, MAX_BODY_BYTES));
    }
    let mut action = values(members)?;
    if let Some(exec) = exec {
        action.insert("exec".to_owned(), values(exec)?.into());
    }
    let action = serde_json::from_value(action.into()).map_err(malformed)?;
    let code = match uploaded {
        Some(spool) => GivenCode::spooled(spool),
        None => code.and_then(GivenCode::new),
    };
    Ok((action, code))
}

fn values(members: Members<'_>) -> Result<Map<String, Value>, ApiError> {
    let value = |(name, text): (String, &RawValue)| Ok((name, serde_json::from_str(text.get())?));
    members.into_iter().map(value).collect::<serde_json::Result<_>>().map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use serde_json::json;

    fn read(text: &str) -> Result<(ActionBody, Option<GivenCode>), u16> {
        let read = super::read(&Bytes::from(text.to_owned()), None);
        read.map_err(|error| error.into_response().status().as_u16())
    }

    #[test]
    fn code_is_apart_from_the_rest() {
        let text = json!({
            "exec": { "kind": "python:3", "code": "a\n", "main": "m", "binary": false },
            "parameters": [{ "key": "a", "value": [1] }],
            "annotations": null,
        });
        let (body, code) = read(&text.to_string()).unwrap();
        let exec = body.exec.unwrap();
        assert_eq!((&*exec.kind, exec.main.as_deref()), ("python:3", Some("m")));
        assert!(code.is_some() && body.annotations.is_none() && body.parameters.is_some());
        for without in [
            json!({}),
            json!({ "exec": null }),
            json!({ "exec": { "kind": "blackbox", "image": "f", "code": "" } }),
            json!({ "exec": { "kind": "blackbox", "image": "f", "code": null } }),
        ] {
            assert!(read(&without.to_string()).unwrap().1.is_none(), "{without}");
        }
    }

    #[test]
    fn what_is_no_action_is_refused() {
        for wrong in [
            "",
            "[]",
            "[[\"python:3\"]]",
            "{\"exec\": []}",
            "{\"exec\": {}}",
            "{\"exec\": {\"kind\": \"python:3\", \"code\": 1}}",
            "{\"exec\": {\"kind\": \"python:3\", \"code\": \"}",
            "{\"exec\": {\"kind\": 3}}",
            "{\"limits\": []}",
            "{} {}",
        ] {
            assert_eq!(read(wrong).err(), Some(400), "{wrong}");
        }
        let long = "x".repeat(MAX_BODY_BYTES);
        let with_code = json!({ "exec": { "kind": "python:3", "code": long } }).to_string();
        assert!(read(&with_code).unwrap().1.is_some());
        let with_more = json!({ "annotations": [{ "key": long }] }).to_string();
        assert_eq!(read(&with_more).err(), Some(413));
    }
}
