//! Why a VM ended, for everyone who uses it.

use crate::{Result, VmError};
use std::{future::pending, time::Duration};
use tokio::sync::watch;

/// How long the first reason waits for a better one: a dying VMM closes its sockets before its exit
/// status is known.
const SETTLE: Duration = Duration::from_millis(500);

/// How long a failed call waits for the underlying reason, which may itself wait for a better one.
const SYMPTOM: Duration = Duration::from_millis(1000);

/// The reason why a VM has ended, once it has. The first reason wins.
#[derive(Clone)]
pub(crate) struct Fate(watch::Sender<Option<VmError>>);

impl Fate {
    pub(crate) fn new() -> Self {
        Self(watch::channel(None).0)
    }

    /// Records that the VM has ended for this reason, unless a reason is already known.
    pub(crate) fn seal(&self, reason: VmError) {
        self.0.send_if_modified(|fate| {
            let first = fate.is_none();
            if first {
                *fate = Some(reason);
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

    /// The reason, if the VM has ended.
    pub(crate) fn known(&self) -> Option<VmError> {
        self.0.borrow().clone()
    }

    /// Waits until the VM has ended, and returns the reason.
    pub(crate) async fn sealed(&self) -> VmError {
        let mut fate = self.0.subscribe();
        match fate.wait_for(Option::is_some).await.map(|fate| fate.clone()) {
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
                    Err(tokio::time::timeout(SYMPTOM, self.sealed()).await.unwrap_or(error))
                }
                result => result,
            },
            reason = self.sealed() => Err(reason),
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

    #[tokio::test]
    async fn a_symptom_gives_way_to_the_reason() {
        let fate = Fate::new();
        let late = fate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            late.seal(VmError::Panicked("x".into()));
        });
        let result: Result<()> = fate.guard(async { Err(VmError::AgentLost("eof".into())) }).await;
        assert_eq!(result, Err(VmError::Panicked("x".into())));
    }

    #[tokio::test]
    async fn who_waits_hears_of_the_end_and_the_first_reason_stays() {
        let fate = Fate::new();
        let waiting = fate.clone();
        let task = tokio::spawn(async move { waiting.guard(pending::<Result<()>>()).await });
        fate.seal(VmError::Stopped);
        fate.seal(VmError::Hung(SETTLE));
        assert_eq!(task.await.unwrap(), Err(VmError::Stopped));
    }
}
