//! What can go wrong with a VM; each error is one sentence that says what to do about it.

use bytesize::ByteSize;
use squeezy_protocol::MAX_PAYLOAD_BYTES;
use std::{path::PathBuf, time::Duration};

/// `Result` with a [`VmError`].
pub type Result<T, E = VmError> = std::result::Result<T, E>;

/// Why a VM cannot be started, resized, measured or talked to.
///
/// It is `Clone` because the end of a VM is reported to everyone who waits for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// An invalid [`VmConfig`](crate::VmConfig).
    #[error("the VM cannot be configured: {0}")]
    Config(String),

    /// A file that the VM needs does not exist.
    #[error("{what} is not at {}: {remedy}", path.display())]
    Missing {
        /// What kind of file.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// How to get it.
        remedy: &'static str,
    },

    /// The VMM program is not installed.
    #[error("{} cannot be run ({reason}): {remedy}", program.display())]
    Program {
        /// The program's name or path.
        program: PathBuf,
        /// The operating system's error.
        reason: String,
        /// How to get it.
        remedy: &'static str,
    },

    /// KVM was explicitly requested and does not work.
    #[error(
        "KVM was requested but cannot be used here: {0}; choose the accelerator `tcg`, or `auto` to have it chosen"
    )]
    Kvm(String),

    /// The VMM ended before the VM ran.
    #[error("the VMM ended at start: {0}")]
    Start(String),

    /// The VMM ended while the VM ran.
    #[error("the VMM ended unexpectedly ({how}){}", quoted(". Its output: ", said))]
    Died {
        /// Its exit status or signal.
        how: String,
        /// The signal's number, if one has ended it.
        signal: Option<i32>,
        /// The end of its standard error.
        said: String,
    },

    /// The VMM has stopped answering.
    #[error("the VMM has not answered for {} s: it hangs, or the host has no CPU time or memory left", .0.as_secs())]
    Hung(Duration),

    /// The VMM has paused the VM on its own.
    #[error(
        "the VMM has paused the VM ({0}): under KVM this means an instruction it cannot run or an I/O error on the host; try the accelerator `tcg` and read the host's kernel log"
    )]
    Paused(String),

    /// The guest has used memory that the host keeps, and it was not the first time.
    #[error(
        "the guest has used {} that the host had taken from it, again within ten minutes: its kernel is broken or has been taken over",
        ByteSize(*bytes)
    )]
    LimitBroken {
        /// How much of that it has used since the host last looked.
        bytes: u64,
    },

    /// The guest has let a frozen instance take memory.
    #[error(
        "instance {instance} is frozen and has taken {} of memory, {} in all: the guest's kernel is broken or has been taken over",
        ByteSize(*taken_bytes), ByteSize(*resident_bytes)
    )]
    FrozenGrew {
        /// The instance's number.
        instance: u64,
        /// What it has taken since the host last measured it.
        taken_bytes: u64,
        /// What it holds with that.
        resident_bytes: u64,
    },

    /// The state of the guest's page allocator, which the host works on, was in memory that has failed.
    #[error(
        "the VM is ended because {0}: read the host's kernel log, and have the host's memory checked"
    )]
    MemoryFailed(#[from] squeezy_llfree::PageFailed),

    /// The guest's kernel has panicked.
    #[error("the guest's kernel has panicked: {0}")]
    Panicked(String),

    /// The guest powered off or restarted without being told to.
    #[error("the guest has {what} on its own{}", quoted("; its console ends with: ", console))]
    PoweredOff {
        /// What it did: `powered off` or `restarted`.
        what: &'static str,
        /// Its last line on the console.
        console: String,
    },

    /// The agent did not answer in time after the start.
    #[error("the guest's agent has not answered within {} s of the start{}", within.as_secs(), quoted("; the console ends with: ", console))]
    AgentLate {
        /// How long it had.
        within: Duration,
        /// The guest's last line on the console.
        console: String,
    },

    /// An instance's server did not end its response properly.
    #[error("the instance's server: {0}")]
    Answer(String),

    /// An instance's server sent a response that is longer than the agent passes on.
    #[error("the instance's server: its answer is longer than {}", ByteSize(MAX_PAYLOAD_BYTES as u64))]
    AnswerTooLong,

    /// A request that cannot be sent to the agent in this form.
    #[error("the request cannot be sent to the guest: {0}")]
    Request(String),

    /// The VM was started without an agent, and the operation needs one.
    #[error("the VM was started without an agent")]
    NoAgent,

    /// The agent's end of the channel is closed, or does not answer.
    #[error("the guest's agent cannot be reached: {0}")]
    AgentLost(String),

    /// The agent sent an invalid answer: it is broken, or something else in the guest is
    /// impersonating it.
    #[error("the guest's agent gave a wrong answer: {0}")]
    AgentAnswer(String),

    /// The agent refused a request.
    #[error("the guest's agent refused {request}: {message}")]
    Agent {
        /// The method and path of the request.
        request: String,
        /// The kind of failure.
        code: squeezy_protocol::ErrorCode,
        /// The agent's message.
        message: String,
    },

    /// The agent's version is not compatible with the host's.
    #[error(
        "the guest's agent is version {guest}, this host needs {host}: rebuild the initramfs with `make image`"
    )]
    AgentVersion {
        /// The agent's version.
        guest: String,
        /// This crate's version.
        host: &'static str,
    },

    /// The guest's kernel does not have the partitions that its command line requests.
    #[error("the guest's kernel does not have the requested partitions: {0}")]
    NoPartitions(String),

    /// The host cannot take free memory out of the guest by itself.
    #[error("the state of the guest's page allocator cannot be used: {0}")]
    AllocatorState(String),

    /// The memory of an instance cannot be discarded while it is in use.
    #[error("the instance in partition {partition} cannot be condemned: {why}")]
    NotCondemned {
        /// Its partition.
        partition: squeezy_protocol::PartitionNumber,
        /// Why, and what to do about it.
        why: &'static str,
    },

    /// The guest reported a partition that its VM does not have.
    #[error("the guest reports a partition {0} that does not exist")]
    StrangePartition(squeezy_protocol::PartitionNumber),

    /// All slots for instances are in use.
    #[error("the VM is full: it has room for {instances} instances")]
    Full {
        /// The number of slots.
        instances: u16,
    },

    /// A slot was freed that is not in use.
    #[error("slot {0} is not in use")]
    SlotNotInUse(u16),

    /// More memory was requested than the VM's region can hold.
    #[error(
        "{} were requested, but the VM's region holds {}: start the VM with more instances or smaller ones",
        ByteSize(*asked), ByteSize(*region)
    )]
    RegionTooSmall {
        /// Bytes requested.
        asked: u64,
        /// Bytes the region holds.
        region: u64,
    },

    /// The host does not have enough memory.
    #[error(
        "{} of memory are needed, but the host has {} left: use fewer or smaller instances, or free memory",
        ByteSize(*needed), ByteSize(*available)
    )]
    HostMemory {
        /// Bytes that are needed in addition to what is in use.
        needed: u64,
        /// Bytes that are available according to the host.
        available: u64,
    },

    /// The guest did not plug or unplug the requested memory in time.
    #[error("the guest has {} of the requested {} after {:.1} s: {reason}", ByteSize(*plugged), ByteSize(*requested), after.as_secs_f64())]
    Resize {
        /// Bytes requested.
        requested: u64,
        /// Bytes that are plugged now. The request stands: the guest continues with it when it can.
        plugged: u64,
        /// How long the caller waited.
        after: Duration,
        /// The reason that the guest gives.
        reason: String,
    },

    /// Instances have ended, but their partitions still have pages in use.
    #[error(
        "the guest holds {partitions} partitions of instances that have ended: something outside (a pipe, a socket, a pin) still holds pages of them, or the memory is broken"
    )]
    Held {
        /// Partitions that are held.
        partitions: u16,
        /// How long the guest has had.
        after: Duration,
    },

    /// So many partitions are held that none is left for another instance.
    #[error(
        "no partition is left for the instance: {held} of {partitions} are held by pages of instances that have ended"
    )]
    NoPartition {
        /// Partitions that are held.
        held: u16,
        /// Partitions in total.
        partitions: u16,
    },

    /// The guest and its device disagree about how much of the partitions is plugged.
    #[error(
        "the guest and its memory device disagree: {} are plugged, and the guest uses {} of them", ByteSize(*device_bytes), ByteSize(*guest_bytes)
    )]
    Disagreement {
        /// Bytes that are plugged according to the device.
        device_bytes: u64,
        /// Bytes of the partitions that are plugged according to the guest.
        guest_bytes: u64,
    },

    /// The operation is not possible with the VM's kind of memory.
    #[error("this VM's memory cannot be resized like this: {0}")]
    NotResizable(&'static str),

    /// The VMM refused a command.
    #[error("the VMM refused `{command}`: {reason}")]
    Command {
        /// The command.
        command: String,
        /// Its answer.
        reason: String,
    },

    /// The VM was stopped by [`Vm::stop`](crate::Vm::stop).
    #[error("the VM has been stopped")]
    Stopped,

    /// Something about the VMM's process could not be measured.
    #[error("{what} cannot be read: {reason}")]
    Measure {
        /// What.
        what: String,
        /// The operating system's error.
        reason: String,
    },

    /// A system call failed.
    #[error("{what}: {reason}")]
    System {
        /// What failed.
        what: &'static str,
        /// The operating system's error.
        reason: String,
    },
}

impl VmError {
    /// Whether the VM must be replaced, because its guest can no longer give memory to any
    /// instance.
    pub fn is_unfit(&self) -> bool {
        match self {
            Self::NoPartition { .. } | Self::Disagreement { .. } => true,
            // The guest did not plug the memory within the time limit.
            Self::Resize { requested, plugged, .. } => plugged < requested,
            _ => false,
        }
    }

    /// Wraps an error of the operating system.
    pub(crate) fn system(what: &'static str, error: impl std::fmt::Display) -> Self {
        Self::System { what, reason: error.to_string() }
    }
}

/// `lead` and `text`, or nothing if `text` is empty.
fn quoted(lead: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{lead}{text}") }
}
