//! What the host and the agent in the guest say to each other.
//!
//! The agent is an HTTP/2 server on one virtio-serial port; every call of the host is a stream of
//! that one connection. Bodies are JSON unless a path says otherwise. Both sides bound what they
//! read ([`MAX_BODY_BYTES`], [`MAX_PAYLOAD_BYTES`]) and check every field before they use it.
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `GET /v1/info` | | [`Info`] |
//! | `GET /v1/memory` | | [`Memory`] |
//! | `GET /v1/partitions` | | `Vec<`[`PartitionState`]`>`, by number; empty without partitions |
//! | `POST /v1/instances` | [`InstanceSpec`] | [`Instance`], when the command has been executed in its partition |
//! | `GET /v1/instances` | | `Vec<`[`Instance`]`>` |
//! | `GET /v1/instances/ID` | | [`Instance`] |
//! | `GET /v1/instances/ID/wait` | | [`Instance`], when it has ended |
//! | `GET /v1/instances/ID/log?from=N` | | its output from byte N on, as far as it is kept, plain text, at most [`MAX_BODY_BYTES`]; [`LOG_END_HEADER`] says where it ends |
//! | `GET /v1/instances/ID/stdout`, `.../stderr` | | what it writes there, from its start to the end of its last writer; once, and only with [`OutputKind::Streams`] |
//! | `PUT /v1/instances/ID/stdin` | bytes | nothing, when its standard input has them all and is closed, or nobody reads it any more; once, and only with [`InstanceSpec::input`] |
//! | `PUT /v1/instances/ID/terminal` | [`TerminalSize`] | nothing, when its terminal has that size |
//! | `POST /v1/instances/ID/signal` | [`SignalRequest`] | nothing, when the signal is sent |
//! | `PUT /v1/instances/ID/limits` | [`LimitsRequest`] | nothing, when it has these limits; if refused, it has those it had. A change that has begun is done even if nobody waits for it any more. Not of an instance inside another one |
//! | `GET /v1/instances/ID/usage` | | [`Usage`] |
//! | `GET /v1/instances/ID/busy` | | `u64`: for how many microseconds its processes have run, or at least one of them has waited for a processor or a drive |
//! | `GET /v1/instances/ID/processes` | | `Vec<u32>`, the ids of its processes as the guest's init sees them, without that of its sandbox; not of an instance inside another one |
//! | `POST /v1/instances/ID/freeze` | | [`Instance`], when none of its processes runs any more; refused while a request is under way |
//! | `POST /v1/instances/ID/thaw` | | [`Instance`], whose processes run again; no error if they did. If it is doomed, as with a request |
//! | `POST /v1/instances/ID/squeeze` | | [`Squeezed`], when it has collected its garbage, is frozen again, and its partition's free memory has gone back to the host; refused while a request is under way. A request need not wait for it |
//! | `POST /v1/instances/ID/doom` | | [`Instance`], when it can only be killed, until the next request to its server: the host may discard the memory of its partition while the VM is paused; refused unless it is frozen, and while others have to do with its memory |
//! | `ANY /v1/instances/ID/http/PATH` | anything | what the instance's own HTTP server answers to `PATH`; thaws it. If it is doomed, it is spared first, or killed if the host has discarded its memory |
//! | `DELETE /v1/instances/ID?grace_ms=N` | | [`Instance`], when all its processes are reaped; the id is free again |
//! | `POST /v1/layers` | [`Layer`] | nothing, when instances can be started on it |
//! | `DELETE /v1/layers/OFFSET` | | nothing, when the guest reads nothing of it any more; refused while an instance has it |
//! | `POST /v1/volumes/NUMBER` | [`Volume`], at most [`Volume::MAX_BODY_BYTES`] | nothing, when instances can be started with it |
//! | `PUT /v1/volumes/NUMBER` | the same | nothing, when its files have become these, each of them as a whole, links last; not of one that instances write to |
//! | `GET /v1/volumes/NUMBER/FILE` | | the first [`MAX_BODY_BYTES`] of a file in its own directory, as bytes |
//! | `DELETE /v1/volumes/NUMBER` | | nothing, when it is gone, but for those who have it |
//! | `POST /v1/networks/NUMBER` | [`network::Network`] | nothing, when instances can be started in it |
//! | `DELETE /v1/networks/NUMBER` | | nothing, when the device of this number is nobody's; refused while an instance is in it |
//! | `POST /v1/page-cache/drop` | | nothing, when the contents of files that no process has mapped are out of memory |
//! | `PUT /v1/clock` | [`Clock`] | nothing; the guest's clock is set |
//! | `PUT /v1/profile` | [`ProfileRequest`] | starts counting calls of kernel functions from zero |
//! | `GET /v1/profile` | | [`Profile`], what was counted since |
//! | `POST /v1/shutdown` | | nothing; the VM powers off |
//!
//! An error is a status of 400 or more with an [`ErrorBody`].

