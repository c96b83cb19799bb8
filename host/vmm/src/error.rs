//! What can go wrong with a VM, each as one sentence that says what to do about it.

use bytesize::ByteSize;
use squeezy_protocol::MAX_PAYLOAD_BYTES;
use std::{path::PathBuf, time::Duration};

/// `Result` with a [`VmError`].
pub type Result<T, E = VmError> = std::result::Result<T, E>;

/// Why a VM cannot be started, resized, measured or talked to.
///
/// It can be cloned because the end of a VM is reported to everybody who waits for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// A [`VmConfig`](crate::VmConfig) that makes no sense.
    #[error("the VM cannot be configured: {0}")]
    Config(String),

    /// A file the VM is made of is not there.
    #[error("{what} is not at {}: {remedy}", path.display())]
    Missing {
        /// What the file is.
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
        /// What the system said.
        reason: String,
        /// How to get it.
        remedy: &'static str,
    },

    /// KVM was asked for by name and does not work.
    #[error(
        "KVM was requested but cannot be used here: {0}; choose the accelerator `tcg`, or `auto` to have it chosen"
    )]
    Kvm(String),

    /// The VMM ended before the VM ran.
    #[error("the VMM ended at start: {0}")]
    Start(String),

    /// The VMM ended while the VM ran.
    #[error("the VMM ended unexpectedly ({how}){}", quoted(". It said: ", said))]
    Died {
        /// Its exit status or signal.
        how: String,
        /// The end of its standard error.
        said: String,
    },

    /// The VMM does not answer any more.
    #[error("the VMM has not answered for {} s: it hangs, or the host has no CPU time or memory left", .0.as_secs())]
    Hung(Duration),

    /// The VMM has paused the VM by itself.
    #[error(
        "the VMM has paused the VM ({0}): under KVM this means an instruction it cannot run or an I/O error on the host; try the accelerator `tcg` and read the host's kernel log"
    )]
    Paused(String),

    /// The guest's kernel has panicked.
    #[error("the guest's kernel has panicked: {0}")]
    Panicked(String),

    /// The guest switched itself off, or restarted, without being asked to.
    #[error("the guest has {what} by itself{}", quoted("; its console ends with: ", console))]
    PoweredOff {
        /// What it did: `powered off` or `restarted`.
        what: &'static str,
        /// Its last line on the console.
        console: String,
    },

    /// The agent did not report in time after the start.
    #[error("the guest's agent has not answered within {} s of the start{}", within.as_secs(), quoted("; the console ends with: ", console))]
    AgentLate {
        /// How long it had.
        within: Duration,
        /// The guest's last line on the console.
        console: String,
    },

    /// An instance's server began an answer that it did not end as it should.
    #[error("the instance's server: {0}")]
    Answer(String),

    /// An instance's server began an answer that is longer than an agent passes on.
    #[error("the instance's server: its answer is longer than {}", ByteSize(MAX_PAYLOAD_BYTES as u64))]
    AnswerTooLong,

    /// A request that cannot be sent to the agent as it is.
    #[error("the request cannot be sent to the guest: {0}")]
    Request(String),

    /// The agent was asked for in a VM that was started without one.
    #[error("the VM was started without an agent")]
    NoAgent,

    /// The agent's end of the channel is closed or does not answer.
    #[error("the guest's agent cannot be reached: {0}")]
    AgentLost(String),

    /// The agent answered what it should not: it is broken, or somebody in the guest speaks for it.
    #[error("the guest's agent gave a wrong answer: {0}")]
    AgentAnswer(String),

    /// The agent refused a request.
    #[error("the guest's agent refused {request}: {message}")]
    Agent {
        /// The method and path that were asked for.
        request: String,
        /// What kind of failure it was.
        code: squeezy_protocol::ErrorCode,
        /// The agent's message.
        message: String,
    },

    /// The agent's version does not go with this host's.
    #[error(
        "the guest's agent is version {guest}, this host needs {host}: rebuild the initramfs with `make image`"
    )]
    AgentVersion {
        /// The agent's.
        guest: String,
        /// This crate's.
        host: &'static str,
    },

    /// The guest's kernel runs without the partitions it was told to have.
    #[error("the guest's kernel does not have the requested partitions: {0}")]
    NoPartitions(String),

    /// The guest speaks of a partition that its VM does not have.
    #[error("the guest reports a partition {0} that does not exist")]
    StrangePartition(squeezy_protocol::PartitionNumber),

    /// Every instance that the VM has room for is there.
    #[error("the VM is full: it has room for {instances} instances")]
    Full {
        /// How many.
        instances: u16,
    },

    /// A slot for an instance was freed that nobody had taken.
    #[error("slot {0} is not in use")]
    SlotNotInUse(u16),

    /// More memory was asked for than the VM's region can hold.
    #[error(
        "{} were requested, but the VM's region holds {}: start the VM with more instances or smaller ones",
        ByteSize(*asked), ByteSize(*region)
    )]
    RegionTooSmall {
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes the region holds.
        region: u64,
    },

    /// The host does not have the memory.
    #[error(
        "{} of memory are needed, but the host has {} left: use fewer or smaller instances, or free memory",
        ByteSize(*needed), ByteSize(*available)
    )]
    HostMemory {
        /// Bytes that are needed on top of what is in use.
        needed: u64,
        /// Bytes the host says are available.
        available: u64,
    },

    /// The guest did not plug or unplug what it was asked to in time.
    #[error("the guest has {} of the requested {} after {:.1} s: {reason}", ByteSize(*plugged), ByteSize(*requested), after.as_secs_f64())]
    Resize {
        /// Bytes that were asked for.
        requested: u64,
        /// Bytes that are plugged now. The request stands: the guest goes on with it when it can.
        plugged: u64,
        /// How long was waited.
        after: Duration,
        /// The guest's own reason.
        reason: String,
    },

    /// An instance has ended, and its partition still has pages of it.
    #[error(
        "the guest holds {partitions} partitions of instances that have ended: something outside, such as a pipe, a socket or a pin, still has pages of them, or the memory is broken"
    )]
    Held {
        /// Partitions that are held.
        partitions: u16,
        /// How long the guest has had.
        after: Duration,
    },

    /// Too many partitions are held for another instance.
    #[error(
        "no partition is left for the instance: {held} of {partitions} are held by pages of instances that have ended"
    )]
    NoPartition {
        /// Partitions that are held.
        held: u16,
        /// Partitions there are.
        partitions: u16,
    },

    /// The guest's kernel has lost count of its partitions.
    #[error(
        "the guest and its memory device disagree: {} are plugged, and the guest uses {} of them", ByteSize(*device_bytes), ByteSize(*guest_bytes)
    )]
    Disagreement {
        /// Bytes that are plugged at the device.
        device_bytes: u64,
        /// Bytes of the partitions that the guest takes for plugged.
        guest_bytes: u64,
    },

    /// The operation does not fit the VM's kind of memory.
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

    /// Something about the VMM's process cannot be measured.
    #[error("{what} cannot be read: {reason}")]
    Measure {
        /// What.
        what: String,
        /// What the system said.
        reason: String,
    },

    /// A call of the operating system failed.
    #[error("{what}: {reason}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
}

impl VmError {
    /// Whether no instance can be given memory in the VM any more, as far as its guest is to blame: it
    /// is to be replaced.
    pub fn is_unfit(&self) -> bool {
        match self {
            Self::NoPartition { .. } | Self::Disagreement { .. } => true,
            // It had all the time there is to plug something.
            Self::Resize { requested, plugged, .. } => plugged < requested,
            _ => false,
        }
    }

    /// Wraps an error of the operating system.
    pub(crate) fn system(what: &'static str, error: impl std::fmt::Display) -> Self {
        Self::System { what, reason: error.to_string() }
    }
}

/// `lead` and `text`, or nothing when there is no text.
fn quoted(lead: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{lead}{text}") }
}
