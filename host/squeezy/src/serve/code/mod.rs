//! The code of actions, under its digest: an action keeps the code it was made from, and actions with the
//! same code share it.
//!
//! `code/HEX` in the state directory is the code itself, archives and programs not in base64; HEX is its
//! SHA-256. It is written aside, synced and renamed before an action that names it is stored, and removed
//! only once no stored action names it. So wherever the daemon is killed, every stored action has its code.

mod contract;
mod given;

pub use contract::RunsCode;
pub use given::GivenCode;

use sha2::{Digest as _, Sha256};
use squeezy_openwhisk::{Digest, kind::Kind};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Name of its directory in the state directory.
const DIRECTORY: &str = "code";

/// Suffix of the names of files that are being written.
const UNFINISHED: &str = ".new";

/// Why code cannot be kept or used, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// It is not what its kind or the request says.
    #[error("exec.code: {0}")]
    Wrong(String),
    /// Stored code has disappeared or was changed.
    #[error("its code {0} is missing or was changed: create the action again with its code")]
    Gone(Digest),
}

/// Code that is kept for as long as this lives.
#[derive(Debug)]
pub struct Code {
    /// Its digest.
    pub digest: Digest,
    path: PathBuf,
    /// Its length, in bytes.
    pub bytes: u64,
}

impl Code {
    /// Reads it and verifies its digest.
    pub fn read(&self) -> Result<Vec<u8>, CodeError> {
        match fs::read(&self.path) {
            Ok(code) if sum(&code) == self.digest => Ok(code),
            Ok(_) => Err(CodeError::Gone(self.digest.clone())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(CodeError::Gone(self.digest.clone()))
            }
            Err(error) => Err(failed(&self.path)(error)),
        }
    }
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
    pub code: Arc<Code>,
}

/// The code of a state directory's actions.
#[derive(Debug)]
pub struct Codes {
    directory: PathBuf,
    /// Code in use. Also held while a file is renamed or removed.
    used: Mutex<BTreeMap<Digest, Weak<Code>>>,
    /// Makes the names of unfinished files unique.
    writes: AtomicU64,
}

