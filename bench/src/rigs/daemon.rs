//! `squeezy serve` in a process of its own, with a state directory of its own.

use crate::{
    error::{BenchError, Result},
    harness::{Options, Session, processor::children},
    record::{Guest, Recorded},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use squeezy_vmm::Kernel;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long the daemon may take to start listening.
const START_LIMIT: Duration = Duration::from_secs(60);
const START_PAUSE: Duration = Duration::from_millis(50);

/// How long a request may take: longer than the daemon waits for a call.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);

/// The largest response that is read: a result of 5 MiB may be six times as long as text.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// A running daemon. Dropping it ends it, and with it its VMs.
pub(crate) struct Daemon {
    child: Child,
    directory: TempDir,
    agent: ureq::Agent,
    url: String,
}

/// How to start a daemon.
pub(crate) struct Setup<'a> {
    /// Where it keeps its state.
    pub(crate) directory: TempDir,
    /// Keys of its configuration besides those that the session decides.
    pub(crate) configuration: &'a str,
    /// Images that it serves from the start.
    pub(crate) images: &'a [&'a Path],
}

/// Somebody with a key.
#[derive(Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    url: String,
    authorization: String,
}

/// What the daemon has answered.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// From the request until the whole response had arrived.
    pub(crate) latency: Duration,
}

impl Response {
    /// The body of a successful response.
    pub(crate) fn value(&self) -> Result<Value> {
        match serde_json::from_str(&self.text) {
            Ok(value) if (200..300).contains(&self.status) => Ok(value),
            _ => {
                let text = self.text.replace('\n', " ");
                Err(BenchError::function(format!("status {}: {text:.200}", self.status)))
            }
        }
    }
}

impl Daemon {
    /// Starts a daemon. Nothing is booted before the first call.
    pub(crate) async fn start<F: Recorded>(
        session: &Session<F>,
        Setup { directory, configuration, images }: Setup<'_>,
    ) -> Result<Self> {
        let at = |name: &str| directory.path().join(name);
        let file = at("squeezy.toml");
        let Options { accelerator, memory_backend, .. } = &session.options;
        let configuration = format!(
            "listen = \"127.0.0.1:0\"\nstate_directory = \"state\"\n\
             accelerator = \"{accelerator}\"\nmemory_backend = \"{memory_backend}\"\n{configuration}"
        );
        fs::write(&file, configuration).map_err(|e| BenchError::file(&file, e))?;
        let log = File::create(at("log")).map_err(|e| BenchError::file(at("log"), e))?;
        let errors = log.try_clone().map_err(|e| BenchError::file(at("log"), e))?;
        let program = program()?;
        let mut command = Command::new(&program);
        command.arg("serve").arg("--config").arg(&file);
        command.arg("--build").arg(session.files.path()).args(images);
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let child = child.map_err(|e| BenchError::file(program, e))?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(REQUEST_LIMIT))
            .build()
            .new_agent();
        let mut daemon = Self { child, directory, agent, url: String::new() };
        daemon.url = daemon.listens().await?;
        Ok(daemon)
    }

    /// Waits until it listens; returns its URL.
    async fn listens(&mut self) -> Result<String> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let log = self.log()?;
            if let Some(url) = between(&log, "serving on ", ", the key is in ") {
                return Ok(url.to_owned());
            }
            let ended = self.child.try_wait().map_err(|e| failed(e.to_string()))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(failed(
                    log.lines().next_back().unwrap_or("it printed nothing").to_owned(),
                ));
            }
            tokio::time::sleep(START_PAUSE).await;
        }
    }

    /// The operator.
    pub(crate) fn operator(&self) -> Result<Client> {
        let path = self.directory.path().join("state/key");
        let key = fs::read_to_string(&path).map_err(|e| BenchError::file(&path, e))?;
        Ok(self.client(key.trim()))
    }

    /// Whoever has this key.
    pub(crate) fn client(&self, key: &str) -> Client {
        let authorization = format!("Basic {}", BASE64_STANDARD.encode(key));
        Client { agent: self.agent.clone(), url: self.url.clone(), authorization }
    }

    /// The daemon's process id.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// The process ids of its VMs.
    pub(crate) fn vm_processes(&self) -> Result<Vec<u32>> {
        children(self.process())
    }

    /// The guests' kernel and the VMM, which are known after the first call.
    pub(crate) fn guest(&self) -> Result<Guest> {
        let log = self.log()?;
        let line = log.lines().find(|line| line.contains(" runs Linux "));
        line.and_then(|line| {
            let kernel = between(line, " runs Linux ", " after ")?;
            Some(Guest::new(kernel, Kernel::Release, between(line, ": ", " runs Linux ")?))
        })
        .ok_or_else(|| failed("its log does not say which VM it runs".to_owned()))
    }

    fn log(&self) -> Result<String> {
        let path = self.directory.path().join("log");
        fs::read_to_string(&path).map_err(|e| BenchError::file(path, e))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // If it has exited already, this only reaps it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    /// Sends a request with this path below `/api/v1/namespaces/`, and waits for the whole response.
    pub(crate) async fn send(
        &self,
        method: http::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}/api/v1/namespaces/{path}", self.url))
            .header("Authorization", &self.authorization)
            .header("Content-Type", "application/json")
            .body(body.map_or(String::new(), Value::to_string))
            .map_err(|e| failed(e.to_string()))?;
        let agent = self.agent.clone();
        let exchange = move || {
            let start = Instant::now();
            let mut answer = agent.run(request)?;
            let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string()?;
            Ok::<_, ureq::Error>(Response {
                status: answer.status().as_u16(),
                text,
                latency: start.elapsed(),
            })
        };
        tokio::task::spawn_blocking(exchange)
            .await
            .map_err(|e| failed(e.to_string()))?
            .map_err(|e| failed(format!("it cannot be reached: {e}")))
    }
}

/// Path of `squeezy`, which is built and installed next to this program.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|e| BenchError::file("/proc/self/exe", e))?;
    let program = own.with_file_name("squeezy");
    match program.exists() {
        true => Ok(program),
        false => Err(BenchError::file(program, "it is missing: `make programs` builds it")),
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(part, _)| part)
}

/// What is wrong with the daemon of an experiment.
pub(crate) fn failed(reason: String) -> BenchError {
    BenchError::Arguments(format!("the daemon of the experiment: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_says_is_understood() {
        let line = "     4.416 vm 0: QEMU 7.2.22 runs Linux 6.12.117 after 2188.8 ms";
        assert_eq!(between(line, " runs Linux ", " after "), Some("6.12.117"));
        assert_eq!(between(line, ": ", " runs Linux "), Some("QEMU 7.2.22"));
        assert_eq!(between(line, "serving on ", ","), None);
    }

    #[test]
    fn only_a_success_has_a_value() {
        let response = |status, text: &str| Response {
            status,
            text: text.to_owned(),
            latency: Duration::ZERO,
        };
        assert_eq!(response(202, "[1]").value().unwrap(), serde_json::json!([1]));
        for (status, text) in [(200, "{"), (429, "{}"), (502, "no\nway")] {
            let error = response(status, text).value().unwrap_err().to_string();
            assert!(error.contains(&status.to_string()) && !error.contains('\n'), "{error}");
        }
    }
}
