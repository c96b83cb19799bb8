//! The bodies of requests, which anybody may have written.

use crate::refused::Refused;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// How much of a body that is too large is read, as a multiple of its limit, so that the client hears why.
const READ_ON: usize = 8;

/// The members of a JSON object, as text.
pub type Object<'a> = BTreeMap<String, &'a RawValue>;

/// Reads a whole body of at most `most` bytes.
pub async fn read(mut body: Incoming, most: usize) -> Result<Bytes, Refused> {
    let expected = body.size_hint().lower().try_into().unwrap_or(usize::MAX);
    let mut whole = Vec::with_capacity(expected.min(most));
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| Refused::request("The request ends in the middle of its body."))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length <= most {
            whole.extend_from_slice(&data);
        } else if length > READ_ON * most {
            break;
        }
    }
    if length > most {
        let text = format!("The body is larger than {most} bytes.");
        return Err(Refused { status: StatusCode::PAYLOAD_TOO_LARGE, text });
    }
    Ok(whole.into())
}

/// Reads an object whose "value" is one too, or is not there.
pub fn object_with_value(text: &[u8]) -> Result<(Object<'_>, Object<'_>), Refused> {
    let wrong = || Refused::request("The body has to be a JSON object with an object \"value\".");
    let body: Object<'_> = serde_json::from_slice(text).map_err(|_| wrong())?;
    let value = match body.get("value") {
        Some(value) => serde_json::from_str(value.get()).map_err(|_| wrong())?,
        None => Object::new(),
    };
    Ok((body, value))
}
