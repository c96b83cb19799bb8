//! What a task is, and how far it is.

use crate::{
    Id,
    error::Result,
    fifo::Fifo,
    host::Holder,
    spec::{Container, Pod, Process},
    vm::Added,
};
use containerd_shim_protos::protobuf::well_known_types::timestamp::Timestamp;
use std::{path::PathBuf, sync::Arc};
use tokio::{net::unix::pipe, sync::watch};

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
    Container(Id, Parts),
    /// A pod and its only container.
    Single(Pod, Parts),
}

/// What a container is made of, apart from its pod.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What its spec says.
    pub spec: Container,
    /// The directories of its root's layers on the host, the topmost first.
    pub layers: Vec<PathBuf>,
}

/// The names of a process's streams, as containerd gave them; empty without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Where standard input comes from.
    pub stdin: String,
    /// Where standard output goes to.
    pub stdout: String,
    /// Where standard error goes to.
    pub stderr: String,
}

/// How a task, or a process that was added to one, has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    /// As a shell has it.
    pub status: u8,
    /// When.
    pub at: Timestamp,
}

/// A task, or a process that was added to one, as it is now.
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
    /// Whether they are a terminal.
    pub has_terminal: bool,
}

/// How far a task is, or a process that was added to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is being created; to others, it is not there yet.
    Creating,
    /// It has no process yet.
    Created,
    /// Its process runs.
    Running,
    /// It is being paused: nothing is started in it any more.
    Pausing,
    /// Its processes do not run until it is resumed. Only a container has this.
    Paused,
    /// Its process has ended, or will never start.
    Stopped,
}

impl Phase {
    /// Whether there is a process, paused or not.
    pub(super) fn has_process(self) -> bool {
        matches!(self, Self::Running | Self::Pausing | Self::Paused)
    }
}

/// A task, or a process that was added to one.
pub(super) struct Task {
    pub(super) kind: Kind,
    pub(super) bundle: PathBuf,
    pub(super) streams: Streams,
    pub(super) has_terminal: bool,
    pub(super) pid: u32,
    pub(super) phase: Phase,
    /// Whoever moves the task on has this.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    pub(super) exit: watch::Sender<Option<Exit>>,
    /// The pod's process on the host.
    pub(super) holder: Option<Holder>,
    /// Where its output goes to, until the process starts.
    pub(super) outputs: Option<Outputs>,
    /// Keeps its input open, from its start on.
    pub(super) input: Option<pipe::Sender>,
    /// Whether containerd has closed its input.
    pub(super) is_input_closed: bool,
}

impl Task {
    /// One that is being created.
    pub(super) fn new(
        kind: Kind,
        bundle: PathBuf,
        streams: Streams,
        process: Option<&Process>,
    ) -> Self {
        Self {
            kind,
            bundle,
            streams,
            has_terminal: process.is_some_and(|process| process.terminal.is_some()),
            pid: 0,
            phase: Phase::Creating,
            turn: Arc::default(),
            exit: watch::channel(None).0,
            holder: None,
            outputs: None,
            input: None,
            is_input_closed: false,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Pod,
    Container(Id),
    Single,
    /// A process that was added to a container.
    Added(Arc<Added>),
}

impl Kind {
    /// In which order tasks end with their VM: each before what it belongs to.
    pub(super) fn order(&self) -> u8 {
        match self {
            Self::Added(_) => 0,
            Self::Container(_) | Self::Single => 1,
            Self::Pod => 2,
        }
    }
}

#[derive(Default)]
pub(super) struct Outputs {
    pub(super) stdout: Option<Fifo>,
    pub(super) stderr: Option<Fifo>,
}

impl Outputs {
    /// Opens those of the streams that are written to.
    pub(super) async fn open(streams: &Streams) -> Result<Self> {
        let stdout = Fifo::open(&streams.stdout).await?;
        let stderr = Fifo::open(&streams.stderr).await?;
        Ok(Self { stdout, stderr })
    }
}
