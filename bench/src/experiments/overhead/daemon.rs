//! The experiment's daemon, with one function.

use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::{Guest, Recorded},
    rigs::daemon::{self, Client, Setup, failed},
};
use serde_json::Value;
use squeezy_node::parse_toml;
use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

/// The server of an instance, with a client in the same program.
const INSIDE: &str = include_str!("inside.py");

/// A running daemon. Dropping it ends it, and with it its VM.
pub(super) struct Daemon {
    daemon: daemon::Daemon,
    client: Client,
    action: String,
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
        let given = session.files.image(function);
        let given = given.canonicalize().map_err(|e| {
            BenchError::file(given, format!("{e}: `make image FUNCTION=functions/{function}`"))
        })?;
        let image = directory.path().join(format!("{function}.erofs"));
        symlink(&given, &image).map_err(|e| BenchError::file(&image, e))?;
        let definition = with_client(&session.files.image(function).with_extension("toml"))?;
        write(&image.with_extension("toml"), &definition)?;
        let setup = Setup { directory, configuration: "", images: &[&image] };
        let daemon = daemon::Daemon::start(session, setup).await?;
        let client = daemon.operator()?;
        let action = format!("_/actions/{function}?blocking=true&result=true");
        Ok(Self { daemon, client, action })
    }

    /// Calls the function and waits for its response.
    pub(super) async fn call(&self, arguments: &Value) -> Result<Answer> {
        let response = self.client.send(http::Method::POST, &self.action, Some(arguments)).await?;
        let (bytes, latency) = (response.text.len() as u64, response.latency);
        Ok(Answer { value: response.value()?, bytes, latency })
    }

    /// The daemon's process id.
    pub(super) fn process(&self) -> u32 {
        self.daemon.process()
    }

    /// The process id of its only VM, which exists after the first call.
    pub(super) fn vm_process(&self) -> Result<u32> {
        match self.daemon.vm_processes()?[..] {
            [vm] => Ok(vm),
            ref others => Err(failed(format!("it has {} VMs instead of one", others.len()))),
        }
    }

    /// The guest's kernel and the VMM, which are known after the first call.
    pub(super) fn guest(&self) -> Result<Guest> {
        self.daemon.guest()
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

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| BenchError::file(path, e))
}

fn write(path: &Path, text: &str) -> Result {
    fs::write(path, text).map_err(|e| BenchError::file(path, e))
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
}
