//! The calls that move a task on.

use super::{
    Create, Exit, Phase, Table, Tasks, What,
    make::Unmade,
    not_found,
    task::{Kind, Outputs, Task},
};
use crate::{
    Name,
    error::{Error, ErrorKind, Result},
    events::Event,
    fifo::InputFifo,
    host::Holder,
    spec::Limits,
    vm::{Ended, Listed, Signal, Use},
};
use containerd_shim_protos::{
    api::Mount,
    events::task::{TaskCreate, TaskDelete, TaskExecStarted, TaskIO, TaskStart},
    protobuf::MessageField,
};
use squeezy_protocol::TerminalSize;
use std::{sync::Arc, time::Duration};
use tokio::{net::unix::pipe, sync::OwnedMutexGuard, time::sleep};

/// How long to wait before a process that nobody wants any more is killed again.
const KILL_INTERVAL: Duration = Duration::from_secs(1);

impl Tasks {
    /// Creates a task, and returns the process that stands for it. `rootfs` is only told to others. If this fails,
    /// nothing of the task is left, or is being deleted. If the VM has no room for its pod beside others, that has ended.
    ///
    /// # Errors
    /// There is one of this id already or there are too many, its pod or the VM has ended, or what it needs fails.
    pub async fn create(self: &Arc<Self>, create: Create, rootfs: Vec<Mount>) -> Result<u32> {
        let turn = self.begin(&create)?;
        let made = self.make(&create).await;
        if matches!(&made, Err(Unmade { error, .. }) if error.kind == ErrorKind::Crowded) {
            self.leave_to_others(&create).await;
        }
        let (pid, holder, outputs) = match made {
            Ok(made) => made,
            Err(Unmade { error, is_pod_left: false }) => {
                self.forget(&create).await;
                return Err(error);
            }
            Err(Unmade { error, is_pod_left: true }) => {
                let tasks = self.clone();
                tokio::spawn(async move {
                    let _turn = turn;
                    tasks.delete_left_pod(&create.id).await;
                    tasks.forget(&create).await;
                });
                return Err(error);
            }
        };
        let created = self.mark_created(&create, pid, holder, outputs, rootfs);
        if created.is_err() {
            self.forget(&create).await;
        }
        created.map(|()| pid)
    }

