//! Whether a machine's VM runs, and is to run.

use squeezy_protocol::Partition;
use squeezy_vmm::{Vm, VmError};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{RwLock, RwLockReadGuard};

/// Stops a VM and lets it run, one change after the other, until what was wanted last is so.
#[derive(Default)]
pub(super) struct Paused {
    wanted: AtomicBool,
    /// Whether it may stand still.
    may_stand: AtomicBool,
    /// The partitions that it had when it was stopped; nothing while it runs.
    partitions: RwLock<Option<Vec<Partition>>>,
}

impl Paused {
    /// From now on it is to stand still, or to run; [`Self::settle`] makes it so.
    pub(super) fn want(&self, paused: bool) {
        self.wanted.store(paused, Ordering::SeqCst);
    }

    /// Makes what is wanted so; `look` says which partitions there are before it is stopped.
    pub(super) async fn settle(
        &self,
        vm: &Vm,
        look: impl Future<Output = Result<Vec<Partition>, VmError>>,
    ) -> Result<(), VmError> {
        if !self.wanted.load(Ordering::SeqCst) && !self.may_stand.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut partitions = self.partitions.write().await;
        match (self.wanted.load(Ordering::SeqCst), partitions.is_some()) {
            (true, false) => {
                self.may_stand.store(true, Ordering::SeqCst);
                let seen = look.await?;
                vm.pause().await?;
                *partitions = Some(seen);
            }
            (false, true) => {
                vm.resume().await?;
                *partitions = None;
            }
            _ => {}
        }
        self.may_stand.store(partitions.is_some(), Ordering::SeqCst);
        Ok(())
    }

    /// The partitions when it was stopped; nothing while it runs, which it does as long as this is kept.
    pub(super) async fn partitions(&self) -> RwLockReadGuard<'_, Option<Vec<Partition>>> {
        self.partitions.read().await
    }
}
