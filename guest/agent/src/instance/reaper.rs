//! Reaps all ended processes, including orphans, as init must.

use crate::console;
use rustix::process::{WaitOptions, wait};
use std::{cell::RefCell, collections::HashMap, io, rc::Rc};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// Reaps processes and tells whoever waits for one how it ended.
#[derive(Debug, Default)]
pub struct Reaper {
    waiting: RefCell<HashMap<u32, oneshot::Sender<ExitStatus>>>,
}

impl Reaper {
    /// Starts reaping.
    pub fn start() -> io::Result<Rc<Self>> {
        let reaper = Rc::new(Self::default());
        let mut child_ended = signal(SignalKind::child())?;
        let this = Rc::clone(&reaper);
        tokio::task::spawn_local(async move {
            // One signal may stand for many processes, and one may have ended before we listened for the
            // signal.
            loop {
                this.reap();
                if child_ended.recv().await.is_none() {
                    break;
                }
            }
        });
        Ok(reaper)
    }

    /// The end of `pid`, a child that has just been started. There must be no await in between, or it could
    /// be reaped before anything waits for it.
    pub fn end_of(&self, pid: u32) -> oneshot::Receiver<ExitStatus> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(pid, sender);
        receiver
    }

    fn reap(&self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get().unsigned_abs();
                    let Some(waiter) = self.waiting.borrow_mut().remove(&pid) else { continue };
                    let status = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => ExitStatus::Exited(code),
                        (None, Some(signal)) => ExitStatus::Killed(signal),
                        // Stopped or continued; we did not ask for these.
                        (None, None) => continue,
                    };
                    let _ = waiter.send(status);
                }
                Ok(None) | Err(rustix::io::Errno::CHILD) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    console!("waiting for processes: {error}");
                    return;
                }
            }
        }
    }
}
