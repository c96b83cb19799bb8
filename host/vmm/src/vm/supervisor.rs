//! Watches a VM, so that whatever ends it is known at once.

use super::{EXIT_LIMIT, Shared};
use crate::{
    VmError,
    backend::{Event, GuestEnd, RunState},
};
use std::{
    os::unix::process::ExitStatusExt,
    pin::pin,
    process::ExitStatus,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{mpsc, watch};

/// How often the VMM is asked for its state.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How long the last output of console and monitor may be on its way.
const LATE_OUTPUT: Duration = Duration::from_millis(50);

/// Watches the VM until there is a reason for it to end, and ends it.
pub(super) async fn supervise(
    shared: Arc<Shared>,
    mut events: mpsc::Receiver<Event>,
    channel_open: watch::Sender<bool>,
) {
    let guest_end = shared.watch(&mut events, &channel_open).await;
    shared.end(events, guest_end).await;
}

impl Shared {
    /// Watches the VM until its process has exited or its fate is sealed. Returns how its guest has ended it, as far as
    /// the VMM has said.
    async fn watch(
        &self,
        events: &mut mpsc::Receiver<Event>,
        channel_open: &watch::Sender<bool>,
    ) -> Option<GuestEnd> {
        let process = self.backend.process();
        let mut ended = None;
        let mut tick = tokio::time::interval(WATCH_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut upkeep = pin!(self.keep_up());
        loop {
            tokio::select! {
                biased;
                _ = process.exited() => return ended,
                () = self.fate.sealed() => return ended,
                line = self.console.panicked() => {
                    self.fate.seal(VmError::Panicked(line.to_string()));
                }
                Some(event) = events.recv() => match event {
                    Event::Channel { open } => {
                        if !open && *channel_open.borrow() && !self.stopping.load(Ordering::SeqCst) {
                            let lost = VmError::AgentLost("it has closed the channel, or its process has ended".to_owned());
                            let fate = self.fate.clone();
                            tokio::spawn(async move { fate.seal_later(lost).await });
                        }
                        channel_open.send_replace(open);
                    }
                    Event::Ended(end) => ended = Some(end),
                    Event::Paused => self.look(ended).await,
                },
                // Not by whoever works on that memory: he may be busy with it, or with a disk, for long.
                _ = tick.tick() => match self.reclaimer.get().map(|reclaimer| reclaimer.check()) {
                    Some(Err(failed)) => self.fate.seal(failed),
                    _ => self.look(ended).await,
                },
                broken = &mut upkeep => self.fate.seal(broken),
            }
        }
    }

    /// Ends the process if it still runs, gives the memory back, and tells everyone. The VM may be kept by others for a
    /// while, but nothing of it is.
    async fn end(self: Arc<Self>, mut events: mpsc::Receiver<Event>, mut ended: Option<GuestEnd>) {
        let process = self.backend.process();
        let mut limit = EXIT_LIMIT;
        if self.stopping.load(Ordering::SeqCst) {
            // Whoever stops it gives its guest this time, and kills it then.
            limit += self.config.timeouts.stop;
        } else {
            process.kill();
        }
        if tokio::time::timeout(limit, process.exited()).await.is_err() {
            // It hangs in the kernel, with its memory, and there is nothing else to wait for.
            self.fate.end();
        }
        let status = process.exited().await;
        let memory = self.host_memory.clone();
        let discard = tokio::task::spawn_blocking(move || memory.discard());
        let find_reason = async {
            if self.fate.is_sealed() {
                return;
            }
            tokio::time::sleep(LATE_OUTPUT).await;
            while let Ok(event) = events.try_recv() {
                if let Event::Ended(end) = event {
                    ended = Some(end);
                }
            }
            self.fate.seal(self.reason_of(status, ended));
        };
        let _ = tokio::join!(discard, find_reason);
        if self.fate.is_failure() {
            self.console.say_last_lines(&self.config.name);
        }
        self.fate.end();
    }

    /// Asks the VMM for the state of the VM.
    async fn look(&self, ended: Option<GuestEnd>) {
        let paused = self.paused.subscribe();
        match self.backend.run_state(self.config.timeouts.hang).await {
            // An answer from before the VM was let run again says nothing of now.
            Ok(RunState::Paused) if *paused.borrow() || paused.has_changed().unwrap_or(true) => {}
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
            None => VmError::Died {
                how: describe(status),
                signal: status.signal(),
                said: self.backend.said(),
            },
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(9)) => "killed by signal 9; unless someone sent it, the host, or the VM's control group, ran out \
                         of memory"
            .to_owned(),
        (_, Some(signal)) => format!("killed by signal {signal}"),
        (code, None) => format!("exit status {}", code.unwrap_or_default()),
    }
}

#[cfg(test)]
pub(super) mod tests;
