//! While a container runs: its output, and its end.

use super::{Tasks, VM_ENDED, task::Outputs};
use crate::{
    Id, fifo,
    vm::{Ended, Output},
};
use std::sync::Arc;
use tokio::{sync::watch, task::JoinSet};

impl Tasks {
    /// Copies what a container writes, and marks it as ended when its process has ended and all output is written.
    pub(super) async fn run(self: Arc<Self>, id: Id, output: Output, outputs: Outputs) {
        let (tell, has_ended) = watch::channel(false);
        let mut copies = JoinSet::new();
        copies.spawn(fifo::copy(output.stdout, outputs.stdout, has_ended.clone()));
        copies.spawn(fifo::copy(output.stderr, outputs.stderr, has_ended));
        let ended = self.of_vm(self.vm.wait(&id)).await.unwrap_or_else(|error| {
            tracing::error!("how {id} has ended is not known: {error}");
            Ended { status: VM_ENDED, out_of_memory: false }
        });
        tell.send_replace(true);
        let all = async {
            while copies.join_next().await.is_some() {}
            Ok(())
        };
        // With the VM, nothing more can come.
        let _ = self.of_vm(all).await;
        drop(copies);
        self.finish(&id, ended);
    }
}
