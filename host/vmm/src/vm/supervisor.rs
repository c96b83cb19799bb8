//! Watches a VM, so that whatever ends it is known at once.

use super::Shared;
use crate::{
    Grain, VmError,
    backend::{Event, GuestEnd, RunState},
};
use std::{
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

/// How often the VMM is asked for its state.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Watches the VMM until it has exited, and seals the VM's fate.
pub(super) async fn supervise(
    shared: Arc<Shared>,
    mut events: mpsc::Receiver<Event>,
    channel_open: watch::Sender<bool>,
) {
    let process = shared.backend.process();
    let mut ended = None;
    let mut tick = tokio::time::interval(WATCH_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_taken = Instant::now();
    loop {
        tokio::select! {
            biased;
            status = process.exited() => {
                // The last output of console and monitor may still be on its way.
                tokio::time::sleep(Duration::from_millis(50)).await;
                while let Ok(event) = events.try_recv() {
                    if let Event::Ended(end) = event {
                        ended = Some(end);
                    }
                }
                shared.fate.seal(shared.reason_of(status, ended));
                // The VM may be kept by others for a while, but its memory must not be.
                let _ = tokio::task::spawn_blocking(move || shared.host_memory.discard()).await;
                return;
            }
            line = shared.console.panicked() => {
                return shared.fate.seal(VmError::Panicked(line.to_string()));
            }
            Some(event) = events.recv() => match event {
                Event::Channel { open } => {
                    if !open && *channel_open.borrow() && !shared.stopping.load(Ordering::SeqCst) {
                        let lost = VmError::AgentLost("it has closed the channel, or its process has ended".to_owned());
                        let fate = shared.fate.clone();
                        tokio::spawn(async move { fate.seal_later(lost).await });
                    }
                    channel_open.send_replace(open);
                }
                Event::Ended(end) => ended = Some(end),
                Event::Paused => shared.look(ended).await,
            },
            _ = tick.tick(), if shared.fate.known().is_none() => {
                shared.look(ended).await;
                shared.enforce().await;
                let is_due = |every: &Duration| last_taken.elapsed() >= *every;
                if shared.config.take_free_every.as_ref().is_some_and(is_due) {
                    shared.sweep().await;
                    last_taken = Instant::now();
                }
            }
        }
    }
}

impl Shared {
    /// Asks the VMM for the state of the VM.
    async fn look(&self, ended: Option<GuestEnd>) {
        match self.backend.run_state(self.config.timeouts.hang).await {
            Ok(RunState::Paused) if *self.paused.borrow() => {}
            // A guest that has ended is stopped until the VMM exits.
            Ok(RunState::Paused) if ended.is_none() => {
                self.fate.seal(VmError::Paused("paused".to_owned()));
            }
            Ok(RunState::Stopped(reason)) if ended.is_none() => {
                self.fate.seal(VmError::Paused(reason));
            }
            Err(error @ VmError::Hung(_)) => self.fate.seal(error),
            // When the monitor is gone, the process will be in a moment.
            Ok(_) | Err(_) => {}
        }
    }

    /// Takes back what a guest that breaks the rules has used of the memory that the host keeps.
    async fn enforce(&self) {
        let Some(reclaimer) = self.reclaimer.get().cloned() else { return };
        let enforced = tokio::task::spawn_blocking(move || reclaimer.enforce()).await;
        match enforced {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(bytes)) => tracing::warn!(
                vm = self.config.name,
                bytes,
                "the guest has used memory that the host had taken; it is taken again"
            ),
            Ok(Err(error)) => {
                tracing::warn!(vm = self.config.name, %error, "memory that the host had taken");
            }
        }
    }

    /// Takes what is free, so that what the guest's peaks leave behind does not stay with it: [`Vm::sweep`](super::Vm::sweep)
    /// without a handle, which would keep the VM.
    async fn sweep(&self) {
        let Some(reclaimer) = self.reclaimer.get().cloned() else { return };
        let work = move || reclaimer.take(&(0..u64::MAX), Grain::Area);
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(taken)) if taken.bytes > 0 => {
                self.swept_bytes.fetch_add(taken.bytes, Ordering::Relaxed);
                tracing::debug!(vm = self.config.name, %taken, "free memory");
            }
            Ok(Err(error)) => tracing::warn!(vm = self.config.name, %error, "free memory"),
            Ok(Ok(_)) | Err(_) => {}
        }
    }

    /// Why the VMM's process has exited.
    fn reason_of(&self, status: ExitStatus, reported: Option<GuestEnd>) -> VmError {
        if self.stopping.load(Ordering::SeqCst) {
            return VmError::Stopped;
        }
        if let Some(line) = self.console.panic() {
            return VmError::Panicked(line.to_string());
        }
        match self.backend.guest_end(status, reported) {
            Some(end) => VmError::PoweredOff {
                what: match end {
                    GuestEnd::PowerOff => "powered off",
                    GuestEnd::Restart => "restarted",
                },
                console: self.console.last_line(),
            },
            None => VmError::Died { how: describe(status), said: self.backend.said() },
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(9)) => {
            "killed by signal 9; unless someone sent it, the host ran out of memory".to_owned()
        }
        (_, Some(signal)) => format!("killed by signal {signal}"),
        (code, None) => format!("exit status {}", code.unwrap_or_default()),
    }
}
