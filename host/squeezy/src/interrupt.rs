//! Ctrl-C, pressed in the terminal or received as a signal.

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};
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

/// Waits until q or Ctrl-C is pressed, for at most this long; returns whether it was. The terminal is in raw mode, in which
/// Ctrl-C is an ordinary key.
pub fn is_pressed_within(pause: Duration) -> io::Result<bool> {
    let until = Instant::now() + pause;
    while event::poll(until.saturating_duration_since(Instant::now()))? {
        if let Event::Key(key) = event::read()?
            && key.is_press()
        {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            if key.code == KeyCode::Char('q') || (control && key.code == KeyCode::Char('c')) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
