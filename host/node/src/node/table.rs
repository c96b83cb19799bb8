//! What the actor knows about VMs, functions, instances and calls that the scaler does not.

use super::FunctionLimits;
use crate::{
    Answer, Blueprint, Call, CallError, Contract, Machine, WaitedFor,
    function::Function,
    instance::{Instance, LogPosition},
};
use squeezy_protocol::{ImageNumber, InstanceId, PartitionNumber};
use squeezy_scaler::{
    FunctionIndex, FunctionPolicy, InstanceNumber, Moment, RequestNumber, TenantIndex, VmIndex,
};
use squeezy_vmm::{Timeouts, mechanism::Slot};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};
use tokio::sync::{Mutex, oneshot, watch};

/// A VM.
pub(super) struct VmEntry {
    pub(super) blueprint: Arc<dyn Blueprint>,
    /// Present while it takes instances.
    pub(super) machine: Option<Arc<dyn Machine>>,
    /// When it was last booted.
    pub(super) booted: Option<Moment>,
    /// Counts its boots, so that the end of an earlier boot is not mistaken for that of this one.
    pub(super) boot: u64,
    /// Counts its pauses and resumes: a result from an earlier generation is stale.
    pub(super) generation: Arc<AtomicU64>,
    /// Held while an instance is condemned in it.
    pub(super) condemning: Arc<Mutex<()>>,
    /// Held while an instance is swept that has been frozen for long.
    pub(super) sweeping: Arc<Mutex<()>>,
}

impl VmEntry {
    pub(super) fn new(blueprint: Arc<dyn Blueprint>) -> Self {
        Self {
            blueprint,
            machine: None,
            booted: None,
            boot: 0,
            generation: Arc::default(),
            condemning: Arc::default(),
            sweeping: Arc::default(),
        }
    }
}

/// A function.
#[derive(Clone)]
pub(super) struct FunctionEntry {
    pub(super) vm: VmIndex,
    pub(super) tenant: TenantIndex,
    pub(super) function: Arc<Function>,
    /// How to talk to its instances' servers.
    pub(super) contract: Arc<dyn Contract>,
    /// The number of its image in the VM.
    pub(super) image: ImageNumber,
    /// The number of what its code is, if that is not in the image.
    pub(super) code: Option<ImageNumber>,
}

impl FunctionEntry {
    /// The wait limit is the time in which at least one call of the function should be taken: the longest
    /// call that may have to finish first, plus the boot of a VM and the start of an instance.
    pub(super) fn policy(&self, limits: FunctionLimits) -> FunctionPolicy {
        let FunctionLimits { keep_alive, freeze_after, queue, minimum_instances } = limits;
        FunctionPolicy {
            vm: self.vm,
            max_instances: self.function.concurrency.into(),
            requests_per_instance: self.function.calls_per_instance,
            min_instances: minimum_instances,
            keep_alive,
            freeze_after,
            queue_limit: queue,
            wait_limit: Some(
                self.function.run_timeout + Timeouts::default().boot + self.function.init_timeout,
            ),
        }
    }
}

/// An instance.
pub(super) struct InstanceEntry {
    pub(super) vm: VmIndex,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) function: FunctionIndex,
    pub(super) definition: Arc<Function>,
    pub(super) contract: Arc<dyn Contract>,
    pub(super) id: InstanceId,
    /// Its slot; absent if every slot was taken.
    pub(super) slot: Option<Slot>,
    /// Whether it owns the slot. If its memory could not be plugged, the slot is free again.
    pub(super) has_slot: bool,
    /// Whether its memory is being plugged.
    pub(super) plugging: bool,
    /// Whether to reclaim its memory once the plug is over.
    pub(super) reclaim_waits: bool,
    /// When it was told to end, or died.
    pub(super) ending: Option<Moment>,
    /// Whether it is being stopped.
    pub(super) stopping: Arc<AtomicBool>,
    /// How far its output has been read.
    pub(super) log: Arc<Mutex<LogPosition>>,
    /// When it became ready, and how long its server took to come up.
    pub(super) ready: Option<(Moment, Duration)>,
    /// The calls that it serves.
    pub(super) requests: BTreeSet<RequestNumber>,
    /// Counts freezes and thaws: a result from an earlier generation is stale.
    pub(super) generation: watch::Sender<u64>,
    /// What its guest said of it when it was last frozen: what it is charged for is in the partition that it was in.
    pub(super) seen_frozen: Option<squeezy_protocol::Instance>,
    /// Its partition, if it has been doomed.
    pub(super) doomed: Option<PartitionNumber>,
    /// The partition that it was in, if it has been stopped.
    pub(super) left: Option<PartitionNumber>,
}

impl InstanceEntry {
    /// It is being frozen, squeezed or thawed. Returns the new generation.
    pub(super) fn next_generation(&self) -> u64 {
        self.generation.send_modify(|generation| *generation += 1);
        *self.generation.borrow()
    }

    /// The instance itself; `None` while it has no VM.
    pub(super) fn instance(&self) -> Option<Instance> {
        let guest = self.machine.guest(self.slot?)?;
        Some(Instance { guest, id: self.id.clone(), contract: self.contract.clone() })
    }
}

/// A call without an answer yet.
pub(super) struct PendingCall {
    pub(super) function: FunctionIndex,
    /// Whose function it is, if there is one.
    pub(super) tenant: Option<TenantIndex>,
    pub(super) call: Call,
    pub(super) reply: oneshot::Sender<Result<Answer, CallError>>,
    pub(super) came: Moment,
    /// Whether no instance could take it when it came.
    pub(super) waits: bool,
    pub(super) assignment: Option<Assignment>,
    /// Ends it while an instance has it.
    pub(super) cut: Option<oneshot::Sender<()>>,
}

/// Which instance took a call, when, and after what wait.
#[derive(Clone, Copy)]
pub(super) struct Assignment {
    pub(super) instance: InstanceNumber,
    pub(super) at: Moment,
    pub(super) waited: Duration,
    pub(super) waited_for: WaitedFor,
    pub(super) cold: Option<Duration>,
}
