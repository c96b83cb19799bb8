//! What has to be done.

use crate::{FunctionIndex, InstanceNumber, RequestNumber, VmIndex};

/// What has to be done. Each one but [`Command::Reject`] is answered by an [`crate::Event`];
/// [`Command::Freeze`] and [`Command::ResumeVm`] need not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Boot this VM; answered by `VmBooted` or `VmFailed`.
    BootVm(VmIndex),
    /// Stop this VM, in which nothing runs; answered by `VmPaused`.
    PauseVm(VmIndex),
    /// Let a VM run that is stopped or being stopped, before anything else is done in it. Needs no answer.
    ResumeVm(VmIndex),
    /// End this VM, in which nothing runs; answered by `VmEnded`.
    EndVm {
        /// The VM.
        vm: VmIndex,
        /// Why. Frozen instances that it may have end with it.
        reason: StopReason,
    },
    /// Plug the memory of a new instance and start it; answered by `Started` or `StartFailed`.
    Start {
        /// What it is an instance of.
        function: FunctionIndex,
        /// Where it runs.
        vm: VmIndex,
        /// Its number, the same in every later command.
        instance: InstanceNumber,
    },
    /// Pass the request to the instance; answered by `Answered` or `Broken`.
    Dispatch {
        /// The instance, which has no other request.
        instance: InstanceNumber,
        /// The request.
        request: RequestNumber,
        /// Whether it was frozen and has to be thawed first.
        thaw: bool,
    },
    /// Freeze the processes of an idle instance; answered by `Frozen` where frozen instances cost what
    /// they hold.
    Freeze(InstanceNumber),
    /// Make a frozen instance give its garbage back: thaw it, have its runtime collect, freeze it
    /// again. A request or its end may come meanwhile. Answered by `Squeezed` or `SqueezeFailed`.
    Squeeze(InstanceNumber),
    /// Stop the instance, whatever of it there is; answered by `Stopped`.
    Stop {
        /// The instance.
        instance: InstanceNumber,
        /// Why.
        reason: StopReason,
    },
    /// Take the memory of a stopped instance back; answered by `Reclaimed` or `ReclaimFailed`.
    Reclaim {
        /// Where it was.
        vm: VmIndex,
        /// The instance.
        instance: InstanceNumber,
    },
    /// Tell whoever sent the request that nobody will answer it.
    Reject {
        /// The request.
        request: RequestNumber,
        /// Why.
        reason: RejectReason,
    },
}

/// Why an instance is stopped, or a VM ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It had nothing to do for the keep-alive time.
    KeepAliveOver,
    /// Somebody else needs its memory.
    Evicted,
    /// It ended by itself, could not be started, or cannot take another request.
    Broken,
    /// Its function is not to be called any more.
    Retired,
    /// Everything ends.
    Draining,
}

/// What the request that has waited longest of its function's waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingFor {
    /// The VM, which boots or ends.
    Vm,
    /// The start of an instance.
    Start,
    /// One of the function's instances, which all work on other requests.
    Busy,
    /// Room or memory for an instance, which others have.
    Memory,
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// As many requests wait as may wait.
    QueueFull,
    /// No instance has taken a request of its function for as long as it may wait.
    WaitedTooLong(WaitingFor),
    /// The instance that was to answer it could not be started.
    StartFailed,
    /// The VM of its function could not be booted, or ended.
    VmFailed,
    /// Its function is not to be called any more.
    Retired,
    /// Everything ends.
    Draining,
}
