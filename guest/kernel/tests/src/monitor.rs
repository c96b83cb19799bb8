//! A second monitor of QEMU, for what no VMM's user should do: a busy device, unusual sizes, broken
//! memory.

use serde_json::{Value, json};
use std::{io, ops::Range, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

/// How long QEMU may take for one command.
const ANSWER: Duration = Duration::from_secs(60);

/// Arguments of QEMU for a processor that Linux believes when it says which page is broken: from one of
/// AMD, which is what QEMU has else, it takes any such error as the end. With a later one of Intel all
/// processors have to meet for it within a second, which emulated ones may not have.
pub const BELIEVED_PROCESSOR: [&str; 2] =
    ["-cpu", "max,-erms,-fsrm,vendor=GenuineIntel,family=6,model=13"];

/// What the processor says then: an uncorrected error that a scrubber has found, at a known address.
const STATUS: u64 = 0xbd00_0000_0000_00c0;
/// That it can go on, and has stopped for this.
const MACHINE_STATUS: u64 = 5;
/// That the address is a physical one, and good to a page.
const MISCELLANEOUS: u64 = 2 << 6 | 12;
/// Any bank but those that are used for something.
const BANK: u64 = 9;

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

    /// Has the guest told, by a machine check, that the page is broken that lies so many bytes into the
    /// region of the first memory device. The VM needs the [`BELIEVED_PROCESSOR`].
    pub async fn break_page(&mut self, offset: u64) -> io::Result<()> {
        let address = self.region().await? + offset;
        let line =
            format!("mce 0 {BANK} {STATUS:#x} {MACHINE_STATUS} {address:#x} {MISCELLANEOUS:#x}");
        match &*self.human(&line).await? {
            "" => Ok(()),
            said => Err(io::Error::other(format!("{line}: {said}"))),
        }
    }

    /// The guest-physical address of the region of the first memory device.
    pub async fn region(&mut self) -> io::Result<u64> {
        let devices = self.run("query-memory-devices", json!({})).await?;
        let start = devices[0]["data"]["memaddr"].as_u64();
        start.ok_or_else(|| io::Error::other("there is no memory device"))
    }

    /// Where QEMU's process has the memory that the guest has booted with.
    pub async fn base_memory(&mut self) -> io::Result<Range<u64>> {
        let sizes = self.run("query-memory-size-summary", json!({})).await?;
        let said = self.human("gpa2hva 0").await?;
        let start = said.trim().rsplit_once("is 0x");
        let start = start.and_then(|(_, start)| u64::from_str_radix(start, 16).ok());
        match (start, sizes["base-memory"].as_u64()) {
            (Some(start), Some(bytes)) => Ok(start..start + bytes),
            _ => Err(io::Error::other(format!("{said}, {sizes}"))),
        }
    }

    /// Runs a command that only people are meant to use; what it says.
    async fn human(&mut self, line: &str) -> io::Result<String> {
        let said = self.run("human-monitor-command", json!({ "command-line": line })).await?;
        Ok(said.as_str().unwrap_or_default().to_owned())
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
