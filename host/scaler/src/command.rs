//! What the scaler wants done.

use crate::{FunctionIndex, InstanceNumber, RequestNumber, VmIndex};

/// What the scaler wants done. Every command is answered by an [`crate::Event`], except [`Command::Reject`],
/// [`Command::Prewarmed`] and [`Command::ResumeVm`], and [`Command::Freeze`] unless frozen instances are charged by what
/// they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Boot this VM; answered by `VmBooted` or `VmFailed`.
    BootVm(VmIndex),
    /// Pause this VM, which has no running instance; answered by `VmPaused`.
    PauseVm {
        /// The VM.
        vm: VmIndex,
        /// Whether it keeps what only makes the next start in it faster. Not if its instances are not expected to be
        /// called soon: all of them have been squeezed.
        keeps_page_cache: bool,
    },
    /// Resume a VM that is paused or being paused, before doing anything else in it. Not answered.
    ResumeVm(VmIndex),
    /// Give the guest memory that it has asked for, besides that of its instances, until the VM ends; answered by `Lent`.
    LendVm {
        /// The VM.
        vm: VmIndex,
        /// The most it may be given, in bytes.
        bytes: u64,
    },
    /// Shut down this VM, which has no running instance; answered by `VmEnded`.
    EndVm {
        /// The VM.
        vm: VmIndex,
        /// Why. Its frozen instances, if any, end with it.
        reason: StopReason,
    },
    /// End this VM at once, whatever runs in it, because its guest breaks the rules; answered by `VmEnded`. What its
    /// instances do until then may be reported or not.
    KillVm {
        /// The VM.
        vm: VmIndex,
        /// An instance in it, which is frozen.
        instance: InstanceNumber,
        /// What that has taken all the same, in bytes.
        taken_bytes: u64,
        /// What it holds with that, in bytes.
        resident_bytes: u64,
    },
    /// Plug the memory of a new instance and start it; answered by `Started` or `StartFailed`.
    Start {
        /// The function to start an instance of.
        function: FunctionIndex,
        /// The VM it runs in.
        vm: VmIndex,
        /// The new instance's number, used in every later command about it.
        instance: InstanceNumber,
    },
    /// Pass the request to the instance; answered by `Answered` or `Broken`.
    Dispatch {
        /// The instance; it has fewer others than its function's policy allows at a time.
        instance: InstanceNumber,
        /// The request.
        request: RequestNumber,
        /// Whether the instance is frozen and has to be thawed first.
        thaw: bool,
    },
    /// Tell whoever wanted an instance ahead of calls that one is up. Not answered.
    Prewarmed(RequestNumber),
    /// Freeze the processes of an idle instance; answered by `Frozen` if frozen instances are charged by what
    /// they hold.
    Freeze(InstanceNumber),
    /// Make a frozen instance give its garbage back: thaw it, run its garbage collector, freeze it again. A
    /// request or the instance's end may arrive in the meantime. Answered by `Squeezed` or `SqueezeFailed`.
    Squeeze(InstanceNumber),
    /// Take all memory of an instance of a paused VM back, without running the VM; answered by `Condemned` or
    /// `CondemnFailed`. The instance is stopped when the VM runs again. A resume or the VM's end may arrive in
    /// the meantime.
    Condemn(InstanceNumber),
    /// Stop the instance, even if only parts of it exist; answered by `Stopped`.
    Stop {
        /// The instance.
        instance: InstanceNumber,
        /// Why.
        reason: StopReason,
    },
    /// Reclaim the memory of a stopped instance; answered by `Reclaimed` or `ReclaimFailed`.
    Reclaim {
        /// The VM it ran in.
        vm: VmIndex,
        /// The instance.
        instance: InstanceNumber,
    },
    /// Tell the client that its request will not be served.
    Reject {
        /// The request.
        request: RequestNumber,
        /// Why.
        reason: RejectReason,
    },
}

/// Why an instance is stopped or a VM shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its keep-alive time passed without a request.
    KeepAliveOver,
    /// Its memory is needed elsewhere.
    Evicted,
    /// It ended by itself, could not be started, or cannot take another request.
    Broken,
    /// Its function was removed.
    Retired,
    /// The scaler is draining.
    Draining,
    /// It, or its paused VM, holds more memory than it is charged for, and more than there is.
    Overdrawn,
}

/// What a function's oldest queued request is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingFor {
    /// A VM that is booting or shutting down.
    Vm,
    /// An instance that is starting.
    Start,
    /// An instance: all of the function's instances are busy.
    Busy,
    /// Memory, or a free slot in the VM, for an instance.
    Memory,
    /// Memory within the tenant's quota, for an instance.
    Quota,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The function's queue is full.
    QueueFull,
    /// The tenant has as many calls in flight as it may have.
    TooManyCalls,
    /// The tenant's memory quota was lowered, and one instance of this function exceeds it.
    OverQuota,
    /// An instance was wanted ahead of calls, and not even the end of everything idle would leave memory for it.
    NoRoomAhead,
    /// No instance took a request of this function within the wait limit.
    WaitedTooLong(WaitingFor),
    /// The instance started for it failed to start.
    StartFailed,
    /// Its function's VM failed to boot, or ended.
    VmFailed,
    /// Its function was removed.
    Retired,
    /// The scaler is draining.
    Draining,
}
