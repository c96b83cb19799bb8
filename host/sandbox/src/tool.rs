//! Runs a command of a tool to its end.

use std::{convert::Infallible, error::Error, fmt};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
};

/// How much of what a tool says is kept, in bytes: the end, which has the reason.
const MOST_SAID: usize = 4096;

/// The longest line of a tool that is looked at, in bytes.
const MOST_LINE: usize = 1024;

/// The longest error that clients get, in characters.
const MOST_CHARACTERS: usize = 400;

/// Runs a command; returns what it writes, of which there may be so much, in bytes.
///
/// # Errors
/// The tool fails, cannot be run, or writes more.
pub async fn output(mut command: Command, most: usize) -> Result<Vec<u8>, ToolError> {
    let mut child = spawn(&mut command)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = async {
        let mut bytes = Vec::new();
        let limit = most as u64 + 1;
        if let Some(stdout) = stdout {
            let _ = stdout.take(limit).read_to_end(&mut bytes).await;
        }
        bytes
    };
    let (bytes, said) = tokio::join!(read, last_words(stderr));
    if bytes.len() > most {
        return Err(ToolError::Said(format!("it is longer than {} MiB", most >> 20)));
    }
    ended(child, &said).await.map(|()| bytes)
}

/// Runs a command, and passes on each line that it writes.
///
/// # Errors
/// The tool fails or cannot be run, or a line is refused: then it is killed.
pub async fn lines<E>(
    mut command: Command,
    mut take: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), ToolError<E>> {
    let mut child = spawn(&mut command)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = async {
        let Some(mut stdout) = stdout else { return Ok(()) };
        let (mut line, mut part) = (Vec::new(), [0; 512]);
        while let Ok(length @ 1..) = stdout.read(&mut part).await {
            for byte in &part[..length] {
                match byte {
                    b'\n' => {
                        take(&String::from_utf8_lossy(&line))?;
                        line.clear();
                    }
                    byte if line.len() < MOST_LINE => line.push(*byte),
                    _ => {}
                }
            }
        }
        Ok(())
    };
    // If what it says is refused, it is killed as this returns.
    let (_, said) = tokio::try_join!(read, async { Ok(last_words(stderr).await) })
        .map_err(ToolError::Refused)?;
    ended(child, &said).await
}

/// Why a tool has not done what it was told.
#[derive(Debug)]
pub enum ToolError<E = Infallible> {
    /// Its own reason, in one line.
    Said(String),
    /// What it was going to do was refused.
    Refused(E),
    /// It cannot be run.
    Missing(std::io::Error),
}

