//! What goes on, for whoever wants to know.

use crate::{Answer, CallError, MachineDetails, SqueezeReport, StartTimes, Tried};
use squeezy_protocol::ExitReason;
use squeezy_runtime::{FunctionIndex, InstanceNumber, Moment, StopReason, VmIndex};
use squeezy_vmm::BootStep;
use std::time::Duration;

/// Something that has happened.
pub enum Happening<'a> {
    /// A VM is being booted, and this far.
    Booting(VmIndex, BootStep),
    /// A VM takes instances, after so long.
    Booted(VmIndex, &'a MachineDetails, Duration),
    /// A VM in which nothing runs stands still, and the host has so many bytes behind it.
    Paused(VmIndex, u64),
    /// It runs again.
    Resumed(VmIndex),
    /// A VM could not be booted, or has ended, for this reason.
    Ended(VmIndex, &'a str),
    /// An instance of this function is to be started.
    Starting(InstanceNumber, FunctionIndex),
    /// The memory of an instance is plugged, or is not, after so long.
    Plugged(InstanceNumber, Duration, &'a Tried),
    /// An instance takes calls, or does not.
    Started(InstanceNumber, Result<StartTimes, &'a str>),
    /// An instance does not run until its next call.
    Frozen(InstanceNumber),
    /// A frozen instance has given memory back, or why not.
    Squeezed(InstanceNumber, Result<&'a SqueezeReport, &'a str>),
    /// An instance has ended by itself; without a reason, because its own VM has.
    Died(InstanceNumber, Option<ExitReason>),
    /// An instance is gone with the VM that it shared with others.
    Lost(InstanceNumber),
    /// An instance is being stopped.
    Stopping(InstanceNumber, StopReason),
    /// An instance's memory was asked back at this moment. Without a result it was asked for before,
    /// and nothing was measured.
    Reclaimed(InstanceNumber, Moment, Option<&'a Tried>),
    /// Of an instance, the memory that had not come back in time has come back now.
    Settled(InstanceNumber),
    /// This came of a call; an instance had taken it, unless there is none.
    Called(FunctionIndex, Option<InstanceNumber>, &'a Result<Answer, CallError>),
    /// Anything else that is worth a line.
    Note(&'a str),
}

/// Whoever wants to know.
pub trait Observer: Send + Sync {
    /// Takes note of what happened. The node waits meanwhile, so it must not take long.
    fn observe(&self, at: Moment, happening: Happening<'_>);
}
