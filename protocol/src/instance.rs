//! An instance: one running copy of a function, in a sandbox of its own.

use crate::{
    NetworkAccess, PartitionNumber, Privileges, ResourceLimit, SystemCallFilter, VolumeMount,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, ops::Not, str::FromStr};

/// Names an instance within its VM: 1 to 63 of `a-z`, `0-9` and `-`, not starting with `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceId(String);

/// Why a string is no [`InstanceId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an instance id is 1 to 63 of a-z, 0-9 and '-', and does not start with '-'")]
pub struct InvalidInstanceId;

impl InstanceId {
    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InstanceId {
    type Err = InvalidInstanceId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = (1..=63).contains(&text.len())
            && !text.starts_with('-')
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidInstanceId) }
    }
}

impl TryFrom<String> for InstanceId {
    type Error = InvalidInstanceId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<InstanceId> for String {
    fn from(id: InstanceId) -> Self {
        id.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Counts the images of a VM from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageNumber(pub u8);

impl ImageNumber {
    /// Most images of a VM.
    pub const MAX_COUNT: usize = 32;

    /// `serial` of the virtio-blk drive that holds it.
    pub fn serial(self) -> String {
        format!("image-{}", self.0)
    }
}

impl fmt::Display for ImageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which partition an instance gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionChoice {
    /// None: it shares ordinary memory with everybody, as in a stock VM.
    None,
    /// Whichever is free, or becomes free within `wait_ms`.
    Any,
    /// This one.
    Number(PartitionNumber),
}

/// Which system calls an instance may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seccomp {
    /// Those that containers may make by default.
    #[default]
    Default,
    /// All that need no privilege.
    Unconfined,
}

/// A user of an instance's own 65,536; user 0 by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceUser {
    /// Its number.
    pub user: u16,
    /// That of its group.
    pub group: u16,
    /// Other groups that it is in, at most [`InstanceUser::MAX_GROUPS`].
    #[serde(default)]
    pub other_groups: Vec<u16>,
}

impl InstanceUser {
    /// Most other groups.
    pub const MAX_GROUPS: usize = 64;
}

/// What becomes of an instance's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// The latest of it is kept, standard output and error in one.
    #[default]
    Log,
    /// All of it is for the host to read, as two streams. An instance that writes faster than the host reads waits.
    Streams,
}

/// What an instance shares with another one, which has to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Company {
    /// Nothing.
    #[default]
    None,
    /// Partition, users, network, IPC and host name, as containers of a pod do. Each ends by itself; the partition is
    /// free when the last has ended. Neither sees the files of the other, nor its processes unless
    /// [`InstanceSpec::shared_processes`].
    Beside(InstanceId),
    /// Everything: it is one more process in that instance, with its root and its limits, and ends with it at the
    /// latest. What it leaves behind when it ends before is that instance's.
    Inside(InstanceId),
}

impl Company {
    /// The other one.
    pub fn id(&self) -> Option<&InstanceId> {
        match self {
            Self::None => None,
            Self::Beside(id) | Self::Inside(id) => Some(id),
        }
    }
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// How wide it is.
    pub columns: u16,
    /// How high it is.
    pub rows: u16,
}

