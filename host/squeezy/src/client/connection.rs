//! How a client reaches its daemon.

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use serde_json::Value;
use std::{
    fmt::Display,
    path::{Path, PathBuf},
    time::Duration,
};

/// Longer than the daemon waits for a blocking call.
const LIMIT: Duration = Duration::from_secs(90);

/// Where the daemon is, and who asks.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Where the daemon listens.
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
    /// There is no such name.
    #[error("{0:?} is no name: letters, digits, '-', '_' and '.'")]
    Name(String),
    /// Nobody answers.
    #[error("{url} cannot be reached: {reason}; is `squeezy serve` running there?")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        reason: String,
    },
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
            .map_err(|error| ClientError::file(&self.key_file, &error))?;
        let unreachable = |reason: &dyn Display| ClientError::Unreachable {
            url: self.url.clone(),
            reason: reason.to_string(),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}/api/v1/namespaces/_{path}", self.url.trim_end_matches('/')))
            .header("Authorization", format!("Basic {}", BASE64_STANDARD.encode(key.trim())))
            .header("Content-Type", "application/json")
            .body(body.map_or(String::new(), Value::to_string))
            .map_err(|error| unreachable(&error))?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(LIMIT))
            .build()
            .new_agent();
        let mut answer = agent.run(request).map_err(|error| unreachable(&error))?;
        let text = answer.body_mut().read_to_string().map_err(|error| unreachable(&error))?;
        let value = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok((answer.status().as_u16(), value))
    }
}
