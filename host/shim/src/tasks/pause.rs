//! Pausing containers: their processes do not run until they are resumed.
//!
//! A container that is paused can be killed, and only then deleted. Nothing is started in it: what is on its way has
//! started before, and what comes later is refused.

use super::{
    Phase, Table, Tasks, not_found,
    task::{Kind, Task},
};
use crate::{
    Name,
    error::{Error, Result},
    events::Event,
};
use containerd_shim_protos::events::task::{TaskPaused, TaskResumed};

impl Tasks {
    /// Pauses a container, with all that was added to it.
    ///
    /// # Errors
    /// It is not there, does not run or is paused, or the VM cannot; then it runs as before.
    pub async fn pause(&self, name: &Name) -> Result<()> {
        let _use = self.begin_use(name).await?;
        let _turn = self.turn(name).await?;
        let added = {
            let mut table = self.table();
            table.container(name, Phase::Running)?.phase = Phase::Pausing;
            table.added_to(name)
        };
        for added in &added {
            // Whoever starts it has done so then: it must not be frozen half way.
            drop(self.turn(added).await);
        }
        let paused = self.of_vm(self.vm.pause(&name.task)).await;
        let mut table = self.table();
        // It may have ended in the meantime.
        let task = table.container(name, Phase::Pausing)?;
        task.phase = if paused.is_ok() { Phase::Paused } else { Phase::Running };
        paused?;
        self.events.push(&Event::Paused(TaskPaused {
            container_id: name.task.to_string(),
            ..Default::default()
        }));
        Ok(())
    }

    /// Resumes a container that is paused.
    ///
    /// # Errors
    /// It is not there or not paused, or the VM cannot; then it is paused as before.
    pub async fn resume(&self, name: &Name) -> Result<()> {
        let _use = self.begin_use(name).await?;
        let _turn = self.turn(name).await?;
        self.table().container(name, Phase::Paused)?;
        self.of_vm(self.vm.resume(&name.task)).await?;
        let mut table = self.table();
        table.container(name, Phase::Paused)?.phase = Phase::Running;
        self.events.push(&Event::Resumed(TaskResumed {
            container_id: name.task.to_string(),
            ..Default::default()
        }));
        Ok(())
    }
}

impl Table {
    /// A container that is in this phase.
    fn container(&mut self, name: &Name, phase: Phase) -> Result<&mut Task> {
        let task = self.tasks.get_mut(name).filter(|task| task.phase != Phase::Creating);
        let task = task.ok_or_else(|| not_found(name))?;
        if task.kind == Kind::Pod {
            return Err(Error::state(format_args!(
                "pod {name} has no process of its own: its containers can be paused"
            )));
        }
        if task.phase == phase {
            return Ok(task);
        }
        let how = match task.phase {
            Phase::Creating | Phase::Created => "does not run yet",
            Phase::Running => "is not paused",
            Phase::Pausing | Phase::Paused => "is paused already",
            Phase::Stopped => "has ended",
        };
        Err(Error::state(format_args!("task {name} {how}")))
    }

    /// How far a task is to whoever asks: what was added to a container that is paused does not run either.
    pub(super) fn phase(&self, name: &Name, task: &Task) -> Phase {
        let container = self.tasks.get(&name.task.clone().into());
        match container.map(|container| container.phase) {
            Some(phase @ (Phase::Pausing | Phase::Paused)) if task.phase == Phase::Running => phase,
            _ => task.phase,
        }
    }
}