/// What to start, and within which limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceSpec {
    /// The instance's name in this VM.
    pub id: InstanceId,
    /// The program and its arguments. A program without a slash is looked for in the directories of `PATH` of its
    /// environment, in the instance's root. Without one, nothing is executed: until it is stopped, the instance keeps
    /// what those beside it share with it, and none of their processes can end it, or enter it.
    pub command: Vec<String>,
    /// Its whole environment, but for `HOME`: without it, that is what the root's `/etc/passwd` says of its user, or `/`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Its working directory. If that is not in its root, and the root is its own, it is made.
    #[serde(default = "root_directory")]
    pub working_directory: String,
    /// The image that its root is, with an overlay of its own; the root that the agent itself has,
    /// for tools that come with the guest, when absent.
    pub image: Option<ImageNumber>,
    /// An image whose files are in its root, too, over those of `image`: those of an action's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ImageNumber>,
    /// The layers that its root is made of instead of an image, by their offsets in the pool, the topmost first. Their
    /// files look as in a root that Linux' overlayfs has made of directories.
    #[serde(default)]
    pub layers: Vec<u64>,
    /// What it shares with another instance. What it shares is as the other one has it, and absent here: the partition
    /// is [`PartitionChoice::None`].
    #[serde(default)]
    pub company: Company,
    /// Whether it lives in the PID namespace of the instance that it is beside, and ends with that at the latest: both
    /// see each other's processes.
    #[serde(default)]
    pub shared_processes: bool,
    /// The partition to attach it to.
    pub partition: PartitionChoice,
    /// How long to wait for that partition, in milliseconds.
    #[serde(default)]
    pub wait_ms: u32,
    /// `memory.max` of its cgroup in bytes: the most it may have outside of its partition. No limit
    /// when absent.
    pub memory_limit_bytes: Option<u64>,
    /// `memory.max` of a cgroup around its own and those of all that are beside it, in bytes: the most that they may have
    /// together outside of their partition. No limit when absent.
    #[serde(default)]
    pub company_memory_limit_bytes: Option<u64>,
    /// The most private and mapped shared memory that its processes may have together, in bytes, where that is less than
    /// its partition. It is killed soon after it has more. Files in memory do not count unless they are mapped. No limit
    /// but the partition when absent.
    #[serde(default)]
    pub private_limit_bytes: Option<u64>,
    /// The most that the files of its writable root, /tmp and /dev/shm may hold together, in bytes.
    /// They are memory of its own. Half of the machine's when absent.
    #[serde(default)]
    pub files_limit_bytes: Option<u64>,
    /// Whether that can change while it runs, for which the agent keeps its files until it has ended.
    #[serde(default)]
    pub files_limit_changes: bool,
    /// The NUMA node its memory comes from, as far as it can be moved; the rest, such as page
    /// tables, comes from node 0. All nodes when absent.
    /// Only for comparing with a kernel that has one node an instance instead of partitions.
    #[serde(default)]
    pub memory_node: Option<u16>,
    /// What it gets of the processors where they are short, in thousandths of one: `cpu.weight` of its
    /// cgroup, where one processor is Linux's default of 100.
    #[serde(default)]
    pub cpu_share_millis: Option<u32>,
    /// `cpu.max` of its cgroup in thousandths of a processor; no limit when absent.
    pub cpu_limit_millis: Option<u32>,
    /// Which system calls it may make.
    #[serde(default)]
    pub seccomp: Seccomp,
    /// Filters beside that, of which the strictest decides; at most [`SystemCallFilter::MAX_COUNT`].
    #[serde(default)]
    pub filters: Vec<SystemCallFilter>,
    /// Whether its standard input comes from the host; it is empty otherwise.
    #[serde(default)]
    pub input: bool,
    /// The terminal that its standard streams are, and that it can control, of this size. What is written to it is one
    /// stream, that of standard output: [`OutputKind::Streams`]. There is none when absent.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// What becomes of its output.
    #[serde(default)]
    pub output: OutputKind,
    /// Who its processes are.
    #[serde(default)]
    pub user: InstanceUser,
    /// What they may do.
    #[serde(default)]
    pub privileges: Privileges,
    /// Limits of its first process and of those that this one starts, at most [`ResourceLimit::MAX_COUNT`].
    #[serde(default)]
    pub resource_limits: Vec<ResourceLimit>,
    /// How much rather than others it is killed when memory is short: `oom_score_adj`, at most
    /// [`InstanceSpec::MAX_OOM_SCORE_ADJ`]. Nobody is killed less than others.
    #[serde(default)]
    pub oom_score_adj: u16,
    /// Its host name; its id when absent.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Whether its root cannot be written to; /tmp and /dev/shm can.
    #[serde(default)]
    pub read_only_root: bool,
    /// Whether its programs can make terminals, in a `/dev/pts` of its own.
    #[serde(default)]
    pub pseudoterminals: bool,
    /// Whether its programs can read its limits, in a `/sys/fs/cgroup` of its own. Only with
    /// [`InstanceSpec::files_limit_changes`].
    #[serde(default, skip_serializing_if = "Not::not")]
    pub sees_limits: bool,
    /// Whether its programs see the POSIX message queues that they share with others of its IPC namespace, in
    /// `/dev/mqueue`.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub sees_message_queues: bool,
    /// Paths in its root, beside those that no instance has, that show nothing; at most
    /// [`InstanceSpec::MAX_PATHS`]. What is not there is left out.
    #[serde(default)]
    pub hidden_paths: Vec<String>,
    /// The same of paths that it can only read.
    #[serde(default)]
    pub read_only_paths: Vec<String>,
    /// Volumes in its root, in this order, at most [`Volume::MAX_OF_INSTANCE`](crate::Volume::MAX_OF_INSTANCE).
    #[serde(default)]
    pub volumes: Vec<VolumeMount>,
    /// The TCP port its HTTP server listens on inside its network namespace, if it has one.
    pub port: Option<u16>,
    /// What network it has.
    #[serde(default)]
    pub network: NetworkAccess,
    /// The network ([`network::Network`](crate::network::Network)) that it is in instead of one of its own, by its number.
    #[serde(default)]
    pub in_network: Option<u8>,
}