mod bytes;
mod code;
mod filter;
mod instance;
mod layer;
mod memory;
pub mod network;
mod process;
mod profile;
mod volume;

pub use code::{BASE64, CODE_DIRECTORY, MAX_CODE_BYTES, MAX_SENT_CODE_BYTES, is_archive};
pub use filter::{Instruction, InvalidFilter, SystemCallFilter};
pub use instance::{
    Company, ExitReason, ImageNumber, Instance, InstanceId, InstanceSpec, InstanceState,
    InstanceUser, LimitsRequest, OutputKind, PartitionChoice, Seccomp, SignalRequest, Squeezed,
    SqueezedHeap, TerminalSize, Usage,
};
pub use layer::{InvalidLayer, Layer};
pub use memory::{Memory, Partition, PartitionNumber, PartitionState, Squeezy};
pub use network::NetworkAccess;
pub use process::{Capability, Privileges, Resource, ResourceLimit};
pub use profile::{FunctionCalls, Profile, ProfileRequest};
pub use volume::{
    FileContent, FileOwner, InvalidVolume, Volume, VolumeFile, VolumeMount, is_name, is_path,
};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Name of the virtio-serial port that carries the channel.
pub const PORT_NAME: &str = "org.squeezy.agent";

/// Largest JSON body or log either side accepts, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// Largest response of an instance's HTTP server that is passed through, in bytes. OpenWhisk's own limit for
/// a result is 5 MiB. The host breaks off a response that turns out to be longer.
pub const MAX_PAYLOAD_BYTES: usize = 8 << 20;

/// Largest request passed through to an instance's HTTP server, in bytes. Arguments have at most 1 MiB, but
/// the first request may bring an action's code, of at most [`MAX_SENT_CODE_BYTES`] and an envelope around it.
pub const MAX_REQUEST_BYTES: usize = MAX_SENT_CODE_BYTES + (1 << 20);

/// How long squeezing an instance may take: half of it for its runtime, half for its partition.
pub const SQUEEZE_LIMIT: Duration = Duration::from_secs(20);

/// Header of an answer that comes from an instance's own HTTP server; its value is the instance's
/// id. An answer of `/v1/instances/ID/http/` without it comes from the agent.
pub const INSTANCE_HEADER: &str = "squeezy-instance";

/// Header of an instance's log: how many bytes the instance has ever written, up to the end of this
/// answer. Asked for with `from`, the next answer goes on where this one ends.
pub const LOG_END_HEADER: &str = "squeezy-log-end";

/// Who answers, and on what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The agent's version; the host refuses one whose major or minor number is not its own.
    pub agent_version: String,
    /// `uname -r` of the guest.
    pub kernel_release: String,
    /// Bytes of a page.
    pub page_size_bytes: u64,
    /// Processors that are online.
    pub vcpus: u32,
    /// Resident memory of the agent itself, in bytes.
    pub agent_resident_bytes: u64,
    /// Where the state of the page allocator is, if it is one that the host can work on.
    #[serde(default)]
    pub llfree: Option<LlfreeState>,
}

/// Where the state of the guest's page allocator is (`docs/abi.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlfreeState {
    /// The physical address of its header.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The host's time, for a guest that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Nanoseconds since 1970-01-01 00:00 UTC, without leap seconds.
    pub unix_ns: u64,
}

/// The body of every answer whose status is 400 or more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What failed, for programs.
    pub code: ErrorCode,
    /// What failed and what to do about it, one line, for people.
    pub message: String,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request makes no sense: a field is missing, out of range or of the wrong form.
    Invalid,
    /// No such instance or path.
    NotFound,
    /// An instance with that id is there already.
    Exists,
    /// No partition became free within the time the request gave.
    NoPartition,
    /// The instance has ended or is busy, or its server does not listen.
    Unavailable,
    /// The instance's server took the request, and did not answer it in HTTP.
    BadAnswer,
    /// The instance's server began an answer that is longer than [`MAX_PAYLOAD_BYTES`].
    AnswerTooLong,
    /// Something in the guest failed; the message says what.
    Internal,
}
