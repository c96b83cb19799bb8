//! Why a VM ended, for everyone who uses it.

use crate::{Result, VmError};
use std::{future::pending, time::Duration};
use tokio::sync::watch;

/// How long the first reason waits for a better one: a dying VMM closes its sockets before its exit
/// status is known.
const SETTLE: Duration = Duration::from_millis(500);

/// How long a failed call waits for the underlying reason, which may itself wait for a better one.
const SYMPTOM: Duration = Duration::from_millis(1000);

/// Why a VM ends, and whether it has. The first reason wins.
///
/// A VM has ended once its process is gone and its memory is the host's again: whoever hears of it may use that memory
/// for something else.
#[derive(Clone)]
pub(crate) struct Fate(watch::Sender<State>);

#[derive(Default)]
struct State {
    reason: Option<VmError>,
    has_ended: bool,
}

impl State {
    /// The reason, if the VM has ended.
    fn ended(&self) -> Option<VmError> {
        self.reason.clone().filter(|_| self.has_ended)
    }
}

impl Fate {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(State::default()))
    }

    /// Records that the VM ends for this reason, unless it ends for another one already.
    pub(crate) fn seal(&self, reason: VmError) {
        self.0.send_if_modified(|fate| {
            let first = fate.reason.is_none();
            if first {
                fate.reason = Some(reason);
            }
            first
        });
    }

    /// Like [`Self::seal`], unless a better reason arrives soon.
    pub(crate) async fn seal_later(&self, reason: VmError) {
        if tokio::time::timeout(SETTLE, self.sealed()).await.is_err() {
            self.seal(reason);
        }
    }

    /// Whether there is a reason for the VM to end.
    pub(crate) fn is_sealed(&self) -> bool {
        self.0.borrow().reason.is_some()
    }

    /// Whether that reason is another one than that somebody has stopped the VM.
    pub(crate) fn is_failure(&self) -> bool {
        self.0.borrow().reason.as_ref().is_some_and(|reason| *reason != VmError::Stopped)
    }

    /// Waits until there is one.
    pub(crate) async fn sealed(&self) {
        let mut fate = self.0.subscribe();
        if fate.wait_for(|fate| fate.reason.is_some()).await.is_err() {
            pending().await
        }
    }

    /// Tells everyone that the VM has ended, for the reason that was sealed.
    pub(crate) fn end(&self) {
        self.0.send_modify(|fate| fate.has_ended = true);
    }

    /// The reason, if the VM has ended.
    pub(crate) fn known(&self) -> Option<VmError> {
        self.0.borrow().ended()
    }

    /// Waits until the VM has ended, and returns the reason.
    pub(crate) async fn ended(&self) -> VmError {
        let mut fate = self.0.subscribe();
        let ended = fate.wait_for(|fate| fate.ended().is_some()).await.map(|fate| fate.ended());
        match ended {
            Ok(Some(reason)) => reason,
            _ => pending().await,
        }
    }

    /// Runs work that needs the VM. If the VM ends first, the error says why.
    pub(crate) async fn guard<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = work => match result {
                Err(error) if error.may_be_a_symptom() => {
                    match tokio::time::timeout(SYMPTOM, self.sealed()).await {
                        Ok(()) => Err(self.ended().await),
                        Err(_) => Err(error),
                    }
                }
                result => result,
            },
            reason = self.ended() => Err(reason),
        }
    }
}

impl VmError {
    /// Whether the end of the VM may be the cause.
    fn may_be_a_symptom(&self) -> bool {
        matches!(
            self,
            Self::AgentLost(_)
                | Self::Command { .. }
                | Self::Hung(_)
                | Self::Measure { .. }
                | Self::System { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_symptom_gives_way_to_the_reason() {
        let fate = Fate::new();
        let late = fate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            late.seal(VmError::Panicked("x".into()));
            // To give its memory back takes longer than anybody waits for a reason.
            tokio::time::sleep(2 * SYMPTOM).await;
            late.end();
        });
        let result: Result<()> = fate.guard(async { Err(VmError::AgentLost("eof".into())) }).await;
        assert_eq!(result, Err(VmError::Panicked("x".into())));
        assert!(fate.is_failure());
    }

    #[tokio::test]
    async fn who_waits_hears_of_the_end_and_the_first_reason_stays() {
        let fate = Fate::new();
        let waiting = fate.clone();
        let task = tokio::spawn(async move { waiting.guard(pending::<Result<()>>()).await });
        fate.seal(VmError::Stopped);
        fate.seal(VmError::Hung(SETTLE));
        assert!(!fate.is_failure());
        tokio::task::yield_now().await;
        assert!(!task.is_finished() && fate.known().is_none(), "it has not ended yet");
        fate.end();
        assert_eq!(task.await.unwrap(), Err(VmError::Stopped));
        assert_eq!(fate.known(), Some(VmError::Stopped));
    }
}