impl InstanceSpec {
    /// The highest `oom_score_adj`, Linux's own.
    pub const MAX_OOM_SCORE_ADJ: u16 = 1000;
    /// The longest host name, Linux's own, in bytes.
    pub const MAX_HOST_NAME_BYTES: usize = 64;
    /// Most paths of a kind.
    pub const MAX_PATHS: usize = 256;
    /// The lowest limit of memory, in bytes: no instance can do anything with less.
    pub const MIN_MEMORY_BYTES: u64 = 1 << 20;
    /// The smallest share or limit of processors, in thousandths of one: the kernel accepts no quota below 1 ms in 100 ms.
    pub const MIN_CPU_MILLIS: u32 = 10;
    /// The largest, which is more processors than there are.
    pub const MAX_CPU_MILLIS: u32 = 1 << 20;

    /// A program in the guest's own root, alone, with no memory of its own, no limits, no network and nothing else that
    /// can be left out.
    pub fn new(id: InstanceId, command: Vec<String>) -> Self {
        Self {
            id,
            command,
            environment: BTreeMap::new(),
            working_directory: root_directory(),
            image: None,
            code: None,
            layers: Vec::new(),
            company: Company::default(),
            shared_processes: false,
            partition: PartitionChoice::None,
            wait_ms: 0,
            memory_limit_bytes: None,
            company_memory_limit_bytes: None,
            private_limit_bytes: None,
            files_limit_bytes: None,
            files_limit_changes: false,
            memory_node: None,
            cpu_share_millis: None,
            cpu_limit_millis: None,
            seccomp: Seccomp::default(),
            filters: Vec::new(),
            input: false,
            terminal: None,
            output: OutputKind::default(),
            user: InstanceUser::default(),
            privileges: Privileges::default(),
            resource_limits: Vec::new(),
            oom_score_adj: 0,
            host_name: None,
            read_only_root: false,
            pseudoterminals: false,
            sees_limits: false,
            sees_message_queues: false,
            hidden_paths: Vec::new(),
            read_only_paths: Vec::new(),
            volumes: Vec::new(),
            port: None,
            network: NetworkAccess::default(),
            in_network: None,
        }
    }
}

fn root_directory() -> String {
    "/".to_owned()
}

/// How an instance stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its name.
    pub id: InstanceId,
    /// Running or ended.
    pub state: InstanceState,
    /// Whether its processes are kept from running until the next request.
    #[serde(default)]
    pub frozen: bool,
    /// The partition it is attached to; none while it is starting.
    pub partition: Option<PartitionNumber>,
    /// The process id of its first process, as the guest's init sees it.
    pub pid: u32,
    /// From the request to start it until its command was executed, in nanoseconds.
    pub start_ns: u64,
    /// The part of `start_ns` that was spent waiting for a partition.
    pub partition_wait_ns: u64,
}

/// A signal for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Its number, 1 to 64.
    pub signal: u8,
    /// Whether all its processes get it, or only the first. An instance inside another one has only the first.
    pub all: bool,
}

