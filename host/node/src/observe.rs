//! What goes on, for whoever wants to know.

use crate::{Machine, StartTimes, Tried};
use squeezy_protocol::ExitReason;
use squeezy_runtime::{FunctionIndex, InstanceNumber, Moment, StopReason, VmIndex};
use squeezy_vmm::BootStep;
use std::time::Duration;

/// Something that has happened.
pub enum Happening<'a> {
    /// A VM is being booted, and this far.
    Booting(VmIndex, BootStep),
    /// A VM takes instances, after so long.
    Booted(VmIndex, &'a Machine, Duration),
    /// A VM could not be booted, or has ended, for this reason.
    Ended(VmIndex, &'a str),
    /// An instance of this function is to be started.
    Starting(InstanceNumber, FunctionIndex),
    /// The memory of an instance is plugged, or is not, after so long.
    Plugged(InstanceNumber, Duration, &'a Tried),
    /// An instance takes calls, or does not.
    Started(InstanceNumber, Result<StartTimes, &'a str>),
    /// An instance has ended by itself.
    Died(InstanceNumber, ExitReason),
    /// An instance is being stopped.
    Stopping(InstanceNumber, StopReason),
    /// An instance's memory was asked back at this moment. Without a result it was asked for before,
    /// and nothing was measured.
    Reclaimed(InstanceNumber, Moment, Option<&'a Tried>),
    /// Anything else that is worth a line.
    Note(&'a str),
}

/// Whoever wants to know.
pub trait Observer: Send + Sync {
    /// Takes note of what happened. The node waits meanwhile, so it must not take long.
    fn observe(&self, at: Moment, happening: Happening<'_>);
}
