//! The calls that move a task on.

use super::{
    Create, Exit, MAX_TASKS, Phase, Tasks, What,
    make::Unmade,
    not_found,
    task::{Kind, Outputs, Task},
};
use crate::{
    Id,
    error::{Error, ErrorKind, Result},
    events::Event,
    vm::{Ended, Limits, Signal, Usage},
};
use containerd_shim_protos::{
    api::Mount,
    events::task::{TaskCreate, TaskDelete, TaskIO, TaskStart},
    protobuf::MessageField,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedMutexGuard, watch},
    time::sleep,
};

/// How long to wait before a process that nobody wants any more is killed again.
const KILL_INTERVAL: Duration = Duration::from_secs(1);

impl Tasks {
    /// Creates a task, and returns the process that stands for it. `rootfs` is only told to others. If this fails,
    /// nothing of the task is left, or is being deleted.
    ///
    /// # Errors
    /// There is one of this id already or there are too many, its pod or the VM has ended, or what it needs fails.
    pub async fn create(self: &Arc<Self>, create: Create, rootfs: Vec<Mount>) -> Result<u32> {
        let turn = self.begin(&create)?;
        let (pid, holder, outputs) = match self.make(&create).await {
            Ok(made) => made,
            Err(Unmade { error, is_pod_left: false }) => {
                self.forget(&create);
                return Err(error);
            }
            Err(Unmade { error, is_pod_left: true }) => {
                let tasks = self.clone();
                tokio::spawn(async move {
                    let _turn = turn;
                    tasks.delete_left_pod(&create.id).await;
                    tasks.forget(&create);
                });
                return Err(error);
            }
        };
        let mut table = self.table();
        if table.vm_end.is_some() {
            let error = table.vm_error();
            drop(table);
            self.forget(&create);
            return Err(error);
        }
        let task = table.tasks.get_mut(&create.id).expect("whoever creates a task has its turn");
        task.phase = Phase::Created;
        task.pid = pid;
        task.holder = holder;
        task.outputs = Some(outputs);
        let io = TaskIO {
            stdin: create.streams.stdin,
            stdout: create.streams.stdout,
            stderr: create.streams.stderr,
            ..Default::default()
        };
        self.events.push(&Event::Create(TaskCreate {
            container_id: create.id.to_string(),
            bundle: create.bundle.display().to_string(),
            rootfs,
            io: MessageField::some(io),
            pid,
            ..Default::default()
        }));
        Ok(pid)
    }

    /// Starts a task that was created, and returns the process that stands for it.
    ///
    /// # Errors
    /// It is not there, was started already, has ended, or cannot be started; then it is as it was.
    pub async fn start(self: &Arc<Self>, id: &Id) -> Result<u32> {
        let _turn = self.turn(id).await?;
        let kind = self.table().may_start(id)?;
        let output = match &kind {
            Kind::Pod => None,
            Kind::Container(_) | Kind::Single => Some(self.of_vm(self.vm.start(id)).await?),
        };
        let (pid, outputs) = match self.mark_running(id) {
            Ok(running) => running,
            // It has ended in the meantime, with its pod or the VM. Nobody may find it gone and its process there.
            Err(error) => {
                if output.is_some() {
                    self.end_process(id).await;
                }
                return Err(error);
            }
        };
        if let Some(output) = output {
            tokio::spawn(self.clone().run(id.clone(), output, outputs));
        }
        Ok(pid)
    }

    /// Marks a task as running, unless it has ended; returns the process that stands for it, and where its output goes.
    fn mark_running(&self, id: &Id) -> Result<(u32, Outputs)> {
        let mut table = self.table();
        table.may_start(id)?;
        let task = table.tasks.get_mut(id).ok_or_else(|| not_found(id))?;
        task.phase = Phase::Running;
        let (pid, outputs) = (task.pid, task.outputs.take().unwrap_or_default());
        let start = TaskStart { container_id: id.to_string(), pid, ..Default::default() };
        self.events.push(&Event::Start(start));
        Ok((pid, outputs))
    }

    /// Kills a process until it has ended.
    async fn end_process(&self, id: &Id) {
        let kill = async {
            loop {
                // It may have ended by itself, or the VM be busy.
                let _ = self.of_vm(self.vm.signal(id, Signal::KILL, true)).await;
                sleep(KILL_INTERVAL).await;
            }
        };
        tokio::select! {
            _ = self.of_vm(self.vm.wait(id)) => {}
            () = kill => {}
        }
    }