/// New limits for an instance that runs; what is absent stays as it is. They are those of [`InstanceSpec`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsRequest {
    /// The most private memory, in bytes; [`u64::MAX`] for no limit but the partition. Refused if it has more.
    #[serde(default)]
    pub private_limit_bytes: Option<u64>,
    /// The most that its files may hold, in bytes. Refused if they hold more, and without
    /// [`InstanceSpec::files_limit_changes`].
    #[serde(default)]
    pub files_limit_bytes: Option<u64>,
    /// What it gets of the processors where they are short, in thousandths of one.
    #[serde(default)]
    pub cpu_share_millis: Option<u32>,
    /// The most that it gets of the processors, in thousandths of one.
    #[serde(default)]
    pub cpu_limit_millis: Option<u32>,
}

/// What an instance uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Memory that is charged to its cgroup, in bytes: what it has outside of its partition.
    pub memory_bytes: u64,
    /// Private memory of its processes, in bytes, which is in its partition, if it has one. What several of them have
    /// inherited counts for each, and of shared memory what one of them has mapped.
    pub private_bytes: u64,
    /// CPU time of all its processes since its start, in microseconds.
    pub cpu_us: u64,
    /// The part of it in the programs themselves.
    pub user_us: u64,
    /// The part of it in the kernel.
    pub system_us: u64,
    /// Page faults of all its processes since its start.
    pub page_faults: u64,
    /// Those of them that waited for a drive.
    pub major_page_faults: u64,
    /// Processes and threads, that of its sandbox included.
    pub processes: u64,
    /// The most that it may have.
    pub processes_limit: u64,
    /// How many of its processes were killed because memory was short.
    pub oom_kills: u64,
}

/// What came of squeezing an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Squeezed {
    /// The instance, frozen again unless a request or its end came meanwhile.
    pub instance: Instance,
    /// What its runtime did; absent where no squeezer answered.
    pub heap: Option<SqueezedHeap>,
    /// Why `heap` is absent, in a sentence.
    pub heap_problem: Option<String>,
    /// Bytes of its partition's free memory that were given back to the host; 0 without a partition.
    pub reported_bytes: u64,
    /// Why nothing was given back, where there is a partition.
    pub report_problem: Option<String>,
}

/// What a runtime did to give memory back (`squeezers/README.md`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqueezedHeap {
    /// Memory of the heap that was resident in the guest before.
    pub before_bytes: u64,
    /// The same after.
    pub after_bytes: u64,
    /// What was in use.
    pub live_bytes: u64,
    /// How long the function could not run, in nanoseconds.
    pub pause_ns: u64,
    /// Processor time of the process meanwhile, in nanoseconds.
    pub cpu_ns: u64,
}

/// Whether an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Its sandbox is being made, or it waits for its partition.
    Starting,
    /// Its command is running.
    Running,
    /// All its processes are gone, for this reason.
    Ended(ExitReason),
}

/// Why an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// Its first process returned this status.
    Exited(i32),
    /// The host asked for it with `DELETE`.
    Stopped,
    /// A signal that the host did not ask for.
    Killed(i32),
    /// It needed more memory than its partition or its cgroup has.
    ExceededMemory,
}

/// What it did, to follow its name.
impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "has ended by itself with status {status}"),
            Self::Stopped => write!(f, "was stopped"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
            Self::ExceededMemory => write!(f, "exceeded its memory and was killed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent refuses fields that it does not know.
    #[test]
    fn what_an_older_agent_does_not_know_is_only_said_if_it_is_wanted() {
        let plain = InstanceSpec::new("a".parse().unwrap(), vec!["/bin/true".to_owned()]);
        let wanted = InstanceSpec {
            code: Some(ImageNumber(1)),
            sees_limits: true,
            sees_message_queues: true,
            ..plain.clone()
        };
        for (spec, is_said) in [(plain, false), (wanted, true)] {
            let said = serde_json::to_value(&spec).unwrap();
            for field in ["code", "sees_limits", "sees_message_queues"] {
                assert_eq!(said.get(field).is_some(), is_said, "{field}");
            }
            assert_eq!(serde_json::from_value::<InstanceSpec>(said).unwrap(), spec);
        }
    }
}
