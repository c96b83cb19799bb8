//! What a task needs of host and VM.

use super::{
    Create, Parts, Tasks, What,
    task::{Kind, Outputs, Phase, Task},
};
use crate::{
    Id, Name,
    error::{Error, Result},
    host::Holder,
    spec::Pod,
    vm::{Container, Signal},
};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// How long to wait before a pod that is left is to be deleted again.
const DELETE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a call waits until the place of its pod has been given back.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// Why a task was not made.
pub(super) struct Unmade {
    pub(super) error: Error,
    /// Whether its pod is still there: it could not be deleted.
    pub(super) is_pod_left: bool,
}

impl From<Error> for Unmade {
    fn from(error: Error) -> Self {
        Self { error, is_pod_left: false }
    }
}

impl Tasks {
    /// Makes what a task needs.
    pub(super) async fn make(
        &self,
        create: &Create,
    ) -> Result<(u32, Option<Holder>, Outputs), Unmade> {
        let id = &create.id;
        match &create.what {
            What::Pod(pod) => {
                let holder = self.make_pod(id, pod).await?;
                Ok((holder.pid, Some(holder), Outputs::default()))
            }
            What::Container(pod, parts) => {
                let pid = self.table().check_pod(pod)?.pid;
                Ok((pid, None, self.make_container(create, pod, parts).await?))
            }
            What::Single(pod, parts) => {
                let holder = self.make_pod(id, pod).await?;
                match self.make_container(create, id, parts).await {
                    Ok(outputs) => Ok((holder.pid, Some(holder), outputs)),
                    Err(error) => Err(Unmade {
                        error,
                        is_pod_left: self.of_vm(self.vm.delete_pod(id)).await.is_err(),
                    }),
                }
            }
        }
    }

    /// Leaves the VM to its other pods, as there is no room for that of this task beside them: no pod is sent here
    /// before one of them has left, and if this one was created before its container, it ends. kubelet then makes it
    /// anew, in another VM, where it would try for ever to create the container in this one.
    pub(super) async fn leave_to_others(self: &Arc<Self>, create: &Create) {
        let pod = match &create.what {
            What::Container(pod, _) => pod,
            What::Pod(_) | What::Single(..) => &create.id,
        };
        // Before it ends: whoever hears of that looks for a place.
        self.host.clone().limit_to_others(pod.clone()).await;
        if matches!(create.what, What::Container(..)) {
            // It may have ended already.
            let _ = self.kill(&pod.clone().into(), Signal::KILL, true).await;
        }
    }

    /// Has the memory of a pod go back if it has ended and has no containers any more: containerd deletes it in a moment,
    /// but nobody can use it. Nobody waits for it either.
    pub(super) fn begin_end_of_pod(self: &Arc<Self>, name: Name) {
        let tasks = self.clone();
        tokio::spawn(async move { tasks.end_pod(&name).await });
    }

    async fn end_pod(&self, name: &Name) {
        // Whoever deletes it comes before this or after it, and there may be another one of this name then.
        let Ok(_turn) = self.turn(name).await else { return };
        let is_there = {
            let table = self.table();
            let ended = |task: &Task| task.kind == Kind::Pod && task.phase == Phase::Stopped;
            table.tasks.get(name).is_some_and(ended) && table.containers_of(&name.task).is_empty()
        };
        if is_there
            && let Err(error) = self.of_vm(self.vm.end_pod(&name.task)).await
            && self.table().vm_end.is_none()
        {
            tracing::warn!("the memory of {name} goes back when it is deleted: {error}");
        }
    }

    /// Deletes a pod whose task was not created, until that succeeds or there is no VM any more. Its id is not free
    /// before.
    pub(super) async fn delete_left_pod(&self, id: &Id) {
        while let Err(error) = self.of_vm(self.vm.delete_pod(id)).await
            && self.table().vm_end.is_none()
        {
            tracing::error!("pod {id} was not created and cannot be deleted: {error}");
            sleep(DELETE_INTERVAL).await;
        }
    }

    /// Gives back a pod's place. This goes on if it takes longer than the call can wait; until then, no other pod has the
    /// place.
    pub(super) async fn release(&self, pod: &Id) {
        let releasing = tokio::spawn(self.host.clone().release(pod.clone()));
        let _ = timeout(RELEASE_LIMIT, releasing).await;
    }

    async fn make_pod(&self, id: &Id, pod: &Pod) -> Result<Holder> {
        let holder = self.host.hold(pod.network.as_deref()).await?;
        self.of_vm(self.vm.create_pod(id, pod)).await?;
        Ok(holder)
    }

    async fn make_container(&self, create: &Create, pod: &Id, parts: &Parts) -> Result<Outputs> {
        let outputs = Outputs::open(&create.streams).await?;
        let container = Container {
            pod: pod.clone(),
            spec: parts.spec.clone(),
            has_input: !create.streams.stdin.is_empty(),
            layers: parts.layers.clone(),
        };
        self.of_vm(self.vm.create(&create.id, &container)).await?;
        Ok(outputs)
    }

    pub(super) async fn unmake(&self, id: &Id, kind: &Kind) -> Result<()> {
        match kind {
            Kind::Pod => self.vm.delete_pod(id).await,
            Kind::Container(_) => self.vm.delete(id).await,
            Kind::Single => {
                self.vm.delete(id).await?;
                self.vm.delete_pod(id).await
            }
            // It has ended, and nothing is left of it.
            Kind::Added(_) => Ok(()),
        }
    }
}
