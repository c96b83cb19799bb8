//! While a process runs: its streams, and its end.

use super::{Tasks, VM_ENDED, task::Outputs};
use crate::{
    Name,
    error::Result,
    fifo,
    vm::{Ended, Output},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    net::unix::pipe,
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

/// How long all that a container has written may take to come out of the guest, from its end on: what its pipes hold, and
/// what is under way. Everything that it had started has ended, too, so that this is late only where the guest or the host
/// is too busy for anything, or containerd reads slowly. It is not for each piece: a guest with one now and then would keep
/// its pod for ever.
const OUTPUT_LIMIT: Duration = Duration::from_secs(60);
/// The same for a process that was added. What it has started may live on with its output open, and write for ever, and
/// whoever waits for the process waits for this. It is 2 s with runc, of which the process's own output may take more where
/// it comes out of a VM that is emulated on a busy host.
const ADDED_OUTPUT_LIMIT: Duration = Duration::from_secs(10);
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
        let (tell, deadline) = watch::channel(None);
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
        let mut copies = JoinSet::new();
        copies.spawn(fifo::copy(output.stdout, outputs.stdout, deadline.clone()));
        copies.spawn(fifo::copy(output.stderr, outputs.stderr, deadline));
        let ended = self.of_vm(self.vm.wait(&name)).await.unwrap_or_else(|error| {
            tracing::error!("how {name} has ended is not known: {error}");
            Ended { status: VM_ENDED, out_of_memory: false }
        });
        drop(inputs);
        let limit = if name.added.is_some() { ADDED_OUTPUT_LIMIT } else { OUTPUT_LIMIT };
        tell.send_replace(Some(Instant::now() + limit));
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
