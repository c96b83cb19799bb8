//! Code as a client sends it.

use super::CodeError;
use crate::serve::{blobs::Spool, lines::Turn};
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
    text: Text,
    /// Nobody else has as much code under way. It is over after the code has been dropped.
    _turn: Option<Turn>,
}

/// Where the text is.
enum Text {
    /// The literal in the request, with its quotation marks. The request's memory is reserved as long as this lives.
    Literal(Bytes),
    /// On the disk, as the literal says it.
    Spooled(Spool),
}

impl GivenCode {
    /// The code that is this literal, a string in JSON, of a request; `None` if it is empty.
    pub fn new(literal: Bytes) -> Option<Self> {
        (literal.len() > 2).then_some(Self { text: Text::Literal(literal), _turn: None })
    }

    /// The code that has been put here; `None` if it is empty.
    pub fn spooled(spool: Spool) -> Option<Self> {
        (spool.bytes() > 0).then_some(Self { text: Text::Spooled(spool), _turn: None })
    }

    /// This code, whose turn it is.
    pub fn in_turn(self, turn: Option<Turn>) -> Self {
        Self { _turn: turn, ..self }
    }

    /// How long it is at least once it is kept, in bytes, as far as that can be seen before: with blanks around it, and
    /// nothing of what memory has.
    pub fn least_bytes(&self) -> u64 {
        match &self.text {
            Text::Literal(_) => 0,
            // The end may be padding.
            Text::Spooled(spool) => (spool.bytes() / 4 * 3).saturating_sub(2),
        }
    }

    /// Whether it is in base64: what the client says, or, like OpenWhisk, what it looks like.
    pub(super) fn is_binary(&self, said: Option<bool>) -> Result<bool, CodeError> {
        if let Some(said) = said {
            return Ok(said);
        }
        let begins = match &self.text {
            Text::Literal(literal) => literal.slice(1..literal.len().min(10) - 1).to_vec(),
            Text::Spooled(spool) => part(spool, 0, 8)?,
        };
        Ok(is_binary(&BASE64.decode(begins).unwrap_or_default()))
    }

    /// How the code begins.
    pub(super) fn beginning(&self, binary: bool) -> Result<Vec<u8>, CodeError> {
        let begins = match &self.text {
            Text::Literal(literal) => {
                let text = text_of(literal);
                let begins = text.trim_ascii().as_bytes();
                begins[..begins.len().min(BEGINNING)].to_vec()
            }
            Text::Spooled(spool) => {
                let (start, end) = trimmed(spool)?;
                part(spool, start, end.min(start + BEGINNING as u64))?
            }
        };
        if binary { BASE64.decode(begins).map_err(no_base64) } else { Ok(begins) }
    }

    /// Passes the code to `write` part by part, decoded if it is in base64.
    pub(super) fn write(
        &self,
        binary: bool,
        mut write: impl FnMut(&[u8]) -> Result<(), CodeError>,
    ) -> Result<(), CodeError> {
        let mut decode = |text: &[u8], is_last: bool| {
            // Padding is at the end only.
            if !is_last && text.contains(&b'=') {
                let problem = "it has more than its end after the padding";
                return Err(CodeError::Wrong(problem.to_owned()));
            }
            write(&BASE64.decode(text).map_err(no_base64)?)
        };
        match &self.text {
            Text::Literal(literal) if binary => {
                let text = text_of(literal);
                let mut parts = text.trim_ascii().as_bytes().chunks(PART).peekable();
                while let Some(part) = parts.next() {
                    decode(part, parts.peek().is_none())?;
                }
                Ok(())
            }
            Text::Spooled(spool) if binary => {
                let (mut at, end) = trimmed(spool)?;
                while at < end {
                    let next = end.min(at + PART as u64);
                    decode(&part(spool, at, next)?, next == end)?;
                    at = next;
                }
                Ok(())
            }
            Text::Literal(literal) => write(text_of(literal).as_bytes()),
            Text::Spooled(spool) => write_text(spool, write),
        }
    }
}

/// Passes on a text that has to be one.
fn write_text(
    spool: &Spool,
    mut write: impl FnMut(&[u8]) -> Result<(), CodeError>,
) -> Result<(), CodeError> {
    let no_text = || CodeError::Wrong("it is neither a text nor in base64".to_owned());
    // The beginning of a character that has not come to its end yet.
    let (mut at, mut rest) = (0, Vec::new());
    while at < spool.bytes() {
        let next = spool.bytes().min(at + PART as u64);
        rest.extend(part(spool, at, next)?);
        let whole = match std::str::from_utf8(&rest) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(no_text()),
        };
        write(&rest[..whole])?;
        rest.drain(..whole);
        at = next;
    }
    if rest.is_empty() { Ok(()) } else { Err(no_text()) }
}

/// The text of a literal. Only what has escapes is copied.
fn text_of(literal: &Bytes) -> Cow<'_, str> {
    let inside = &literal[1..literal.len() - 1];
    match std::str::from_utf8(inside) {
        Ok(text) if !inside.contains(&b'\\') => text.into(),
        // It has been parsed before.
        _ => serde_json::from_slice::<String>(literal).unwrap_or_default().into(),
    }
}

/// A part of a text on the disk, as far as there is one.
fn part(spool: &Spool, from: u64, to: u64) -> Result<Vec<u8>, CodeError> {
    let mut part = vec![0; to.min(spool.bytes()).saturating_sub(from) as usize];
    spool.read(&mut part, from)?;
    Ok(part)
}

/// Where the text begins and ends that is between the blanks around it.
fn trimmed(spool: &Spool) -> Result<(u64, u64), CodeError> {
    let (mut start, mut end) = (0, spool.bytes());
    while start < end {
        let text = part(spool, start, end.min(start + PART as u64))?;
        let blanks = text.len() - text.trim_ascii_start().len();
        start += blanks as u64;
        if blanks < text.len() {
            break;
        }
    }
    while start < end {
        let from = start.max(end.saturating_sub(PART as u64));
        let text = part(spool, from, end)?;
        let blanks = text.len() - text.trim_ascii_end().len();
        end -= blanks as u64;
        if blanks < text.len() {
            break;
        }
    }
    Ok((start, end))
}

fn no_base64(error: base64::DecodeError) -> CodeError {
    CodeError::Wrong(format!("it should be binary and is not in base64: {error}"))
}
