//! The life of tasks: pods and containers, from create to delete.
//!
//! Each task is created, perhaps started, stopped once and deleted, in this order. Two things make that hold whatever
//! comes at once: calls that move a task on take its turn, one after the other; and each change of its phase is made,
//! together with the event that tells of it, under the one lock of the table. Only two things change a phase without its
//! turn: the end of its process, and the end of the VM. Whichever comes first counts.

mod calls;
mod make;
mod run;
mod task;

pub use task::{Create, Exit, Phase, Root, Snapshot, Streams, What};

use crate::{
    Id,
    error::{Error, ErrorKind, Result},
    events::{Event, Events},
    host::Host,
    timestamp,
    vm::{Ended, Signal, Vm},
};
use containerd_shim_protos::{
    events::task::{TaskExit, TaskOOM},
    protobuf::MessageField,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use task::{Kind, Task};
use tokio::sync::watch;

/// Most tasks of a server: some 30 containers for each pod.
const MAX_TASKS: usize = 1024;
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
}

#[derive(Default)]
struct Table {
    tasks: HashMap<Id, Task>,
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
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table().tasks.is_empty()
    }

    /// Waits for the VM's end, and ends all tasks with it. `first` is called before any of them is told to have ended:
    /// whoever hears of it must not find this server for the next attempt.
    pub async fn end_with_vm(self: &Arc<Self>, first: impl FnOnce()) {
        let why = self.vm.ended().await;
        tracing::error!("the VM has ended: {why}");
        first();
        let mut tasks: Vec<(bool, Id)> = {
            let mut table = self.table();
            table.vm_end = Some(why);
            table.tasks.iter().map(|(id, task)| (task.kind == Kind::Pod, id.clone())).collect()
        };
        self.vm_ended.send_replace(true);
        // Containers before their pods.
        tasks.sort();
        for (_, id) in tasks {
            self.finish(&id, Ended { status: VM_ENDED, out_of_memory: false });
        }
    }

    /// A task as it is now.
    ///
    /// # Errors
    /// There is none.
    pub fn snapshot(&self, id: &Id) -> Result<Snapshot> {
        let table = self.table();
        let task = table.created(id)?;
        Ok(Snapshot {
            pid: task.pid,
            phase: task.phase,
            exit: task.exit.borrow().clone(),
            bundle: task.bundle.clone(),
            streams: task.streams.clone(),
        })
    }

    /// Waits until a task has ended.
    ///
    /// # Errors
    /// There is none.
    pub async fn wait(&self, id: &Id) -> Result<Exit> {
        let mut exit = self.table().created(id)?.exit.subscribe();
        let seen = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        seen.ok_or_else(|| Error::failed(format_args!("task {id} is gone without an end")))
    }

    /// Marks a task as ended, unless it is already.
    fn finish(self: &Arc<Self>, id: &Id, ended: Ended) {
        let mut table = self.table();
        let Some(task) = table.tasks.get_mut(id) else { return };
        if !matches!(task.phase, Phase::Created | Phase::Running) {
            return;
        }
        task.phase = Phase::Stopped;
        task.outputs = None;
        let at = timestamp::now();
        let container_id = id.to_string();
        if ended.out_of_memory {
            self.events.push(&Event::OutOfMemory(TaskOOM {
                container_id: container_id.clone(),
                ..Default::default()
            }));
        }
        self.events.push(&Event::Exit(TaskExit {
            id: container_id.clone(),
            container_id,
            pid: task.pid,
            exit_status: ended.status.into(),
            exited_at: MessageField::some(at.clone()),
            ..Default::default()
        }));
        task.exit.send_replace(Some(Exit { status: ended.status, at }));
        if task.kind == Kind::Pod {
            // A pod's end is its containers' end. One that is being created or started ends right after.
            for container in table.containers_of(id) {
                let tasks = self.clone();
                tokio::spawn(async move { tasks.kill(&container, Signal::KILL, true).await });
            }
        }
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
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// A task that containerd knows of.
    fn created(&self, id: &Id) -> Result<&Task> {
        self.tasks.get(id).filter(|task| task.phase != Phase::Creating).ok_or_else(|| not_found(id))
    }

    fn containers_of(&self, pod: &Id) -> Vec<Id> {
        let belongs = |kind: &Kind| matches!(kind, Kind::Container(of) if of == pod);
        self.tasks
            .iter()
            .filter(|(_, task)| belongs(&task.kind))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Whether a pod takes containers, and starts them.
    fn check_pod(&self, pod: &Id) -> Result<&Task> {
        let found = self.tasks.get(pod).filter(|task| task.kind == Kind::Pod);
        match found {
            Some(task) if matches!(task.phase, Phase::Created | Phase::Running) => Ok(task),
            Some(_) => Err(Error::state(format_args!("pod {pod} has ended"))),
            None => Err(Error::state(format_args!("there is no pod {pod}"))),
        }
    }

    fn vm_error(&self) -> Error {
        let why = self.vm_end.as_deref().unwrap_or("it was stopped");
        Error::failed(format_args!("the VM has ended: {why}"))
    }
}

fn not_found(id: &Id) -> Error {
    Error::new(ErrorKind::NotFound, format_args!("there is no task {id}"))
}

#[cfg(test)]
pub(crate) mod tests;
