//! The guest's console: its most recent lines, for error messages and for listeners.

use crate::mutex::lock;
use std::{
    collections::VecDeque,
    fs::File,
    io::Write,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{broadcast, watch},
};
use tracing::Instrument;

/// Lines to keep.
const KEPT_LINES: usize = 2000;
/// The maximum length of a line; what exceeds it becomes the next line.
const MAX_LINE_BYTES: usize = 1024;
/// The most bytes that are copied to the log file.
const MAX_LOG_BYTES: usize = 16 << 20;
/// How many of the last lines of a VM that has failed are said: a panic or a stall with its traces.
const LINES_OF_A_FAILURE: usize = 60;
/// What the kernel prints when it panics.
const PANIC: &str = "Kernel panic - not syncing";

/// A handle on the most recent lines; clones share them.
#[derive(Clone)]
pub struct Console {
    lines: Arc<Mutex<VecDeque<Arc<str>>>>,
    listeners: broadcast::Sender<Arc<str>>,
    panic: watch::Sender<Option<Arc<str>>>,
}

impl Console {
    pub(crate) fn new() -> Self {
        Self {
            lines: Arc::default(),
            listeners: broadcast::channel(KEPT_LINES).0,
            panic: watch::channel(None).0,
        }
    }

    /// The last `count` lines.
    pub fn tail(&self, count: usize) -> Vec<Arc<str>> {
        let lines = self.lock();
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// Says the last lines of a VM that has failed: the line in its error seldom tells why.
    pub(crate) fn say_last_lines(&self, vm: &str) {
        let _span = tracing::info_span!("guest", vm).entered();
        for line in self.tail(LINES_OF_A_FAILURE) {
            tracing::info!("{line}");
        }
    }

    /// The last line that is not empty.
    pub fn last_line(&self) -> String {
        self.lock()
            .iter()
            .rev()
            .find(|line| !line.trim().is_empty())
            .map(ToString::to_string)
            .unwrap_or_default()
    }

    /// Every line from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<str>> {
        self.listeners.subscribe()
    }

    /// The line with which the kernel panicked, if it did.
    pub fn panic(&self) -> Option<Arc<str>> {
        self.panic.borrow().clone()
    }

    /// Waits until the kernel panics, and returns that line.
    pub(crate) async fn panicked(&self) -> Arc<str> {
        let mut panic = self.panic.subscribe();
        match panic.wait_for(Option::is_some).await.map(|line| line.clone()) {
            Ok(Some(line)) => line,
            _ => std::future::pending().await,
        }
    }

    /// Processes `source` until it ends. Each line, from the kernel or the agent, is also a
    /// `tracing` event with the name of the VM.
    pub(crate) async fn follow(
        self,
        vm: String,
        source: impl AsyncRead + Unpin,
        log: Option<File>,
    ) {
        let span = tracing::debug_span!("guest", vm);
        let mut log = log.map(|file| (file, MAX_LOG_BYTES));
        let taken = lines(source, move |line| {
            tracing::debug!("{line}");
            if let Some((file, room)) = &mut log
                && *room > line.len()
                && writeln!(file, "{line}").is_ok()
            {
                *room -= line.len() + 1;
            }
            self.take(line);
        });
        taken.instrument(span).await;
    }

    fn take(&self, line: &str) {
        let line: Arc<str> = line.into();
        if line.contains(PANIC) && self.panic.borrow().is_none() {
            let start = line.find(PANIC).unwrap_or_default();
            self.panic.send_replace(Some(line[start..].into()));
        }
        let mut lines = self.lock();
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line.clone());
        drop(lines);
        let _ = self.listeners.send(line);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<str>>> {
        lock(&self.lines)
    }
}

/// Calls `take` with each line of `source`, without control characters, until it ends.
pub(crate) async fn lines(mut source: impl AsyncRead + Unpin, mut take: impl FnMut(&str)) {
    let mut line = Vec::new();
    let mut buffer = vec![0; 4096];
    loop {
        let count = match source.read(&mut buffer).await {
            Ok(count) if count > 0 => count,
            _ => break,
        };
        for &byte in &buffer[..count] {
            match byte {
                b'\n' => {
                    take(&String::from_utf8_lossy(&line));
                    line.clear();
                }
                // The guest must not be able to write escape sequences to a terminal.
                0..=31 | 127 if byte != b'\t' => {}
                _ => line.push(byte),
            }
            if line.len() == MAX_LINE_BYTES {
                take(&String::from_utf8_lossy(&line));
                line.clear();
            }
        }
    }
    if !line.is_empty() {
        take(&String::from_utf8_lossy(&line));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[tokio::test]
    async fn lines_are_kept_cleaned_and_bounded() {
        let console = Console::new();
        let mut listener = console.listen();
        let text = [b"one\r\n\x1b[31mtwo\n".as_slice(), &[b'x'; 3000], b"\n"].concat();
        console.clone().follow("vm".to_owned(), text.as_slice(), None).await;
        assert_eq!(&*console.tail(5)[0], "one");
        assert_eq!(&*console.tail(4)[0], "[31mtwo");
        assert!(console.last_line().len() <= MAX_LINE_BYTES);
        assert_eq!(&*listener.recv().await.unwrap(), "one");
    }

    /// What is written to the log at this level meanwhile.
    pub(crate) async fn events(level: &str, follow: impl Future<Output = ()>) -> String {
        let file = tempfile::tempfile().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(format!("squeezy_vmm::console={level}"))
            .with_writer(Mutex::new(file.try_clone().unwrap()))
            .with_ansi(false)
            .without_time()
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        follow.await;
        let mut events = String::new();
        { &file }.rewind().unwrap();
        { &file }.read_to_string(&mut events).unwrap();
        events
    }

    #[tokio::test]
    async fn lines_are_events_with_the_name_of_the_vm() {
        let text = b"squeezy-agent: ready\n".as_slice();
        let events = events("debug", Console::new().follow("left".to_owned(), text, None)).await;
        let expected = "DEBUG guest{vm=\"left\"}: squeezy_vmm::console: squeezy-agent: ready\n";
        assert_eq!(events, expected);
    }

    #[tokio::test]
    async fn the_last_lines_before_a_failure_are_said() {
        let console = Console::new();
        let text: String = (1..=LINES_OF_A_FAILURE + 1).map(|line| format!("{line}\n")).collect();
        let events = events("info", async {
            console.clone().follow("left".to_owned(), text.as_bytes(), None).await;
            console.say_last_lines("left");
        })
        .await;
        assert_eq!(events.lines().count(), LINES_OF_A_FAILURE);
        assert!(
            events.starts_with(" INFO guest{vm=\"left\"}: squeezy_vmm::console: 2\n"),
            "{events}"
        );
    }

    #[tokio::test]
    async fn the_line_of_a_panic_is_found() {
        let console = Console::new();
        let text = b"[    1.0] Kernel panic - not syncing: no init\n[    1.1] CPU: 0\n";
        console.clone().follow("vm".to_owned(), text.as_slice(), None).await;
        assert_eq!(&*console.panicked().await, "Kernel panic - not syncing: no init");
    }
}