    /// Sends a signal to a task; without a process of its own it ends, if the signal does that.
    ///
    /// # Errors
    /// It is not there or has ended, or the signal cannot be sent.
    pub async fn kill(self: &Arc<Self>, id: &Id, signal: Signal, all: bool) -> Result<()> {
        let _turn = self.turn(id).await?;
        let has_process = {
            let table = self.table();
            let task = table.created(id)?;
            if task.phase == Phase::Stopped {
                // containerd takes this for what it is.
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format_args!("the process of {id} has ended already"),
                ));
            }
            task.phase == Phase::Running && task.kind != Kind::Pod
        };
        if has_process {
            return self.of_vm(self.vm.signal(id, signal, all)).await;
        }
        if signal.ends_by_default() {
            self.finish(id, Ended { status: signal.status(), out_of_memory: false });
        }
        Ok(())
    }

    /// Deletes a task that does not run, and returns its process and how it has ended.
    ///
    /// # Errors
    /// It is not there, runs, has containers, or cannot be deleted; then it is still there.
    pub async fn delete(self: &Arc<Self>, id: &Id) -> Result<(u32, Exit)> {
        let _turn = self.turn(id).await?;
        let kind = {
            let table = self.table();
            let task = table.created(id)?;
            if task.phase == Phase::Running {
                return Err(Error::state(format_args!("task {id} runs: kill it first")));
            }
            if let Some(container) = table.containers_of(id).first() {
                return Err(Error::state(format_args!(
                    "pod {id} has containers: delete {container} first"
                )));
            }
            task.kind.clone()
        };
        // One that was never started.
        self.finish(id, Ended { status: Signal::KILL.status(), out_of_memory: false });
        if let Err(error) = self.of_vm(self.unmake(id, &kind)).await
            && self.table().vm_end.is_none()
        {
            return Err(error);
        }
        let mut table = self.table();
        let task = table.tasks.remove(id).ok_or_else(|| not_found(id))?;
        let exit = task.exit.borrow().clone().expect("it has ended");
        self.events.push(&Event::Delete(TaskDelete {
            container_id: id.to_string(),
            pid: task.pid,
            exit_status: exit.status.into(),
            exited_at: MessageField::some(exit.at.clone()),
            ..Default::default()
        }));
        drop(table);
        if !matches!(kind, Kind::Container(_)) {
            self.host.release(id);
        }
        Ok((task.pid, exit))
    }

    /// What a task uses now.
    ///
    /// # Errors
    /// It is not there or does not run, or its VM does not say.
    pub async fn usage(&self, id: &Id) -> Result<Usage> {
        self.running(id)?;
        self.of_vm(self.vm.usage(id)).await
    }

    /// Changes the limits of a container.
    ///
    /// # Errors
    /// It is not there or does not run, or cannot have these limits.
    pub async fn update(&self, id: &Id, limits: Limits) -> Result<()> {
        self.running(id)?;
        self.of_vm(self.vm.update(id, limits)).await
    }

    fn running(&self, id: &Id) -> Result<()> {
        match self.table().created(id)?.phase {
            Phase::Running => Ok(()),
            _ => Err(Error::state(format_args!("task {id} does not run"))),
        }
    }

    /// Enters a task into the table, so that there is no other of its id from now on.
    fn begin(&self, create: &Create) -> Result<OwnedMutexGuard<()>> {
        let id = &create.id;
        let mut table = self.table();
        if table.vm_end.is_some() {
            return Err(table.vm_error());
        }
        if table.tasks.contains_key(id) {
            return Err(Error::new(
                ErrorKind::Exists,
                format_args!("there is a task {id} already"),
            ));
        }
        if table.tasks.len() >= MAX_TASKS {
            return Err(Error::new(
                ErrorKind::Full,
                format_args!("the VM has {MAX_TASKS} tasks already"),
            ));
        }
        let kind = match &create.what {
            What::Pod(_) => Kind::Pod,
            What::Single(..) => Kind::Single,
            What::Container(pod, _) => {
                table.check_pod(pod)?;
                Kind::Container(pod.clone())
            }
        };
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        let taken = turn.clone().try_lock_owned().expect("nobody else has it yet");
        let task = Task {
            kind,
            bundle: create.bundle.clone(),
            streams: create.streams.clone(),
            pid: 0,
            phase: Phase::Creating,
            turn,
            exit: watch::channel(None).0,
            holder: None,
            outputs: None,
        };
        table.tasks.insert(id.clone(), task);
        Ok(taken)
    }

    /// Removes a task that was not created from the table.
    fn forget(&self, create: &Create) {
        if !matches!(create.what, What::Container(..)) {
            self.host.release(&create.id);
        }
        self.table().tasks.remove(&create.id);
    }

    /// Waits until nobody else moves a task on.
    async fn turn(&self, id: &Id) -> Result<OwnedMutexGuard<()>> {
        let turn = self.table().tasks.get(id).ok_or_else(|| not_found(id))?.turn.clone();
        Ok(turn.lock_owned().await)
    }
}

impl super::Table {
    /// Whether a task may be started, and what it is.
    fn may_start(&self, id: &Id) -> Result<Kind> {
        if self.vm_end.is_some() {
            return Err(self.vm_error());
        }
        let task = self.created(id)?;
        if let Kind::Container(pod) = &task.kind {
            self.check_pod(pod)?;
        }
        match task.phase {
            Phase::Created => Ok(task.kind.clone()),
            Phase::Running => Err(Error::state(format_args!("task {id} runs already"))),
            Phase::Creating | Phase::Stopped => {
                Err(Error::state(format_args!("task {id} has ended")))
            }
        }
    }
}
