//! The life of tasks: pods and containers, from create to delete, and of processes that are added to containers.
//!
//! Each is created, perhaps started, then perhaps paused and resumed, stopped once and deleted, in this order. Two things
//! make that hold whatever comes at once: calls that move one on take its turn, one after the other; and each change of
//! its phase is made, together with the event that tells of it, under the one lock of the table. Three things change a
//! phase without its turn: the end of its process, that of the container that it was added to, and the end of the VM.
//! Whichever comes first counts. Nobody has a turn while he waits for a frozen pod to be thawed.

mod add;
mod calls;
mod make;
mod pause;
mod remove;
mod run;
mod task;
mod usage;

pub use task::{Create, Exit, Parts, Phase, Snapshot, Streams, What};

use crate::{
    Id, Name,
    error::{Error, ErrorKind, Result},
    events::{Event, Events},
    host::Host,
    mutex::lock,
    timestamp,
    vm::{Ended, Signal, Vm},
};
use containerd_shim_protos::{
    events::task::{TaskExit, TaskOOM},
    protobuf::MessageField,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};
use task::{Kind, Task};
use tokio::{sync::watch, time::Instant};

/// Most tasks of a server, and processes that were added to them: some 30 for each pod.
const MAX_TASKS: usize = 1024;
/// Most processes that were added to the containers of one pod and have not ended: few of all that a VM runs, so that
/// other pods can have theirs, and their containers.
const MAX_ADDED: usize = 32;
/// The exit status of what ends with its VM.
const VM_ENDED: u8 = 255;

