//! Free memory of pods, which the host takes by itself where it can. Elsewhere the guest reports it when it is squeezed.

use squeezy_protocol::PartitionNumber;
use squeezy_vmm::{Grain, Vm};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long somebody waits until the free memory of a partition is taken: longer than the whole areas of the largest one
/// take in pages of 4 KiB. A QEMU that was taken over can make it take for ever.
const TAKE_LIMIT: Duration = Duration::from_secs(10);

/// Has the host take the free memory of a partition, if it can; returns how many bytes that were. The partition is what the
/// guest says: it may be another one, or none. May be dropped at any time: no more single pages are taken then.
pub(super) async fn take_free(vm: &Vm, partition: Option<PartitionNumber>, grain: Grain) -> u64 {
    let Some(partition) = partition.filter(|_| vm.can_take_free()) else { return 0 };
    // Gone when nobody waits any more.
    let waits = Arc::new(());
    let goes_on = {
        let waits = Arc::downgrade(&waits);
        move || waits.strong_count() > 0
    };
    match timeout(TAKE_LIMIT, vm.take_free_while(partition, grain, goes_on)).await {
        // A failure costs nothing but memory.
        Ok(taken) => taken.map_or(0, |taken| taken.bytes),
        Err(_) => {
            tracing::warn!(
                "the free memory of partition {partition} is not all the host's after {TAKE_LIMIT:?}"
            );
            0
        }
    }
}
