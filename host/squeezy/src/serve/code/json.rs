//! Code as clients and instances get it: a JSON string, in base64 if it is binary.

use super::{ActionCode, CodeError};
use crate::serve::blobs::{BlobError, failed, read_parts};
use base64::{prelude::BASE64_STANDARD, write::EncoderWriter};
use std::io::{self, Write};

/// Writes code as a JSON string, and verifies its digest on the way.
pub fn write_as_json(code: &ActionCode, to: &mut impl Write) -> Result<(), CodeError> {
    let path = &code.code.path;
    let cannot = |error| CodeError::from(failed(path)(error));
    to.write_all(b"\"").map_err(cannot)?;
    let sum = if code.binary {
        let mut encoder = EncoderWriter::new(&mut *to, &BASE64_STANDARD);
        let sum = read_parts(path, |part| encoder.write_all(part).map_err(failed(path)));
        encoder.finish().map_err(cannot)?;
        sum
    } else {
        let mut text = Text { to: &mut *to, rest: Vec::new() };
        read_parts(path, |part| text.write(part).map_err(failed(path)))
    };
    to.write_all(b"\"").map_err(cannot)?;
    match sum {
        Ok(sum) if sum == code.code.digest => Ok(()),
        Err(error) if !BlobError::is_missing(&error) => Err(error.into()),
        _ => Err(CodeError::Gone(code.code.digest.clone())),
    }
}

/// Writes a text with JSON's escapes.
struct Text<'a, W> {
    to: &'a mut W,
    /// The beginning of a character that has not come to its end yet. What is no text is never written; then its
    /// digest is wrong, too.
    rest: Vec<u8>,
}

impl<W: Write> Text<'_, W> {
    fn write(&mut self, part: &[u8]) -> io::Result<()> {
        self.rest.extend_from_slice(part);
        let valid = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&self.rest[..valid]);
        let escaped = serde_json::to_vec(&text)?;
        self.to.write_all(&escaped[1..escaped.len() - 1])?;
        self.rest.drain(..valid);
        Ok(())
    }
}
