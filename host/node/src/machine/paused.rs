//! Whether a machine's VM is, and should be, paused.

use squeezy_protocol::Partition;
use squeezy_vmm::{Vm, VmError};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{RwLock, RwLockReadGuard};

/// Pauses and resumes a VM, one change at a time, until it is as last wanted.
#[derive(Default)]
pub(super) struct Paused {
    wanted: AtomicBool,
    /// Whether it may be paused. Lets [`Self::settle`] return without the lock in the usual case.
    may_stand: AtomicBool,
    /// The partitions it had when it was paused; `None` while it runs.
    partitions: RwLock<Option<Vec<Partition>>>,
}

impl Paused {
    /// Sets whether it should be paused or running; [`Self::settle`] makes it so.
    pub(super) fn want(&self, paused: bool) {
        self.wanted.store(paused, Ordering::SeqCst);
    }

    /// Pauses or resumes it as wanted; `look` reads its partitions before a pause. Returns whether it has paused it.
    pub(super) async fn settle(
        &self,
        vm: &Vm,
        look: impl Future<Output = Result<Vec<Partition>, VmError>>,
    ) -> Result<bool, VmError> {
        if !self.wanted.load(Ordering::SeqCst) && !self.may_stand.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let mut partitions = self.partitions.write().await;
        let was_paused = partitions.is_some();
        match (self.wanted.load(Ordering::SeqCst), was_paused) {
            (true, false) => {
                self.may_stand.store(true, Ordering::SeqCst);
                let seen = look.await?;
                vm.pause().await?;
                *partitions = Some(seen);
            }
            (false, true) => {
                let resumed = vm.resume().await;
                // If it runs, it does so whatever else has failed.
                if !vm.is_paused() {
                    *partitions = None;
                }
                resumed?;
            }
            _ => {}
        }
        self.may_stand.store(partitions.is_some(), Ordering::SeqCst);
        Ok(partitions.is_some() && !was_paused)
    }

    /// The partitions it had when it was paused; `None` while it runs, and it keeps running as long as the
    /// guard is held.
    pub(super) async fn partitions(&self) -> RwLockReadGuard<'_, Option<Vec<Partition>>> {
        self.partitions.read().await
    }
}
