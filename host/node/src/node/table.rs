//! What the actor knows of VMs, functions, instances and calls beside what the scaler does.

use super::FunctionLimits;
use crate::{
    Answer, Blueprint, Call, CallError, Contract, Machine, WaitedFor,
    function::Function,
    instance::{Instance, LogPosition},
};
use squeezy_protocol::{ImageNumber, InstanceId};
use squeezy_scaler::{
    FunctionIndex, FunctionPolicy, InstanceNumber, Moment, RequestNumber, VmIndex,
};
use squeezy_vmm::{Timeouts, mechanism::Slot};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// A VM.
pub(super) struct VmEntry {
    pub(super) blueprint: Arc<dyn Blueprint>,
    /// While it takes instances.
    pub(super) machine: Option<Arc<dyn Machine>>,
    /// When it was booted last.
    pub(super) booted: Option<Moment>,
    /// Counts its boots, so that the end of an earlier one is not taken for this one's.
    pub(super) boot: u64,
    /// Counts how often it was told to stand still or to run: what was found out before says nothing now.
    pub(super) generation: u64,
}

impl VmEntry {
    pub(super) fn new(blueprint: Arc<dyn Blueprint>) -> Self {
        Self { blueprint, machine: None, booted: None, boot: 0, generation: 0 }
    }
}

/// A function.
#[derive(Clone)]
pub(super) struct FunctionEntry {
    pub(super) vm: VmIndex,
    pub(super) function: Arc<Function>,
    /// How its instances' servers are talked to.
    pub(super) contract: Arc<dyn Contract>,
    /// Its image among those of the VM.
    pub(super) image: ImageNumber,
}

impl FunctionEntry {
    /// A call waits in vain when none of its function's is taken for as long as the longest one may take
    /// after which there is room, with the boot of a VM and the start of an instance.
    pub(super) fn policy(&self, limits: FunctionLimits) -> FunctionPolicy {
        let FunctionLimits { keep_alive, freeze_after, queue } = limits;
        FunctionPolicy {
            vm: self.vm,
            max_instances: self.function.concurrency.into(),
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
    /// Where it starts; none when every slot was taken.
    pub(super) slot: Option<Slot>,
    /// Whether the slot is its own, and not free again because its memory could not be plugged.
    pub(super) has_slot: bool,
    /// Whether its memory is being plugged.
    pub(super) plugging: bool,
    /// Whether its memory is to be taken back once it is plugged.
    pub(super) reclaim_waits: bool,
    /// When it was told to end or had died, once it was.
    pub(super) ending: Option<Moment>,
    /// Whether it is being stopped.
    pub(super) stopping: bool,
    pub(super) log: LogPosition,
    /// When it took calls first, and how long it took its server to come up.
    pub(super) ready: Option<(Moment, Duration)>,
    pub(super) request: Option<RequestNumber>,
    /// Counts how often it was frozen or thawed: what was found out before says nothing now.
    pub(super) generation: u64,
}

impl InstanceEntry {
    /// The instance itself; none while it has no VM.
    pub(super) fn instance(&self) -> Option<Instance> {
        let guest = self.machine.guest(self.slot?)?;
        Some(Instance { guest, id: self.id.clone(), contract: self.contract.clone() })
    }
}

/// A call that has no answer yet.
pub(super) struct PendingCall {
    pub(super) function: FunctionIndex,
    pub(super) call: Call,
    pub(super) reply: oneshot::Sender<Result<Answer, CallError>>,
    pub(super) came: Moment,
    /// Whether nobody could take it when it came.
    pub(super) waits: bool,
    pub(super) assignment: Option<Assignment>,
}

/// Which instance took a call and when, and whether it was started for it.
#[derive(Clone, Copy)]
pub(super) struct Assignment {
    pub(super) instance: InstanceNumber,
    pub(super) at: Moment,
    pub(super) waited: Duration,
    pub(super) waited_for: WaitedFor,
    pub(super) cold: Option<Duration>,
}
