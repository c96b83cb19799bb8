//! HyperAlloc: the VM boots with all its memory, and the host keeps what is not in use, without the guest.

use super::{Mechanism, MechanismName, Sizing, Slots, by_count::ByCount};
use crate::{
    Llfree,
    memory::{GRANULE_BYTES, HyperAlloc, round_up},
};
use std::sync::Arc;

/// All of this VM's memory is ordinary memory, and Linux keeps 11 huge pages of it free in each of up to 3 zones,
/// which the host leaves alone.
const RESERVE_BYTES: u64 = 66 << 20;

pub(super) fn new(sizing: Sizing) -> Box<dyn Mechanism> {
    let instance_bytes = round_up(sizing.instance_bytes, GRANULE_BYTES);
    Box::new(ByCount {
        name: MechanismName::HyperAlloc,
        slots: Slots::new(sizing.instances),
        memory: Arc::new(HyperAlloc { extra_bytes: u64::from(sizing.instances) * instance_bytes }),
        llfree: Llfree::All,
        base_bytes: round_up(sizing.shared_bytes, GRANULE_BYTES) + RESERVE_BYTES,
        shared_bytes: 0,
        instance_bytes,
    })
}