    /// A task has what it consists of, unless its VM has ended meanwhile.
    fn mark_created(
        &self,
        create: &Create,
        pid: u32,
        holder: Option<Holder>,
        outputs: Outputs,
        rootfs: Vec<Mount>,
    ) -> Result<()> {
        let mut table = self.table();
        if table.vm_end.is_some() {
            return Err(table.vm_error());
        }
        let name = create.id.clone().into();
        let task = table.tasks.get_mut(&name).expect("whoever creates a task has its turn");
        task.phase = Phase::Created;
        task.pid = pid;
        task.holder = holder;
        task.outputs = Some(outputs);
        let io = TaskIO {
            stdin: create.streams.stdin.clone(),
            stdout: create.streams.stdout.clone(),
            stderr: create.streams.stderr.clone(),
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
        Ok(())
    }

    /// Starts a task or an added process that was created, and returns the process that stands for it.
    ///
    /// # Errors
    /// It is not there, was started already, has ended, also while its pod was being thawed, or cannot be started; then it
    /// is as it was, but an added process has no streams any more.
    pub async fn start(self: &Arc<Self>, name: &Name) -> Result<u32> {
        // Nothing is thawed for what is refused anyway.
        self.table().may_start(name)?;
        let begun = self.begin_use(name).await;
        let _turn = self.turn(name).await?;
        // It may have been started, paused or killed meanwhile.
        let kind = self.table().may_start(name)?;
        let one_use = begun.inspect_err(|_| self.close_streams(name))?;
        let input = if kind == Kind::Pod { None } else { self.open_input(name)? };
        let output = match &kind {
            Kind::Pod => None,
            Kind::Container(_) | Kind::Single => {
                Some(self.of_vm(self.vm.start(&name.task, one_use)).await?)
            }
            Kind::Added(added) => {
                let started = self.of_vm(self.vm.add(name, added, one_use)).await;
                Some(started.inspect_err(|_| self.close_streams(name))?)
            }
        };
        let (pid, outputs) = match self.mark_running(name) {
            Ok(running) => running,
            // It has ended in the meantime, with what it belongs to. Nobody may find it gone and its process there.
            Err(error) => {
                if output.is_some() {
                    self.end_process(name).await;
                }
                return Err(error);
            }
        };
        if let Some(output) = output {
            tokio::spawn(self.clone().run(name.clone(), output, input, outputs));
        }
        Ok(pid)
    }

    /// Closes the streams of an added process that could not be started: containerd reads to the end before it says
    /// why.
    fn close_streams(&self, name: &Name) {
        if name.added.is_some()
            && let Some(task) = self.table().tasks.get_mut(name)
        {
            task.outputs = None;
            task.input = None;
        }
    }

    /// Opens the standard input. Not earlier than at the start: `ctr` tells of the end of what it passes on only if that
    /// comes after the answer to the call before.
    fn open_input(&self, name: &Name) -> Result<Option<pipe::Receiver>> {
        let mut table = self.table();
        let task = table.tasks.get_mut(name).ok_or_else(|| not_found(name))?;
        let Some(InputFifo { reader, keep }) = InputFifo::open(&task.streams.stdin)? else {
            return Ok(None);
        };
        task.input = (!task.is_input_closed).then_some(keep);
        Ok(Some(reader))
    }

    /// Marks it as running, unless it has ended; returns the process that stands for it, and where its output goes.
    fn mark_running(&self, name: &Name) -> Result<(u32, Outputs)> {
        let mut table = self.table();
        table.waits(name)?;
        let task = table.tasks.get_mut(name).ok_or_else(|| not_found(name))?;
        task.phase = Phase::Running;
        let (pid, outputs) = (task.pid, task.outputs.take().unwrap_or_default());
        let container_id = name.task.to_string();
        self.events.push(&match &name.added {
            None => Event::Start(TaskStart { container_id, pid, ..Default::default() }),
            Some(added) => Event::ExecStarted(TaskExecStarted {
                container_id,
                exec_id: added.to_string(),
                pid,
                ..Default::default()
            }),
        });
        Ok((pid, outputs))
    }

    /// Kills a process until it has ended.
    async fn end_process(&self, name: &Name) {
        let kill = async {
            loop {
                // It may have ended by itself, or the VM be busy.
                let _ = self.of_vm(self.vm.signal(name, Signal::KILL, true)).await;
                sleep(KILL_INTERVAL).await;
            }
        };
        tokio::select! {
            _ = self.of_vm(self.vm.wait(name)) => {}
            () = kill => {}
        }
    }

    /// Kills a container, however often that has to be tried.
    pub(super) async fn kill_at_last(self: &Arc<Self>, name: &Name) {
        // The VM may be busy.
        while let Err(error) = self.kill(name, Signal::KILL, true).await
            && error.kind != ErrorKind::NotFound
        {
            sleep(KILL_INTERVAL).await;
        }
    }

    /// Sends a signal to a task or an added process; without a process of its own it ends, if the signal does that.
    ///
    /// # Errors
    /// It is not there or has ended, or the signal cannot be sent.
    pub async fn kill(self: &Arc<Self>, name: &Name, signal: Signal, all: bool) -> Result<()> {
        let _turn = self.turn(name).await?;
        let has_process = {
            let table = self.table();
            let task = table.created(name)?;
            if task.phase == Phase::Stopped {
                // containerd takes this for what it is.
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format_args!("the process of {name} has ended already"),
                ));
            }
            task.phase.has_process() && task.kind != Kind::Pod
        };
        if has_process {
            return self.of_vm(self.vm.signal(name, signal, all)).await;
        }
        if signal.ends_by_default() {
            self.finish(name, Ended { status: signal.status(), out_of_memory: false });
        }
        Ok(())
    }

    /// Deletes a task or an added process that does not run, and returns its process and how it has ended. What was added
    /// to a task goes with it.
    ///
    /// # Errors
    /// It is not there, runs, has containers, or cannot be deleted; then it is still there.
    pub async fn delete(self: &Arc<Self>, name: &Name) -> Result<(u32, Exit)> {
        let _turn = self.turn(name).await?;
        let (kind, added) = {
            let table = self.table();
            let task = table.created(name)?;
            if task.phase.has_process() {
                return Err(Error::state(format_args!("task {name} runs: kill it first")));
            }
            if task.kind == Kind::Pod
                && let Some(container) = table.containers_of(&name.task).first()
            {
                return Err(Error::state(format_args!(
                    "pod {name} has containers: delete {container} first"
                )));
            }
            (task.kind.clone(), table.added_to(name))
        };
        // One that was never started.
        self.finish(name, Ended { status: Signal::KILL.status(), out_of_memory: false });
        for added in &added {
            // Whoever moves it on has done so then, and finds that its container has ended.
            drop(self.turn(added).await);
        }
        if let Err(error) = self.of_vm(self.unmake(&name.task, &kind)).await
            && self.table().vm_end.is_none()
        {
            return Err(error);
        }
        let ended = self.remove_ended(name)?;
        match kind {
            Kind::Pod | Kind::Single => self.release(&name.task).await,
            Kind::Container(pod) => self.begin_end_of_pod(pod.into()),
            Kind::Added(_) => {}
        }
        Ok(ended)
    }

    /// Removes a task that has ended, with the processes that were added to it. Returns what it was and how it ended.
    fn remove_ended(&self, name: &Name) -> Result<(u32, Exit)> {
        let mut table = self.table();
        let task = table.tasks.remove(name).ok_or_else(|| not_found(name))?;
        for added in table.added_to(name) {
            table.tasks.remove(&added);
        }
        let exit = task.exit.borrow().clone().expect("it has ended");
        // Of an added process, containerd is told nothing.
        if name.added.is_none() {
            self.events.push(&Event::Delete(TaskDelete {
                container_id: name.to_string(),
                pid: task.pid,
                exit_status: exit.status.into(),
                exited_at: MessageField::some(exit.at.clone()),
                ..Default::default()
            }));
        }
        Ok((task.pid, exit))
    }

    /// The processes of a task: of a pod, and of a container that does not run yet, the one that stands for it on the
    /// host; of a container that runs, those in its VM.
    ///
    /// # Errors
    /// It is not there, or its VM does not say.
    pub async fn processes(&self, name: &Name) -> Result<Vec<Listed>> {
        {
            let table = self.table();
            let task = table.created(name)?;
            if task.kind == Kind::Pod || task.phase == Phase::Created {
                return Ok(vec![Listed { pid: task.pid, added: None }]);
            }
            if !task.phase.has_process() {
                return Ok(Vec::new());
            }
        }
        self.of_vm(self.vm.processes(&name.task)).await
    }

    /// Changes the limits of a container. One that does not run yet has them when it starts.
    ///
    /// # Errors
    /// It is not there or has ended, or cannot have these limits.
    pub async fn update(&self, name: &Name, limits: Limits) -> Result<()> {
        // Whoever starts it does so with those from before, and has done so then.
        let _turn = self.turn(name).await?;
        if self.table().created(name)?.phase == Phase::Stopped {
            return Err(Error::state(format_args!("task {name} has ended")));
        }
        self.of_vm(self.vm.update(&name.task, limits)).await
    }

    /// Sets the size of a process's terminal.
    ///
    /// # Errors
    /// It is not there or does not run, or has no terminal.
    pub async fn resize(&self, name: &Name, size: TerminalSize) -> Result<()> {
        self.running(name)?;
        if !self.snapshot(name)?.has_terminal {
            return Err(Error::invalid(format_args!("{name} has no terminal")));
        }
        let _use = self.begin_use(name).await?;
        self.of_vm(self.vm.resize(name, size)).await
    }

    pub(super) fn running(&self, name: &Name) -> Result<()> {
        if self.table().created(name)?.phase.has_process() {
            return Ok(());
        }
        Err(Error::state(format_args!("task {name} does not run")))
    }

    /// Enters a task into the table.
    fn begin(&self, create: &Create) -> Result<OwnedMutexGuard<()>> {
        let mut table = self.table();
        let kind = match &create.what {
            What::Pod(_) => Kind::Pod,
            What::Single(..) => Kind::Single,
            What::Container(pod, _) => {
                table.check_pod(pod)?;
                Kind::Container(pod.clone())
            }
        };
        let process = match &create.what {
            What::Pod(_) => None,
            What::Single(_, parts) | What::Container(_, parts) => Some(&parts.spec.process),
        };
        let task = Task::new(kind, create.bundle.clone(), create.streams.clone(), process);
        table.enter(&create.id.clone().into(), task)
    }

    /// Removes a task that was not created from the table.
    async fn forget(&self, create: &Create) {
        if !matches!(create.what, What::Container(..)) {
            self.release(&create.id).await;
        }
        self.table().tasks.remove(&create.id.clone().into());
    }

    /// Lets the pod of a task or an added process run, and keeps it from being frozen as long as there is what this
    /// returns. Nobody has its turn for this, which may take seconds: it can be killed and deleted meanwhile.
    ///
    /// # Errors
    /// It is not there, ends before the pod runs, or the pod cannot be thawed for some time.
    pub(super) async fn begin_use(&self, name: &Name) -> Result<Use> {
        // What is still being created has no pod yet that could be used.
        let mut exit = self.table().created(name)?.exit.subscribe();
        let ends = async {
            let _ = exit.wait_for(Option::is_some).await;
        };
        tokio::select! {
            biased;
            () = ends => Err(self.table().has_ended(name)),
            begun = self.of_vm(self.vm.begin_use(&name.task)) => begun,
        }
    }

    /// Waits until nobody else moves it on.
    pub(super) async fn turn(&self, name: &Name) -> Result<OwnedMutexGuard<()>> {
        let turn = self.table().tasks.get(name).ok_or_else(|| not_found(name))?.turn.clone();
        Ok(turn.lock_owned().await)
    }
}

impl Table {
    /// Whether it may be started, and what it is.
    fn may_start(&self, name: &Name) -> Result<Kind> {
        let kind = self.waits(name)?;
        if let Kind::Added(_) = kind {
            self.check_container(&name.task)?;
        }
        Ok(kind)
    }

    /// Whether it waits for its start, and what it is. An added process that is on its way gets there
    /// before its container is paused.
    fn waits(&self, name: &Name) -> Result<Kind> {
        if self.vm_end.is_some() {
            return Err(self.vm_error());
        }
        let task = self.created(name)?;
        if let Kind::Container(pod) = &task.kind {
            self.check_pod(pod)?;
        }
        match task.phase {
            Phase::Created => Ok(task.kind.clone()),
            Phase::Running | Phase::Pausing | Phase::Paused => {
                Err(Error::state(format_args!("task {name} runs already")))
            }
            Phase::Creating | Phase::Stopped => Err(self.has_ended(name)),
        }
    }
}
