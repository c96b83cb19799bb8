//! What a server needs of the VM behind it.

use crate::{
    Id, Name,
    error::Result,
    spec::{self, Limits, Pod, Process},
};
use futures_util::future::BoxFuture;
use squeezy_protocol::TerminalSize;
use std::{any::Any, path::PathBuf};
use tokio::io::{AsyncBufRead, AsyncRead};

/// A VM in which pods are partitions.
///
/// Each call has a limit of its own, except [`Vm::wait`] and [`Vm::ended`]. Once the VM has ended, they all fail or are
/// no longer waited for.
pub trait Vm: Send + Sync {
    /// Makes a pod, booting the VM for the first. If that fails, nothing of the pod is left. It is
    /// [crowded](crate::error::ErrorKind::Crowded) if the VM has no room for it beside others.
    fn create_pod<'a>(&'a self, id: &'a Id, pod: &'a Pod) -> BoxFuture<'a, Result<()>>;
    /// A pod that has no containers takes none any more: its memory begins to go back, which nobody has to wait for. No
    /// error if there is none.
    fn end_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>>;
    /// Deletes a pod that has no containers; its memory is the host's when this returns, or the log says why it is not. No
    /// error if there is none.
    fn delete_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>>;
    /// Makes a container, without a process yet. If that fails, nothing of it is left. It is
    /// [crowded](crate::error::ErrorKind::Crowded) if there is no room for it beside other pods, but without them.
    fn create<'a>(&'a self, id: &'a Id, container: &'a Container) -> BoxFuture<'a, Result<()>>;
    /// Lets the pod of a container run that was frozen because it had nothing to do, and keeps it from being frozen
    /// again. No error if there is no such container. May take seconds, and may be dropped at any time.
    fn begin_use<'a>(&'a self, container: &'a Id) -> BoxFuture<'a, Result<Use>>;
    /// Starts the process of a container. If that fails, the container is as it was created.
    fn start<'a>(&'a self, id: &'a Id, one_use: Use) -> BoxFuture<'a, Result<Output>>;
    /// Starts one more process of this name in a started container, with which it ends at the latest. If that fails,
    /// nothing of it is left.
    fn add<'a>(
        &'a self,
        name: &'a Name,
        added: &'a Added,
        one_use: Use,
    ) -> BoxFuture<'a, Result<Output>>;
    /// Passes on what there is to read to the standard input of a process that was started with one, and closes it then.
    /// Returns when that is done, or when the process has ended.
    fn input<'a>(&'a self, name: &'a Name, from: Input) -> BoxFuture<'a, Result<()>>;
    /// Waits, without a limit, until a process that was started has ended. What it has written comes out of its
    /// [`Output`] independently of this. Once for each start.
    fn wait<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Ended>>;
    /// Sends a signal to a process that was started; with `all` to all of its container, if it is the first.
    fn signal<'a>(&'a self, name: &'a Name, signal: Signal, all: bool)
    -> BoxFuture<'a, Result<()>>;
    /// Keeps all processes of a started container from running, and gives back what memory they do not need. There is
    /// a [`Use`] of it, and no process is being added to it meanwhile. If that fails, they run.
    fn pause<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>>;
    /// Lets them run again. There is a [`Use`] of the container meanwhile.
    fn resume<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>>;
    /// Sets the size of the terminal of a process that was started with one. There is a [`Use`] of its container
    /// meanwhile.
    fn resize<'a>(&'a self, name: &'a Name, size: TerminalSize) -> BoxFuture<'a, Result<()>>;
    /// Deletes a container whose processes do not run. No error if there is none.
    fn delete<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>>;
    /// The processes of a started container, with those that were added to it and all that these have started.
    fn processes<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Vec<Listed>>>;
    /// What a pod or container uses now. May be dropped at any time.
    fn usage<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Usage>>;
    /// Changes the limits of a container; what is absent stays as it is. One that was not started has them when it starts,
    /// and is not being started meanwhile. If that fails, it has those that it had.
    fn update<'a>(&'a self, id: &'a Id, limits: Limits) -> BoxFuture<'a, Result<()>>;
    /// Waits until the VM has ended without having been stopped, and says why. Never returns before it has booted.
    fn ended(&self) -> BoxFuture<'_, String>;
    /// Stops the VM, if it runs. The last call.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// What a container is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The pod that it belongs to.
    pub pod: Id,
    /// What its spec says.
    pub spec: spec::Container,
    /// Whether its process has a standard input.
    pub has_input: bool,
    /// The directories of its root's layers on the host, the topmost first.
    pub layers: Vec<PathBuf>,
}

/// A process that is added to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// What it is.
    pub process: Process,
    /// Whether it has a standard input.
    pub has_input: bool,
}

/// As long as there is one, the pod that it is of is not frozen for having nothing to do.
pub type Use = Box<dyn Any + Send>;

/// Where standard input comes from.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;

/// What a process writes. Each ends when the last process that could write to it has ended; dropping one loses what is
/// written to it from then on.
pub struct Output {
    /// Its standard output.
    pub stdout: Box<dyn AsyncBufRead + Send + Unpin>,
    /// Its standard error; nothing if its streams are a terminal.
    pub stderr: Box<dyn AsyncBufRead + Send + Unpin>,
}

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As a shell has it: the exit status, or 128 + the number of the signal.
    pub status: u8,
    /// Whether it was killed because its partition was full.
    pub out_of_memory: bool,
}

/// A process of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id, as the kernel counts that it runs on. It is that of no process of the host.
    pub pid: u32,
    /// The name that it was added by, if it was.
    pub added: Option<Id>,
}

/// The number of a signal of Linux, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(u8);

impl Signal {
    /// SIGKILL.
    pub const KILL: Self = Self(9);

    /// The signal with this number, if there is one.
    pub fn new(number: u32) -> Option<Self> {
        u8::try_from(number).ok().filter(|number| (1..=64).contains(number)).map(Self)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The exit status, as a shell has it, of a process that it has killed.
    pub fn status(self) -> u8 {
        128 + self.0
    }

    /// Whether it ends a process that does not handle it: all but SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
    /// SIGURG and SIGWINCH do.
    pub fn ends_by_default(self) -> bool {
        !matches!(self.0, 17..=23 | 28)
    }
}

/// What is in use now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory on the host, in bytes.
    pub memory_bytes: u64,
    /// The part of it that is in the pod's partition.
    pub partition_bytes: u64,
    /// The most that the pod's partition may be, in bytes.
    pub memory_limit_bytes: u64,
    /// CPU time, in microseconds.
    pub cpu_us: u64,
    /// The part of it in the programs themselves.
    pub user_us: u64,
    /// The part of it in the guest's kernel.
    pub system_us: u64,
    /// Page faults in the guest.
    pub page_faults: u64,
    /// Those of them that waited for a drive.
    pub major_page_faults: u64,
    /// Processes and threads, those that the runtime itself needs included.
    pub processes: u64,
    /// The most that it may have of them.
    pub processes_limit: u64,
    /// How many of them were killed because memory was short.
    pub oom_kills: u64,
}
