//! A client's connection to its daemon.

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use serde_json::Value;
use squeezy_node::ImageError;
use squeezy_trust::{SYSTEM, trusting};
use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use ureq::tls::TlsConfig;

/// Longer than the daemon waits for a blocking call.
const LIMIT: Duration = Duration::from_secs(90);

/// How long the daemon may take to answer when it pulls an image first, which others may do before.
const PULL_LIMIT: Duration = Duration::from_secs(7200);

/// How much longer it may take if so many bytes are sent, which are code: on their way, and until its drive is made.
const LIMIT_FOR_CODE: Duration = Duration::from_secs(60);
const FOR_CODE_BYTES: usize = 8 << 20;

/// The largest response that is read: a result of 5 MiB may be six times as long as text, and there
/// are logs.
const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// The daemon's address and key.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// The daemon's address.
    #[arg(long, value_name = "URL", env = "SQUEEZY_URL", default_value = "http://127.0.0.1:3233")]
    url: String,
    /// The file with the daemon's key.
    #[arg(
        long,
        value_name = "FILE",
        env = "SQUEEZY_KEY_FILE",
        default_value = "/var/lib/squeezy/key"
    )]
    key_file: PathBuf,
    /// The certificates, in PEM, that a daemon at an https URL may be vouched for by, or its own.
    #[arg(
        long,
        value_name = "FILE",
        env = "SQUEEZY_CA_FILE",
        default_value = SYSTEM
    )]
    ca_file: PathBuf,
}

/// Why a command failed, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The key cannot be read.
    #[error("the daemon's key cannot be read from {}: {error}; {}", path.display(), another_key(error))]
    Key {
        /// Where it should be.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A function's definition cannot be used.
    #[error("{0}")]
    Function(#[from] ImageError),
    /// A function's image cannot be built.
    #[error("{}: {reason}", path.display())]
    Build {
        /// What it was to be built from.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// The path is not a function.
    #[error("{}: not a function: expected a directory with a function.toml, an OCI archive or layout, or the name (without '/') of a built image", path.display())]
    NoFunction {
        /// The path that was given.
        path: PathBuf,
    },
    /// An archive has none of the files that tell its kind.
    #[error("{}: an archive of which kind? it has none of {telling}: say it with --kind", path.display())]
    UnknownKind {
        /// Its path.
        path: PathBuf,
        /// Names of files.
        telling: String,
    },
    /// A function has no code that could be saved.
    #[error("the function has no code: it is an image or a sequence")]
    NoCode,
    /// An image with the function's name was built from another definition.
    #[error("the image {name:?} was built from another function.toml: build this one with `guest/image/build.sh {}`", directory.display())]
    OtherImage {
        /// The image's name.
        name: String,
        /// The function's directory.
        directory: PathBuf,
    },
    /// The script that builds images is missing.
    #[error(
        "guest/image/build.sh, which makes images of functions, is neither next to the build directory nor in /usr/lib/squeezy: run this in a checkout, or name its build directory with $SQUEEZY_BUILD"
    )]
    NoScript,
    /// The terminal cannot be used.
    #[error("cannot draw on the terminal: {0}; `squeezy status` does not need one")]
    Terminal(io::Error),
    /// The name is not valid.
    #[error("{0:?} is not a valid name: use letters, digits, '-', '_' and '.'")]
    Name(String),
    /// The daemon does not answer.
    #[error("{url} cannot be reached: {reason}; is `squeezy serve` running there?")]
    Unreachable {
        /// Its URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// A function of this name already exists.
    #[error("a function with this name exists: change it with --overwrite, or choose another name")]
    Exists,
    /// The daemon refused the request.
    #[error("{message} (status {status})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The daemon's message.
        message: String,
    },
}

/// How to come by a key.
fn another_key(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run this as root, or have the operator make you a key (`squeezy key create`) and name its file with --key-file or $SQUEEZY_KEY_FILE"
        }
        _ => {
            "give its path (`key` in the daemon's state directory) with --key-file or $SQUEEZY_KEY_FILE"
        }
    }
}

impl ClientError {
    pub fn file(path: &Path, reason: &dyn Display) -> Self {
        Self::File { path: path.to_owned(), reason: reason.to_string() }
    }