impl<E: fmt::Display> fmt::Display for ToolError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(reason) => f.write_str(reason),
            Self::Refused(error) => write!(f, "{error}"),
            Self::Missing(error) => write!(f, "{error}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> Error for ToolError<E> {}

fn spawn<E>(command: &mut Command) -> Result<Child, ToolError<E>> {
    command.spawn().map_err(ToolError::Missing)
}

async fn ended<E>(mut child: Child, said: &[u8]) -> Result<(), ToolError<E>> {
    let status = child.wait().await.map_err(ToolError::Missing)?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(said);
    let last = said.trim().lines().next_back().unwrap_or_default();
    if last.is_empty() {
        return Err(ToolError::Said(format!("it ended without a reason ({status})")));
    }
    let of_sandbox = ["choom: ", "prlimit: ", "bwrap: ", "listen.py: "];
    if let Some(missing) = of_sandbox.iter().find_map(|name| last.strip_prefix(*name)) {
        return Err(ToolError::Missing(std::io::Error::other(presentable(missing))));
    }
    Err(ToolError::Said(presentable(last)))
}

/// The end of what a tool writes, all of which is read so that it can go on.
async fn last_words(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let (mut kept, mut part) = (Vec::new(), [0; 1024]);
    if let Some(mut from) = from {
        while let Ok(length @ 1..) = from.read(&mut part).await {
            kept.extend_from_slice(&part[..length]);
            kept.drain(..kept.len().saturating_sub(MOST_SAID));
        }
    }
    kept
}

/// A tool's reason without what is only for its log, and without what would tell a terminal what to do.
fn presentable(line: &str) -> String {
    // Others may quote a name that ends like this.
    let logged = line.split_once("msg=\"").filter(|_| line.starts_with("time=\""));
    let message = logged.map_or(line.to_owned(), |(_, message)| {
        let (mut text, mut escaped) = (String::new(), false);
        for c in message.chars() {
            match c {
                c if escaped => {
                    text.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => break,
                c => text.push(c),
            }
        }
        text
    });
    // skopeo calls everything that goes wrong first this.
    let message = match message.strip_prefix("Error parsing image name \"") {
        Some(rest) => rest.split_once("\": ").map_or(rest, |(_, reason)| reason),
        None => &message,
    };
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sandbox;
    use std::path::Path;

    #[test]
    fn a_tools_reason_is_one_line_without_its_log() {
        let line = r#"time="2026-11-25T21:42:43Z" level=fatal msg="Error parsing image name \"docker://r.example/a:1\": reading manifest 1 in r.example/a: manifest unknown""#;
        assert_eq!(presentable(line), "reading manifest 1 in r.example/a: manifest unknown");
        assert_eq!(presentable("a\u{1b}[31mb"), "a [31mb");
        let quoted = r#"The archive has the file "msg=", which is not inside it"#;
        assert_eq!(presentable(quoted), quoted);
        assert_eq!(presentable(&"x".repeat(5000)).len(), MOST_CHARACTERS);
    }

    fn script(work: &Path, script: &str) -> Command {
        let files = Vec::new();
        Sandbox { work, files, most_file_bytes: 1 << 20 }.command(["sh", "-c", script])
    }

    async fn said(work: &Path, text: &str) -> String {
        match output(script(work, text), 1 << 20).await {
            Ok(bytes) => String::from_utf8(bytes).unwrap(),
            Err(ToolError::Said(reason)) => format!("failed: {reason}"),
            Err(ToolError::Missing(error)) => panic!("{error}"),
            Err(ToolError::Refused(never)) => match never {},
        }
    }

    #[tokio::test]
    async fn nothing_but_the_directory_is_within_reach() {
        let directory = tempfile::tempdir().unwrap();
        let secret = tempfile::NamedTempFile::new().unwrap();
        let look = format!("cat {} 2>&1; ls / /home /etc 2>/dev/null", secret.path().display());
        let seen = said(directory.path(), &format!("{look}; true")).await;
        assert!(seen.contains("No such file"), "{seen}");
        assert!(!seen.contains("passwd") && !seen.contains("root\n"), "{seen}");
        assert_eq!(said(directory.path(), "echo x > here; cat here").await, "x\n");
        let written = said(directory.path(), "echo x > /usr/x 2>/dev/null || echo refused").await;
        assert_eq!(written, "refused\n");
        let only = said(
            directory.path(),
            "while read -r l; do echo $l; done < /proc/1/comm 2>/dev/null; echo $$",
        )
        .await;
        assert!(only.trim().parse::<u32>().is_ok_and(|id| id < 10), "{only}");
    }

    #[tokio::test]
    async fn what_it_takes_is_limited() {
        let directory = tempfile::tempdir().unwrap();
        let long =
            said(directory.path(), "head -c 3000000 /dev/zero > long; ls -l long | cut -d' ' -f5")
                .await;
        assert_eq!(long, format!("{}\n", 1 << 20));
        let memory =
            said(directory.path(), "python3 -c 'x = bytearray(1 << 31)' 2>/dev/null && echo had")
                .await;
        assert!(memory.starts_with("failed"), "{memory}");
        let much = said(directory.path(), "head -c 3000000 /dev/zero").await;
        assert_eq!(much, "failed: it is longer than 1 MiB");
    }

    #[tokio::test]
    async fn it_is_killed_before_others_when_memory_is_short() {
        let directory = tempfile::tempdir().unwrap();
        let mut tool = script(directory.path(), "echo runs; exec sleep 1000").spawn().unwrap();
        let mut said = [0; 5];
        tool.stdout.as_mut().unwrap().read_exact(&mut said).await.unwrap();
        let score = format!("/proc/{}/oom_score_adj", tool.id().unwrap());
        assert_eq!(std::fs::read_to_string(score).unwrap(), "1000\n");
    }

    #[tokio::test]
    async fn lines_are_passed_on_until_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut seen = Vec::new();
        let endless =
            script(directory.path(), "head -c 9000 /dev/zero; echo; while echo more; do :; done");
        let end = lines(endless, |line| {
            seen.push(line.len());
            if seen.len() < 3 { Ok(()) } else { Err("enough") }
        });
        assert!(matches!(end.await, Err(ToolError::Refused("enough"))));
        assert_eq!(seen, [MOST_LINE, 4, 4]);
    }
}
