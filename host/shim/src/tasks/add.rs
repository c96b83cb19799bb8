//! Processes that are added to containers.

use super::{
    MAX_ADDED, MAX_TASKS, Phase, Streams, Table, Tasks, not_found,
    task::{Kind, Outputs, Task},
};
use crate::{
    Id, Name,
    error::{Error, ErrorKind, Result},
    events::Event,
    spec::Process,
    vm::Added,
};
use containerd_shim_protos::events::task::TaskExecAdded;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

impl Tasks {
    /// Adds a process to a container that runs, without starting it. If this fails, nothing of it is left.
    ///
    /// # Errors
    /// There is one of this name already or there are too many, in its pod or in the VM, the container does not run, or the
    /// streams cannot be opened.
    pub async fn add(&self, name: &Name, process: Process, streams: Streams) -> Result<()> {
        let has_input = !streams.stdin.is_empty();
        let _turn = {
            let mut table = self.table();
            let container = table.check_container(&name.task)?;
            table.check_pod_takes_process(&name.task, &container.kind)?;
            let (pid, bundle) = (container.pid, container.bundle.clone());
            let added = Arc::new(Added { process, has_input });
            let kind = Kind::Added(added.clone());
            let task = Task::new(kind, bundle, streams.clone(), Some(&added.process));
            let task = Task { pid, ..task };
            table.enter(name, task)?
        };
        let opened = Outputs::open(&streams).await;
        let mut table = self.table();
        // It may have ended while the streams were opened.
        let ready = match opened {
            Ok(outputs) => table.check_container(&name.task).map(|_| outputs),
            Err(error) => Err(error),
        };
        let outputs = ready.inspect_err(|_| {
            table.tasks.remove(name);
        })?;
        let task = table.tasks.get_mut(name).ok_or_else(|| not_found(name))?;
        task.phase = Phase::Created;
        task.outputs = Some(outputs);
        self.events.push(&Event::ExecAdded(TaskExecAdded {
            container_id: name.task.to_string(),
            exec_id: name.added.as_ref().map(ToString::to_string).unwrap_or_default(),
            ..Default::default()
        }));
        Ok(())
    }
}

impl Table {
    /// Whether one more process may be added in the pod of this container.
    fn check_pod_takes_process(&self, container: &Id, kind: &Kind) -> Result<()> {
        let containers = match kind {
            Kind::Container(pod) => self.containers_of(pod),
            _ => vec![container.clone().into()],
        };
        let counts = |(name, task): &(&Name, &Task)| {
            name.added.is_some()
                && task.phase != Phase::Stopped
                && containers.iter().any(|container| container.task == name.task)
        };
        if self.tasks.iter().filter(counts).count() >= MAX_ADDED {
            return Err(Error::new(
                ErrorKind::Full,
                format_args!(
                    "{MAX_ADDED} processes that were added to the pod's containers, as by `exec` and probes, run already, \
                     and a pod has no more: end one of them first"
                ),
            ));
        }
        Ok(())
    }

    /// Enters a task, or a process that is added to one, so that there is no other of its name from now on. Whoever has
    /// what this returns has its turn.
    pub(super) fn enter(&mut self, name: &Name, task: Task) -> Result<OwnedMutexGuard<()>> {
        if self.vm_end.is_some() {
            return Err(self.vm_error());
        }
        if self.tasks.contains_key(name) {
            return Err(Error::new(
                ErrorKind::Exists,
                format_args!("there is a task {name} already"),
            ));
        }
        if self.tasks.len() >= MAX_TASKS {
            return Err(Error::new(
                ErrorKind::Full,
                format_args!("the VM has {MAX_TASKS} tasks already"),
            ));
        }
        let turn = task.turn.clone().try_lock_owned().expect("nobody else has it yet");
        self.tasks.insert(name.clone(), task);
        Ok(turn)
    }
}
