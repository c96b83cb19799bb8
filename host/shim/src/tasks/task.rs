//! What a task is, and how far it is.

use crate::{
    Id,
    fifo::Fifo,
    host::Holder,
    spec::{Pod, Process},
};
use containerd_shim_protos::protobuf::well_known_types::timestamp::Timestamp;
use std::{path::PathBuf, sync::Arc};
use tokio::sync::watch;

/// A task that is to be created.
#[derive(Clone, Debug)]
pub struct Create {
    /// Its id.
    pub id: Id,
    /// What it is.
    pub what: What,
    /// Its bundle.
    pub bundle: PathBuf,
    /// Its streams.
    pub streams: Streams,
}

/// What a task is.
#[derive(Clone, Debug)]
pub enum What {
    /// A pod.
    Pod(Pod),
    /// A container of that pod.
    Container(Id, Root),
    /// A pod and its only container.
    Single(Pod, Root),
}

/// What a container is made of, apart from its pod.
#[derive(Clone, Debug)]
pub struct Root {
    /// What runs in it.
    pub process: Process,
    /// The directories of its root's layers on the host, the topmost first.
    pub layers: Vec<PathBuf>,
}

/// The names of a task's streams, as containerd gave them; empty without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Where standard input comes from. The process has none yet.
    pub stdin: String,
    /// Where standard output goes to.
    pub stdout: String,
    /// Where standard error goes to.
    pub stderr: String,
}

/// How a task has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    /// As a shell has it.
    pub status: u8,
    /// When.
    pub at: Timestamp,
}

/// A task as it is now.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The process that stands for it on the host.
    pub pid: u32,
    /// How far it is.
    pub phase: Phase,
    /// How it has ended, if it has.
    pub exit: Option<Exit>,
    /// Its bundle.
    pub bundle: PathBuf,
    /// Its streams.
    pub streams: Streams,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is being created; to others, it is not there yet.
    Creating,
    /// It has no process yet.
    Created,
    /// Its process runs.
    Running,
    /// Its process has ended, or will never start.
    Stopped,
}

pub(super) struct Task {
    pub(super) kind: Kind,
    pub(super) bundle: PathBuf,
    pub(super) streams: Streams,
    pub(super) pid: u32,
    pub(super) phase: Phase,
    /// Whoever moves the task on has this.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    pub(super) exit: watch::Sender<Option<Exit>>,
    /// The pod's process on the host.
    pub(super) holder: Option<Holder>,
    /// Where output goes to, until the process starts.
    pub(super) outputs: Option<Outputs>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Pod,
    Container(Id),
    Single,
}

#[derive(Default)]
pub(super) struct Outputs {
    pub(super) stdout: Option<Fifo>,
    pub(super) stderr: Option<Fifo>,
}
