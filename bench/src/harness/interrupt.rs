//! Ends an experiment on a signal.

use crate::error::{BenchError, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn wait() -> Result {
    let listen = |kind| {
        signal(kind).map_err(|e| BenchError::Arguments(format!("signals cannot be awaited: {e}")))
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Err(BenchError::Interrupted)
}