/// All tasks of a server. Its calls end in a definite state only if their futures are not dropped: spawn them.
pub struct Tasks {
    vm: Arc<dyn Vm>,
    host: Arc<dyn Host>,
    events: Events,
    table: Mutex<Table>,
    /// Whether the VM has ended; no call to it is waited for from then on.
    vm_ended: watch::Sender<bool>,
    /// When the VM has last not said in time what a task uses.
    usage_late_at: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Table {
    tasks: HashMap<Name, Task>,
    /// Why the VM has ended, if it has.
    vm_end: Option<String>,
}

impl Tasks {
    /// No tasks yet.
    pub fn new(vm: Arc<dyn Vm>, host: Arc<dyn Host>, events: Events) -> Arc<Self> {
        Arc::new(Self {
            vm,
            host,
            events,
            table: Mutex::default(),
            vm_ended: watch::channel(false).0,
            usage_late_at: Mutex::default(),
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table().tasks.is_empty()
    }

    /// Waits for the VM's end, and ends all tasks with it. `first` is done before any of them is told to have ended:
    /// whoever hears of it must not find this server for the next attempt.
    pub async fn end_with_vm(self: &Arc<Self>, first: impl Future<Output = ()>) {
        let why = self.vm.ended().await;
        tracing::error!("the VM has ended: {why}");
        first.await;
        let mut tasks: Vec<(u8, Name)> = {
            let mut table = self.table();
            table.vm_end = Some(why);
            table.tasks.iter().map(|(name, task)| (task.kind.order(), name.clone())).collect()
        };
        self.vm_ended.send_replace(true);
        tasks.sort();
        for (_, name) in tasks {
            self.finish(&name, Ended { status: VM_ENDED, out_of_memory: false });
        }
    }

    /// A task or an added process as it is now.
    ///
    /// # Errors
    /// There is none.
    pub fn snapshot(&self, name: &Name) -> Result<Snapshot> {
        let table = self.table();
        let task = table.created(name)?;
        Ok(Snapshot {
            pid: task.pid,
            phase: table.phase(name, task),
            exit: task.exit.borrow().clone(),
            bundle: task.bundle.clone(),
            streams: task.streams.clone(),
            has_terminal: task.has_terminal,
        })
    }

    /// Waits until a task or an added process has ended.
    ///
    /// # Errors
    /// There is none.
    pub async fn wait(&self, name: &Name) -> Result<Exit> {
        let mut exit = self.table().created(name)?.exit.subscribe();
        let seen = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        seen.ok_or_else(|| Error::failed(format_args!("task {name} is gone without an end")))
    }

    /// Nothing more comes from whoever writes to the standard input of a process: it ends with what was written.
    ///
    /// # Errors
    /// There is no such process.
    pub fn close_input(&self, name: &Name) -> Result<()> {
        let mut table = self.table();
        table.created(name)?;
        if let Some(task) = table.tasks.get_mut(name) {
            task.is_input_closed = true;
            task.input = None;
        }
        Ok(())
    }

    /// Marks a task or an added process as ended, unless it is already.
    fn finish(self: &Arc<Self>, name: &Name, ended: Ended) {
        let mut table = self.table();
        if !table.is_alive(name) {
            return;
        }
        // Nothing outlives the container that it was added to.
        for added in table.added_to(name) {
            let killed = Ended { status: Signal::KILL.status(), out_of_memory: false };
            self.end(&mut table, &added, killed);
        }
        self.end(&mut table, name, ended);
        if table.tasks.get(name).is_some_and(|task| task.kind == Kind::Pod) {
            // A pod's end is its containers' end. One that is being created or started ends right after.
            for container in table.containers_of(&name.task) {
                let tasks = self.clone();
                tokio::spawn(async move { tasks.kill_at_last(&container).await });
            }
            self.begin_end_of_pod(name.clone());
        }
    }

    fn end(&self, table: &mut Table, name: &Name, ended: Ended) {
        if !table.is_alive(name) {
            return;
        }
        let Some(task) = table.tasks.get_mut(name) else { return };
        task.phase = Phase::Stopped;
        task.outputs = None;
        task.input = None;
        let at = timestamp::now();
        let container_id = name.task.to_string();
        // What was added ends with its container then, which tells of it.
        if ended.out_of_memory && name.added.is_none() {
            self.events.push(&Event::OutOfMemory(TaskOOM {
                container_id: container_id.clone(),
                ..Default::default()
            }));
        }
        self.events.push(&Event::Exit(TaskExit {
            id: name.added.as_ref().unwrap_or(&name.task).to_string(),
            container_id,
            pid: task.pid,
            exit_status: ended.status.into(),
            exited_at: MessageField::some(at.clone()),
            ..Default::default()
        }));
        task.exit.send_replace(Some(Exit { status: ended.status, at }));
    }

    /// Waits for a call to the VM, but not for longer than there is a VM.
    async fn of_vm<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let mut ended = self.vm_ended.subscribe();
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => Err(self.table().vm_error()),
            result = call => result,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

impl Table {
    /// A task or an added process that containerd knows of.
    fn created(&self, name: &Name) -> Result<&Task> {
        let found = self.tasks.get(name).filter(|task| task.phase != Phase::Creating);
        found.ok_or_else(|| not_found(name))
    }

    /// Whether it is there and has not ended.
    fn is_alive(&self, name: &Name) -> bool {
        let alive = |task: &Task| task.phase == Phase::Created || task.phase.has_process();
        self.tasks.get(name).is_some_and(alive)
    }

    fn containers_of(&self, pod: &Id) -> Vec<Name> {
        let belongs = |kind: &Kind| matches!(kind, Kind::Container(of) if of == pod);
        self.tasks
            .iter()
            .filter(|(_, task)| belongs(&task.kind))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// What was added to a container, in the order of the names.
    fn added_to(&self, container: &Name) -> Vec<Name> {
        if container.added.is_some() {
            return Vec::new();
        }
        let belongs = |name: &&Name| name.task == container.task && name.added.is_some();
        let mut added: Vec<Name> = self.tasks.keys().filter(belongs).cloned().collect();
        added.sort();
        added
    }

    /// Whether a container takes processes, and starts them.
    fn check_container(&self, container: &Id) -> Result<&Task> {
        let task = self.created(&container.clone().into())?;
        match (&task.kind, task.phase) {
            (Kind::Container(_) | Kind::Single, Phase::Running) => Ok(task),
            (Kind::Container(_) | Kind::Single, Phase::Pausing | Phase::Paused) => {
                Err(Error::state(format_args!("container {container} is paused: resume it first")))
            }
            (Kind::Container(_) | Kind::Single, _) => {
                Err(Error::state(format_args!("container {container} does not run")))
            }
            (Kind::Pod | Kind::Added(_), _) => {
                Err(Error::invalid(format_args!("{container} is a pod and has no processes")))
            }
        }
    }

    /// Whether a pod takes containers, and starts them.
    fn check_pod(&self, pod: &Id) -> Result<&Task> {
        let name = pod.clone().into();
        let found = self.tasks.get(&name).filter(|task| task.kind == Kind::Pod);
        match found {
            Some(task) if matches!(task.phase, Phase::Created | Phase::Running) => Ok(task),
            Some(_) => Err(Error::state(format_args!("pod {pod} has ended"))),
            None => Err(Error::state(format_args!("there is no pod {pod}"))),
        }
    }

    /// Why nothing is done with a task or an added process that has ended.
    fn has_ended(&self, name: &Name) -> Error {
        if name.added.is_some() && !self.is_alive(&name.task.clone().into()) {
            return Error::state(format_args!("container {} has ended", name.task));
        }
        Error::state(format_args!("task {name} has ended"))
    }

    fn vm_error(&self) -> Error {
        let why = self.vm_end.as_deref().unwrap_or("it was stopped");
        Error::failed(format_args!("the VM has ended: {why}"))
    }
}

fn not_found(name: &Name) -> Error {
    Error::new(ErrorKind::NotFound, format_args!("there is no task {name}"))
}

#[cfg(test)]
pub(crate) mod tests;
