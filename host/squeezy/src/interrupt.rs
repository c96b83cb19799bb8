//! Ctrl-C, pressed in the terminal or received as a signal.

use std::{io, sync::Arc};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// How many times the program was told to end: once asks, twice forces.
#[derive(Clone)]
pub struct Interrupt {
    count: Arc<watch::Sender<u32>>,
}

impl Interrupt {
    /// Starts handling SIGINT, SIGTERM and SIGHUP.
    pub fn listen() -> io::Result<Self> {
        Self::listen_to(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
    }

    /// Starts handling SIGINT and SIGTERM only: to a daemon, SIGHUP means something else.
    pub fn listen_as_daemon() -> io::Result<Self> {
        Self::listen_to(&[SignalKind::interrupt(), SignalKind::terminate()])
    }

    fn listen_to(kinds: &[SignalKind]) -> io::Result<Self> {
        let interrupt = Self { count: Arc::new(watch::Sender::new(0)) };
        for &kind in kinds {
            let mut signals = signal(kind)?;
            let raised = interrupt.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    raised.raise();
                }
            });
        }
        Ok(interrupt)
    }

    /// Acts as if Ctrl-C had been pressed.
    pub fn raise(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    /// Whether it has been pressed at least once.
    pub fn is_raised(&self) -> bool {
        *self.count.borrow() > 0
    }

    /// Waits until it has been pressed `times` times.
    pub async fn raised(&self, times: u32) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count >= times).await;
    }
}
