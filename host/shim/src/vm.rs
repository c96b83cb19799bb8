//! What a server needs of the VM behind it.

use crate::{
    Id,
    error::Result,
    spec::{Pod, Process},
};
use futures_util::future::BoxFuture;
use std::path::PathBuf;
use tokio::io::AsyncRead;

/// A VM in which pods are partitions.
///
/// Each call has a limit of its own, except [`Vm::wait`] and [`Vm::ended`]. Once the VM has ended, they all fail or are
/// no longer waited for.
pub trait Vm: Send + Sync {
    /// Makes a pod, booting the VM for the first. If that fails, nothing of the pod is left.
    fn create_pod<'a>(&'a self, id: &'a Id, pod: &'a Pod) -> BoxFuture<'a, Result<()>>;
    /// Deletes a pod that has no containers; its memory is the host's when this returns, or the log says why it is not. No
    /// error if there is none.
    fn delete_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>>;
    /// Makes a container, without a process yet. If that fails, nothing of it is left.
    fn create<'a>(&'a self, id: &'a Id, container: &'a Container) -> BoxFuture<'a, Result<()>>;
    /// Starts the process of a container. If that fails, the container is as it was created.
    fn start<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Output>>;
    /// Waits, without a limit, until the process of a started container has ended. What it has written comes
    /// out of its [`Output`] independently of this.
    fn wait<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Ended>>;
    /// Sends a signal to a started container: to its first process, or to all.
    fn signal<'a>(&'a self, id: &'a Id, signal: Signal, all: bool) -> BoxFuture<'a, Result<()>>;
    /// Deletes a container whose process does not run. No error if there is none.
    fn delete<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>>;
    /// What a pod or container uses now.
    fn usage<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Usage>>;
    /// Changes the limits of a container.
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
    /// What runs in it.
    pub process: Process,
    /// The directories of its root's layers on the host, the topmost first.
    pub layers: Vec<PathBuf>,
}

/// What a process writes. Each ends when the last process that could write to it has ended; dropping one loses what is
/// written to it from then on.
pub struct Output {
    /// Its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard error.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
}

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As a shell has it: the exit status, or 128 + the number of the signal.
    pub status: u8,
    /// Whether it was killed because its partition was full.
    pub out_of_memory: bool,
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
    /// The most that it may be, in bytes.
    pub memory_limit_bytes: u64,
    /// CPU time, in microseconds.
    pub cpu_us: u64,
    /// Processes.
    pub processes: u64,
}

/// New limits; what is absent stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// CPU, in thousandths of a processor.
    pub cpu_millis: Option<u32>,
}
