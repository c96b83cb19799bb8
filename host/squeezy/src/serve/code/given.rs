//! Code as a client sends it.

use super::CodeError;
use crate::serve::lines::Turn;
use axum::body::Bytes;
use base64::Engine;
use squeezy_openwhisk::kind::is_binary;
use squeezy_protocol::BASE64;
use std::borrow::Cow;

/// Text that is decoded at a time: a multiple of four characters.
const PART: usize = 1 << 16;

/// How much of the code its kind is seen from, in bytes of text.
const BEGINNING: usize = 32;

/// The code in a request. It is not copied before it is written.
pub struct GivenCode {
    /// The literal in the request, with its quotation marks. The request's memory is reserved as long as this lives.
    literal: Bytes,
    /// Nobody else has as much code in memory. It is over after the code has been dropped.
    _turn: Option<Turn>,
}

impl GivenCode {
    /// The code that is this literal, a string in JSON, of a request; `None` if it is empty.
    pub fn new(literal: Bytes) -> Option<Self> {
        (literal.len() > 2).then_some(Self { literal, _turn: None })
    }

    /// This code, whose turn it is.
    pub fn in_turn(self, turn: Option<Turn>) -> Self {
        Self { _turn: turn, ..self }
    }

    /// The text. Only what has escapes is copied.
    fn text(&self) -> Cow<'_, str> {
        let inside = &self.literal[1..self.literal.len() - 1];
        match std::str::from_utf8(inside) {
            Ok(text) if !inside.contains(&b'\\') => text.into(),
            // It has been parsed before.
            _ => serde_json::from_slice::<String>(&self.literal).unwrap_or_default().into(),
        }
    }

    /// Whether it is in base64: what the client says, or, like OpenWhisk, what it looks like.
    pub(super) fn is_binary(&self, said: Option<bool>) -> bool {
        let begins = || {
            let inside = &self.literal[1..self.literal.len() - 1];
            BASE64.decode(&inside[..inside.len().min(8)]).unwrap_or_default()
        };
        said.unwrap_or_else(|| is_binary(&begins()))
    }

    /// How the code begins.
    pub(super) fn beginning(&self, binary: bool) -> Result<Vec<u8>, CodeError> {
        let text = self.text();
        let begins = text.trim_ascii().as_bytes();
        let begins = &begins[..begins.len().min(BEGINNING)];
        if binary { BASE64.decode(begins).map_err(no_base64) } else { Ok(begins.into()) }
    }

    /// Passes the code to `write` part by part, decoded if it is in base64.
    pub(super) fn write(
        &self,
        binary: bool,
        mut write: impl FnMut(&[u8]) -> Result<(), CodeError>,
    ) -> Result<(), CodeError> {
        let text = self.text();
        if !binary {
            return write(text.as_bytes());
        }
        let mut parts = text.trim_ascii().as_bytes().chunks(PART).peekable();
        while let Some(part) = parts.next() {
            // Padding is at the end only.
            if parts.peek().is_some() && part.contains(&b'=') {
                return Err(CodeError::Wrong(
                    "it has more than its end after the padding".to_owned(),
                ));
            }
            write(&BASE64.decode(part).map_err(no_base64)?)?;
        }
        Ok(())
    }
}

fn no_base64(error: base64::DecodeError) -> CodeError {
    CodeError::Wrong(format!("it should be binary and is not in base64: {error}"))
}
