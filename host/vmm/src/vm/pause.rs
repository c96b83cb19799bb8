//! Stops a VM's processors and lets them run again.

use super::{
    Shared, Vm,
    condemn::{condemned_instances, end_condemned},
};
use crate::{AgentClient, Result, VmError};
use std::time::SystemTime;

impl Vm {
    /// Stops the VM's processors: the guest takes no memory and no CPU time until [`Vm::resume`].
    /// Calls to the guest wait; what the host can measure without it ([`Vm::memory`]) remains
    /// available.
    ///
    /// As [`Vm::resume`] and [`Vm::condemn`] do, it goes on if nobody waits for it any more.
    pub async fn pause(&self) -> Result<()> {
        let shared = self.shared.clone();
        to_its_end(async move { shared.pause().await }).await
    }

    /// Lets the VM's processors run again, sets the guest's clock, and has the instances killed that were condemned
    /// ([`Vm::condemn`]). It does not wait for their end: they are frozen until then.
    pub async fn resume(&self) -> Result<()> {
        let (shared, agent) = (self.shared.clone(), self.agent.clone());
        to_its_end(async move { shared.resume(agent.as_ref()).await }).await
    }

    /// Whether its processors were stopped on request.
    pub fn is_paused(&self) -> bool {
        *self.shared.paused.borrow()
    }
}

impl Shared {
    async fn pause(&self) -> Result<()> {
        let _condemned = self.condemned.lock().await;
        self.fate
            .guard(async {
                // Set first, because the VMM reports the pause.
                self.paused.send_replace(true);
                let done = self.backend.pause().await;
                if done.is_err() {
                    self.paused.send_replace(false);
                }
                done
            })
            .await
    }

    async fn resume(&self, agent: Option<&AgentClient>) -> Result<()> {
        let mut condemned = self.condemned.lock().await;
        self.fate.guard(self.backend.resume()).await?;
        self.paused.send_replace(false);
        let Some(agent) = agent else { return Ok(()) };
        // Looked for before anybody else does anything, because their partitions may be others' later. If this fails,
        // they are not ended here. Nobody can thaw them alive.
        let condemned = std::mem::take(&mut *condemned);
        let set_clock = agent.set_clock(SystemTime::now());
        let (condemned, clock) = tokio::join!(condemned_instances(agent, condemned), set_clock);
        // Their neighbours' calls need not wait until they are gone.
        let condemned = condemned?;
        if !condemned.is_empty() {
            tokio::spawn(end_condemned(agent.clone(), condemned));
        }
        clock
    }
}

/// Waits for work on a VM that goes on if its caller gives up: stopped in the middle, it would leave a VM that runs and
/// counts as paused, say.
pub(super) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work).await.map_err(|e| VmError::system("a task has failed", e))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_comes_to_its_end() {
        let (go_on, may_go_on) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let work = async move {
            let number: u32 = may_go_on.await.unwrap();
            done.send(number).unwrap();
            Ok(())
        };
        // Begun, and dropped.
        assert!(to_its_end(work).now_or_never().is_none());
        go_on.send(7).expect("it goes on");
        assert_eq!(is_done.await, Ok(7));
    }
}
