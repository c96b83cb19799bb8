//! A second monitor of QEMU, for what no VMM's user should do: a busy device, unusual sizes.

use serde_json::{Value, json};
use std::{io, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

/// How long QEMU may take for one command.
const ANSWER: Duration = Duration::from_secs(20);

/// A QMP connection.
pub struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Takes a connection that QEMU has opened.
    pub async fn open(stream: UnixStream) -> io::Result<Self> {
        let mut monitor = Self(BufReader::new(stream));
        monitor.read().await?;
        monitor.run("qmp_capabilities", json!({})).await?;
        Ok(monitor)
    }

    /// Runs one command; what it returns.
    pub async fn run(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string();
        self.0.get_mut().write_all(line.as_bytes()).await?;
        loop {
            let mut answer = self.read().await?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("{command}: {}", error["desc"])));
            }
        }
    }

    async fn read(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if timeout(ANSWER, self.0.read_line(&mut line)).await?? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the VMM has closed its monitor",
            ));
        }
        Ok(serde_json::from_str(&line)?)
    }
}
