//! How a client reaches its daemon.

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use serde_json::Value;
use squeezy_node::ImageError;
use std::{
    fmt::Display,
    path::{Path, PathBuf},
    time::Duration,
};

/// Longer than the daemon waits for a blocking call.
const LIMIT: Duration = Duration::from_secs(90);

/// Largest answer: a result of 5 MiB may be six times as long as text, and there are logs.
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
}

/// Why the daemon did not do it. One sentence for a person, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The key cannot be read.
    #[error("the daemon's key cannot be read from {}: {error}; give its path (`key` in the daemon's state directory) with --key-file or $SQUEEZY_KEY_FILE", path.display())]
    Key {
        /// Where it should be.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A function's definition cannot be used.
    #[error("{0}")]
    Function(#[from] ImageError),
    /// A function's image cannot be made.
    #[error("{}: {reason}", path.display())]
    Build {
        /// What it was to be made of.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// There is no function in it.
    #[error("{}: not a function: expected a directory with a function.toml, an OCI archive or layout, or the name (without '/') of a built image", path.display())]
    NoFunction {
        /// What was given.
        path: PathBuf,
    },
    /// Its image was made of something else.
    #[error("the image {name:?} was built from another function.toml: build this one with `guest/image/build.sh {}`", directory.display())]
    OtherImage {
        /// The image's name.
        name: String,
        /// Where the function is.
        directory: PathBuf,
    },
    /// There is nothing that could make one.
    #[error(
        "guest/image/build.sh, which makes images of functions, is neither beside the build directory nor in /usr/lib/squeezy: run this in a checkout, or name its build directory with $SQUEEZY_BUILD"
    )]
    NoScript,
    /// The terminal cannot be drawn on.
    #[error("cannot draw on the terminal: {0}; `squeezy status` needs none")]
    Terminal(std::io::Error),
    /// There is no such name.
    #[error("{0:?} is not a valid name: use letters, digits, '-', '_' and '.'")]
    Name(String),
    /// Nobody answers.
    #[error("{url} cannot be reached: {reason}; is `squeezy serve` running there?")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        reason: String,
    },
    /// A function of this name is there.
    #[error(
        "a function of this name exists: change it with --overwrite, or choose another name with --name"
    )]
    Exists,
    /// The daemon says no.
    #[error("{message} (status {status})")]
    Refused {
        /// HTTP's.
        status: u16,
        /// The daemon's.
        message: String,
    },
}

impl ClientError {
    pub fn file(path: &Path, reason: &dyn Display) -> Self {
        Self::File { path: path.to_owned(), reason: reason.to_string() }
    }

    pub fn refused(status: u16, answer: &Value) -> Self {
        let message = answer["error"].as_str().unwrap_or("the daemon gives no reason");
        Self::Refused { status, message: message.split_whitespace().collect::<Vec<_>>().join(" ") }
    }
}

impl Connection {
    /// Sends a request about the namespace; an answer that is an error is one here.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        match self.send(method, path, body)? {
            (200..=299, answer) => Ok(answer),
            (status, answer) => Err(ClientError::refused(status, &answer)),
        }
    }

    /// Sends a request about the namespace; status and answer.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), ClientError> {
        let key = std::fs::read_to_string(&self.key_file)
            .map_err(|error| ClientError::Key { path: self.key_file.clone(), error })?;
        let request = http::Request::builder()
            .method(method)
            .header("Authorization", authorization(&key))
            .header("Content-Type", "application/json");
        let body = body.map_or(String::new(), Value::to_string);
        let path = format!("/api/v1/namespaces/_{path}");
        let (status, text) = self.exchange(request, &path, body)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// What the daemon shows to everybody under a path, and more to those who have the key.
    pub fn get(&self, path: &str) -> Result<String, ClientError> {
        let request = http::Request::builder();
        let request = match std::fs::read_to_string(&self.key_file) {
            Ok(key) => request.header("Authorization", authorization(&key)),
            Err(_) => request,
        };
        match self.exchange(request, path, String::new())? {
            (200, text) => Ok(text),
            (status, text) => {
                let answer = serde_json::from_str(&text).unwrap_or(Value::Null);
                Err(ClientError::refused(status, &answer))
            }
        }
    }

    /// Where the daemon listens.
    pub fn url(&self) -> &str {
        self.url.trim_end_matches('/')
    }

    fn exchange(
        &self,
        request: http::request::Builder,
        path: &str,
        body: String,
    ) -> Result<(u16, String), ClientError> {
        let unreachable = |reason: &dyn Display| self.unreachable(reason);
        let request = request.uri(format!("{}{path}", self.url())).body(body);
        let request = request.map_err(|error| unreachable(&error))?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(LIMIT))
            .build()
            .new_agent();
        let mut answer = agent.run(request).map_err(|error| unreachable(&error))?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        let text = body.read_to_string().map_err(|error| unreachable(&error))?;
        Ok((answer.status().as_u16(), text))
    }

    /// Nobody answers there, or not as the daemon does.
    pub fn unreachable(&self, reason: &dyn Display) -> ClientError {
        ClientError::Unreachable { url: self.url.clone(), reason: reason.to_string() }
    }
}

fn authorization(key: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(key.trim()))
}
