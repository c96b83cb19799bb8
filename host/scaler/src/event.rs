//! What has happened.

use crate::{FunctionIndex, InstanceNumber, InstanceState, RequestNumber, VmIndex, VmState};
use std::time::Duration;

/// What has happened, as reported by the code that carries out the [`crate::Command`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client calls this function.
    Request {
        /// The function.
        function: FunctionIndex,
        /// The request's number, which must not have been used before.
        request: RequestNumber,
    },
    /// A call is for this function, after it has waited for one that this replaces. As many may wait like that as have
    /// waited there, whatever the queue's limit is.
    SentOn {
        /// The function.
        function: FunctionIndex,
        /// The request's number, which must not have been used before.
        request: RequestNumber,
    },
    /// An instance of this function is wanted, although nobody calls it yet. It gets memory and its turn as a call
    /// would, waits as long as a call may, and counts against no limit on calls.
    Prewarm {
        /// The function.
        function: FunctionIndex,
        /// The request's number, which must not have been used before.
        request: RequestNumber,
    },
    /// The VM is up and can take instances.
    VmBooted(VmIndex),
    /// The VM failed to boot; nothing of it is left.
    VmFailed(VmIndex),
    /// The VM has ended, on command or by itself, and the host has all its memory back. The sender of this
    /// event answers the requests that its instances had.
    VmEnded(VmIndex),
    /// The VM cannot give memory to any more instances and has to be replaced: its idle instances are stopped
    /// now, and the VM ends with the last busy one. Has no effect when repeated.
    VmUnfit(VmIndex),
    /// The VM is paused, and cannot take more host memory than it holds now until it is resumed. It is ended if that is
    /// more than the budget has for it. Has no effect if the VM has been resumed since.
    VmPaused {
        /// The VM.
        vm: VmIndex,
        /// Its resident memory on the host, including its instances, in bytes; [`u64::MAX`] if unknown.
        resident_bytes: u64,
    },
    /// The guest lacks memory and is about to kill somebody, who may be in the middle of a request. Has no effect if
    /// there is no memory for it.
    Starved {
        /// The VM.
        vm: VmIndex,
        /// What it asks for, in bytes; it may be anything.
        wanted_bytes: u64,
    },
    /// A guest that was to be lent memory ([`crate::Command::LendVm`]) has got some of it, or nothing. Has no effect if
    /// its VM has ended since.
    Lent {
        /// The VM.
        vm: VmIndex,
        /// The most that it was to get, in bytes.
        bytes: u64,
        /// What it has got of that, in bytes.
        given_bytes: u64,
    },
    /// A frozen instance can be condemned once its VM is paused. Comes before [`Event::VmPaused`], and holds
    /// until the VM is resumed.
    Doomed(InstanceNumber),
    /// The host has the instance's memory back, and the instance is killed when its VM runs again. Has no
    /// effect if that is so already.
    Condemned {
        /// The instance.
        instance: InstanceNumber,
        /// What the host had behind it, in bytes.
        freed_bytes: u64,
    },
    /// The instance could not be condemned, and has all its memory. Has no effect if its VM has been resumed
    /// or has ended since.
    CondemnFailed(InstanceNumber),
    /// The instance is up and can take requests.
    Started(InstanceNumber),
    /// The instance failed to start, or got no memory; parts of it may exist.
    StartFailed(InstanceNumber),
    /// One of the instance's requests is answered, and the instance can take another.
    Answered(InstanceNumber),
    /// One of the instance's requests is answered with an error that makes the instance unusable.
    Broken(InstanceNumber),
    /// The instance ended by itself. [`Event::Broken`] follows for each request that it has.
    Died(InstanceNumber),
    /// The instance is frozen, and cannot take more host memory than it holds now while it is. Has no effect
    /// if the instance has been thawed since.
    Frozen {
        /// The instance.
        instance: InstanceNumber,
        /// Its resident memory on the host, in bytes; [`u64::MAX`] if unknown.
        resident_bytes: u64,
    },
    /// The instance has given its garbage back, and is frozen again unless something else came in between.
    Squeezed {
        /// The instance.
        instance: InstanceNumber,
        /// Its resident memory on the host now, in bytes.
        resident_bytes: u64,
        /// Processor time it took.
        cpu: Duration,
    },
    /// A frozen instance was measured again. If it holds more than it is charged for, it is charged for that, or ended if
    /// there is not so much memory. If it has grown by more than an honest guest brings about, its VM is ended. Has no
    /// effect if the instance has been thawed or its VM paused since.
    Measured {
        /// The instance, which [`crate::Scaler::worth_measuring`] has named.
        instance: InstanceNumber,
        /// Its resident memory on the host now, in bytes.
        resident_bytes: u64,
    },
    /// The instance could not be squeezed, or did not answer in time.
    SqueezeFailed(InstanceNumber),
    /// Every process of the instance is gone.
    Stopped(InstanceNumber),
    /// The host has the instance's memory back.
    Reclaimed(InstanceNumber),
    /// The guest did not give back all of the instance's memory.
    ReclaimFailed(InstanceNumber),
    /// Stop all idle instances, whatever their keep-alive time.
    EvictIdle,
    /// The function was removed; it gets no more requests.
    Retire(FunctionIndex),
    /// Time has passed. Send it once [`crate::Scaler::next_deadline`] is reached.
    Tick,
    /// Accept no more requests, and shut everything down.
    Drain,
}

/// An [`Event`] that does not fit the current state: a bug in the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexpected {
    /// An event about an instance.
    #[error("{event:?} is not valid: the instance is {}", shown(.state.as_ref()))]
    Instance {
        /// The event.
        event: Event,
        /// The instance's state; absent if there is no such instance.
        state: Option<InstanceState>,
    },
    /// An event about a VM.
    #[error("{event:?} is not valid: the VM is {}", shown(.state.as_ref()))]
    Vm {
        /// The event.
        event: Event,
        /// The VM's state; absent if there is no such VM.
        state: Option<VmState>,
    },
}

fn shown(state: Option<&impl std::fmt::Debug>) -> String {
    state.map_or_else(|| "unknown".to_owned(), |state| format!("{state:?}"))
}
