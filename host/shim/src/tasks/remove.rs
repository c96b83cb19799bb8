//! Removal of what containerd has given up on.

use super::Tasks;
use crate::{Name, error::ErrorKind, vm::Signal};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// How long a task may take to end before it is killed again.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait before a task that is left is to be removed again.
const REMOVE_INTERVAL: Duration = Duration::from_secs(1);

impl Tasks {
    /// Kills and deletes a task, whatever it does, and the containers of a pod with it. Returns when it is gone. One that is
    /// being created is so to its end first; of one that never came, the place is given back.
    pub async fn remove(self: &Arc<Self>, name: &Name) {
        if !self.table().tasks.contains_key(name) {
            self.release(&name.task).await;
            return;
        }
        // A pod that has ended takes no more containers.
        let _ = self.kill(name, Signal::KILL, true).await;
        let containers = self.table().containers_of(&name.task);
        for container in containers {
            self.remove_alone(&container).await;
        }
        self.remove_alone(name).await;
    }

    async fn remove_alone(self: &Arc<Self>, name: &Name) {
        loop {
            // It may have ended, or the VM be busy.
            let _ = self.kill(name, Signal::KILL, true).await;
            let _ = timeout(END_LIMIT, self.wait(name)).await;
            match self.delete(name).await {
                Err(error) if error.kind != ErrorKind::NotFound => {
                    tracing::error!("{name} is nobody's and cannot be removed: {error}");
                    sleep(REMOVE_INTERVAL).await;
                }
                _ => return,
            }
        }
    }
}
