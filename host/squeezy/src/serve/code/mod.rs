//! The code of actions, under its digest: an action keeps the code it was made from, and actions with the
//! same code share it.
//!
//! The blobs in `code/` of the state directory are the code itself, archives and programs not in base64. Of code that is
//! large there is a drive, too.

mod contract;
mod drive;
mod given;
mod json;

pub use contract::RunsCode;
pub use given::GivenCode;
pub use json::{CodeLiteral, write_as_json};

use super::{
    blobs::{Blob, BlobError, Blobs, DiskSpace, Spool, blocking, failed, hash},
    state::StoredCode,
};
use drive::Drives;
use squeezy_openwhisk::{Digest, Namespace, kind::Kind};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

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
    /// No drive can be made of it.
    #[error(
        "code of this size needs a drive of its VM, which cannot be made here: {0}: install bubblewrap and erofs-utils, and allow user namespaces"
    )]
    NoSandbox(String),
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
    /// Its drive, if it has one.
    drive: Option<Arc<Blob>>,
}

impl ActionCode {
    /// The length of the code, in bytes.
    pub fn bytes(&self) -> Result<u64, CodeError> {
        let path = &self.code.path;
        Ok(fs::metadata(path).map_err(failed(path))?.len())
    }

    /// The file that is the drive of its VM, if it has one.
    pub fn drive(&self) -> Option<PathBuf> {
        self.drive.as_ref().map(|drive| drive.path.join(drive::DRIVE))
    }
}

/// What a stored action says of its code: whose it is, its kind and its digest.
type Named<'a> = (&'a Namespace, &'a str, &'a Digest);

/// The code of a state directory's actions.
pub struct Codes {
    blobs: Arc<Blobs>,
    drives: Drives,
}

impl Codes {
    /// Opens the code of a state directory, which must not be in use by another process. Drives are made with this
    /// program.
    pub fn open(
        state: &Path,
        space: Arc<DiskSpace>,
        program: Option<PathBuf>,
    ) -> Result<Self, BlobError> {
        let blobs = Blobs::open(state.join(DIRECTORY), space.clone())?;
        Ok(Self { blobs, drives: Drives::open(state, space, program)? })
    }

    /// A place for code that is on its way.
    pub async fn spool(&self) -> Result<Spool, BlobError> {
        let blobs = self.blobs.clone();
        blocking(move || Spool::new(&blobs)).await
    }

    /// Keeps code that a client has given for an action of a kind. It has no drive yet.
    pub async fn keep(
        &self,
        kind: &'static Kind,
        main: Option<String>,
        binary: Option<bool>,
        given: GivenCode,
    ) -> Result<ActionCode, CodeError> {
        let blobs = self.blobs.clone();
        blocking(move || {
            let binary = given.is_binary(binary)?;
            let begins = given.beginning(binary)?;
            if let Some(problem) = kind.problem(binary, &begins) {
                return Err(CodeError::Wrong(problem));
            }
            let code = blobs.add(|unfinished| {
                let mut file = unfinished.file(unfinished.path().to_owned())?;
                given.write(binary, |part| Ok(file.write(part)?))?;
                Ok::<_, CodeError>(file.finish()?)
            })?;
            Ok(ActionCode { kind, binary, main, code, drive: None })
        })
        .await
    }

    /// Returns stored code of a namespace and of a kind after verifying its digest. What was stored without a drive gets
    /// none: others wait meanwhile, and the image that runs it may be older than drives are.
    pub async fn find(
        &self,
        namespace: &Namespace,
        kind: &'static Kind,
        stored: &StoredCode,
    ) -> Result<ActionCode, CodeError> {
        let StoredCode { binary, main, digest, drive, .. } = stored;
        let code = self.find_blob(digest).await?;
        let found = ActionCode { kind, binary: *binary, main: main.clone(), code, drive: None };
        if *drive { self.with_drive(namespace, found).await } else { Ok(found) }
    }

    /// This code of a namespace with its drive, if it has to have one.
    pub async fn with_drive(
        &self,
        namespace: &Namespace,
        code: ActionCode,
    ) -> Result<ActionCode, CodeError> {
        let drive = self.drives.of(namespace, &code).await?;
        Ok(ActionCode { drive, ..code })
    }

    async fn find_blob(&self, digest: &Digest) -> Result<Arc<Blob>, CodeError> {
        let (blobs, digest) = (self.blobs.clone(), digest.clone());
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

    /// What the code with this digest and its drive for a namespace and a kind take on the disk, in bytes; nothing if it
    /// is missing.
    pub fn bytes_of(&self, namespace: &Namespace, kind: &str, digest: &Digest) -> u64 {
        self.blobs.bytes_of(digest) + self.drives.bytes_of(namespace, kind, digest)
    }

    /// Says which code stored actions name from now on.
    pub fn keep_named<'a>(&self, named: impl Iterator<Item = Named<'a>> + Clone) {
        self.blobs.keep(named.clone().map(|(.., digest)| digest.clone()).collect());
        self.drives.keep_of(named);
    }
}

#[cfg(test)]
mod tests;
