//! Events of a node, for observers.

use crate::{
    Answer, CallError, CallTrace, InstanceError, MachineDetails, ResizeOutcome, SqueezeReport,
    StartTimes, vm_end::VmEnd,
};
use squeezy_protocol::ExitReason;
use squeezy_scaler::{FunctionIndex, InstanceNumber, Moment, RejectReason, StopReason, VmIndex};
use squeezy_vmm::{BootStep, Taken};
use std::time::Duration;

/// Something that happened in the node.
pub enum NodeEvent<'a> {
    /// A VM's boot has reached a step.
    Booting {
        /// Which VM.
        vm: VmIndex,
        /// The step it has reached.
        step: BootStep,
    },
    /// A VM has booted and takes instances.
    Booted {
        /// Which VM.
        vm: VmIndex,
        /// What it is made of.
        machine: &'a MachineDetails,
        /// How long the boot took.
        took: Duration,
    },
    /// A VM in which nothing runs has been paused.
    Paused {
        /// Which VM.
        vm: VmIndex,
        /// Its memory on the host, in bytes, with what is swapped out.
        resident_bytes: u64,
    },
    /// A VM runs again.
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
    /// An instance is being started.
    Starting {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
    },
    /// The plug of an instance's memory has succeeded or failed.
    Plugged {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
        /// How long that took, including any wait.
        took: Duration,
        /// The result.
        outcome: &'a ResizeOutcome,
    },
    /// An instance has started and takes calls, or could not be started.
    Started {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
        /// The result of the start.
        result: Result<StartTimes, &'a InstanceError>,
    },
    /// An instance has been frozen until its next call.
    Frozen {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
        /// Free memory of it that the host has taken by itself, if it can.
        taken: Option<Taken>,
    },
    /// A squeeze of a frozen instance has succeeded or failed.
    Squeezed {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
        /// The result.
        result: Result<&'a SqueezeReport, &'a InstanceError>,
    },
    /// The memory of an instance has been taken while its VM is paused. It ends when the VM runs again.
    Condemned {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
        /// What the host had behind it, in bytes.
        freed_bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// An instance has ended by itself.
    Died {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
        /// How it ended; absent if it ended with its own VM.
        reason: Option<ExitReason>,
    },
    /// An instance is gone because its VM has ended.
    Lost {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
    },
    /// An instance is being stopped.
    Stopping {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
        /// Why.
        reason: StopReason,
    },
    /// The first attempt to reclaim an instance's memory has succeeded or failed.
    Reclaimed {
        /// Which instance.
        instance: InstanceNumber,
        /// Its function.
        function: FunctionIndex,
        /// When the reclaim began.
        asked: Moment,
        /// How long the instance took to end before that; absent if it never existed.
        stop: Option<Duration>,
        /// The result.
        outcome: &'a ResizeOutcome,
    },
    /// Memory of an instance that did not come back in time has come back now.
    Settled {
        /// Which instance.
        instance: InstanceNumber,
    },
    /// A call has been answered, or has failed.
    Called {
        /// Its function.
        function: FunctionIndex,
        /// The instance that took it, if one did.
        instance: Option<InstanceNumber>,
        /// When it came.
        came: Moment,
        /// How it is traced, if it is.
        trace: Option<&'a CallTrace>,
        /// The result.
        result: &'a Result<Answer, CallError>,
    },
    /// There will be no instance ahead of calls.
    NotPrewarmed {
        /// Of which function.
        function: FunctionIndex,
        /// Why.
        reason: RejectReason,
    },
    /// Anything else worth a line in a log.
    Note(&'a str),
}

/// Receives the events of a node.
pub trait Observer: Send + Sync {
    /// Is told of an event. The node waits until this returns, so it must not take long.
    fn observe(&self, at: Moment, event: NodeEvent<'_>);
}
