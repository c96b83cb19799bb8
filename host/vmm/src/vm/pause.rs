//! Stops a VM's processors and lets them run again.

use super::{Vm, condemn::end_condemned};
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

    /// Lets the VM's processors run again, ends the instances that were condemned ([`Vm::condemn`]), and sets the
    /// guest's clock. If it fails, condemned instances may still be there, but none that could run.
    pub async fn resume(&self) -> Result<()> {
        let shared = &*self.shared;
        let mut condemned = shared.condemned.lock().await;
        shared.fate.guard(shared.backend.resume()).await?;
        shared.paused.send_replace(false);
        match &self.agent {
            Some(agent) => {
                end_condemned(agent, &mut condemned).await?;
                agent.set_clock(SystemTime::now()).await
            }
            None => Ok(()),
        }
    }

    /// Whether its processors were stopped on request.
    pub fn is_paused(&self) -> bool {
        *self.shared.paused.borrow()
    }
}
