//! What goes on, for whoever wants to know.

use crate::{
    Answer, CallError, InstanceError, MachineDetails, ResizeOutcome, SqueezeReport, StartTimes,
    vm_end::VmEnd,
};
use squeezy_protocol::ExitReason;
use squeezy_scaler::{FunctionIndex, InstanceNumber, Moment, StopReason, VmIndex};
use squeezy_vmm::BootStep;
use std::time::Duration;

/// Something that has happened.
pub enum NodeEvent<'a> {
    /// A VM is being booted, and this far.
    Booting {
        /// Which VM.
        vm: VmIndex,
        /// What it has come to.
        step: BootStep,
    },
    /// A VM takes instances.
    Booted {
        /// Which VM.
        vm: VmIndex,
        /// What it is made of.
        machine: &'a MachineDetails,
        /// How long that took.
        took: Duration,
    },
    /// A VM in which nothing runs stands still.
    Paused {
        /// Which VM.
        vm: VmIndex,
        /// What the host has behind it, in bytes.
        resident_bytes: u64,
    },
    /// It runs again.
    Resumed {
        /// Which VM.
        vm: VmIndex,
    },
    /// A VM could not be booted, or has ended.
    Ended {
        /// Which VM.
        vm: VmIndex,
        /// Why.
        reason: &'a VmEnd,
    },
    /// An instance is to be started.
    Starting {
        /// Which instance.
        instance: InstanceNumber,
        /// Of which function.
        function: FunctionIndex,
    },
    /// The memory of an instance is plugged, or is not.
    Plugged {
        /// Which instance.
        instance: InstanceNumber,
        /// Of which function.
        function: FunctionIndex,
        /// How long that took, with what had to be waited for.
        took: Duration,
        /// What came of it.
        outcome: &'a ResizeOutcome,
    },
    /// An instance takes calls, or does not.
    Started {
        /// Which instance.
        instance: InstanceNumber,
        /// Of which function.
        function: FunctionIndex,
        /// What came of its start.
        result: Result<StartTimes, &'a InstanceError>,
    },
    /// An instance does not run until its next call.
    Frozen {
        /// Which instance.
        instance: InstanceNumber,
    },
    /// A frozen instance has given memory back, or has not.
    Squeezed {
        /// Which instance.
        instance: InstanceNumber,
        /// Of which function.
        function: FunctionIndex,
        /// What came of it.
        result: Result<&'a SqueezeReport, &'a InstanceError>,
    },
    /// An instance has ended by itself.
    Died {
        /// Which instance.
        instance: InstanceNumber,
        /// Of which function.
        function: FunctionIndex,
        /// How it ended; nothing where its own VM has.
        reason: Option<ExitReason>,
    },
    /// An instance is gone with the VM that it shared with others.
    Lost {
        /// Which instance.
        instance: InstanceNumber,
        /// Of which function.
        function: FunctionIndex,
    },
    /// An instance is being stopped.
    Stopping {
        /// Which instance.
        instance: InstanceNumber,
        /// Of which function.
        function: FunctionIndex,
        /// Why.
        reason: StopReason,
    },
    /// An instance's memory was asked back for the first time, and has come back or has not.
    Reclaimed {
        /// Which instance.
        instance: InstanceNumber,
        /// Of which function.
        function: FunctionIndex,
        /// When it was asked back.
        asked: Moment,
        /// How long the instance took to end before that; nothing where it never came to be.
        stop: Option<Duration>,
        /// What came of it.
        outcome: &'a ResizeOutcome,
    },
    /// The memory of an instance that had not come back in time has come back now.
    Settled {
        /// Which instance.
        instance: InstanceNumber,
    },
    /// A call has been answered, or will not be.
    Called {
        /// Of which function.
        function: FunctionIndex,
        /// The instance that had taken it, if one had.
        instance: Option<InstanceNumber>,
        /// What came of it.
        result: &'a Result<Answer, CallError>,
    },
    /// Anything else that is worth a line.
    Note(&'a str),
}

/// Whoever wants to know.
pub trait Observer: Send + Sync {
    /// Takes note of what happened. The node waits meanwhile, so it must not take long.
    fn observe(&self, at: Moment, event: NodeEvent<'_>);
}
