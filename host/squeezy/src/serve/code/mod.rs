//! The code of actions, under its digest: an action keeps the code it was made from, and actions with the
//! same code share it.
//!
//! The blobs in `code/` of the state directory are the code itself, archives and programs not in base64.

mod contract;
mod given;
mod json;

pub use contract::RunsCode;
pub use given::GivenCode;
pub use json::write_as_json;

use super::blobs::{Blob, BlobError, Blobs, DiskSpace, blocking, failed, hash};
use squeezy_openwhisk::{Digest, kind::Kind};
use std::{fs, path::Path, sync::Arc};

/// Name of its directory in the state directory.
pub const DIRECTORY: &str = "code";

/// Why code cannot be kept or used, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// It cannot be written or read.
    #[error("{0}")]
    Blob(#[from] BlobError),
    /// It is not what its kind or the request says.
    #[error("exec.code: {0}")]
    Wrong(String),
    /// Stored code has disappeared or was changed.
    #[error("its code {0} is missing or was changed: create the action again with its code")]
    Gone(Digest),
}

/// What an action of a kind is made from.
#[derive(Clone, Debug)]
pub struct ActionCode {
    /// The kind.
    pub kind: &'static Kind,
    /// Whether clients send and get the code in base64.
    pub binary: bool,
    /// The name of its entry point, if it has been given.
    pub main: Option<String>,
    /// The code.
    pub code: Arc<Blob>,
}

impl ActionCode {
    /// The length of the code, in bytes.
    pub fn bytes(&self) -> Result<u64, CodeError> {
        let path = &self.code.path;
        Ok(fs::metadata(path).map_err(failed(path))?.len())
    }
}

/// The code of a state directory's actions.
#[derive(Debug)]
pub struct Codes(Arc<Blobs>);

impl Codes {
    /// Opens the code of a state directory, which must not be in use by another process.
    pub fn open(state: &Path, space: Arc<DiskSpace>) -> Result<Self, BlobError> {
        Blobs::open(state.join(DIRECTORY), space).map(Self)
    }

    /// Keeps code that a client has given for an action of a kind.
    pub async fn keep(
        &self,
        kind: &'static Kind,
        main: Option<String>,
        binary: Option<bool>,
        given: GivenCode,
    ) -> Result<ActionCode, CodeError> {
        let blobs = self.0.clone();
        blocking(move || {
            let binary = given.is_binary(binary);
            let begins = given.beginning(binary)?;
            if let Some(problem) = kind.problem(binary, &begins) {
                return Err(CodeError::Wrong(problem));
            }
            let code = blobs.add(|unfinished| {
                let mut file = unfinished.file(unfinished.path().to_owned())?;
                given.write(binary, |part| Ok(file.write(part)?))?;
                Ok::<_, CodeError>(file.finish()?)
            })?;
            Ok(ActionCode { kind, binary, main, code })
        })
        .await
    }

    /// Returns stored code after verifying its digest.
    pub async fn find(&self, digest: &Digest) -> Result<Arc<Blob>, CodeError> {
        let (blobs, digest) = (self.0.clone(), digest.clone());
        blocking(move || {
            let found = blobs.find(&digest, |path| match hash(path) {
                Ok(sum) if sum == digest => Ok(()),
                Err(error) if !error.is_missing() => Err(error.into()),
                _ => Err(CodeError::Gone(digest.clone())),
            })?;
            found.ok_or(CodeError::Gone(digest))
        })
        .await
    }

    /// What the code with this digest takes on the disk, in bytes; nothing if it is missing.
    pub fn bytes_of(&self, digest: &Digest) -> u64 {
        self.0.bytes_of(digest)
    }

    /// Says which code stored actions name from now on.
    pub fn keep_named(&self, named: impl Iterator<Item = Digest>) {
        self.0.keep(named.collect());
    }
}

#[cfg(test)]
mod tests;
