//! What has happened.

use crate::{FunctionIndex, InstanceNumber, InstanceState, RequestNumber, VmIndex, VmState};
use std::time::Duration;

/// What has happened, as whoever carries out the [`crate::Command`]s tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants this function called.
    Request {
        /// The function.
        function: FunctionIndex,
        /// The request's number; not one that was used before.
        request: RequestNumber,
    },
    /// The VM runs and takes instances.
    VmBooted(VmIndex),
    /// The VM could not be booted; nothing of it is there.
    VmFailed(VmIndex),
    /// The VM has ended, as it was told to or by itself, and the host has all its memory back. The
    /// requests that its instances had are answered by whoever tells this.
    VmEnded(VmIndex),
    /// No more instances can be given memory in the VM, which is to be replaced: those without a request
    /// are ended, and it is with the last of the others. Changes nothing when it is known already.
    VmUnfit(VmIndex),
    /// The VM does not run and holds so much of the host's memory, which is all it can hold until it
    /// does. Changes nothing when it is to run again already.
    VmPaused {
        /// The VM.
        vm: VmIndex,
        /// What is resident of it on the host, its instances included, in bytes; [`u64::MAX`] when it is
        /// not known.
        resident_bytes: u64,
    },
    /// The instance runs and takes requests.
    Started(InstanceNumber),
    /// The instance could not be started, or has no memory; parts of it may be there.
    StartFailed(InstanceNumber),
    /// The instance's request is answered, and the instance can take another one.
    Answered(InstanceNumber),
    /// The instance's request is answered with an error that the instance will not survive.
    Broken(InstanceNumber),
    /// The instance ended by itself. If it has a request, [`Event::Broken`] follows.
    Died(InstanceNumber),
    /// The instance is frozen and holds so much of the host's memory, which is all it can hold while
    /// it is. Changes nothing when it is not frozen any more.
    Frozen {
        /// The instance.
        instance: InstanceNumber,
        /// Its memory that is resident on the host, in bytes; [`u64::MAX`] when it is not known.
        resident_bytes: u64,
    },
    /// The instance has given its garbage back, and is frozen again unless something else came.
    Squeezed {
        /// The instance.
        instance: InstanceNumber,
        /// Its memory that is resident on the host now, in bytes.
        resident_bytes: u64,
        /// Processor time it took.
        cpu: Duration,
    },
    /// The instance could not be squeezed, or has not answered in time.
    SqueezeFailed(InstanceNumber),
    /// Every process of the instance is gone.
    Stopped(InstanceNumber),
    /// The host has the instance's memory back.
    Reclaimed(InstanceNumber),
    /// The guest did not give the instance's memory back, or not all of it.
    ReclaimFailed(InstanceNumber),
    /// Idle instances are not wanted any longer, however long they might be kept.
    EvictIdle,
    /// The function is not to be called any more.
    Retire(FunctionIndex),
    /// Time has passed. To be sent when [`crate::Scaler::next_deadline`] is over.
    Tick,
    /// No more requests are taken, and everything is to end.
    Drain,
}

/// An [`Event`] that makes no sense as things stand: a mistake of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexpected {
    /// It is about an instance.
    #[error("{event:?} makes no sense for an instance that is {}", shown(.state.as_ref()))]
    Instance {
        /// The event.
        event: Event,
        /// How the instance it names stands; absent when there is none.
        state: Option<InstanceState>,
    },
    /// It is about a VM.
    #[error("{event:?} makes no sense for a VM that is {}", shown(.state.as_ref()))]
    Vm {
        /// The event.
        event: Event,
        /// How the VM it names stands; absent when there is none.
        state: Option<VmState>,
    },
}

fn shown(state: Option<&impl std::fmt::Debug>) -> String {
    state.map_or_else(|| "not there".to_owned(), |state| format!("{state:?}"))
}
