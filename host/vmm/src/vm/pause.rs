//! Stopping a VM's processors and letting them run again.

use super::Vm;
use crate::Result;
use std::time::SystemTime;

impl Vm {
    /// Stops the VM's processors: the guest takes no memory and no time until [`Vm::resume`]. What it is
    /// asked meanwhile waits; what the host can tell without it ([`Vm::memory`]) it tells.
    pub async fn pause(&self) -> Result<()> {
        let shared = &*self.shared;
        shared
            .fate
            .guard(async {
                // First, for the VMM reports it.
                shared.paused.send_replace(true);
                let done = shared.backend.pause().await;
                if done.is_err() {
                    shared.paused.send_replace(false);
                }
                done
            })
            .await
    }

    /// Lets the VM's processors run again, and sets the guest's clock.
    pub async fn resume(&self) -> Result<()> {
        let shared = &*self.shared;
        shared.fate.guard(shared.backend.resume()).await?;
        shared.paused.send_replace(false);
        match &self.agent {
            Some(agent) => agent.set_clock(SystemTime::now()).await,
            None => Ok(()),
        }
    }

    /// Whether its processors are stopped because somebody wanted that.
    pub fn is_paused(&self) -> bool {
        *self.shared.paused.borrow()
    }
}
