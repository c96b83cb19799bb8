//! Stops a VM's processors and lets them run again.

use super::{
    Vm,
    condemn::{condemned_instances, end_condemned},
};
use crate::Result;
use std::time::SystemTime;

impl Vm {
    /// Stops the VM's processors: the guest takes no memory and no CPU time until [`Vm::resume`].
    /// Calls to the guest wait; what the host can measure without it ([`Vm::memory`]) remains
    /// available.
    pub async fn pause(&self) -> Result<()> {
        let shared = &*self.shared;
        let _condemned = shared.condemned.lock().await;
        shared
            .fate
            .guard(async {
                // Set first, because the VMM reports the pause.
                shared.paused.send_replace(true);
                let done = shared.backend.pause().await;
                if done.is_err() {
                    shared.paused.send_replace(false);
                }
                done
            })
            .await
    }

    /// Lets the VM's processors run again, sets the guest's clock, and has the instances killed that were condemned
    /// ([`Vm::condemn`]). It does not wait for their end: they are frozen until then.
    pub async fn resume(&self) -> Result<()> {
        let shared = &*self.shared;
        let mut condemned = shared.condemned.lock().await;
        shared.fate.guard(shared.backend.resume()).await?;
        shared.paused.send_replace(false);
        let Some(agent) = &self.agent else { return Ok(()) };
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

    /// Whether its processors were stopped on request.
    pub fn is_paused(&self) -> bool {
        *self.shared.paused.borrow()
    }
}
