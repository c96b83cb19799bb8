//! Stops a VM's processors and lets them run again.

use super::{
    Shared, Vm,
    condemn::{condemned_instances, end_condemned},
};
use crate::{AgentClient, Result, VmError};
use futures_util::FutureExt;
use squeezy_protocol::PartitionNumber;
use std::{collections::BTreeSet, sync::Arc, time::SystemTime};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::coop::unconstrained,
};

/// Held by who pauses a VM, lets it run again, or condemns an instance.
pub(super) type Turn = OwnedMutexGuard<BTreeSet<PartitionNumber>>;

impl Vm {
    /// Stops the VM's processors: the guest takes no memory and no CPU time until [`Vm::resume`].
    /// Calls to the guest wait; what the host can measure without it ([`Vm::memory`]) remains
    /// available.
    ///
    /// As [`Vm::resume`] and [`Vm::condemn`] do, it goes on if nobody waits for it any more. What begins to wait first is
    /// done first.
    pub async fn pause(&self) -> Result<()> {
        let shared = self.shared.clone();
        let pause = move |turn| async move { shared.pause(turn).await };
        to_its_end(&self.shared.condemned, pause).await
    }

    /// Lets the VM's processors run again, sets the guest's clock, and has the instances killed that were condemned
    /// ([`Vm::condemn`]). It does not wait for their end: they are frozen until then.
    pub async fn resume(&self) -> Result<()> {
        let (shared, agent) = (self.shared.clone(), self.agent.clone());
        let resume = move |turn| async move { shared.resume(turn, agent.as_ref()).await };
        to_its_end(&self.shared.condemned, resume).await
    }

    /// Whether its processors were stopped on request.
    pub fn is_paused(&self) -> bool {
        *self.shared.paused.borrow()
    }
}

impl Shared {
    async fn pause(&self, _turn: Turn) -> Result<()> {
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

    async fn resume(&self, mut condemned: Turn, agent: Option<&AgentClient>) -> Result<()> {
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

/// Waits for a turn and for work on a VM, which go on if their caller gives up: stopped in the middle, it would leave a VM
/// that runs and counts as paused, say.
pub(super) async fn to_its_end<T, F>(
    condemned: &Arc<Mutex<BTreeSet<PartitionNumber>>>,
    work: impl FnOnce(Turn) -> F + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut turn = Box::pin(unconstrained(condemned.clone().lock_owned()));
    // Its place in the line is taken here, because tasks begin in any order.
    let at_once = turn.as_mut().now_or_never();
    let done = tokio::spawn(async move {
        let turn = match at_once {
            Some(turn) => turn,
            None => turn.await,
        };
        work(turn).await
    });
    done.await.map_err(|e| VmError::system("a task has failed", e))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_comes_to_its_end() {
        let (go_on, may_go_on) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let condemned = Arc::default();
        let begun = to_its_end(&condemned, move |turn| async move {
            let number: u32 = may_go_on.await.unwrap();
            done.send(number).unwrap();
            drop(turn);
            Ok(())
        });
        // And dropped.
        assert!(begun.now_or_never().is_none());
        go_on.send(7).expect("it goes on");
        assert_eq!(is_done.await, Ok(7));
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_keeps_its_turn() {
        let condemned: Arc<Mutex<BTreeSet<PartitionNumber>>> = Arc::default();
        for has_to_wait in [false, true] {
            let before = has_to_wait.then(|| condemned.clone().try_lock_owned().unwrap());
            let (done, mut is_done) = oneshot::channel();
            let begun = to_its_end(&condemned, move |turn| async move {
                done.send(()).unwrap();
                drop(turn);
                Ok(())
            });
            // And dropped; its task has not begun yet.
            assert!(begun.now_or_never().is_none());
            let mut next = pin!(condemned.lock());
            assert!(next.as_mut().now_or_never().is_none());
            drop(before);
            assert!(next.as_mut().now_or_never().is_none());
            drop(next.await);
            assert_eq!(is_done.try_recv(), Ok(()));
        }
    }
}
