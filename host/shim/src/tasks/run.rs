//! While a process runs: its streams, and its end.

use super::{Tasks, VM_ENDED, task::Outputs};
use crate::{
    Name,
    error::Result,
    fifo::{self, GUEST_LIMIT, STALL_LIMIT},
    vm::{Ended, Output},
};
use std::{sync::Arc, time::Duration};
use tokio::{net::unix::pipe, sync::watch, task::JoinSet, time::timeout};

/// How long the processes that were added to a container may take to end after it: how they have ended is told first.
const ADDED_LIMIT: Duration = Duration::from_secs(2);

impl Tasks {
    /// Copies what a process reads and writes, and marks it as ended when it has ended and all output is written.
    pub(super) async fn run(
        self: Arc<Self>,
        name: Name,
        output: Output,
        input: Option<pipe::Receiver>,
        outputs: Outputs,
    ) {
        let (tell, has_ended) = watch::channel(false);
        let mut inputs = JoinSet::new();
        if let Some(stdin) = input {
            let (tasks, name) = (self.clone(), name.clone());
            inputs.spawn(async move {
                let sent = tasks.of_vm(tasks.vm.input(&name, Box::new(stdin))).await;
                if let Err(error) = sent {
                    tracing::warn!("{name}: the rest of the input is lost: {error}");
                }
            });
        }
        // What an added process has started may live on, with its output open.
        let limit = if name.added.is_some() { STALL_LIMIT } else { GUEST_LIMIT };
        let mut copies = JoinSet::new();
        copies.spawn(fifo::copy(output.stdout, outputs.stdout, has_ended.clone(), limit));
        copies.spawn(fifo::copy(output.stderr, outputs.stderr, has_ended, limit));
        let ended = self.of_vm(self.vm.wait(&name)).await.unwrap_or_else(|error| {
            tracing::error!("how {name} has ended is not known: {error}");
            Ended { status: VM_ENDED, out_of_memory: false }
        });
        drop(inputs);
        tell.send_replace(true);
        let all = async {
            while copies.join_next().await.is_some() {}
            Ok(())
        };
        // With the VM, nothing more can come.
        let _ = self.of_vm(all).await;
        drop(copies);
        let _ = timeout(ADDED_LIMIT, self.of_vm(self.until_added_have_ended(&name))).await;
        self.finish(&name, ended);
    }

    /// Waits until all that was added to a container has ended.
    async fn until_added_have_ended(&self, container: &Name) -> Result<()> {
        let added = self.table().added_to(container);
        for name in added {
            // One that is not there any more, or was never started, is not waited for.
            let runs = self.snapshot(&name).is_ok_and(|added| added.phase.has_process());
            if runs {
                let _ = self.wait(&name).await;
            }
        }
        Ok(())
    }
}