impl Codes {
    /// Opens the code of a state directory, which must not be in use by another process.
    pub fn open(state: &Path) -> Result<Self, CodeError> {
        let directory = state.join(DIRECTORY);
        let entries = match fs::read_dir(&directory) {
            // It is made with the first action that has code.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            entries => Some(entries.map_err(failed(&directory))?),
        };
        // Left by a daemon that was killed.
        for entry in entries.into_iter().flatten().flatten() {
            let path = entry.path();
            if path.as_os_str().as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
                fs::remove_file(&path).map_err(failed(&path))?;
            }
        }
        Ok(Self { directory, used: Mutex::default(), writes: AtomicU64::new(0) })
    }

    /// Keeps code that a client has given for an action of a kind.
    pub async fn keep(
        self: &Arc<Self>,
        kind: &'static Kind,
        main: Option<String>,
        binary: Option<bool>,
        given: GivenCode,
    ) -> Result<ActionCode, CodeError> {
        let codes = self.clone();
        blocking(move || {
            let binary = given.is_binary(binary);
            let begins = given.beginning(binary)?;
            if let Some(problem) = kind.problem(binary, &begins) {
                return Err(CodeError::Wrong(problem));
            }
            let code = codes.write(|file| given.write(binary, file))?;
            Ok(ActionCode { kind, binary, main, code })
        })
        .await
    }

    /// Returns stored code after verifying its digest.
    pub async fn find(self: &Arc<Self>, digest: &Digest) -> Result<Arc<Code>, CodeError> {
        let (codes, digest) = (self.clone(), digest.clone());
        blocking(move || {
            if let Some(code) = codes.used().get(&digest).and_then(Weak::upgrade) {
                return Ok(code);
            }
            let path = codes.directory.join(digest.digits());
            let bytes = path.metadata().map_or(0, |metadata| metadata.len());
            let code = Code { digest, path, bytes };
            code.read()?;
            Ok(codes.hold(&mut codes.used(), code))
        })
        .await
    }

    /// Removes code that is neither stored nor in use.
    pub async fn sweep(self: &Arc<Self>, kept: BTreeSet<Digest>) {
        let codes = self.clone();
        // What cannot be removed now will be removed the next time.
        let _ = blocking(move || codes.remove_all_but(&kept)).await;
    }

    fn write(
        &self,
        contents: impl FnOnce(&mut Sink) -> Result<(), CodeError>,
    ) -> Result<Arc<Code>, CodeError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.map_err(failed(&self.directory))?;
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let aside = Aside(self.directory.join(format!("{number}{UNFINISHED}")));
        let mut options = File::options();
        let file = options.create_new(true).write(true).mode(0o600).open(&aside.0);
        let file = file.map_err(failed(&aside.0))?;
        let mut sink = Sink { file, path: aside.0.clone(), sum: Sha256::new(), bytes: 0 };
        contents(&mut sink)?;
        sink.file.sync_all().map_err(failed(&aside.0))?;
        let digest = Digest::of_sum(sink.sum.finalize().into());
        let path = self.directory.join(digest.digits());
        let mut used = self.used();
        // What is there under this name may have been altered or removed since it was verified.
        fs::rename(&aside.0, &path).map_err(failed(&path))?;
        for directory in [Some(&*self.directory), self.directory.parent()].into_iter().flatten() {
            File::open(directory).and_then(|open| open.sync_all()).map_err(failed(directory))?;
        }
        Ok(self.hold(&mut used, Code { digest, path, bytes: sink.bytes }))
    }

    fn hold(&self, used: &mut BTreeMap<Digest, Weak<Code>>, code: Code) -> Arc<Code> {
        if let Some(code) = used.get(&code.digest).and_then(Weak::upgrade) {
            return code;
        }
        let code = Arc::new(code);
        used.insert(code.digest.clone(), Arc::downgrade(&code));
        code
    }

    fn remove_all_but(&self, kept: &BTreeSet<Digest>) -> Result<(), CodeError> {
        let mut used = self.used();
        used.retain(|_, code| code.strong_count() > 0);
        let Ok(entries) = fs::read_dir(&self.directory) else { return Ok(()) };
        let mut result = Ok(());
        for entry in entries.flatten() {
            // Any other name is a file that is being written.
            let Ok(digest) = Digest::of_digits(&entry.file_name().to_string_lossy()) else {
                continue;
            };
            if !kept.contains(&digest) && !used.contains_key(&digest) {
                let removed = fs::remove_file(entry.path()).map_err(failed(&entry.path()));
                result = result.and(removed);
            }
        }
        result
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<Digest, Weak<Code>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that is being written, and the sum of what is in it.
pub struct Sink {
    file: File,
    path: PathBuf,
    sum: Sha256,
    bytes: u64,
}

impl Sink {
    fn take(&mut self, part: &[u8]) -> Result<(), CodeError> {
        self.sum.update(part);
        self.bytes += part.len() as u64;
        self.file.write_all(part).map_err(failed(&self.path))
    }
}

/// An unfinished file, removed on drop unless it was renamed.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes code into `text` as clients get it: a JSON string, in base64 if it is `binary`.
pub fn write_as_json(code: &ActionCode, text: &mut Vec<u8>) -> Result<(), CodeError> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let path = &code.code.path;
    if !code.binary {
        let source = code.code.read()?;
        let source = String::from_utf8_lossy(&source);
        return serde_json::to_writer(text, &source).map_err(|error| failed(path)(error.into()));
    }
    let mut file = File::open(path).map_err(failed(path))?;
    // Without padding before the end of the last part.
    let mut part = vec![0; 3 << 14];
    let mut encoded = vec![0; 4 << 14];
    text.push(b'"');
    loop {
        let mut filled = 0;
        while filled < part.len() {
            match file.read(&mut part[filled..]).map_err(failed(path))? {
                0 => break,
                length => filled += length,
            }
        }
        let length = BASE64_STANDARD.encode_slice(&part[..filled], &mut encoded);
        let length = length.map_err(|error| failed(path)(io::Error::other(error)))?;
        text.extend_from_slice(&encoded[..length]);
        if filled < part.len() {
            text.push(b'"');
            return Ok(());
        }
    }
}

fn sum(code: &[u8]) -> Digest {
    Digest::of_sum(Sha256::digest(code).into())
}

/// Runs disk I/O outside the threads that answer calls.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CodeError> + Send + 'static,
) -> Result<T, CodeError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(CodeError::File { path: PathBuf::new(), error: io::Error::other(error) })
    })
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CodeError {
    let path = path.to_owned();
    |error| CodeError::File { path, error }
}

#[cfg(test)]
mod tests;
