//! Requests that are not carried out.

use http::StatusCode;

/// A request that is not carried out: the status of the answer, and the text of its `error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// HTTP status.
    pub status: StatusCode,
    /// One sentence.
    pub text: String,
}

impl Refused {
    /// The request is wrong.
    pub fn request(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, text: text.into() }
    }

    /// The action is: what OpenWhisk calls a developer's error.
    pub fn action(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_GATEWAY, text: text.into() }
    }
}