    pub fn refused(status: u16, answer: &Value) -> Self {
        let message = answer["error"].as_str().unwrap_or("the daemon gave no reason");
        Self::Refused { status, message: message.split_whitespace().collect::<Vec<_>>().join(" ") }
    }
}

impl Connection {
    /// Sends a request below the namespace; an error response becomes an error.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        accepted(self.send(method, path, body)?)
    }

    /// As [`Self::ask`], for what may take as long as a pull.
    pub fn ask_patiently(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        accepted(self.send_with_key(method, &below_namespace(path), body, PULL_LIMIT)?)
    }

    /// Sends a request about the daemon or a namespace itself.
    pub fn ask_daemon(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        accepted(self.send_with_key(method, &format!("/api/v1{path}"), body, LIMIT)?)
    }

    /// Sends a request below the namespace; returns the response's status and body.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), ClientError> {
        self.send_with_key(method, &below_namespace(path), body, LIMIT)
    }

    fn send_with_key(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<(u16, Value), ClientError> {
        let key = std::fs::read_to_string(&self.key_file)
            .map_err(|error| ClientError::Key { path: self.key_file.clone(), error })?;
        let request = http::Request::builder()
            .method(method)
            .header("Authorization", authorization(&key))
            .header("Content-Type", "application/json");
        let body = body.map_or(String::new(), Value::to_string);
        let (status, text) = self.exchange(request, path, body, limit)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// Gets a public path of the daemon, some of which return more with the key.
    pub fn get(&self, path: &str) -> Result<String, ClientError> {
        let request = http::Request::builder();
        let request = match std::fs::read_to_string(&self.key_file) {
            Ok(key) => request.header("Authorization", authorization(&key)),
            Err(_) => request,
        };
        match self.exchange(request, path, String::new(), LIMIT)? {
            (200, text) => Ok(text),
            (status, text) => {
                let answer = serde_json::from_str(&text).unwrap_or(Value::Null);
                Err(ClientError::refused(status, &answer))
            }
        }
    }

    /// The daemon's URL.
    pub fn url(&self) -> &str {
        self.url.trim_end_matches('/')
    }

    fn exchange(
        &self,
        request: http::request::Builder,
        path: &str,
        body: String,
        limit: Duration,
    ) -> Result<(u16, String), ClientError> {
        let unreachable = |reason: &dyn Display| self.unreachable(reason);
        let limit = limit + LIMIT_FOR_CODE * (body.len() / FOR_CODE_BYTES) as u32;
        let request = request.uri(format!("{}{path}", self.url())).body(body);
        let request = request.map_err(|error| unreachable(&error))?;
        let mut config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(limit));
        if self.url.starts_with("https:") {
            config = config.tls_config(self.tls()?);
        }
        let agent = config.build().new_agent();
        let mut answer = agent.run(request).map_err(|error| unreachable(&error))?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        let text = body.read_to_string().map_err(|error| unreachable(&error))?;
        Ok((answer.status().as_u16(), text))
    }

    /// What a daemon at an https URL has to prove.
    fn tls(&self) -> Result<TlsConfig, ClientError> {
        trusting(&self.ca_file).map_err(|reason| ClientError::file(&self.ca_file, &reason))
    }

    /// An error for a server that does not answer, or not as the daemon does.
    pub fn unreachable(&self, reason: &dyn Display) -> ClientError {
        ClientError::Unreachable { url: self.url.clone(), reason: reason.to_string() }
    }
}

fn below_namespace(path: &str) -> String {
    format!("/api/v1/namespaces/_{path}")
}

/// The answer to a request, or the daemon's reason why it was refused.
fn accepted((status, answer): (u16, Value)) -> Result<Value, ClientError> {
    match status {
        200..=299 => Ok(answer),
        _ => Err(ClientError::refused(status, &answer)),
    }
}

fn authorization(key: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(key.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_key_is_told_how_to_come_by_one() {
        for (kind, part) in [
            (io::ErrorKind::PermissionDenied, "; run this as root, or have the operator"),
            (io::ErrorKind::NotFound, "; give its path (`key` in the daemon's state directory)"),
        ] {
            let error = ClientError::Key { path: "/state/key".into(), error: kind.into() };
            let error = error.to_string();
            assert!(error.contains(part) && error.ends_with("$SQUEEZY_KEY_FILE"), "{error}");
        }
    }
}
