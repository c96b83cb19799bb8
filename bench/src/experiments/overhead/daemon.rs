//! The experiment's daemon: `squeezy serve` with one function.

use crate::{
    error::{BenchError, Result},
    harness::{Options, Session, processor::children},
    record::Recorded,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use squeezy_node::parse_toml;
use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The server of an instance, with a client in the same program.
const INSIDE: &str = include_str!("inside.py");

/// How long the daemon may take to start listening.
const START_LIMIT: Duration = Duration::from_secs(60);
const START_PAUSE: Duration = Duration::from_millis(50);

/// How long a call may take: longer than the daemon waits for one.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// The largest response that is read: a result of 5 MiB may be six times as long as text.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// A running daemon. Dropping it ends it, and with it its VM.
pub(super) struct Daemon {
    child: Child,
    directory: TempDir,
    client: ureq::Agent,
    action: String,
    authorization: String,
}

/// A response of the function.
pub(super) struct Answer {
    pub(super) value: Value,
    pub(super) bytes: u64,
    /// From the call until the whole response had arrived.
    pub(super) latency: Duration,
}

impl Daemon {
    /// Serves a function with `squeezy`; nothing is booted before the first call.
    pub(super) async fn start<F: Recorded>(session: &Session<F>, function: &str) -> Result<Self> {
        let directory = tempfile::tempdir().map_err(|e| BenchError::file("/tmp", e))?;
        let at = |name: &str| directory.path().join(name);
        let given = session.files.image(function);
        let given = given.canonicalize().map_err(|e| {
            BenchError::file(given, format!("{e}: `make image FUNCTION=functions/{function}`"))
        })?;
        let image = at(&format!("{function}.erofs"));
        symlink(&given, &image).map_err(|e| BenchError::file(&image, e))?;
        let definition = with_client(&session.files.image(function).with_extension("toml"))?;
        write(&image.with_extension("toml"), &definition)?;
        let configuration = at("squeezy.toml");
        let Options { accelerator, memory_backend, .. } = &session.options;
        write(
            &configuration,
            &format!(
                "listen = \"127.0.0.1:0\"\nstate_directory = \"state\"\n\
                 accelerator = \"{accelerator}\"\nmemory_backend = \"{memory_backend}\"\n"
            ),
        )?;
        let log = File::create(at("log")).map_err(|e| BenchError::file(at("log"), e))?;
        let errors = log.try_clone().map_err(|e| BenchError::file(at("log"), e))?;
        let program = program()?;
        let mut command = Command::new(&program);
        command.arg("serve").arg("--config").arg(&configuration);
        command.arg("--build").arg(session.files.path()).arg(&image);
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let child = child.map_err(|e| BenchError::file(program, e))?;
        let mut daemon = Self {
            child,
            directory,
            client: ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(CALL_LIMIT))
                .build()
                .new_agent(),
            action: String::new(),
            authorization: String::new(),
        };
        let url = daemon.listens().await?;
        daemon.action =
            format!("{url}/api/v1/namespaces/_/actions/{function}?blocking=true&result=true");
        let key = read(&daemon.directory.path().join("state/key"))?;
        daemon.authorization = format!("Basic {}", BASE64_STANDARD.encode(key.trim()));
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

    /// Calls the function and waits for its response.
    pub(super) async fn call(&self, arguments: &Value) -> Result<Answer> {
        let request = http::Request::post(&self.action)
            .header("Authorization", &self.authorization)
            .header("Content-Type", "application/json")
            .body(arguments.to_string())
            .map_err(|e| failed(e.to_string()))?;
        let client = self.client.clone();
        let exchange = move || {
            let start = Instant::now();
            let mut answer = client.run(request)?;
            let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string()?;
            Ok::<_, ureq::Error>((start.elapsed(), answer.status(), text))
        };
        let exchanged = tokio::task::spawn_blocking(exchange).await;
        let (latency, status, text) = exchanged
            .map_err(|e| failed(e.to_string()))?
            .map_err(|e| failed(format!("it cannot be called: {e}")))?;
        match serde_json::from_str(&text) {
            Ok(value) if status == 200 => Ok(Answer { value, bytes: text.len() as u64, latency }),
            _ => {
                let text = text.replace('\n', " ");
                Err(BenchError::function(format!("status {status}: {text:.200}")))
            }
        }
    }

    /// The daemon's process id.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// The process id of its only VM, which exists after the first call.
    pub(super) fn vm_process(&self) -> Result<u32> {
        match children(self.process())?[..] {
            [vm] => Ok(vm),
            ref others => Err(failed(format!("it has {} VMs instead of one", others.len()))),
        }
    }

    /// The guest's kernel and the VMM, which are known after the first call.
    pub(super) fn guest(&self) -> Result<(String, String)> {
        let log = self.log()?;
        let line = log.lines().find(|line| line.contains(" runs Linux "));
        line.and_then(|line| {
            let kernel = between(line, " runs Linux ", " after ")?;
            Some((kernel.to_owned(), between(line, ": ", " runs Linux ")?.to_owned()))
        })
        .ok_or_else(|| failed("its log does not say which VM it runs".to_owned()))
    }

    fn log(&self) -> Result<String> {
        read(&self.directory.path().join("log"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // If it has exited already, this only reaps it.
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// A function's definition that runs the client next to its server.
fn with_client(path: &Path) -> Result<String> {
    let mut definition: toml::Table =
        parse_toml(&read(path)?).map_err(|e| BenchError::file(path, e))?;
    let server = |definition: &toml::Table| {
        let command = definition.get("command")?.as_array()?;
        match command.iter().map(toml::Value::as_str).collect::<Option<Vec<_>>>()?[..] {
            [python, server] => Some([python.to_owned(), server.to_owned()]),
            _ => None,
        }
    };
    let (Some([python, server]), Some(port)) =
        (server(&definition), definition.get("port").and_then(toml::Value::as_integer))
    else {
        return Err(BenchError::file(path, "its command is not a Python program on a port"));
    };
    let command = [python, "-c".to_owned(), INSIDE.to_owned(), port.to_string(), server];
    definition.insert("command".to_owned(), command.to_vec().into());
    Ok(definition.to_string())
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(part, _)| part)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| BenchError::file(path, e))
}

fn write(path: &Path, text: &str) -> Result {
    fs::write(path, text).map_err(|e| BenchError::file(path, e))
}

fn failed(reason: String) -> BenchError {
    BenchError::Arguments(format!("the daemon of the experiment: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_node::function::Function;

    #[test]
    fn a_definition_keeps_all_but_its_command() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("html.toml");
        let text = include_str!("../../../../functions/html/function.toml");
        write(&path, text).unwrap();
        let changed = Function::parse(&with_client(&path).unwrap()).unwrap();
        let plain = Function::parse(text).unwrap();
        let [_, _, script, port, server] = &changed.command[..] else { panic!("{changed:?}") };
        assert_eq!((script.as_str(), port.as_str()), (INSIDE, "8080"));
        assert_eq!(Some(server), plain.command.last());
        assert_eq!(Function { command: plain.command.clone(), ..changed }, plain);
        for wrong in ["command = [\"/server\"]\nport = 1", "command = 1", "["] {
            write(&path, wrong).unwrap();
            let error = with_client(&path).unwrap_err().to_string();
            assert!(error.contains("html.toml") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn what_the_daemon_says_is_understood() {
        let line = "     4.416 vm 0: QEMU 7.2.22 runs Linux 6.12.117 after 2188.8 ms";
        assert_eq!(between(line, " runs Linux ", " after "), Some("6.12.117"));
        assert_eq!(between(line, ": ", " runs Linux "), Some("QEMU 7.2.22"));
        assert_eq!(between(line, "serving on ", ","), None);
    }
}
