//! Code as clients and instances get it: a JSON string, in base64 if it is binary.

use super::{ActionCode, CodeError};
use crate::serve::blobs::failed;
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest as _, Sha256};
use squeezy_openwhisk::Digest;
use std::{
    fs::File,
    io::{self, Read, Write},
};

/// Bytes of code that are read at a time: a multiple of three, for base64.
const PART: usize = 3 << 16;

/// Writes code as a JSON string, and verifies its digest on the way.
pub fn write_as_json(code: &ActionCode, to: &mut impl Write) -> Result<(), CodeError> {
    let cannot = |error| CodeError::from(failed(&code.code.path)(error));
    let mut literal = CodeLiteral::open(code.clone())?;
    while let Some(piece) = literal.next_piece()? {
        to.write_all(&piece).map_err(cannot)?;
    }
    Ok(())
}

/// Code as a JSON string, piece by piece.
pub struct CodeLiteral {
    code: ActionCode,
    file: File,
    sum: Sha256,
    step: Step,
    /// The beginning of a character of a text that has not come to its end yet. What is no text is never passed on; then
    /// its digest is wrong, too.
    rest: Vec<u8>,
}

/// What comes next.
enum Step {
    Begin,
    Code,
    End,
}

impl CodeLiteral {
    /// The whole string is to come.
    pub fn open(code: ActionCode) -> Result<Self, CodeError> {
        let file = match File::open(&code.code.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CodeError::Gone(code.code.digest.clone()));
            }
            file => file.map_err(failed(&code.code.path))?,
        };
        Ok(Self { code, file, sum: Sha256::new(), step: Step::Begin, rest: Vec::new() })
    }

    /// The next piece; none after the last one, before which the digest has been verified.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, CodeError> {
        match self.step {
            Step::Begin => {
                self.step = Step::Code;
                Ok(Some(b"\"".to_vec()))
            }
            Step::Code => {
                let mut part = Vec::with_capacity(PART);
                let read = (&self.file).take(PART as u64).read_to_end(&mut part);
                read.map_err(failed(&self.code.code.path))?;
                self.sum.update(&part);
                if part.len() < PART {
                    self.step = Step::End;
                }
                let mut piece = match self.code.binary {
                    true => BASE64_STANDARD.encode(part).into_bytes(),
                    false => self.escaped(&part)?,
                };
                if let Step::End = self.step {
                    self.verify()?;
                    piece.push(b'"');
                }
                Ok(Some(piece))
            }
            Step::End => Ok(None),
        }
    }

    fn verify(&mut self) -> Result<(), CodeError> {
        let sum = Digest::of_sum(std::mem::take(&mut self.sum).finalize().into());
        if sum == self.code.code.digest {
            Ok(())
        } else {
            Err(CodeError::Gone(self.code.code.digest.clone()))
        }
    }

    /// More of a text, with JSON's escapes.
    fn escaped(&mut self, part: &[u8]) -> Result<Vec<u8>, CodeError> {
        self.rest.extend_from_slice(part);
        let valid = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&self.rest[..valid]);
        let literal = serde_json::to_vec(&text);
        let literal = literal.map_err(|error| failed(&self.code.code.path)(error.into()))?;
        self.rest.drain(..valid);
        Ok(literal[1..literal.len() - 1].to_vec())
    }
}
