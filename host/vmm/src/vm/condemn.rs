//! Discards the memory of instances that are not to live on, while the VM is paused.

use super::{
    Shared, Vm,
    pause::{Turn, to_its_end},
};
use crate::{AgentClient, Result, VmError, host_memory::MemoryPiece};
use futures_util::future::join_all;
use squeezy_protocol::{ErrorCode, Instance, InstanceId, InstanceState, PartitionNumber};
use std::{collections::BTreeSet, time::Duration};

impl Vm {
    /// Gives all memory of a partition back to the host, with the instance that lives in it: [`Vm::resume`]
    /// has it killed. Returns how many bytes of host memory that were.
    ///
    /// Only while the VM is paused, and only if the instance was doomed before ([`AgentClient::doom`]): the guest's
    /// kernel then sees to it that nobody reads the memory that is gone. Needs
    /// [`Llfree`](crate::Llfree), because that is how the kernel tells. The partition's number comes from the guest, so
    /// it may be invalid.
    pub async fn condemn(&self, partition: PartitionNumber) -> Result<u64> {
        // Whoever resumes it must be able to end instances.
        self.agent()?;
        let memory = self.partition_memory(partition)?;
        let shared = self.shared.clone();
        let condemn = move |turn| async move { shared.condemn(turn, partition, memory).await };
        to_its_end(&self.shared.condemned, condemn).await
    }
}

impl Shared {
    /// The VM is neither paused nor resumed meanwhile.
    async fn condemn(
        &self,
        mut condemned: Turn,
        partition: PartitionNumber,
        memory: MemoryPiece,
    ) -> Result<u64> {
        let refuse = |why| VmError::NotCondemned { partition, why };
        if !*self.paused.borrow() {
            return Err(refuse("its VM is not paused"));
        }
        let Some(reclaimer) = self.reclaimer.get().cloned() else {
            return Err(refuse(
                "the VM was started without `llfree`, which needs the memory backend `memfd`",
            ));
        };
        let work = self.work(move || reclaimer.condemn(&memory));
        let discarded = self.fate.guard(async {
            // What fails may have discarded a part.
            condemned.insert(partition);
            work.await
        });
        match discarded.await? {
            Some(bytes) => {
                tracing::debug!(vm = self.config.name, %partition, bytes, "condemned");
                Ok(bytes)
            }
            None => {
                condemned.remove(&partition);
                Err(refuse("it is not doomed"))
            }
        }
    }
}

/// The instances of a VM that runs again in partitions whose memory has gone.
pub(super) async fn condemned_instances(
    agent: &AgentClient,
    condemned: BTreeSet<PartitionNumber>,
) -> Result<Vec<InstanceId>> {
    if condemned.is_empty() {
        return Ok(Vec::new());
    }
    let is_condemned = |instance: &Instance| {
        let ended = matches!(instance.state, InstanceState::Ended(_));
        !ended && instance.partition.is_some_and(|partition| condemned.contains(&partition))
    };
    let instances = agent.instances().await?;
    Ok(instances.into_iter().filter(is_condemned).map(|instance| instance.id).collect())
}

/// Ends them, all at once.
pub(super) async fn end_condemned(agent: AgentClient, condemned: Vec<InstanceId>) {
    let ends = condemned.iter().map(async |id| {
        match agent.stop(id, Duration::ZERO).await {
            // Somebody else has ended it.
            Ok(_) | Err(VmError::Agent { code: ErrorCode::NotFound, .. }) => {}
            Err(error) => tracing::warn!(%id, %error, "a condemned instance"),
        }
    });
    join_all(ends).await;
}
